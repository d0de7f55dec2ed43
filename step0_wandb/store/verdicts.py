"""Verdicts and ranges of the last sync: written where they differ, read without pandas and scipy."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from sqlalchemy import Float, Integer, case, delete, func, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import (
    FLAGGED,
    VERDICTS,
    CheckResult,
    EarlierStart,
    JudgedRun,
    Level,
    Question,
    SetupRange,
    chunks,
)
from step0_wandb.store.codec import parsed, reading
from step0_wandb.store.file import explained
from step0_wandb.store.notes import CHANGED_AT, Notes
from step0_wandb.store.rows import METRICS, checked
from step0_wandb.store.runs import selected
from step0_wandb.store.schema import clean, labels, ranges, runs, verdicts
from step0_wandb.store.stale import Stale
from step0_wandb.text.json_documents import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database
    from step0_wandb.store.rows import Columns
    from step0_wandb.store.runs import RunSelection

_DECIDED = (*METRICS, "profile", "setup", "gap_metric", "verdict", "label", "reasons", "ratio", "p_value")
"""The fields of a `JudgedRun` that judging decides; who the run is stands in the table ``runs``."""
_NEWS = ("verdict", "label", *METRICS)
"""The fields whose change people want to hear about; a range moves a little with every new run."""
_IDENTITY = [
    runs.c[name] for name in ("run", "policy", "start", "name", "url", "user", "group", "created_at", "state")
]
_ABOUT = (*(column.name for column in _IDENTITY), "label")
_NUMBERS = [column.name for column in ranges.c if isinstance(column.type, Float | Integer)]
PAGE = 1000
"""Verdicts that are read at once."""
_GRAVITY = case({name: at for at, name in enumerate(VERDICTS)}, value=verdicts.c.verdict)


REMEMBERED = frozenset({"healthy", "no-range", *FLAGGED})
"""Verdicts that a later judgment has to know of."""


@dataclass(slots=True)
class _Saved:
    """The runs whose verdicts were given, those of them that changed, and whether anything was written."""

    numbers: set[int] = field(default_factory=set)
    changed: list[str] = field(default_factory=list)
    written: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """The keys of the runs that a page shows, and how many others there are by setup and verdict."""

    keys: Sequence[str]
    left_out: Mapping[tuple[str | None, str], int]


class RunFilters(TypedDict, total=False):
    """Which runs are wanted; see `VerdictStore.iterate`."""

    verdict: Collection[str] | None
    since: datetime | None
    user: str | None
    setup: str | None
    keys: Collection[str] | None


class VerdictStore:
    """Verdicts by run, and ranges by setup."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._notes = Notes(database)

    def save(
        self, judged: Iterable[JudgedRun], setups: Iterable[SetupRange], *, now: datetime
    ) -> tuple[str, ...]:
        """Replace all verdicts and ranges; only rows that differ are written.

        Returns
        -------
        tuple of str
            The keys of the runs whose verdict, label, or values differ from before, sorted; none of
            starts that are not the newest of their run.

        Raises
        ------
        KeyError
            A run is not in the store.
        """
        with self._database.transaction() as connection:
            before = set(connection.execute(select(verdicts.c.run)).scalars())
            saved = self._save(judged, now=now)
            gone = before - saved.numbers
            for number in gone:
                connection.execute(delete(verdicts).where(verdicts.c.run == number))
            if self._replace_ranges(list(setups)) or saved.written or gone:
                self._notes.put(CHANGED_AT, now.isoformat())
            Stale(self._database).clear()
        return tuple(sorted(saved.changed))

    def save_some(self, judged: Iterable[JudgedRun], *, now: datetime) -> tuple[str, ...]:
        """Write the verdicts of some runs; see `save`. Ranges and the note of what is stale stay."""
        with self._database.transaction():
            saved = self._save(judged, now=now)
            if saved.written:
                self._notes.put(CHANGED_AT, now.isoformat())
        return tuple(sorted(saved.changed))

    def save_ranges(self, setups: Iterable[SetupRange], *, now: datetime, gone: Iterable[str] = ()) -> None:
        """Write the ranges of some setups, and delete those of setups without runs."""
        some, left = list(setups), list(gone)
        if not some and not left:
            return
        with self._database.transaction() as connection:
            for names in chunks((*(setup.setup for setup in some), *left), PAGE):
                connection.execute(delete(ranges).where(ranges.c.setup.in_(names)))
            if some:
                connection.execute(insert(ranges), [_range_columns(setup) for setup in some])
            self._notes.put(CHANGED_AT, now.isoformat())

    def _save(self, judged: Iterable[JudgedRun], *, now: datetime) -> _Saved:
        saved = _Saved()
        for some in chunks(judged, PAGE):
            rows = self._stored(clean(run.run) for run in some)
            columns: list[Columns] = []
            for run in some:
                row = rows[clean(run.run)]
                saved.numbers.add(row.id)
                document = _document(run)
                digest = _digest(document)
                is_remembered = run.label is None and run.verdict in REMEMBERED
                if digest == row.digest and is_remembered == row.remembered:
                    continue
                is_news = self._is_news(row, document)
                saved.changed += [run.run] if is_news and row.superseded_by is None else []
                columns.append(
                    {
                        "run": row.id,
                        "verdict": run.verdict,
                        "digest": digest,
                        **self._packed(document),
                        "changed_at": now if is_news else row.changed_at,
                        "remembered": is_remembered,
                    }
                )
            self._write(columns)
            saved.written |= bool(columns)
        return saved

    def _stored(self, keys: Iterable[str]) -> dict[str, Row[Any]]:
        columns = ("digest", "template", "body", "changed_at", "remembered")
        joined: Select[Any] = (
            select(runs.c.id, runs.c.run, runs.c.superseded_by, *(verdicts.c[name] for name in columns))
            .outerjoin(verdicts, verdicts.c.run == runs.c.id)
            .where(runs.c.run.in_(list(keys)))
        )
        return {row.run: row for row in self._database.connection.execute(joined)}

    def runs(self, **filters: Unpack[RunFilters]) -> list[JudgedRun]:
        """Return stored verdicts as a list; see `iterate`."""
        return list(self.iterate(**filters))

    def iterate(self, **filters: Unpack[RunFilters]) -> Iterator[JudgedRun]:
        """Yield stored verdicts as records; see `documents`."""
        for fields in self.documents(**filters):
            with explained(self._database.file.path):
                run = _judged(fields)
            yield run

    def documents(
        self,
        *,
        verdict: Collection[str] | None = None,
        since: datetime | None = None,
        user: str | None = None,
        setup: str | None = None,
        keys: Collection[str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield stored verdicts by field: the gravest first, of these the newest first.

        Only so many are in memory at a time as are read at once. Name, state and label are today's, verdict and reasons those of the last sync.

        Parameters
        ----------
        verdict : collection of str, optional
            Only these verdicts.
        since : datetime, optional
            Only runs created then or later; none whose time of creation is not known.
        user : str, optional
            Only runs of this user.
        setup : str, optional
            Only setups whose label holds this text, in any case.
        keys : collection of str, optional
            Only these runs.
        """
        where: list[ColumnElement[bool]] = [runs.c.superseded_by.is_(None)]
        if verdict is not None:
            where.append(verdicts.c.verdict.in_(verdict))
        if since is not None:
            where.append(runs.c.created_at >= since)
        if user is not None:
            where.append(runs.c.user == user)
        if setup is not None:
            where.append(runs.c.setup.icontains(setup, autoescape=True))
        wanted = (
            select(runs.c.id, runs.c.run)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .order_by(_GRAVITY, runs.c.created_at.desc().nulls_last(), runs.c.run)
        )
        if keys is not None and len(keys) <= PAGE:
            where.append(runs.c.run.in_([clean(key) for key in keys]))
        only = None if keys is None else {clean(key) for key in keys}
        with self._database.transaction() as connection:
            found = connection.execute(wanted.where(*where))
            numbers = [number for number, run in found if only is None or run in only]
            earlier = self._earlier_starts(connection)
        for some in chunks(numbers, PAGE):
            yield from self._read(some, earlier)

    def for_page(self, newest: int) -> Shown:
        """Return which runs a page shows: flagged and labeled ones, and some of the newest of each setup."""
        age = (runs.c.created_at.desc().nulls_last(), runs.c.run)
        place = func.row_number().over(partition_by=runs.c.setup, order_by=age).label("place")
        joined: Select[Any] = (
            select(runs.c.run, runs.c.setup, verdicts.c.verdict, labels.c.label, place)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .outerjoin(labels, labels.c.run == runs.c.run)
            .where(runs.c.superseded_by.is_(None))
        )
        one = joined.subquery()
        is_shown = one.c.verdict.in_(FLAGGED) | one.c.label.is_not(None) | (one.c.place <= newest)
        rest = select(one.c.setup, one.c.verdict, func.count().label("runs")).where(~is_shown)
        with self._database.transaction() as connection:
            keys = connection.execute(select(one.c.run).where(is_shown)).scalars().all()
            counted = connection.execute(rest.group_by(one.c.setup, one.c.verdict))
            return Shown(keys, {(row.setup, row.verdict): row.runs for row in counted})

    def newest_healthy(self, setup: str, most: int) -> list[JudgedRun]:
        """Return the newest healthy runs of a setup, the newest last."""
        of = (runs.c.setup == clean(setup), verdicts.c.verdict == "healthy", runs.c.superseded_by.is_(None))
        wanted = select(runs.c.run).join(verdicts, verdicts.c.run == runs.c.id).where(*of)
        newest = wanted.order_by(runs.c.created_at.desc().nulls_last(), runs.c.run.desc()).limit(most)
        with self._database.transaction() as connection:
            keys = list(connection.execute(newest).scalars())
        found = {clean(run.run): run for run in self.iterate(keys=keys)}
        return [found[key] for key in reversed(keys)]

    def healthy_setups(self, beginning: str) -> list[str]:
        """Return the setups with a healthy run whose label begins with a text, sorted."""
        start = clean(beginning)
        within = (runs.c.setup >= start, runs.c.setup < start + chr(0x10FFFF))
        wanted = select(runs.c.setup).join(verdicts, verdicts.c.run == runs.c.id)
        healthy = wanted.where(*within, verdicts.c.verdict == "healthy").distinct().order_by(runs.c.setup)
        with self._database.transaction() as connection:
            return list(connection.execute(healthy).scalars())

    def remembered(self, only: RunSelection | None = None) -> dict[str, str]:
        """Return the verdicts that a new judgment has to know of, by run key.

        Left out is a verdict of another gap or setup (the run was started again, or profiles changed),
        and one that a person gave.
        """
        wanted = (
            select(runs.c.run, verdicts.c.verdict)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .where(verdicts.c.remembered)
        )
        with self._database.transaction() as connection:
            return {
                row.run: row.verdict
                for where in selected(only)
                for row in connection.execute(wanted.where(where))
            }

    def keys(self, only: RunSelection | None = None) -> set[str]:
        """Return the stored keys of the runs that have a verdict."""
        wanted = select(runs.c.run).join(verdicts, verdicts.c.run == runs.c.id)
        with self._database.transaction() as connection:
            return {
                key for where in selected(only) for key in connection.execute(wanted.where(where)).scalars()
            }

    def counts(self) -> dict[str, int]:
        """Return how many runs have each verdict, the gravest first; verdicts without runs are left out."""
        counted = select(verdicts.c.verdict, func.count().label("runs")).group_by(verdicts.c.verdict)
        earlier = counted.join(runs, runs.c.id == verdicts.c.run).where(runs.c.superseded_by.is_not(None))
        with self._database.transaction() as connection:
            found = {row.verdict: row.runs for row in connection.execute(counted)}
            for row in connection.execute(earlier):
                found[row.verdict] -= row.runs
        return {verdict: found[verdict] for verdict in VERDICTS if found.get(verdict)}

    def ranges(self) -> list[SetupRange]:
        """Return the stored ranges, by setup."""
        with self._database.transaction() as connection:
            found = connection.execute(select(ranges).order_by(ranges.c.setup)).mappings()
            with reading("a range"):
                return [_range_of({**row}) for row in found]

    def _is_news(self, row: Row[Any], document: Mapping[str, Json]) -> bool:
        """Return whether a verdict differs from the stored one in what people want to hear about."""
        if row.digest is None:
            return True
        with reading(f"the verdict of {row.run}"):
            before = self._database.templates.unpack(row.template, row.body)
            return any(repr(document[name]) != repr(before[name]) for name in _NEWS)

    def _packed(self, document: Mapping[str, Json]) -> Columns:
        packed = self._database.templates.pack("verdict", document)
        return {"template": packed.template, "body": packed.body}

    def _earlier_starts(self, connection: Connection) -> Mapping[str, Sequence[EarlierStart]]:
        """Return the starts before the newest one of each run that has some, the oldest first."""
        wanted = (
            select(runs.c.superseded_by, runs.c.start, runs.c.created_at, runs.c.gap, verdicts.c.verdict)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .where(runs.c.superseded_by.is_not(None))
            .order_by(runs.c.start)
        )
        found: dict[str, list[EarlierStart]] = defaultdict(list)
        for row in connection.execute(wanted):
            start = EarlierStart(row.start, row.created_at, row.verdict, row.gap)
            found[row.superseded_by].append(start)
        return found

    def _read(
        self, numbers: Sequence[int], earlier: Mapping[str, Sequence[EarlierStart]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the runs with these row numbers, in their order."""
        wanted: Select[Any] = (
            select(runs.c.id, *_IDENTITY, verdicts.c.template, verdicts.c.body, labels.c.label)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .outerjoin(labels, labels.c.run == runs.c.run)
            .where(runs.c.id.in_(numbers))
        )
        with self._database.transaction() as connection:
            rows = {row.id: row for row in connection.execute(wanted)}
            found = [self._fields_of(rows[number]) for number in numbers if number in rows]
        for fields in found:
            before = tuple(earlier.get(fields["run"], ()))
            yield fields | {"starts": fields["start"] if before else 1, "earlier": before}

    def _fields_of(self, row: Row[Any]) -> dict[str, Any]:
        with reading(f"the verdict of {row.run}"):
            fields = cast("dict[str, Any]", self._database.templates.unpack(row.template, row.body))
            if fields["verdict"] not in VERDICTS:
                raise ValueError(f"{fields['verdict']!r} is not a verdict")
            checks = fields["checks"]
            fields["checks"] = [checks[at] for at in sorted(checks, key=int)]
            return fields | {name: getattr(row, name) for name in _ABOUT}

    def _write(self, columns: list[Columns]) -> None:
        statement = upsert(verdicts)
        values = {
            column.name: statement.excluded[column.name] for column in verdicts.c if not column.primary_key
        }
        connection = self._database.connection
        if columns:
            connection.execute(statement.on_conflict_do_update(index_elements=["run"], set_=values), columns)

    def _replace_ranges(self, setups: list[SetupRange]) -> bool:
        """Replace all ranges where any differs; return whether one did."""
        setups = sorted(setups, key=attrgetter("setup"))
        if setups == self.ranges():
            return False
        connection = self._database.connection
        connection.execute(delete(ranges))
        if setups:
            connection.execute(insert(ranges), [_range_columns(setup) for setup in setups])
        return True


def _judged(fields: Mapping[str, Any]) -> JudgedRun:
    with reading(f"the verdict of {fields['run']}"):
        used = fields["range"]
        return JudgedRun(
            **{
                **fields,
                "reasons": tuple(fields["reasons"]),
                "checks": tuple(CheckResult(**check) for check in fields["checks"]),
                "range": _checked_range(used) if used else None,
            }
        )


def _document(run: JudgedRun) -> dict[str, Json]:
    return {
        **{name: getattr(run, name) for name in _DECIDED},
        "reasons": list(run.reasons),
        "checks": {str(at): _fields(check) for at, check in enumerate(run.checks)},
        "range": _fields(run.range) if run.range else None,
    }


def _range_columns(setup: SetupRange) -> Columns:
    question = setup.question and json.dumps(plain(setup.question), sort_keys=True)
    return _fields(setup) | {"question": question}


def _range_of(row: Mapping[str, Any]) -> SetupRange:
    question = cast("Any", parsed(row["question"])) if row["question"] else None
    if question:
        levels = tuple(Level(level["center"], tuple(level["runs"])) for level in question["levels"])
        question = Question(question["text"], levels, tuple(question["differs"]))
    return _checked_range({**row, "question": question})


def _checked_range(values: Mapping[str, Any]) -> SetupRange:
    for name in _NUMBERS:
        checked(values.get(name))
    return SetupRange(**values)


def _fields(flat: CheckResult | SetupRange) -> dict[str, Any]:
    """Return the fields of a record without records in it, as `asdict` would in five times the time."""
    return {name: getattr(flat, name) for name in flat.__slots__}


def _digest(document: Mapping[str, Json]) -> bytes:
    return blake2b(json.dumps(document, sort_keys=True).encode("ascii"), digest_size=8).digest()
