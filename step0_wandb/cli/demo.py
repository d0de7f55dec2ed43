"""``step0-wandb demo``: example runs by the real W&B client, and the main job on them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output, tables
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation

if TYPE_CHECKING:
    from step0_wandb.app.sync import SyncResult


@without("settings_file", "store_file", "dry_run", "fail_on")
def demo(
    session: Session,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.")] = Path("step0-demo"),
) -> None:
    """Write example runs with the real W&B client, and sync them.

    Example: step0-wandb demo ./step0-demo
    """
    from step0_wandb.app.sync import Job, run_sync
    from step0_wandb.cli.progress import writing
    from step0_wandb.cli.sync import print_result, sync_document
    from step0_wandb.demo import write_demo
    from step0_wandb.settings.load import load_settings

    with writing(quiet=session.quiet) as progress:
        folder = write_demo(directory, now=session.clock(), progress=progress)
    if folder.replaced and not session.quiet:
        output.tell(f"{directory} held an older demo, which was replaced; its labels are gone")
    loaded = load_settings(directory / "step0.toml", cwd=directory, environ={})
    result = run_sync(Job(loaded, clock=session.clock))
    if session.as_json:
        output.print_json(sync_document(result))
        return
    out = output.console()
    if not session.quiet:
        out.print(tables.table(tables.RUNS, result.changed, out.width))
        out.print()
    print_result(result, session)
    out.print(_next(directory, result), soft_wrap=True)


def _next(directory: Path, result: SyncResult) -> str:
    """Return what to type next; with the program's path where the shell would not find it."""
    program = Path(sys.argv[0])
    if program.name != "step0-wandb" or shutil.which("step0-wandb"):
        name = "step0-wandb"
    else:
        name = str(program.absolute())
    broken = next((run.run.rsplit("/", 1)[-1] for run in result.changed if run.verdict == "broken"), "RUN")
    return f"try next: cd {directory}; {name} explain {broken}; {name} ranges"
