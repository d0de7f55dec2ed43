"""Takes out of an older store what is known as a secret today; once for each set of rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, update

from step0_wandb.store.notes import Notes
from step0_wandb.store.schema import accepts, labels, outbox, runs, templates, verdicts
from step0_wandb.text.redact import looks_like_key, redact, rules_version, scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Column, Connection, Table

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database
    from step0_wandb.store.templates import Kind

_RULES = "secrets"
"""The note of the rules by which the store was scrubbed."""
_TEXTS: tuple[Column[Any], ...] = (
    *(runs.c.name, runs.c.group, runs.c.job_type, runs.c.tags),
    *(outbox.c.title, outbox.c.text, outbox.c.failure, labels.c.why, accepts.c.why),
)


def is_scrubbed(database: Database) -> bool:
    """Return whether today's rules have seen everything in the store."""
    return Notes(database).get(_RULES) == rules_version()


def scrub_store(database: Database) -> None:
    """Take the secrets out of everything that was stored before today's rules.

    Where there was one, the file is written again as a whole: SQLite keeps what was deleted.
    """
    if is_scrubbed(database):
        return
    with database.transaction() as connection:
        found = [
            _documents(database, "config", (runs, runs.c.config_template, runs.c.config), scrub),
            _documents(database, "rows", (runs, runs.c.rows_template, runs.c.rows), _scrub_rows),
            _documents(database, "verdict", (verdicts, verdicts.c.template, verdicts.c.body), _redact_all),
            *(_texts(connection, column) for column in _TEXTS),
        ]
        Notes(database).put(_RULES, rules_version())
    if any(found):
        database.file.compact()


def _documents(
    database: Database,
    kind: Kind,
    where: tuple[Table, Column[Any], Column[Any]],
    scrubbed: Callable[[Mapping[str, Json]], dict[str, Json]],
) -> bool:
    """Scrub all documents of a kind; where one changes, pack all of them again, for templates hold parts of it."""
    table, template, body = where
    (key,) = table.primary_key
    query = select(key, template, body)
    stored = database.connection.execute(query).all()
    documents = (database.templates.unpack(row[1], row[2]) for row in stored)
    if all(scrubbed(document) == document for document in documents):
        return False
    database.templates.start_over(kind)
    for row in stored:
        packed = database.templates.pack(kind, scrubbed(database.templates.unpack(row[1], row[2])))
        values = {template: packed.template, body: packed.body}
        database.connection.execute(update(table).where(key == row[0]).values(values))
    used = select(template)
    unused = (templates.c.kind == kind) & templates.c.id.not_in(used)
    database.connection.execute(delete(templates).where(unused))
    database.templates.forget()
    return True


def _texts(connection: Connection, column: Column[Any]) -> bool:
    """Redact one column of texts; return whether that changed anything."""
    safe = {
        text: _redact_json(text) if column is runs.c.tags else redact(text)
        for text in connection.execute(select(column).where(column.is_not(None)).distinct()).scalars()
    }
    changed = {text: new for text, new in safe.items() if new != text}
    for text, new in changed.items():
        connection.execute(update(column.table).where(column == text).values({column: new}))
    return bool(changed)


def _redact_json(text: str) -> str:
    return json.dumps([redact(tag) for tag in json.loads(text)])


def _scrub_rows(document: Mapping[str, Json]) -> dict[str, Json]:
    """Return the rows of a run without metrics whose names hold a key."""
    return {at: _without_keys(row) if isinstance(row, dict) else row for at, row in document.items()}


def _without_keys(row: Mapping[str, Json]) -> dict[str, Json]:
    values = row.get("values")
    if not isinstance(values, dict):
        return dict(row)
    return {**row, "values": {name: value for name, value in values.items() if not looks_like_key(name)}}


def _redact_all(document: Mapping[str, Json]) -> dict[str, Json]:
    return {name: _redacted(value) for name, value in document.items()}


def _redacted(value: Json) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return _redact_all(value) if isinstance(value, dict) else value
