"""Verdicts and ranges of the last sync: written where they differ, read without pandas and scipy."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from sqlalchemy import case, delete, func, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import FLAGGED, VERDICTS, CheckResult, EarlierStart, JudgedRun, SetupRange, chunks
from step0_wandb.store.codec import reading
from step0_wandb.store.notes import CHANGED_AT, Notes
from step0_wandb.store.rows import METRICS
from step0_wandb.store.schema import clean, labels, ranges, runs, verdicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database
    from step0_wandb.store.rows import Columns

_DECIDED = (*METRICS, "profile", "setup", "gap_metric", "verdict", "label", "reasons", "ratio", "p_value")
"""The fields of a `JudgedRun` that judging decides; who the run is stands in the table ``runs``."""
_NEWS = ("verdict", "label", *METRICS)
"""The fields whose change people want to hear about; a range moves a little with every new run."""
_IDENTITY = [
    runs.c[name] for name in ("run", "policy", "start", "name", "url", "user", "group", "created_at", "state")
]
PAGE = 1000
"""Verdicts that are read at once."""
_GRAVITY = case({name: at for at, name in enumerate(VERDICTS)}, value=verdicts.c.verdict)


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
            old = (verdicts.c.digest, verdicts.c.template, verdicts.c.body, verdicts.c.changed_at)
            joined: Select[Any] = select(runs.c.id, runs.c.run, runs.c.superseded_by, *old).outerjoin(
                verdicts, verdicts.c.run == runs.c.id
            )
            stored = {row.run: row for row in connection.execute(joined)}
            changed: list[str] = []
            columns: list[Columns] = []
            for run in judged:
                row = stored.pop(clean(run.run))
                document = _document(run)
                digest = _digest(document)
                if digest != row.digest:
                    is_news = self._is_news(row, document)
                    changed += [run.run] if is_news and row.superseded_by is None else []
                    columns.append(
                        {
                            "run": row.id,
                            "verdict": run.verdict,
                            "digest": digest,
                            **self._packed(document),
                            "changed_at": now if is_news else row.changed_at,
                        }
                    )
            gone = [row.id for row in stored.values() if row.digest is not None]
            self._write(columns, gone)
            if self._replace_ranges(list(setups)) or columns or gone:
                self._notes.put(CHANGED_AT, now.isoformat())
            self._notes.mark_stale(stale=False)
        return tuple(sorted(changed))

    def runs(self, **filters: Unpack[RunFilters]) -> list[JudgedRun]:
        """Return stored verdicts as a list; see `iterate`."""
        return list(self.iterate(**filters))

    def iterate(
        self,
        *,
        verdict: Collection[str] | None = None,
        since: datetime | None = None,
        user: str | None = None,
        setup: str | None = None,
        keys: Collection[str] | None = None,
    ) -> Iterator[JudgedRun]:
        """Yield stored verdicts: the gravest first, of these the newest first.

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
        only = None if keys is None else {clean(key) for key in keys}
        wanted = (
            select(runs.c.id, runs.c.run)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .where(*where)
            .order_by(_GRAVITY, runs.c.created_at.desc().nulls_last(), runs.c.run)
        )
        with self._database.transaction() as connection:
            numbers = [row.id for row in connection.execute(wanted) if only is None or row.run in only]
            earlier = self._earlier_starts(connection)
        for some in chunks(numbers, PAGE):
            yield from self._read(some, earlier)

    def remembered(self) -> dict[str, str]:
        """Return the verdicts that a new judgement has to know of, by run key.

        Left out is a verdict of another gap or setup (the run was started again, or profiles changed),
        and one that a person gave.
        """
        columns = (runs.c.run, runs.c.gap, runs.c.setup, verdicts.c.verdict)
        wanted: Select[Any] = (
            select(*columns, verdicts.c.template, verdicts.c.body)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .where(verdicts.c.verdict.in_(("healthy", "no-range", *FLAGGED)))
        )
        found: dict[str, str] = {}
        with self._database.transaction() as connection:
            for row in connection.execute(wanted):
                before = self._database.templates.unpack(row.template, row.body)
                same = repr(before["gap"]) == repr(row.gap) and before["setup"] == row.setup
                if same and before["label"] is None:
                    found[row.run] = row.verdict
        return found

    def counts(self) -> dict[str, int]:
        """Return how many runs have each verdict, the gravest first; verdicts without runs are left out."""
        counted = (
            select(verdicts.c.verdict, func.count().label("runs"))
            .join(runs, runs.c.id == verdicts.c.run)
            .where(runs.c.superseded_by.is_(None))
            .group_by(verdicts.c.verdict)
        )
        with self._database.transaction() as connection:
            found = {row.verdict: row.runs for row in connection.execute(counted)}
        return {verdict: found[verdict] for verdict in VERDICTS if verdict in found}

    def ranges(self) -> list[SetupRange]:
        """Return the stored ranges, by setup."""
        with self._database.transaction() as connection:
            found = connection.execute(select(ranges).order_by(ranges.c.setup)).mappings()
            with reading("a range"):
                return [SetupRange(**row) for row in found]

    def _is_news(self, row: Row[Any], document: Mapping[str, Json]) -> bool:
        """Return whether a verdict differs from the stored one in what people want to hear about."""
        if row.digest is None:
            return True
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
    ) -> Iterator[JudgedRun]:
        """Yield the runs with these row numbers, in their order."""
        wanted: Select[Any] = (
            select(runs.c.id, *_IDENTITY, verdicts.c.template, verdicts.c.body, labels.c.label)
            .join(verdicts, verdicts.c.run == runs.c.id)
            .outerjoin(labels, labels.c.run == runs.c.run)
            .where(runs.c.id.in_(numbers))
        )
        with self._database.transaction() as connection:
            rows = {row.id: row for row in connection.execute(wanted)}
            found = [self._judged(rows[number]) for number in numbers if number in rows]
        for run in found:
            before = tuple(earlier.get(run.run, ()))
            yield replace(run, starts=run.start, earlier=before) if before else run

    def _judged(self, row: Row[Any]) -> JudgedRun:
        with reading(f"the verdict of {row.run}"):
            return self._verdict(row)

    def _verdict(self, row: Row[Any]) -> JudgedRun:
        fields = cast("dict[str, Any]", self._database.templates.unpack(row.template, row.body))
        if fields["verdict"] not in VERDICTS:
            raise ValueError(f"{fields['verdict']!r} is not a verdict")
        checks, used = fields.pop("checks"), fields.pop("range")
        fields |= {column.name: getattr(row, column.name) for column in (*_IDENTITY, labels.c.label)}
        fields["reasons"] = tuple(fields["reasons"])
        fields["checks"] = tuple(CheckResult(**checks[at]) for at in sorted(checks, key=int))
        return JudgedRun(**fields, range=SetupRange(**used) if used else None)

    def _write(self, columns: list[Columns], gone: list[int]) -> None:
        statement = upsert(verdicts)
        values = {
            column.name: statement.excluded[column.name] for column in verdicts.c if not column.primary_key
        }
        connection = self._database.connection
        if columns:
            connection.execute(statement.on_conflict_do_update(index_elements=["run"], set_=values), columns)
        for number in gone:
            connection.execute(delete(verdicts).where(verdicts.c.run == number))

    def _replace_ranges(self, setups: list[SetupRange]) -> bool:
        """Replace all ranges where any differs; return whether one did."""
        setups = sorted(setups, key=attrgetter("setup"))
        if setups == self.ranges():
            return False
        connection = self._database.connection
        connection.execute(delete(ranges))
        if setups:
            connection.execute(insert(ranges), [_fields(setup) for setup in setups])
        return True


def _document(run: JudgedRun) -> dict[str, Json]:
    return {
        **{name: getattr(run, name) for name in _DECIDED},
        "reasons": list(run.reasons),
        "checks": {str(at): _fields(check) for at, check in enumerate(run.checks)},
        "range": _fields(run.range) if run.range else None,
    }


def _fields(flat: CheckResult | SetupRange) -> dict[str, Any]:
    """Return the fields of a record without records in it, as `asdict` would in five times the time."""
    return {name: getattr(flat, name) for name in flat.__slots__}


def _digest(document: Mapping[str, Json]) -> bytes:
    return blake2b(json.dumps(document, sort_keys=True).encode("ascii"), digest_size=8).digest()
