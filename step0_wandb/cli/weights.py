"""``step0-wandb weights``: which model and image has had its weights compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.cli import output, tables
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from step0_wandb.verdicts.weight_checks import WeightCheck


@without("dry_run", "fail_on")
def weights(session: Session) -> None:
    """Show which models and images had their weights compared on both sides, and which are due.

    Example: step0-wandb weights
    """
    from step0_wandb.store.kept import load_weight_checks

    with session.open_store() as store:
        entries = load_weight_checks(store)
    if session.as_json:
        output.print_json(json_documents.document("weights", weights=entries))
    elif entries:
        _print(entries, output.console())
    else:
        output.console().print("No run of a framework that can compare weights.")


def _print(entries: Sequence[WeightCheck], out: Console) -> None:
    """Print the table, then notes and what to do, the flags ready to be copied."""
    from rich.text import Text

    out.print(tables.table(tables.WEIGHTS, entries, out.width))
    for entry in entries:
        if entry.notes:
            text = f"{entry.what}: {'; '.join(entry.notes)}"
            output.print_item(entry.status, text, out, style=tables.STYLES[entry.status])
    wanting: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        if entry.status != "passed":
            wanting.setdefault(entry.add, []).append(entry.model)
    for add, models in wanting.items():
        names = ", ".join(dict.fromkeys(models))
        output.print_item("do", f"compare {names} once per image, in a short run with", out)
        for flags in add:
            out.print(Text(f"        {clean(flags)}"), soft_wrap=True)
