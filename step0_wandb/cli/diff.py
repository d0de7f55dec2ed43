"""``step0-wandb diff``: what differs between two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import completion, output, tables
from step0_wandb.cli.label import Run  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from step0_wandb.app.diff import Pair


@without("dry_run", "fail_on", "quiet")
def diff(
    session: Session,
    run: Run,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="The run to compare with; default: the nearest healthy one.",
            autocompletion=completion.run_ids,
        ),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also show what is equal.")] = False,
) -> None:
    """Show what differs between two runs: step-0 values, config, packages.

    Example: step0-wandb diff q06wr0ng q06a7f2k
    """
    from step0_wandb.app.diff import diff_runs, title

    session.require_store()
    found = diff_runs(run, other, session.job())
    if session.as_json:
        document = {"a": found.a, "b": found.b, "differs": found.differs}
        more = {"equal": found.equal} if everything else {}
        unknown = found.packages_unknown or None
        output.print_json(json_documents.document("diff", **document, **more, packages_unknown=unknown))
        return
    out = output.console()
    _print(
        f"{title(found.a)} ({found.a.verdict})", f"{title(found.b)} ({found.b.verdict})", found.differs, out
    )
    if everything:
        _print("equal", "", found.equal, out)
    if found.packages_unknown:
        output.print_item("package", f"could not be compared: {found.packages_unknown}", out)


def _print(a: str, b: str, pairs: Iterable[Pair], out: Console) -> None:
    from step0_wandb.explanations.differences import one_line

    table = tables.table_of("", "key", a, *([b] if b else []))
    for pair in pairs:
        values = [one_line(pair.a), one_line(pair.b)] if b else [one_line(pair.a)]
        table.add_row(pair.about, clean(pair.key), *values)
    out.print(table)
