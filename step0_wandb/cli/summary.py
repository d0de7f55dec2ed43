"""The option ``--summary FILE`` of sync, check, gate and lint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.errors import UsageError
from step0_wandb.records import FLAGGED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.cli.session import Session
    from step0_wandb.explanations.explanation import Explanation
    from step0_wandb.records import JudgedRun

STDOUT = "-"
MOST = 10
"""Runs that are explained."""
SummaryFile = Annotated[
    str | None,
    typer.Option("--summary", metavar="FILE", help="Append the outcome as Markdown to FILE; - is stdout."),
]


def refuse_two_answers(session: Session, file: str | None) -> None:
    """Refuse a summary and a JSON document on the same stream."""
    if file == STDOUT and session.as_json:
        raise UsageError("--json and --summary - both write to stdout", "Give --summary a file.")


def append_summary(file: str | None, headline: str, runs: Sequence[JudgedRun], session: Session) -> bool:
    """Append the outcome to the file that was asked for; return whether that worked."""
    if file is None:
        return True
    from step0_wandb.publish.job_summary import job_summary

    return write_summary(file, job_summary(headline, runs, _explained(runs, session)), session)


def write_summary(file: str | None, text: str, session: Session) -> bool:
    """Append Markdown to the file that was asked for; return whether that worked."""
    if file is None:
        return True
    if file == STDOUT:
        sys.stdout.write(text)
        return True
    if session.dry_run:
        output.tell(f"would append the summary to {file}")
        return True
    try:
        with Path(file).open("a", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        output.warn(f"problem: cannot write the summary {file}: {error.strerror}")
        return False
    return True


def _explained(runs: Sequence[JudgedRun], session: Session) -> Mapping[str, Explanation]:
    """Return the explanations of the flagged runs that the store knows; none without a store."""
    from step0_wandb.explanations.explanation import Explainer
    from step0_wandb.store import store_exists

    flagged = [run for run in runs if run.verdict in FLAGGED][:MOST]
    if not flagged or not store_exists(session.loaded.store):
        return {}
    with session.open_store() as store:
        explainer = Explainer(store, session.profiles)
        known = [run for run in flagged if store.runs.record(run.run) is not None]
        return {run.run: explainer.explain(run) for run in known}
