"""``step0-wandb weights``: which model and image has had its weights compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb import documents
from step0_wandb.cli import output, tables
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import MISSING, clean, count, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from step0_wandb.weights import WeightCheck

STYLES = {"failed": "bold red", "due": "yellow", "passed": "green"}


@without("dry_run", "fail_on", "log_format")
def weights(session: Session) -> None:
    """Show for which model and image the framework compared both sides' weights, and for which it is due.

    Example: step0-wandb weights
    """
    from step0_wandb.book import read_book

    with session.open_store() as store:
        book = read_book(store)
    if session.as_json:
        output.print_json(documents.document("weights", weights=book))
    elif book:
        _print(book, output.console())
    else:
        output.console().print("no run of a framework that can compare weights")


def _print(book: Sequence[WeightCheck], out: Console) -> None:
    """Print the table, then what is to be known and done, the flags ready to be copied."""
    from rich.text import Text

    table = tables.table_of("weights", "model", "image", ("runs", "right"), "last check", "run")
    for entry in book:
        table.add_row(
            Text(entry.status, style=STYLES[entry.status]),
            Text(clean(entry.model)),
            Text(clean(entry.image or MISSING)),
            str(entry.runs),
            when(entry.checked_at),
            Text(clean(entry.run.rsplit("/", 1)[-1]) if entry.run else MISSING),
        )
    out.print(table)
    for entry in book:
        what = entry.model + (f" on {entry.image}" if entry.image else "")
        for note in entry.notes:
            output.print_item(entry.status, f"{what}: {note}", out, style=STYLES[entry.status])
        if entry.status == "passed":
            continue
        text = f"{what}, {count(entry.runs, 'run')}: compare the weights once, in a short run with"
        output.print_item(entry.status, text, out, style=STYLES[entry.status])
        for flags in entry.add:
            out.print(Text(f"        {clean(flags)}"), soft_wrap=True)
