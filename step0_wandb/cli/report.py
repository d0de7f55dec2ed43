"""``step0-wandb report``: publish again from the store alone."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.errors import UsageError


@without("as_json", "fail_on", "log_format")
def report(
    session: Session,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page there.")] = None,
) -> None:
    """Publish again from the store, without reading any source.

    Example: step0-wandb report --html step0.html
    """
    from step0_wandb.job import write_page_of

    configured = session.loaded.settings.report.html
    path = html or (session.loaded.path(configured) if configured else None)
    if path is None:
        raise UsageError("No page was named", "Give --html FILE, or set `[report] html` in step0.toml.")
    with session.open_store() as store:
        if session.dry_run:
            output.tell(f"would write {path}")
            return
        write_page_of(store, path)
    output.console().print(f"page: {path}", soft_wrap=True)
