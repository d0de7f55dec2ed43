"""Alerts on their way out, and what was alerted: written with the verdicts, sent after them.

A message and its subjects are one transaction with the verdicts they are about, so that a crash loses
neither. A message is sent until somebody takes it, always with the same words.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, cast

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.store.schema import accepts, alerted, clean, marks, outbox, runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy import ColumnElement, Connection

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database

Channel = Literal["wandb", "webhook", "log"]
AlertLevel = Literal["broken", "suspect", "moved", "doubted"]
"""Of a run: its verdict. Of a setup: it moved upwards, or lies above what its framework allows."""
Severity = Literal["ERROR", "WARN", "INFO"]
"""How W&B calls how grave an alert is."""

_OF_SETUPS = ("moved", "doubted")
_NEVER = datetime.min.replace(tzinfo=UTC)
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alert is about: a run by its key, or a setup, which is told once a level."""

    name: str
    level: AlertLevel

    @property
    def is_setup(self) -> bool:
        """Whether this is a setup."""
        return self.level in _OF_SETUPS


@dataclass(frozen=True, slots=True)
class Message:
    """One alert in one channel.

    Attributes
    ----------
    channel : {"wandb", "webhook", "log"}
        ``log``: for runs on disk, which no server can be asked to alert about.
    entity, project, run_id : str
        The W&B run that it is raised on.
    url : str or None
        The page that it leads to.
    subjects : tuple of Subject
        What it is about; several make it a digest.
    """

    channel: Channel
    severity: Severity
    title: str
    text: str
    entity: str
    project: str
    run_id: str
    url: str | None
    subjects: tuple[Subject, ...]


@dataclass(frozen=True, slots=True)
class Queued:
    """A message that nobody has taken yet; `failure` says why the last try failed."""

    number: int
    message: Message
    queued_at: datetime
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What matters of a run for alerting about it.

    Attributes
    ----------
    on_server : bool
        Whether the run was read from a server.
    deleted : bool
        Whether its server has deleted it.
    heard_at : datetime or None
        Its last sign of life, in UTC: heartbeat on a server, last write on disk.
    """

    on_server: bool
    deleted: bool
    heard_at: datetime | None


class Outbox:
    """The outbox of an open store; every method that writes is part of the transaction around it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, message: Message, *, now: datetime) -> None:
        """Queue a message, and note that its subjects, none of them `known`, have their alert."""
        values = {name: getattr(message, name) for name in _COLUMNS}
        with self._database.transaction() as connection:
            found = connection.execute(insert(outbox).values(**values, queued_at=now))
            number = found.inserted_primary_key[0] if found.inserted_primary_key else None
            rows = [
                {"channel": message.channel, "subject": subject.name, "level": subject.level, "at": now}
                for subject in message.subjects
            ]
            connection.execute(insert(alerted).values(message=number), rows)

    def known(self, channel: Channel) -> set[Subject]:
        """Return what has its alert in a channel, sent or queued."""
        wanted = select(alerted.c.subject, alerted.c.level).where(alerted.c.channel == channel)
        with self._database.transaction() as connection:
            return {Subject(row.subject, row.level) for row in connection.execute(wanted)}

    def unsent(self) -> tuple[Queued, ...]:
        """Return the messages that nobody has taken yet, the gravest first, then in order of queueing."""
        wanted = select(outbox).where(outbox.c.sent_at.is_(None)).order_by(outbox.c.severity, outbox.c.id)
        with self._database.transaction() as connection:
            return tuple(
                Queued(
                    row["id"],
                    Message(
                        **{name: row[name] for name in _COLUMNS}, subjects=_subjects(connection, row["id"])
                    ),
                    row["queued_at"],
                    row["failure"],
                )
                for row in connection.execute(wanted).mappings()
            )

    def sent(self, number: int, *, now: datetime) -> None:
        """Note that a message was taken."""
        self._set(number, sent_at=now, failure=None)

    def failed(self, number: int, why: str) -> None:
        """Note why a message was not taken; the next sync tries again."""
        self._set(number, failure=why)

    def withdraw(self, number: int) -> None:
        """Forget a message that is not true any more, as if its subjects had never been told."""
        with self._database.transaction() as connection:
            connection.execute(delete(outbox).where(outbox.c.id == number))

    def _set(self, number: int, **values: object) -> None:
        with self._database.transaction() as connection:
            connection.execute(update(outbox).where(outbox.c.id == number).values(values))


_COLUMNS = tuple(field.name for field in fields(Message) if field.name != "subjects")


def _subjects(connection: Connection, number: int) -> tuple[Subject, ...]:
    rows = connection.execute(select(alerted).where(alerted.c.message == number))
    found = [Subject(row.subject, row.level) for row in rows]
    return tuple(sorted(found, key=attrgetter("name", "level")))


def sent_alerts(database: Database) -> list[dict[str, Json]]:
    """Return what was alerted, as plain JSON."""
    wanted = (
        select(alerted, outbox.c.sent_at)
        .outerjoin(outbox, outbox.c.id == alerted.c.message)
        .where(alerted.c.message.is_(None) | outbox.c.sent_at.is_not(None))
        .order_by(alerted.c.channel, alerted.c.subject, alerted.c.level)
    )
    with database.transaction() as connection:
        return [
            {"channel": row.channel, "subject": row.subject, "level": row.level, "at": row.at.isoformat()}
            for row in connection.execute(wanted)
        ]


def restore(database: Database, rows: Iterable[Mapping[str, Json]]) -> None:
    """Note what another store has alerted.

    What waits here and was told there is told. What a person has answered since, by accepting the setup,
    is not taken over.
    """
    with database.transaction() as connection:
        answered = {row.setup: row.at for row in connection.execute(select(accepts))}
        for row in rows:
            at = datetime.fromisoformat(str(row["at"])).astimezone(UTC)
            subject = Subject(clean(str(row["subject"])), cast("AlertLevel", row["level"]))
            if not (subject.is_setup and at <= answered.get(subject.name, _NEVER)):
                _tell(connection, str(row["channel"]), subject, at)


def _tell(connection: Connection, channel: str, subject: Subject, at: datetime) -> None:
    """Note that somebody told of something at a time, or earlier if that is known."""
    key = {"channel": channel, "subject": subject.name, "level": subject.level}
    waiting = (
        select(outbox.c.id)
        .join(alerted, alerted.c.message == outbox.c.id)
        .where(outbox.c.sent_at.is_(None), *(alerted.c[name] == value for name, value in key.items()))
    )
    numbers = connection.execute(waiting).scalars().all()
    statement = upsert(alerted).values(**key, at=at)
    told = {"at": func.min(alerted.c.at, statement.excluded.at)} | ({"message": None} if numbers else {})
    connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=told))
    _delete_empty(connection, numbers)


def forget_setup(database: Database, setup: str, *, until: datetime) -> None:
    """Forget the alerts on a setup that a person has answered: what happens later is told anew."""
    answered = (alerted.c.subject == setup) & (alerted.c.level.in_(_OF_SETUPS)) & (alerted.c.at <= until)
    with database.transaction() as connection:
        numbers = connection.execute(select(alerted.c.message).where(answered)).scalars().all()
        connection.execute(delete(alerted).where(answered))
        _delete_empty(connection, [number for number in numbers if number is not None])


def rename(connection: Connection, key: str, into: str) -> None:
    """Let what was told of one run count for the other, which is the same run under another key."""
    told = select(alerted.c.channel, alerted.c.level).where(alerted.c.subject == into)
    doubles = {(row.channel, row.level) for row in connection.execute(told)}
    for row in connection.execute(select(alerted).where(alerted.c.subject == key)).all():
        same = (
            (alerted.c.subject == key) & (alerted.c.channel == row.channel) & (alerted.c.level == row.level)
        )
        if (row.channel, row.level) in doubles:
            connection.execute(delete(alerted).where(same))
        else:
            connection.execute(update(alerted).where(same).values(subject=into))


def _delete_empty(connection: Connection, numbers: Collection[int]) -> None:
    """Delete those of the unsent messages that are about nothing any more."""
    for number in numbers:
        if not _subjects(connection, number):
            connection.execute(delete(outbox).where(outbox.c.id == number, outbox.c.sent_at.is_(None)))


def whereabouts(database: Database, keys: Iterable[str]) -> dict[str, Whereabouts]:
    """Return by key what matters of runs for alerting about them; unknown keys are left out."""
    wanted = [clean(key) for key in keys]
    found: dict[str, Whereabouts] = {}
    with database.transaction() as connection:
        for start in range(0, len(wanted), _BATCH):
            found |= _whereabouts(connection, runs.c.run.in_(wanted[start : start + _BATCH]))
    return found


def _whereabouts(connection: Connection, where: ColumnElement[bool]) -> dict[str, Whereabouts]:
    written = select(func.max(marks.c.mtime_ns)).where(marks.c.run == runs.c.id).scalar_subquery()
    wanted = select(
        runs.c.run, runs.c.origin, runs.c.deleted_at, runs.c.heartbeat_at, written.label("written")
    )
    return {
        row.run: Whereabouts(
            row.origin == "server",
            row.deleted_at is not None,
            row.heartbeat_at
            or (None if row.written is None else datetime.fromtimestamp(row.written / 1e9, UTC)),
        )
        for row in connection.execute(wanted.where(where))
    }


def hear(database: Database, heartbeats: Mapping[str, datetime]) -> None:
    """Note when running runs were last heard of; verdicts do not depend on it."""
    with database.transaction() as connection:
        for key, moment in heartbeats.items():
            connection.execute(update(runs).where(runs.c.run == clean(key)).values(heartbeat_at=moment))
