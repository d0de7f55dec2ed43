"""``step0-wandb settings``: every setting, its value, and where it came from."""

from __future__ import annotations

from step0_wandb import documents
from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation


@without("dry_run", "fail_on", "log_format")
def settings(session: Session) -> None:
    """Show every setting with its value and where that came from.

    Example: step0-wandb settings
    """
    from step0_wandb.settings import describe

    rows = describe(session.loaded)
    if session.as_json:
        output.print_json(documents.document("settings", settings=rows))
        return
    table = output.table_of("setting", "value", "from")
    for row in rows:
        table.add_row(row.key, output.plain_value(row.value), row.origin)
    output.console().print(table)
