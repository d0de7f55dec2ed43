"""Alerts to send, and what was alerted: written with the verdicts, sent after them.

A message and its subjects are written in one transaction with the verdicts they are about, so that a
crash loses neither. Sending is tried until the channel accepts the message, always with the same text.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.store.schema import accepts, alerted, clean, outbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlalchemy import Connection, Row

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database

AlertLevel = Literal["broken", "suspect", "moved", "doubted", "question", "clear"]
"""Of a run: its verdict, or that an earlier one no longer holds. Of a setup: it moved upwards, or lies
above what its framework allows."""
CLEAR: Final = "clear"
Severity = Literal["ERROR", "WARN", "INFO"]
"""W&B's names for the severity of an alert."""

_OF_SETUPS = ("moved", "doubted", "question")
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alert is about: a run by its key, or a setup; each alerts once a level."""

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
    channel : str
        The name of one of the channels of `publish.alerts`.
    entity, project, run_id : str
        The W&B run that it is raised on.
    url : str or None
        The page that it leads to.
    subjects : tuple of Subject
        What it is about; several make it a digest.
    """

    channel: str
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
    """A message that is not sent yet; `failure` says why the last try failed."""

    number: int
    message: Message
    queued_at: datetime
    failure: str | None = None


class Outbox:
    """Messages, sent or not, and the runs and setups that they are about."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, message: Message, *, now: datetime) -> None:
        """Queue a message; none of its subjects may be among those already `alerted`."""
        values = {name: getattr(message, name) for name in _COLUMNS}
        with self._database.transaction() as connection:
            queued = insert(outbox).values(**values, queued_at=now).returning(outbox.c.id)
            number = connection.execute(queued).scalar_one()
            rows = [
                {"channel": message.channel, "subject": subject.name, "level": subject.level, "at": now}
                for subject in message.subjects
            ]
            connection.execute(insert(alerted).values(message=number), rows)

    def alerted(self, channel: str) -> set[Subject]:
        """Return what has its alert in a channel, sent or queued."""
        wanted = select(alerted.c.subject, alerted.c.level).where(alerted.c.channel == channel)
        with self._database.transaction() as connection:
            return {Subject(row.subject, row.level) for row in connection.execute(wanted)}

    def unsent(self) -> tuple[Queued, ...]:
        """Return the messages that are not sent yet, the gravest first, then in order of queueing."""
        wanted = select(outbox).where(outbox.c.sent_at.is_(None)).order_by(outbox.c.severity, outbox.c.id)
        with self._database.transaction() as connection:
            return tuple(
                Queued(row.id, _message(connection, row), row.queued_at, row.failure)
                for row in connection.execute(wanted)
            )

    def mark_sent(self, number: int, *, now: datetime) -> None:
        """Note that a message was accepted by its channel."""
        self._update(number, sent_at=now, failure=None)

    def mark_failed(self, number: int, why: str) -> None:
        """Note why a message was not accepted; the next sync tries again."""
        self._update(number, failure=why)

    def withdraw(self, number: int) -> None:
        """Delete a message that is no longer true, as if its subjects had never been alerted."""
        with self._database.transaction() as connection:
            connection.execute(delete(outbox).where(outbox.c.id == number))

    def _update(self, number: int, **values: object) -> None:
        with self._database.transaction() as connection:
            connection.execute(update(outbox).where(outbox.c.id == number).values(values))

    # ── shared between stores ───────────────────────────────────────────────

    def sent(self) -> list[dict[str, Json]]:
        """Return what was alerted, as plain JSON that `restore` of another store takes.

        One item is one run or setup (``subject``, a run's key or a setup's label) that was alerted in
        one ``channel`` at one ``level``. What is queued and not sent yet is not included.
        """
        wanted = (
            select(alerted, outbox.c.sent_at)
            .outerjoin(outbox, outbox.c.id == alerted.c.message)
            .where(alerted.c.message.is_(None) | outbox.c.sent_at.is_not(None))
            .order_by(alerted.c.channel, alerted.c.subject, alerted.c.level)
        )
        with self._database.transaction() as connection:
            return [
                {"channel": row.channel, "subject": row.subject, "level": row.level, "at": row.at.isoformat()}
                for row in connection.execute(wanted)
            ]

    def restore(self, rows: Iterable[Mapping[str, Json]]) -> None:
        """Note what another store has alerted, so that it is not sent twice.

        Messages queued here whose subjects were all alerted there are deleted. Alerts that a person has
        answered since, by accepting the setup, are not taken over.
        """
        with self._database.transaction() as connection:
            answered = {row.setup: row.at for row in connection.execute(select(accepts))}
            for row in rows:
                at = datetime.fromisoformat(str(row["at"])).astimezone(UTC)
                subject = Subject(clean(str(row["subject"])), cast("AlertLevel", row["level"]))
                if not (subject.is_setup and at <= answered.get(subject.name, _NEVER)):
                    _mark_alerted(connection, str(row["channel"]), subject, at)

    def forget_setup(self, setup: str, *, until: datetime) -> None:
        """Forget the alerts on a setup that a person has answered: later changes alert again."""
        answered = (alerted.c.subject == setup) & alerted.c.level.in_(_OF_SETUPS) & (alerted.c.at <= until)
        with self._database.transaction() as connection:
            numbers = connection.execute(select(alerted.c.message).where(answered)).scalars().all()
            connection.execute(delete(alerted).where(answered))
            _delete_empty(connection, numbers)

    def carry_over(self, setup: str, into: str) -> None:
        """Count what was told of a setup as told of another that has its runs now."""
        with self._database.transaction() as connection:
            for row in connection.execute(select(alerted).where(alerted.c.subject == setup)).mappings():
                values = {**row, "subject": into, "message": None}
                connection.execute(upsert(alerted).values(values).on_conflict_do_nothing())

    def rename(self, key: str, into: str) -> None:
        """Count the alerts on one run as alerts on another, which is the same run under a new key."""
        with self._database.transaction() as connection:
            renamed = update(alerted).where(alerted.c.subject == key).values(subject=into)
            connection.execute(renamed.prefix_with("OR IGNORE"))
            connection.execute(delete(alerted).where(alerted.c.subject == key))


_COLUMNS = tuple(field.name for field in fields(Message) if field.name != "subjects")


def _message(connection: Connection, row: Row[Any]) -> Message:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return Message(**values, subjects=_subjects(connection, row.id))


def _subjects(connection: Connection, number: int) -> tuple[Subject, ...]:
    rows = connection.execute(select(alerted).where(alerted.c.message == number))
    subjects = [Subject(row.subject, row.level) for row in rows]
    return tuple(sorted(subjects, key=attrgetter("name", "level")))


def _mark_alerted(connection: Connection, channel: str, subject: Subject, at: datetime) -> None:
    """Note that an alert was sent at a time, or earlier if that is known."""
    key = {"channel": channel, "subject": subject.name, "level": subject.level}
    waiting = (
        select(outbox.c.id)
        .join(alerted, alerted.c.message == outbox.c.id)
        .where(outbox.c.sent_at.is_(None), *(alerted.c[name] == value for name, value in key.items()))
    )
    numbers = connection.execute(waiting).scalars().all()
    statement = upsert(alerted).values(**key, at=at)
    values = {"at": func.min(alerted.c.at, statement.excluded.at)} | ({"message": None} if numbers else {})
    connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))
    _delete_empty(connection, numbers)


def _delete_empty(connection: Connection, numbers: Iterable[int | None]) -> None:
    """Delete the unsent messages that have no subject left."""
    for number in numbers:
        if number is not None and not _subjects(connection, number):
            connection.execute(delete(outbox).where(outbox.c.id == number, outbox.c.sent_at.is_(None)))
