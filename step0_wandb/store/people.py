"""What people say of runs and setups."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime  # also read by pydantic, where a word has travelled
from typing import TYPE_CHECKING, Final, Literal, cast

from sqlalchemy import delete, select
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import LabelName  # noqa: TC001 - as above
from step0_wandb.store import notes
from step0_wandb.store.schema import accepts, labels, mutes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Table

    from step0_wandb.store.database import Database


BY_TAG: Final = "a tag in W&B"
"""Who gave a label that stands for a tag."""
_RETRACTIONS: Final = "retractions"


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


@dataclass(frozen=True, slots=True)
class Retraction:
    """A person's word that a label (of a run) or a mute (of a setup) is taken back, and when (UTC)."""

    what: Literal["label", "mute"]
    name: str
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


def forget_label(database: Database, run: str) -> None:
    """Forget the label of a run, as if it had never been given."""
    _forget(database, labels, labels.c.run == run)


def retract(database: Database, word: Retraction) -> bool:
    """Take back what was said before, and remember that; return whether there was anything.

    A label by tag stays: it speaks as long as the tag is there.
    """
    table, key = (labels, labels.c.run) if word.what == "label" else (mutes, mutes.c.setup)
    said = (key == word.name) & (table.c.at <= word.at) & (table.c.who != BY_TAG)
    with database.transaction():
        had_one = _forget(database, table, said)
        known = {(item.what, item.name): item for item in all_retractions(database)}
        earlier = known.get((word.what, word.name))
        if earlier is None or earlier.at < word.at:
            known[word.what, word.name] = word
            notes.put(
                database, _RETRACTIONS, [[*at, item.at.isoformat()] for at, item in sorted(known.items())]
            )
        return had_one


def all_retractions(database: Database) -> tuple[Retraction, ...]:
    """Return what was taken back, the last time of each."""
    kept = cast(
        "Sequence[tuple[Literal['label', 'mute'], str, str]]", notes.get(database, _RETRACTIONS) or ()
    )
    return tuple(Retraction(what, name, datetime.fromisoformat(at)) for what, name, at in kept)


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


def end_mutes(database: Database, *, now: datetime) -> None:
    """Forget the mutes that are over."""
    _forget(database, mutes, mutes.c.until <= now)


def _forget(database: Database, table: Table, where: ColumnElement[bool]) -> bool:
    with database.transaction() as connection:
        had_one = bool(connection.execute(delete(table).where(where)).rowcount)
        if had_one:
            notes.put(database, notes.STALE, value=True)
        return had_one


def all_mutes(database: Database) -> dict[str, Mute]:
    """Return every mute by setup."""
    with database.transaction() as connection:
        found = connection.execute(select(mutes).order_by(mutes.c.setup)).mappings()
        return {row["setup"]: Mute(**row) for row in found}
