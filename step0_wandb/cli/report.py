"""``step0-wandb report``: publish again from the store alone."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.sync import PARTLY, open_in_browser, page_path, tell_written
from step0_wandb.errors import UsageError
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from step0_wandb.publish.wandb.project import Published


@without("as_json", "fail_on")
def report(
    session: Session,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the HTML page to FILE.")
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option(
            "--wandb",
            metavar="ENTITY/PROJECT",
            help="Write the tables and the report of all runs to this project.",
        ),
    ] = None,
    *,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Publish again from the store, without reading any source.

    Example: step0-wandb report --html step0.html
    """
    # A page goes where the settings say unless only W&B was asked for, and the other way around.
    path = html if wandb and not open_page else page_path(session.loaded, html)
    to_wandb = bool(wandb or (session.loaded.settings.report.wandb and not html and not open_page))
    if path is None and (open_page or not to_wandb):
        raise UsageError(
            "Nothing to write",
            "Give --html FILE or --wandb ENTITY/PROJECT, or set them under `[report]` in step0.toml.",
        )
    if path is not None:
        _page(session, path)
        if open_page and not session.dry_run:
            open_in_browser(path)
    if to_wandb:
        published = _publish(session, wandb)
        tell_written(published.written, session)
        for problem in published.problems:
            output.warn(f"problem: {problem.where}: {problem.what}")
        raise typer.Exit(PARTLY if published.problems else 0)


def _page(session: Session, path: Path) -> None:
    from step0_wandb.app.sync import write_page_of

    with session.open_store() as store:
        if session.dry_run:
            output.tell(f"would write {path}")
            return
        write_page_of(store, path)
    output.console().print(clean(f"page: {path}"), soft_wrap=True)


def _publish(session: Session, project: str | None) -> Published:
    """Write to W&B whether or not anything changed: to one project, or where the settings say."""
    from step0_wandb.publish import wandb as write_back
    from step0_wandb.publish.wandb.target import shown_in, targets
    from step0_wandb.store import Store

    loaded, context = session.loaded, session.job().context()
    with session.open_store() as store:  # one that is not there is not made
        texts = loaded.sources or tuple(item.source for item in store.sources.states())
    report = loaded.settings.report
    wanted = shown_in(targets(texts, loaded), project, shares=report.state and not report.home)
    with Store.open(loaded.store, mode="copy" if session.dry_run else "write") as store:
        ready = write_back.restore(store, wanted, context)
        return write_back.publish(store, ready, dry_run=session.dry_run, force=True)
