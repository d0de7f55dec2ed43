"""What people say about runs and setups, at a shell or by a tag on the run in W&B."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime  # also read by pydantic, where a label has traveled
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import LabelName  # noqa: TC001 - as above
from step0_wandb.store.codec import parsed, reading
from step0_wandb.store.notes import Notes
from step0_wandb.store.outbox import Outbox
from step0_wandb.store.rows import tags_text
from step0_wandb.store.schema import accepts, labels, mutes, runs
from step0_wandb.store.stale import Stale
from step0_wandb.text.redact import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, Table

    from step0_wandb.store.database import Database


BY_TAG: Final = "a tag in W&B"
"""Who gave a label that stands for a tag."""
TAGS: dict[str, LabelName] = {"step0-bad": "broken", "step0-skip": "exclude", "step0-ok": "healthy"}
"""The label that each tag stands for; of several the first here counts."""
_RETRACTIONS: Final = "retractions"


@dataclass(frozen=True, slots=True)
class Label:
    """A person's judgment of a run: why, by whom, and when (UTC)."""

    run: str
    label: LabelName
    why: str
    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Accept:
    """A person's statement that a setup's level is right: why, by whom, and when (UTC)."""

    setup: str
    why: str
    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Mute:
    """A person's request for no alerts about a setup: until when, by whom, and when made (UTC)."""

    setup: str
    until: datetime
    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Retraction:
    """A label (of a run), an accept or a mute (of a setup) that a person removed, and when (UTC)."""

    what: Literal["label", "accept", "mute"]
    name: str
    at: datetime


_Kind = TypeVar("_Kind", Label, Accept, Mute)
_TABLES: dict[type, Table] = {Label: labels, Accept: accepts, Mute: mutes}


def label_of(tags: Iterable[str]) -> LabelName | None:
    """Return the label that a run's tags stand for.

    Examples
    --------
    >>> label_of(["baseline", "Step0-OK"])
    'healthy'
    """
    lower = {tag.strip().lower() for tag in tags}
    return next((label for tag, label in TAGS.items() if tag in lower), None)


class PeopleStore:
    """Labels, accepted setups and mutes, each the last one on its run or setup."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._notes = Notes(database)
        self._stale = Stale(database)

    def labels(self) -> dict[str, Label]:
        """Return every label by run key."""
        return self._all(Label)

    def accepts(self) -> dict[str, Accept]:
        """Return every accepted setup by its label."""
        return self._all(Accept)

    def mutes(self) -> dict[str, Mute]:
        """Return every mute by its setup, over or not."""
        return self._all(Mute)

    def save(self, said: Label | Accept | Mute) -> None:
        """Store a label, accept or mute, replacing an earlier one on the same run or setup.

        To accept a setup answers the alerts about it: if it moves again, there is a new alert.
        """
        if not isinstance(said, Mute):
            said = replace(said, why=redact(said.why))  # a pasted command line may hold a key
        table = _TABLES[type(said)]
        statement = upsert(table).values(asdict(said))
        rest = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
        with self._database.transaction() as connection:
            keys = list(table.primary_key)
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=rest))
            if isinstance(said, Label):
                self._stale.mark_runs([said.run])
            else:
                self._stale.mark_setups([said.setup])
            if isinstance(said, Accept):
                Outbox(self._database).forget_setup(said.setup, until=said.at)

    def carry_over(self, setup: str, into: str) -> bool:
        """Let accept, mute and alerts of a setup hold for the setup that has its runs now.

        Returns
        -------
        bool
            Whether there was an accept or a mute to carry over.
        """
        with self._database.transaction():
            Outbox(self._database).carry_over(setup, into)
            accepts, mutes = self.accepts(), self.mutes()
            accept = accepts.get(setup) if into not in accepts else None
            mute = mutes.get(setup) if into not in mutes else None
            if accept:
                self.save(replace(accept, setup=into))
            if mute:
                self.save(replace(mute, setup=into))
            return bool(accept or mute)

    def retract(self, retraction: Retraction) -> bool:
        """Remove an earlier label, accept or mute, and remember that; return whether there was one.

        A label by tag stays: it holds as long as the tag is there.
        """
        return self.retract_all([retraction])

    def retract_all(self, retractions: Sequence[Retraction]) -> bool:
        """Do what `retract` does for several; return whether any of them removed something."""
        removed = False
        with self._database.transaction():
            latest = {(item.what, item.name): item for item in self.retractions()}
            for one in retractions:
                table = {"label": labels, "accept": accepts, "mute": mutes}[one.what]
                (key,) = table.primary_key
                removed |= self._delete(
                    table, (key == one.name) & (table.c.at <= one.at) & (table.c.who != BY_TAG)
                )
                earlier = latest.get((one.what, one.name))
                if earlier is None or earlier.at < one.at:
                    latest[one.what, one.name] = one
            if retractions:
                self._notes.put(
                    _RETRACTIONS, [[*key, item.at.isoformat()] for key, item in sorted(latest.items())]
                )
        return removed

    def retractions(self) -> tuple[Retraction, ...]:
        """Return what was removed, the last time of each."""
        kept = cast(
            "Sequence[tuple[Literal['label', 'accept', 'mute'], str, str]]",
            self._notes.get(_RETRACTIONS) or (),
        )
        with reading("a retraction"):
            return tuple(Retraction(what, name, datetime.fromisoformat(at)) for what, name, at in kept)

    def end_mutes(self, *, now: datetime) -> None:
        """Delete the mutes that are over; the alerts they held back are due again."""
        self._delete(mutes, mutes.c.until <= now)

    def follow_tags(self, *, now: datetime) -> None:
        """Make labels of the tags that runs have in W&B; only what differs is written.

        A tag never beats a label from the shell, which carries a reason. A tag that a run had when it was
        started again is about the start before; taken off and put on again, it is about the newest one.
        """
        with self._database.transaction():
            spoken = self._tags_of_earlier_starts()
            tagged = self._tags(runs.c.tags.icontains("step0-"))
            all_labels = self.labels()
            by_tag = {run: label.label for run, label in all_labels.items() if label.who == BY_TAG}
            wanted = {
                run: label
                for run, tags in tagged.items()
                if (label := label_of(tags - spoken.get(run, set())))
                and (run in by_tag or run not in all_labels)
            }
            for run in by_tag.keys() - wanted.keys():
                self._delete(labels, labels.c.run == run)
            for run, label in wanted.items():
                if by_tag.get(run) != label:
                    self.save(Label(run, label, "", BY_TAG, now))

    def _tags(self, where: ColumnElement[bool]) -> dict[str, set[str]]:
        rows = self._database.connection.execute(select(runs.c.run, runs.c.tags).where(where))
        return {row.run: set(cast("list[str]", parsed(row.tags))) if row.tags else set() for row in rows}

    def _tags_of_earlier_starts(self) -> dict[str, set[str]]:
        """Return by run key the tags that are about its earlier starts; those taken off meanwhile are forgotten."""
        connection = self._database.connection
        is_tagged = runs.c.superseded_by.is_not(None) & runs.c.tags.icontains("step0-")
        newest = {
            row.run: row.by
            for row in connection.execute(
                select(runs.c.run, runs.c.superseded_by.label("by")).where(is_tagged)
            )
        }
        earlier, now = self._tags(is_tagged), self._tags(runs.c.run.in_(set(newest.values())))
        found: dict[str, set[str]] = {}
        for run, tags in earlier.items():
            kept = tags & now.get(newest[run], tags)
            if kept != tags:
                values = {"tags": tags_text(tuple(sorted(kept)))}
                connection.execute(update(runs).where(runs.c.run == run).values(values))
            found[newest[run]] = found.get(newest[run], set()) | kept
        return found

    def _all(self, kind: type[_Kind]) -> dict[str, _Kind]:
        table = _TABLES[kind]
        (key,) = table.primary_key
        with self._database.transaction() as connection:
            rows = connection.execute(select(table).order_by(key)).mappings()
            return {row[key.name]: kind(**cast("dict[str, Any]", row)) for row in rows}

    def _delete(self, table: Table, where: ColumnElement[bool]) -> bool:
        (key,) = table.primary_key
        with self._database.transaction() as connection:
            names = connection.execute(select(key).where(where)).scalars().all()
            connection.execute(delete(table).where(where))
            (self._stale.mark_runs if table is labels else self._stale.mark_setups)(names)
            return bool(names)
