"""``step0-wandb explain``: why a run got its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb import documents
from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import shorten

if TYPE_CHECKING:
    from rich.console import Console

    from step0_wandb.explanation import Explanation
    from step0_wandb.records import Json

SHOWN = 15


@without("dry_run", "fail_on", "log_format")
def explain(
    session: Session,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="entity/project/run_id, a bare run id, or a display name.")
    ],
) -> None:
    """Say why a run got its verdict, and what differs from the healthy runs of its setup.

    Example: step0-wandb explain aqg8gbcd
    """
    from step0_wandb.single import explain_run

    found = explain_run(run, session.loaded)
    if session.as_json:
        output.print_json(_document(found))
    else:
        _print(found, output.console(), everything=session.verbose)


def _document(found: Explanation) -> dict[str, Json]:
    return documents.document(
        "explain",
        run=found.run,
        causes=[f"{cause.text}: {cause.advice}" for cause in found.causes],
        differs=[{"key": item.key, "value": item.value, "healthy": item.healthy} for item in found.differs],
        nearest=found.nearest.run if found.nearest else None,
        published=found.published,
        blind=found.blind,
    )


def _print(found: Explanation, out: Console, *, everything: bool) -> None:
    output.print_run(found.run, out)
    for cause in found.causes:
        output.print_item("likely", cause.text, out)
        output.print_item("do", cause.advice, out)
    if place := found.run.range:
        said = f"{output.span(place.low, place.high)} of {place.n} runs ({place.basis})"
        output.print_item("range", said, out)
    for known in found.published:
        output.print_item("known", known, out)
    _print_differences(found, out, everything=everything)
    for spot in found.blind:
        output.print_item("unseen", spot, out)


def _print_differences(found: Explanation, out: Console, *, everything: bool) -> None:
    from step0_wandb.explanation import one_line

    if not found.peers:
        output.print_item("config", "no healthy run of this or a near setup to compare it with", out)
        return
    if found.nearest:
        output.print_item(
            "compare", f"with {found.nearest.url or found.nearest.run}, the nearest healthy run", out
        )
    if not found.differs:
        output.print_item("config", f"no key differs from all of {found.peers} healthy runs", out)
        return
    if len(found.differs) > 1 and not found.causes:
        output.print_item(
            "config", f"{len(found.differs)} keys differ: no single one is the cause for sure", out
        )
    shown = found.differs if everything else found.differs[:SHOWN]
    table = output.table_of("config key", "this run", f"{found.peers} healthy runs")
    for item in shown:
        table.add_row(item.key, shorten(one_line(item.value)), shorten(one_line(item.healthy)))
    out.print(table)
    if len(shown) < len(found.differs):
        out.print(f"{len(found.differs) - len(shown)} more keys differ; -v shows them")
