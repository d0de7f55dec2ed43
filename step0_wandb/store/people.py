"""What people say of runs and setups."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime  # noqa: TC003 - pydantic reads it where a word has travelled
from typing import TYPE_CHECKING

from sqlalchemy import delete, select
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import LabelName  # noqa: TC001 - as above
from step0_wandb.store import notes
from step0_wandb.store.schema import accepts, labels, mutes

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from step0_wandb.store.database import Database


@dataclass(frozen=True, slots=True)
class Label:
    """A person's word on a run: why, who said it, and when (UTC)."""

    run: str
    label: LabelName
    why: str
    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Accept:
    """A person's word that a setup's level is right: why, who said it, and when (UTC)."""

    setup: str
    why: str
    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Mute:
    """A person's word that there shall be no alerts of a setup: until when, who said it, and when (UTC)."""

    setup: str
    until: datetime
    who: str
    at: datetime


_TABLES = {Label: labels, Accept: accepts, Mute: mutes}


def say(database: Database, word: Label | Accept | Mute) -> None:
    """Store a person's word, in place of an earlier one on the same run or setup."""
    table = _TABLES[type(word)]
    statement = upsert(table).values(asdict(word))
    rest = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    with database.transaction() as connection:
        connection.execute(statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=rest))
        notes.put(database, notes.STALE, value=True)


def take_back(database: Database, run: str) -> bool:
    """Forget the label of a run; return whether it had one."""
    with database.transaction() as connection:
        had_one = bool(connection.execute(delete(labels).where(labels.c.run == run)).rowcount)
        if had_one:
            notes.put(database, notes.STALE, value=True)
        return had_one


def all_labels(database: Database) -> dict[str, Label]:
    """Return every label by run key."""
    with database.transaction() as connection:
        found = connection.execute(select(labels).order_by(labels.c.run)).mappings()
        return {row["run"]: Label(**row) for row in found}


def all_accepts(database: Database) -> dict[str, Accept]:
    """Return every accepted setup."""
    with database.transaction() as connection:
        found = connection.execute(select(accepts).order_by(accepts.c.setup)).mappings()
        return {row["setup"]: Accept(**row) for row in found}


def unmute(database: Database, setup: str) -> bool:
    """Forget the mute of a setup; return whether it had one."""
    return _unmute(database, mutes.c.setup == setup)


def end_mutes(database: Database, *, now: datetime) -> bool:
    """Forget the mutes that are over; return whether there was one."""
    return _unmute(database, mutes.c.until <= now)


def _unmute(database: Database, where: ColumnElement[bool]) -> bool:
    with database.transaction() as connection:
        had_one = bool(connection.execute(delete(mutes).where(where)).rowcount)
        if had_one:
            notes.put(database, notes.STALE, value=True)
        return had_one


def all_mutes(database: Database) -> dict[str, Mute]:
    """Return every mute by setup."""
    with database.transaction() as connection:
        found = connection.execute(select(mutes).order_by(mutes.c.setup)).mappings()
        return {row["setup"]: Mute(**row) for row in found}
