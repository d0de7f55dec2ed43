"""Readings into the store: new runs, later readings of known ones, and one run seen from two sides.

Who a run is and what it logged are decided apart. The server's word on who it is stays. Of what it
logged the first step 0 stays: a later reading with other values is told, and not believed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import chunks
from step0_wandb.store.outbox import Outbox
from step0_wandb.store.rows import (
    METRICS,
    capture_columns,
    facts_columns,
    identity_columns,
    record_of,
    rows_of,
    step0_of,
)
from step0_wandb.store.schema import clean, labels, marks, run_sources, runs
from step0_wandb.store.stale import REMEMBERED_FOR, Stale

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Row

    from step0_wandb.records import HistoryRow, Json, RunFacts, RunRecord, Step0
    from step0_wandb.sources.base import FileMark, Reading
    from step0_wandb.store.database import Database
    from step0_wandb.store.rows import Columns, Origin
    from step0_wandb.store.templates import Templates

_NOT_LOGGED = repr(None)
BATCH = 500
"""Runs that are looked up and written together."""


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A reading about to be stored."""

    reading: Reading
    facts: RunFacts

    @property
    def record(self) -> RunRecord:
        return self.reading.record

    @property
    def key(self) -> str:
        return clean(self.record.key)

    @property
    def run_id(self) -> str:
        return clean(self.record.run_id)

    @property
    def found(self) -> bool:
        return self.facts.step0.status == "found"

    @property
    def origin(self) -> Origin:
        return "disk" if self.reading.marks else "server"

    def may_replace(self, row: Row[Any]) -> bool:
        """Whether this reading's word counts as much as that of the stored run."""
        return self.origin in ("server", row.origin)

    def is_twin_of(self, row: Row[Any], templates: Templates) -> bool:
        """Whether a stored run under another key is this one, read on the other side or moved since."""
        if row.run == self.key:
            return False
        if row.origin == self.origin or row.project != clean(self.record.project):
            return self.has_moved_from(row)
        return self.has_values_of(row) or self.began_as(row, templates)

    def has_moved_from(self, row: Row[Any]) -> bool:
        """Whether a stored run of another project is this one: W&B moves a run with its id and creation time."""
        return (
            row.origin == self.origin == "server"
            and (row.entity, row.project) != (clean(self.record.entity), clean(self.record.project))
            and row.policy == self.record.policy
            and row.created_at is not None
            and row.created_at == self.record.created_at
            and row.gap is not None
            and self.has_values_of(row)
        )

    def is_policy_of(self, row: Row[Any]) -> bool:
        """Whether this is one policy of a run that was stored as a whole."""
        return self.record.policy is not None and row.run == self.key.removesuffix(
            f"#{clean(self.record.policy)}"
        )

    def has_values_of(self, row: Row[Any]) -> bool:
        """Whether both have found the same step 0, bit by bit."""
        return self.found and row.step0 == "found" and _values(step0_of(row)) == _values(self.facts.step0)

    def began_as(self, row: Row[Any], templates: Templates) -> bool:
        """Whether neither found a step 0, and both logged the same first rows or come of one process."""
        if not self.facts.step0.status == row.step0 == "no-step0":
            return False
        stored = record_of(row, templates)
        if stored.rows or self.record.rows:
            return _same_rows(stored.rows, self.record.rows)  # with their times
        return not _writers(stored).isdisjoint(_writers(self.record))

    def completes(self, row: Row[Any]) -> bool:
        """Whether this has found the stored step 0 again, bit by bit, and maybe metrics that it lacked."""
        kept, found = _values(step0_of(row)), _values(self.facts.step0)
        return all(before in (after, _NOT_LOGGED) for before, after in zip(kept, found, strict=True))


@dataclass(frozen=True, slots=True)
class _Superseded:
    """A start that is no longer the newest one of the run with the key `by`."""

    by: str
    start: int


@dataclass(slots=True)
class _Batch:
    """What is to be written for some readings, by run key.

    Attributes
    ----------
    absorbed : dict of str to str
        Runs that turned out to be another one.
    superseded : dict of str to Superseded
        Runs that have started again, by the key under which they are stored.
    keys : list of str
        The run that each reading belongs to.
    new : list of str
        The runs that were not known in any form.
    """

    inserts: list[Columns] = field(default_factory=list)
    updates: dict[tuple[str, ...], list[Columns]] = field(default_factory=dict)
    absorbed: dict[str, str] = field(default_factory=dict)
    superseded: dict[str, _Superseded] = field(default_factory=dict)
    marks: list[tuple[str, FileMark]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    def belongs_to(self, key: str, marks: Iterable[FileMark]) -> None:
        """Note which run a reading with these marks belongs to."""
        self.keys.append(key)
        self.marks += [(key, mark) for mark in marks]

    def update(self, key: str, columns: Columns) -> None:
        """Change some columns of a run; runs that change the same columns are written together."""
        if columns:
            self.updates.setdefault(tuple(columns), []).append({"key": key, **columns})


def save(database: Database, source_id: int, items: Iterable[tuple[Reading, RunFacts]]) -> tuple[str, ...]:
    """Store readings; return the keys of the runs that were not known before."""
    new: list[str] = []
    for some in _batches(_Incoming(reading, facts) for reading, facts in items):
        batch = _decide(database, some)
        _write(database, batch, source_id)
        new += batch.new
    return tuple(new)


def save_marks(database: Database, source_id: int, found: Iterable[FileMark]) -> None:
    """Store how far files were read that changed no run."""
    some = [(clean(mark.run), mark) for mark in found]
    numbers = _numbers(database, {key for key, _ in some})
    _write_marks(database, some, numbers, source_id)


def _batches(items: Iterable[_Incoming]) -> Iterator[list[_Incoming]]:
    """Yield readings in groups that hold no run id twice, so that one never hides another."""
    batch: dict[str, _Incoming] = {}
    for item in items:
        if item.run_id in batch or len(batch) == BATCH:
            yield list(batch.values())
            batch = {}
        batch[item.run_id] = item
    yield list(batch.values())


def _decide(database: Database, items: Sequence[_Incoming]) -> _Batch:
    stored: dict[str, list[Row[Any]]] = {}
    same_id = select(runs).where(runs.c.run_id.in_([item.run_id for item in items]))
    for row in database.connection.execute(same_id.order_by(runs.c.run)):
        stored.setdefault(row.run_id, []).append(row)
    batch = _Batch()
    for item in items:
        _decide_one(database, batch, item, stored.get(item.run_id, []))
    return batch


def _decide_one(database: Database, batch: _Batch, item: _Incoming, rows: Sequence[Row[Any]]) -> None:
    newest = [row for row in rows if row.superseded_by is None]
    own = next((row for row in newest if row.run == item.key), None)
    if own is not None and item.record.start < own.start:
        _decide_earlier(database, batch, item, rows)
        return
    whole = next((row for row in newest if item.is_policy_of(row)), None)
    if whole is not None:  # it was stored before its policies showed
        batch.absorbed[whole.run] = item.key
    twin = next((row for row in newest if item.is_twin_of(row, database.templates)), None)
    key = twin.run if twin is not None and item.origin == "disk" else item.key
    start = item.record.start if twin is None else max(item.record.start, twin.start)
    known = twin is not None or own is not None
    if own is not None and own.start < item.record.start:
        batch.superseded[own.run] = _Superseded(key, own.start)
        own = None
    if twin is not None and key == twin.run:
        if own is not None:
            batch.absorbed[own.run] = key
        if start != twin.start:
            batch.update(key, {"start": start})
    else:
        if twin is not None:
            batch.absorbed[twin.run] = key
        if own is not None:
            batch.update(key, _changes(database, own, item))
        else:
            batch.inserts.append({**_insert(database, item), "run": key, "start": start})
            batch.new += [] if known else [key]
    batch.belongs_to(key, item.reading.marks)


def _decide_earlier(database: Database, batch: _Batch, item: _Incoming, rows: Sequence[Row[Any]]) -> None:
    """Take in a start that is not the newest one: seen for the first time, or again."""
    start = item.record.start
    own = next((row for row in rows if row.superseded_by == item.key and row.start == start), None)
    if own is not None:
        key = own.run
        batch.update(key, _changes(database, own, item))
    else:
        key = superseded_key(item.key, start, {row.run for row in rows})
        batch.inserts.append({**_insert(database, item), "run": key, "superseded_by": item.key})
    batch.belongs_to(key, item.reading.marks)


def superseded_key(key: str, start: int, taken: Collection[str]) -> str:
    """Return the key under which an earlier start of a run is stored.

    Examples
    --------
    >>> superseded_key("team/rl/job7", 1, taken=())
    'team/rl/job7@1'
    """
    stored = f"{key}@{start}"
    while stored in taken:  # W&B allows an @ in the id of another run
        stored += "@"
    return stored


def _insert(database: Database, item: _Incoming) -> Columns:
    """Return all columns of a new row; those of one statement must have the same names."""
    record = item.record
    return {
        "run": item.key,
        "entity": record.entity,
        "project": record.project,
        "run_id": record.run_id,
        "policy": record.policy,
        "start": record.start,
        "superseded_by": None,
        **_identity(item),
        **_capture(database, item),
    }


def _identity(item: _Incoming) -> Columns:
    return {"origin": item.origin, "deleted_at": None, **identity_columns(item.record)}


def _capture(database: Database, item: _Incoming) -> Columns:
    return {
        **capture_columns(item.record, database.templates),
        **facts_columns(item.facts, item.record.rows, database.plans),
    }


def _changes(database: Database, row: Row[Any], item: _Incoming) -> Columns:
    """Return the columns of a stored run that a later reading changes."""
    columns = _identity(item) if item.may_replace(row) else {}
    if row.step0 != "found":
        takes = item.found or item.may_replace(row)
    elif not item.found:
        takes = False
    elif item.completes(row) or _same_rows(item.record.rows, rows_of(row, database.templates)):
        takes = item.may_replace(row)
    else:
        takes = False
        columns["conflict"] = _conflict(step0_of(row), item.facts.step0)
    if takes:
        columns |= facts_columns(item.facts, item.record.rows, database.plans)
        columns |= _new_capture(database, row, item)
    return {name: value for name, value in columns.items() if value != getattr(row, name)}


def _conflict(kept: Step0, later: Step0) -> str:
    differ = [
        f"{name} {getattr(later, name)!r} instead of {getattr(kept, name)!r}"
        for name in METRICS
        if repr(getattr(later, name)) != repr(getattr(kept, name))
    ]
    return f"a later reading says {', '.join(differ)}; the first one is kept"


def _values(step0: Step0) -> tuple[str, ...]:
    """Return what tells one step 0 from another; a zero has no sign in the store."""
    values = [getattr(step0, name) for name in METRICS]
    return (*(repr(None if value is None else value + 0.0) for value in values), str(step0.gap_metric))


def _new_capture(database: Database, row: Row[Any], item: _Incoming) -> Columns:
    """Return config and rows to store; nothing where they are as stored, however these are packed."""
    stored = record_of(row, database.templates)
    same = _text(stored.config) == _text(item.record.config)
    if same and _same_rows(stored.rows, item.record.rows):
        return {}
    return capture_columns(item.record, database.templates)


def _writers(record: RunRecord) -> frozenset[str]:
    """Return the random names under which the client notes each process that writes a run."""
    about = record.config.get("_wandb")
    processes = about.get("e") if isinstance(about, dict) else None
    return frozenset(processes) if isinstance(processes, dict) else frozenset()


def _same_rows(rows: Sequence[HistoryRow], others: Sequence[HistoryRow]) -> bool:
    """Return whether all numbers are equal, NaN to itself too."""
    return [_text(row.values) for row in rows] == [_text(row.values) for row in others]


def _text(document: Mapping[str, Json]) -> str:
    return json.dumps(document, sort_keys=True)


def _write(database: Database, batch: _Batch, source_id: int) -> None:
    connection = database.connection
    changed = _changed_keys(batch)
    stale = Stale(database)
    stale.mark_runs(changed)
    for key, superseded in batch.superseded.items():
        _supersede(database, key, superseded)
    if batch.inserts:
        connection.execute(insert(runs), batch.inserts)
    for names, some in batch.updates.items():
        connection.execute(update(runs).where(runs.c.run == bindparam("key")), some)
        if REMEMBERED_FOR & set(names):
            stale.forget_verdicts(row["key"] for row in some)
    numbers = _numbers(database, {*batch.keys, *batch.absorbed})
    if batch.keys:
        connection.execute(
            upsert(run_sources).on_conflict_do_nothing(),
            [{"source_id": source_id, "run": numbers[key]} for key in batch.keys],
        )
    _write_marks(database, batch.marks, numbers, source_id)
    for key, into in batch.absorbed.items():
        _absorb(database, key, into, numbers)
    stale.mark_runs(changed)


def _changed_keys(batch: _Batch) -> list[str]:
    updated = (row["key"] for some in batch.updates.values() for row in some)
    starts = (superseded.by for superseded in batch.superseded.values())
    absorbed = (key for pair in batch.absorbed.items() for key in pair)
    return [*(row["run"] for row in batch.inserts), *updated, *starts, *absorbed, *batch.superseded]


def _write_marks(
    database: Database, found: Sequence[tuple[str, FileMark]], numbers: dict[str, int], source_id: int
) -> None:
    if not found:
        return
    statement = upsert(marks)
    replace = {column.name: statement.excluded[column.name] for column in marks.c if not column.primary_key}
    database.connection.execute(
        statement.on_conflict_do_update(index_elements=["source_id", "path"], set_=replace),
        [
            {
                "source_id": source_id,
                "path": mark.path,
                "run": numbers.get(key),
                "size": mark.size,
                "mtime_ns": mark.mtime_ns,
                "offset": mark.offset,
                "ended": mark.ended,
                "settled": mark.settled,
            }
            for key, mark in found
        ],
    )


def _numbers(database: Database, keys: Iterable[str]) -> dict[str, int]:
    """Return the rows of runs by key."""
    return {
        row.run: row.id
        for some in chunks(keys, BATCH)
        for row in database.connection.execute(select(runs.c.run, runs.c.id).where(runs.c.run.in_(some)))
    }


def _supersede(database: Database, key: str, superseded: _Superseded) -> None:
    """Give an earlier start a key of its own: what was said and sent about it stays with it."""
    connection = database.connection
    same_start = (runs.c.superseded_by == superseded.by) & (runs.c.start == superseded.start)
    connection.execute(delete(runs).where(same_start))  # seen from two sides
    run_id = select(runs.c.run_id).where(runs.c.run == key).scalar_subquery()
    taken = connection.execute(select(runs.c.run).where(runs.c.run_id.startswith(run_id))).scalars().all()
    stored = superseded_key(superseded.by, superseded.start, taken)
    values: Columns = {"run": stored, "superseded_by": superseded.by}
    newest = connection.execute(
        select(runs.c.entity, runs.c.project).where(runs.c.run == superseded.by)
    ).first()
    if newest is not None:  # a directory need not tell whose run it is
        values |= {"entity": newest.entity, "project": newest.project}
    connection.execute(update(runs).where(runs.c.run == key).values(values))
    _rename_label(database, key, stored)
    Outbox(database).rename(key, stored)


def _absorb(database: Database, key: str, into: str, numbers: Mapping[str, int]) -> None:
    """Make one run of two: what hangs on the first goes over to the second."""
    connection = database.connection
    _rename_label(database, key, into)
    Outbox(database).rename(key, into)
    earlier = update(runs).where(runs.c.superseded_by == key).values(superseded_by=into)
    connection.execute(earlier)
    _merge_rows(database, numbers[key], numbers[into])


def _merge_rows(database: Database, number: int, into: int) -> None:
    connection = database.connection
    connection.execute(update(marks).where(marks.c.run == number).values(run=into))
    showed = select(run_sources.c.source_id, bindparam("into", into)).where(run_sources.c.run == number)
    connection.execute(upsert(run_sources).from_select(["source_id", "run"], showed).on_conflict_do_nothing())
    connection.execute(delete(runs).where(runs.c.id == number))


def _rename_label(database: Database, key: str, into: str) -> None:
    connection = database.connection
    if connection.execute(select(labels.c.run).where(labels.c.run == into)).first():
        connection.execute(delete(labels).where(labels.c.run == key))
    else:
        connection.execute(update(labels).where(labels.c.run == key).values(run=into))
