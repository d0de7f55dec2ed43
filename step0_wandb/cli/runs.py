"""``step0-wandb runs``: the verdict of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output, tables
from step0_wandb.cli.session import FailOn, Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.sync import VERDICT
from step0_wandb.errors import UsageError
from step0_wandb.records import VERDICTS
from step0_wandb.text import json_documents

if TYPE_CHECKING:
    from datetime import timedelta


@without("dry_run")
def runs(
    session: Session,
    verdict: Annotated[
        list[str] | None, typer.Option("--verdict", help="Only these verdicts; can be repeated.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="SPAN", help="Only runs created within this time, such as 24h or 7d."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only runs of this user.")] = None,
    setup: Annotated[
        str | None,
        typer.Option("--setup", metavar="TEXT", help="Only setups whose label contains this text."),
    ] = None,
) -> None:
    """List runs and their verdicts, worst first.

    Example: step0-wandb runs --verdict broken --since 7d
    """
    from step0_wandb.verdicts.coverage import coverage

    unknown = [name for name in verdict or () if name not in VERDICTS]
    if unknown:
        raise UsageError(f"--verdict: unknown verdict {unknown[0]!r}", f"Known: {', '.join(VERDICTS)}.")
    after = session.clock() - span_of("--since", since) if since else None
    with session.open_store() as store:
        found = store.verdicts.runs(verdict=verdict, since=after, user=user, setup=setup)
    if session.as_json:
        output.print_json(json_documents.document("runs", runs=found))
    else:
        out = output.console()
        none = output.nothing("runs", filtered=any((verdict, since, user, setup)))
        out.print(tables.table(tables.RUNS, found, out.width) if found else none)
        for line in coverage(found):
            output.print_item("not checked:", line, out)
    fail_on = session.fail_on or FailOn.never
    raise typer.Exit(VERDICT if any(fail_on.hit_by(run) for run in found) else 0)


def span_of(option: str, text: str) -> timedelta:
    """Return the time span that an option names."""
    from step0_wandb.settings.options import duration

    try:
        return duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
