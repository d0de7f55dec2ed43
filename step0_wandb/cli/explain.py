"""``step0-wandb explain``: why a run got its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb import documents
from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import clean, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from step0_wandb.explanation import Explanation

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
        differs = [{"key": item.key, "value": item.value, "healthy": item.healthy} for item in found.differs]
        output.print_json(documents.document("explain", run=found.run, causes=found.causes, differs=differs))
        return
    _print(found, output.console(), everything=session.verbose)


def _print(found: Explanation, out: Console, *, everything: bool) -> None:
    output.print_run(found.run, out)
    for cause in found.causes:
        out.print(f"cause: {clean(cause)}")
    if place := found.run.range:
        out.print(f"range {output.span(place.low, place.high)} of {place.n} runs ({place.basis})")
    if not found.peers:
        out.print("no healthy run of this or a near setup to compare the config with")
        return
    if not found.differs:
        out.print(f"no config key differs from all of {found.peers} healthy runs")
        return
    shown = found.differs if everything else found.differs[:SHOWN]
    table = output.table_of("config key", "this run", f"{found.peers} healthy runs")
    for item in shown:
        table.add_row(
            item.key, shorten(output.plain_value(item.value)), shorten(output.plain_value(item.healthy))
        )
    out.print(table)
    if len(shown) < len(found.differs):
        out.print(f"{len(found.differs) - len(shown)} more keys differ; -v shows them")
