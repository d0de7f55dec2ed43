"""``step0-wandb explain``: why a run got its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.cli import output, tables
from step0_wandb.cli.label import Run  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean, count, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from step0_wandb.explanations.explanation import Explanation
    from step0_wandb.records import Json


@without("dry_run", "fail_on")
def explain(
    session: Session,
    run: Run,
) -> None:
    """Explain a run's verdict, and what differs from its healthy peers.

    Example: step0-wandb explain q06wr0ng
    """
    from step0_wandb.app.check import explain_run

    session.require_store()
    found = explain_run(run, session.job())
    if session.as_json:
        output.print_json(_document(found))
    else:
        _print(found, output.console(), everything=session.verbose)


def _document(found: Explanation) -> dict[str, Json]:
    return json_documents.document(
        "explain",
        run=found.run,
        causes=[f"{cause.text}: {cause.advice}" for cause in found.causes],
        differs=[{"key": item.key, "value": item.value, "healthy": item.healthy} for item in found.differs],
        nearest=found.nearest.run if found.nearest else None,
        published=found.published,
        packages=found.packages,
        packages_unknown=found.packages_unknown or None,
        blind=found.blind,
        accepted=found.accepted or None,
    )


def _print(found: Explanation, out: Console, *, everything: bool) -> None:
    output.print_run(found.run, out)
    for line in found.lines():
        output.print_item(line.about, line.text, out)
    _print_differences(found, out, everything=everything)


def _print_differences(found: Explanation, out: Console, *, everything: bool) -> None:
    from step0_wandb.explanations.differences import one_line
    from step0_wandb.explanations.explanation import SHOWN

    shown = found.differs if everything else found.differs[:SHOWN]
    if not shown:
        return
    table = tables.table_of("config key", "this run", count(found.peers, "healthy run"))
    for item in shown:
        table.add_row(clean(item.key), shorten(one_line(item.value)), shorten(one_line(item.healthy)))
    out.print(table)
    if len(shown) < len(found.differs):
        out.print(f"{len(found.differs) - len(shown)} more keys differ; -v shows them")
