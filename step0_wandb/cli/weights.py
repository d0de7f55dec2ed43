"""``step0-wandb weights``: which model and image has had its weights compared."""

from __future__ import annotations

from step0_wandb import documents
from step0_wandb.cli import output, tables
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import MISSING, clean, when

STYLES = {"failed": "bold red", "due": "yellow", "passed": "green"}


@without("dry_run", "fail_on", "log_format")
def weights(session: Session) -> None:
    """Show for which model and image the framework compared both sides' weights, and for which it is due.

    Example: step0-wandb weights
    """
    from rich.text import Text

    from step0_wandb.weights import Carrier, weight_book

    with session.open_store() as store:
        facts = ((record, store.facts(record.key)) for record in store.records())
        carriers = [
            Carrier(record, found.step0.profile, found.step0.status == "found")
            for record, found in facts
            if found
        ]
    book = weight_book(carriers, session.profiles)
    if session.as_json:
        output.print_json(documents.document("weights", weights=book))
        return
    out = output.console()
    if not book:
        out.print("no run of a framework that can compare weights")
        return
    table = tables.table_of("weights", "model", "image", ("runs", "right"), "last check", "run")
    for entry in book:
        last = when(entry.checked_at) if entry.checked_at else MISSING
        status = Text(entry.status, style=STYLES[entry.status])
        run = clean(entry.run.rsplit("/", 1)[-1]) if entry.run else MISSING
        table.add_row(
            status, Text(clean(entry.model)), Text(clean(entry.image or MISSING)), str(entry.runs), last, run
        )
    out.print(table)
    for entry in book:
        for note in entry.notes:
            output.print_item(entry.status, f"{entry.model}: {note}", out)
    for entry in (entry for entry in book if entry.status != "passed"):
        output.print_item("add", f"for {entry.model}: {'   or   '.join(entry.add)}", out)
