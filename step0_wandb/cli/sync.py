"""``step0-wandb sync``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.session import FailOn, LogFormat, Session  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.summary import SummaryFile, append_summary, refuse_two_answers  # noqa: TC001 - as above
from step0_wandb.errors import UsageError
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean, key_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from step0_wandb.app.sync import SyncResult
    from step0_wandb.publish.wandb.project import Written
    from step0_wandb.records import Json, JudgedRun
    from step0_wandb.settings.load import Loaded

PARTLY = 7
VERDICT = 3
LOG = "log"


_Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCE",
        help="entity/project, or directories of W&B runs; default: the sources in the settings.",
    ),
]
_Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the HTML page to FILE.")]
_Wandb = Annotated[
    str | None,
    typer.Option(
        "--wandb",
        metavar="[ENTITY/PROJECT]",
        help="Write tables and report to W&B: to this project, or without a value each project its own.",
    ),
]
_OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
_Refit = Annotated[
    bool, typer.Option("--refit", help="Fit and judge all runs again, not only the setups that changed.")
]


def sync(  # noqa: PLR0913 - one parameter an option
    session: Session,
    sources: _Sources = None,
    html: _Html = None,
    wandb: _Wandb = None,
    summary: SummaryFile = None,
    *,
    open_page: _OpenPage = False,
    refit: _Refit = False,
) -> None:
    """Read the sources, fit the ranges, judge every run, and publish.

    Example: step0-wandb sync ./wandb --html step0.html
    """
    from step0_wandb.app.sync import Job, run_sync
    from step0_wandb.cli.progress import reading

    refuse_two_answers(session, summary)
    loaded = session.load(report_wandb=wandb)
    page = page_path(loaded, html)
    if open_page and page is None:
        raise UsageError(
            "--open needs a page", "Add --html FILE, or set html under `[report]` in step0.toml."
        )
    with reading(quiet=session.quiet) as progress:
        job = Job(loaded, tuple(sources or ()), html, session.dry_run, refit, session.clock, progress)
        result = run_sync(job)
    if session.as_json:
        output.print_json(sync_document(result))
    else:
        print_result(result, session)
    if open_page and page is not None and not session.dry_run:
        open_in_browser(page)
    is_written = append_summary(summary, result.summary, result.flagged, session)
    code = exit_code(result, session.fail_on or FailOn.never)
    raise typer.Exit(code or (0 if is_written else PARTLY))


def page_path(loaded: Loaded, html: Path | None) -> Path | None:
    """Return where the page goes: as the flag says, else the settings."""
    configured = loaded.settings.report.html
    return html or (loaded.path(configured) if configured else None)


def open_in_browser(page: Path) -> None:
    """Open the page in the user's browser, or say where it is."""
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        output.warn(f"no browser found: open {page.absolute()} yourself")


def sync_document(result: SyncResult) -> dict[str, Json]:
    """Return the result as the document of the contract."""
    names = ("sources", "counts", "changed", "alerts", "setups", "problems", "written")
    return json_documents.document("sync", **{name: getattr(result, name) for name in names})


def exit_code(result: SyncResult, fail_on: FailOn) -> int:
    """Return 3 for a new verdict at or above `fail_on`, 7 where something could not be read, else 0."""
    if any(fail_on.hit_by(run) for run in result.changed):
        return VERDICT
    return PARTLY if result.problems else 0


def print_result(result: SyncResult, session: Session) -> None:
    """Print what changed, then one summary line; with --quiet nothing where nothing changed."""
    for problem in result.problems:
        output.warn(f"problem: {problem.where}: {problem.what}")
    for line in result.renamed:
        output.tell(f"setup: {line}")
    for line in result.mismatched:
        output.warn(f"weights: {line}")
    if session.quiet:
        for run in result.flagged:
            output.warn(_in_one_line(run))
    _tell_alerts(result, session)
    tell_written(result.written, session)
    if result.page and session.dry_run:
        output.tell(f"would write {result.page}")
    summary = f"{'dry run, nothing stored: ' if session.dry_run else ''}{result.summary}"
    if session.quiet and not (result.changed or result.problems):
        return
    if session.log_format is LogFormat.json:
        _log(result, summary, session)
    elif session.quiet:
        output.print_stamped(summary, session.clock)
    else:
        _print(result, summary, session)


def _print(result: SyncResult, summary: str, session: Session) -> None:
    out = output.console()
    for run in result.flagged:
        output.print_run_short(run, out)
    if result.flagged:
        out.print()
    output.print_stamped(summary, session.clock)
    for line in result.not_checked:
        output.print_item("not checked:", line, out)
    if result.page and not session.dry_run:
        out.print(clean(f"page: {result.page}"), soft_wrap=True)


def _log(result: SyncResult, summary: str, session: Session) -> None:
    """Print everything on stderr, so that a log collector gets one object a line and nothing else."""
    if not session.quiet:
        for run in result.flagged:
            output.warn(_in_one_line(run))
    output.tell(summary)
    for line in result.not_checked:
        output.tell(f"not checked: {line}")


def _in_one_line(run: JudgedRun) -> str:
    """Return a flagged run in one line of a log: which, why, where."""
    where = run.url or key_text(run.run)
    return f"{run.verdict}: {run.name or key_text(run.run)}: {'; '.join(run.reasons)}: {where}"


def tell_written(written: Iterable[Written], session: Session) -> None:
    """Print what was written to W&B, or would be."""
    for item in written:
        if session.dry_run:
            output.tell(f"would write the {item.what} of {item.where}")
        elif not session.quiet:
            output.tell(f"wrote the {item.what} of {item.where}" + (f": {item.url}" if item.url else ""))


def _tell_alerts(result: SyncResult, session: Session) -> None:
    """Print what became of each message; one about several runs once."""
    from step0_wandb.publish.alerts.channels import CHANNELS

    messages = {(alert["channel"], alert["title"]): alert for alert in result.alerts}
    if session.dry_run:
        _tell_drafts(messages.values())
        return
    shown = {run.run for run in result.flagged}
    for (channel, title), alert in messages.items():
        where, lines = CHANNELS[str(channel)].label, str(alert["text"]).splitlines()
        if alert["error"]:
            continue  # the problem of its channel says so
        if channel == LOG:
            if alert["run"] not in shown:
                output.warn(f"{title}: {lines[0]}")
        elif not session.quiet:
            output.tell(f"alert sent to {where}: {title}: {lines[0]}")


def _tell_drafts(alerts: Iterable[Mapping[str, object]]) -> None:
    """Print what would be sent, once for all channels that would get the same text."""
    from step0_wandb.publish.alerts.channels import CHANNELS

    drafts: dict[tuple[str, str], list[str]] = {}
    for alert in alerts:
        draft = drafts.setdefault((str(alert["title"]), str(alert["text"])), [])
        draft.append(CHANNELS[str(alert["channel"])].label)
    for (title, text), channels in drafts.items():
        output.tell(f"would send to {' and '.join(channels)}: {title}")
        for line in text.splitlines():
            output.tell(f"    {line}")
