"""``step0-wandb settings``: every setting, its value, and where it came from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from step0_wandb.cli import output, tables
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean
from step0_wandb.text.paths import write_new


@without("dry_run", "fail_on")
def settings(
    session: Session,
    *,
    init: Annotated[
        bool, typer.Option("--init", help="Write a settings file that explains every setting.")
    ] = False,
) -> None:
    """Show every setting and where its value comes from, or write a settings file.

    Example: step0-wandb settings --init
    """
    from step0_wandb.settings.load import FILE_NAME, describe
    from step0_wandb.settings.options import commented_file

    if init:
        file = session.settings_file or Path(FILE_NAME)
        before = None if session.settings_file else replace(session).loaded.store
        write_new(file, commented_file(), "Name another file with --settings.")
        output.tell(f"wrote {file}: every setting, commented out at its default")
        if before:
            _tell_of_store(before, session.loaded.store)
        if not session.as_json:
            return
    rows = describe(session.loaded)
    if session.as_json:
        output.print_json(json_documents.document("settings", settings=rows))
        return
    out, origin = output.console(), session.loaded.file
    out.print(clean(f"file: {origin or 'none'}"), soft_wrap=True)
    table = tables.table_of("setting", "value", "from")
    for row in rows:
        table.add_row(
            row.key, output.plain_value(row.value), "file" if row.origin == str(origin) else row.origin
        )
    out.print(table)


def _tell_of_store(before: Path, after: Path) -> None:
    """Explain how to keep the store that was used so far, where the file's own takes its place."""
    from step0_wandb.store import store_exists

    if before != after and store_exists(before):
        output.tell(f"its store is {after}; to keep using {before}, set store = {json.dumps(str(before))}")
