"""``step0-wandb demo``: example runs by the real W&B client, and the main job on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation


@without("settings_file", "store_file", "dry_run", "fail_on", "log_format")
def demo(
    session: Session,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to write it.")] = Path(
        "step0-demo"
    ),
) -> None:
    """Write example runs, healthy and broken ones, with the real W&B client, and run the main job on them.

    Example: step0-wandb demo ./step0-demo
    """
    from step0_wandb.cli.progress import writing
    from step0_wandb.cli.sync import print_result, sync_document
    from step0_wandb.demo import write_demo
    from step0_wandb.job import Job, run_sync
    from step0_wandb.settings import load_settings

    with writing(quiet=session.quiet) as progress:
        write_demo(directory, now=session.clock(), progress=progress)
    loaded = load_settings(directory / "step0.toml", cwd=directory, environ={})
    result = run_sync(Job(loaded, clock=session.clock))
    if session.as_json:
        output.print_json(sync_document(result))
        return
    print_result(result, session)
    output.console().print(f"try next: cd {directory}; step0-wandb runs; step0-wandb ranges", soft_wrap=True)
