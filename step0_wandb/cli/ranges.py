"""``step0-wandb ranges``: the range of each setup."""

from __future__ import annotations

from typing import Annotated

import typer

from step0_wandb import documents
from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import clean


@without("dry_run", "log_format", "fail_on")
def ranges(
    session: Session,
    setup: Annotated[
        str | None, typer.Option("--setup", metavar="TEXT", help="Only setups that hold this text.")
    ] = None,
) -> None:
    """Show for each setup where the gap of its next healthy run is expected.

    Example: step0-wandb ranges --setup Qwen3-0.6B
    """
    with session.open_store() as store:
        found = [item for item in store.setups() if not setup or setup.lower() in item.setup.lower()]
    if session.as_json:
        output.print_json(documents.document("ranges", setups=found))
        return
    out = output.console()
    out.print(output.setups_table(found) if found else "no setups")
    for item in found:
        if item.note:
            out.print(f"{clean(item.setup)}: {clean(item.note)}", soft_wrap=True)
