"""Runs out of the store: as records, as facts, and as a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import delete, func, select, update

from step0_wandb.records import ALIVE
from step0_wandb.sources.base import FileMark
from step0_wandb.store import notes
from step0_wandb.store.columns import columns_of, frame_of
from step0_wandb.store.rows import facts_columns, facts_of, identity_of, record_of, rows_of, tags_text
from step0_wandb.store.schema import accepts, clean, labels, marks, run_sources, runs, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    import pandas as pd
    from sqlalchemy import ColumnElement, Row, Select

    from step0_wandb.records import Json, RunFacts, RunRecord
    from step0_wandb.store.columns import Wanted
    from step0_wandb.store.database import Database
    from step0_wandb.store.rows import Columns

PAGE = 1000
"""Runs that are read at once where each is unpacked."""
_HEAVY = ("config", "rows")


@dataclass(frozen=True, slots=True)
class SourceState:
    """What the store knows of a source.

    Attributes
    ----------
    read_at : datetime or None
        The last time anything of it was stored, in UTC.
    runs : int
        Runs that it has shown.
    """

    source: str
    read_at: datetime | None
    runs: int


class RunUpdate(Protocol):
    """What changed of a run whose step 0 is settled."""

    @property
    def key(self) -> str:
        """Return the run's key."""

    @property
    def name(self) -> str:
        """Return its display name."""

    @property
    def state(self) -> str:
        """Return its state."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Return its tags."""


def marks_of(database: Database, source: str) -> dict[str, FileMark]:
    """Return the marks of a source's files by path."""
    wanted = (
        select(marks, func.coalesce(runs.c.run, "").label("key"))
        .join(sources, sources.c.id == marks.c.source_id)
        .outerjoin(runs, runs.c.id == marks.c.run)
        .where(sources.c.source == source)
    )
    with database.transaction() as connection:
        return {
            row.path: FileMark(
                path=row.path,
                run=row.key,
                size=row.size,
                mtime_ns=row.mtime_ns,
                offset=row.offset,
                ended=row.ended,
                settled=row.settled,
            )
            for row in connection.execute(wanted)
        }


def record(database: Database, key: str) -> RunRecord | None:
    """Return one run as its source gave it."""
    with database.transaction() as connection:
        row = connection.execute(select(runs).where(runs.c.run == key)).first()
        return record_of(row, database.templates) if row else None


def records(database: Database, *where: ColumnElement[bool]) -> Iterator[RunRecord]:
    """Yield runs as their sources gave them, by key."""
    last = ""
    while True:
        with database.transaction() as connection:
            page = select(runs).where(runs.c.run > last, *where).order_by(runs.c.run).limit(PAGE)
            rows = connection.execute(page).all()
            found = [record_of(row, database.templates) for row in rows]
        yield from found
        if len(rows) < PAGE:
            return
        last = rows[-1].run


def configs(database: Database, wanted: Iterable[str]) -> Iterator[Mapping[str, Json]]:
    """Yield the config of each run that is known, in the order of the keys."""
    for key in wanted:
        found = record(database, key)
        if found is not None:
            yield found.config


def files(database: Database, key: str) -> tuple[str, ...]:
    """Return the paths of the files that a run was read from, sorted."""
    of_run = select(marks.c.path).join(runs, runs.c.id == marks.c.run).where(runs.c.run == key)
    with database.transaction() as connection:
        return tuple(sorted(set(connection.execute(of_run).scalars())))


def facts(database: Database, key: str) -> RunFacts | None:
    """Return what profiles and settings made of one run."""
    with database.transaction() as connection:
        row = connection.execute(select(runs).where(runs.c.run == key)).first()
        return facts_of(row, database.plans, rows_of(row, database.templates)) if row else None


def save_facts(database: Database, items: Iterable[tuple[str, RunFacts]]) -> None:
    """Replace what profiles and settings make of stored runs, where it differs."""
    new = {clean(key): some for key, some in items}
    wanted = list(new)
    with database.transaction() as connection:
        for start in range(0, len(wanted), PAGE):
            some = select(runs).where(runs.c.run.in_(wanted[start : start + PAGE]))
            for row in connection.execute(some).all():
                columns = facts_columns(new[row.run], rows_of(row, database.templates), database.plans)
                _update(database, row, columns)


def update_runs(database: Database, updates: Iterable[RunUpdate]) -> None:
    """Change name, state and tags of runs; what the store does not know is left out."""
    with database.transaction() as connection:
        for news in updates:
            row = connection.execute(select(runs).where(runs.c.run == news.key)).first()
            if row is not None:
                columns = {"name": news.name, "state": news.state, "tags": tags_text(news.tags)}
                _update(database, row, columns)


def mark_deleted(database: Database, deleted: Iterable[str], *, now: datetime) -> None:
    """Mark runs that their server has deleted."""
    with database.transaction() as connection:
        for key in deleted:
            connection.execute(update(runs).where(runs.c.run == key).values(deleted_at=now))


def forget_marks(database: Database, status: str) -> None:
    """Forget how far the files of runs of one step-0 status were read, so that they are read anew."""
    some = select(runs.c.id).where(runs.c.step0 == status)
    with database.transaction() as connection:
        connection.execute(delete(marks).where(marks.c.run.in_(some)))


def frame(database: Database, wanted: Wanted) -> pd.DataFrame:
    """Return all runs as a DataFrame, see `columns.COLUMNS`, ordered by key."""
    with database.transaction():
        rows = sorted(_columns(database, wanted), key=itemgetter("run"))
    return frame_of(rows, wanted)


def keys(database: Database, *where: ColumnElement[bool]) -> tuple[str, ...]:
    """Return the keys of runs, in their order."""
    with database.transaction() as connection:
        return tuple(connection.execute(select(runs.c.run).where(*where).order_by(runs.c.run)).scalars())


def of_source(source: str) -> ColumnElement[bool]:
    """Return the condition that a source has shown a run."""
    shown = (
        select(run_sources.c.run)
        .join(sources, sources.c.id == run_sources.c.source_id)
        .where(sources.c.source == source)
    )
    return runs.c.id.in_(shown)


def is_alive(*, alive: bool) -> ColumnElement[bool]:
    """Return the condition that a run may still log, or that it may not."""
    return runs.c.state.in_(ALIVE) if alive else runs.c.state.not_in(ALIVE)


def find(database: Database, text: str) -> tuple[str, ...]:
    """Return the keys that a person may mean: a key, as `key_text` shows it too, else a run id, else a name."""
    own_key = runs.c.run.in_((text, f"_/{text}"))
    for asked in (own_key, runs.c.run_id == text, runs.c.name == text):
        found = keys(database, asked)
        if found:
            return found
    return ()


def source_states(database: Database) -> tuple[SourceState, ...]:
    """Return what is known of every source, by name."""
    count = (
        select(sources.c.source, sources.c.read_at, func.count(run_sources.c.run).label("runs"))
        .outerjoin(run_sources, run_sources.c.source_id == sources.c.id)
        .group_by(sources.c.id)
        .order_by(sources.c.source)
    )
    with database.transaction() as connection:
        return tuple(SourceState(row.source, row.read_at, row.runs) for row in connection.execute(count))


def _update(database: Database, row: Row[Any], columns: Columns) -> None:
    """Write the columns that differ, and note that verdicts are no longer of today."""
    changes = {name: value for name, value in columns.items() if value != getattr(row, name)}
    if changes:
        database.connection.execute(update(runs).where(runs.c.id == row.id).values(changes))
        notes.put(database, notes.STALE, value=True)


def _columns(database: Database, wanted: Wanted) -> Iterator[Columns]:
    heavy = bool(wanted.names())
    needed = [column for column in runs.c if heavy or column.name not in _HEAVY]
    spoken = (labels.c.label, labels.c.why.label("label_why"), labels.c.who.label("label_who"))
    found: Select[Any] = select(*needed, *spoken).outerjoin(labels, labels.c.run == runs.c.run)
    unpack = database.templates.unpack_under
    accepted = {row.setup: row.at for row in database.connection.execute(select(accepts))}
    for row in database.connection.execute(found):
        rows = rows_of(row, database.templates) if wanted.metrics else ()
        config = unpack(wanted.config, row.config_template, row.config) if wanted.config else {}
        run = identity_of(row, config=config, rows=rows)
        known_facts = facts_of(row, database.plans, rows)
        yield {
            **columns_of(run, known_facts),
            **(wanted.columns_of(run, known_facts) if heavy else {}),
            "label": row.label,
            "label_why": row.label_why,
            "label_who": row.label_who,
            "accepted_at": accepted.get(row.setup),
            "conflict": row.conflict,
        }
