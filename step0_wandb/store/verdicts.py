"""Verdicts and ranges of the last sync: written where they differ, read without pandas and scipy."""

from __future__ import annotations

import json
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import case, delete, func, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import VERDICTS, CheckResult, JudgedRun, SetupRange
from step0_wandb.store import notes
from step0_wandb.store.rows import METRICS
from step0_wandb.store.schema import clean, labels, ranges, runs, verdicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import ColumnElement

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database
    from step0_wandb.store.rows import Columns

_DECIDED = (*METRICS, "profile", "setup", "gap_metric", "verdict", "label", "reasons", "ratio", "p_value")
"""The fields of a `JudgedRun` that judging decides; who the run is stands in the table ``runs``."""
_SAID = ("verdict", "label", *METRICS)
"""The fields whose change people want to hear of; a range moves a little with every new run."""


def save(
    database: Database, judged: Iterable[JudgedRun], setups: Iterable[SetupRange], *, now: datetime
) -> tuple[str, ...]:
    """Replace verdicts and ranges; return the keys whose verdict, label or values differ, sorted."""
    with database.transaction() as connection:
        stored = {row.run: row for row in connection.execute(_stored())}
        changed: list[str] = []
        columns: list[Columns] = []
        for run in judged:
            row = stored.pop(clean(run.run))
            document = _document(run)
            digest = _digest(document)
            if digest == row.digest:
                continue
            news = row.digest is None or _said(document) != _said(
                database.templates.unpack(row.template, row.body)
            )
            changed += [run.run] if news else []
            packed = database.templates.pack("verdict", document)
            columns.append(
                {
                    "run": row.id,
                    "verdict": run.verdict,
                    "digest": digest,
                    "template": packed.template,
                    "body": packed.body,
                    "changed_at": now if news else row.changed_at,
                }
            )
        gone = [row.id for row in stored.values() if row.digest is not None]
        _write(database, columns, gone)
        moved = _replace_ranges(database, list(setups))
        if columns or gone or moved:
            notes.put(database, notes.CHANGED_AT, now.isoformat())
        if notes.get(database, notes.STALE):
            notes.put(database, notes.STALE, value=False)
    return tuple(sorted(changed))


def judged_runs(
    database: Database, *where: ColumnElement[bool], keys: Collection[str] | None = None
) -> list[JudgedRun]:
    """Return verdicts with who the run is today: the gravest first, of these the newest first."""
    wanted_keys = None if keys is None else {clean(key) for key in keys}
    gravity = case({name: at for at, name in enumerate(VERDICTS)}, value=verdicts.c.verdict)
    identity = ("run", "name", "url", "user", "group", "created_at", "state")
    wanted = (
        select(*(runs.c[name] for name in identity), verdicts.c.template, verdicts.c.body, labels.c.label)
        .join(verdicts, verdicts.c.run == runs.c.id)
        .outerjoin(labels, labels.c.run == runs.c.run)
        .where(*where)
        .order_by(gravity, runs.c.created_at.desc().nulls_last(), runs.c.run)
    )
    with database.transaction() as connection:
        return [
            _judged(
                cast("dict[str, Any]", database.templates.unpack(row.template, row.body)),
                {name: getattr(row, name) for name in (*identity, "label")},
            )
            for row in connection.execute(wanted)
            if wanted_keys is None or row.run in wanted_keys
        ]


def counts(database: Database) -> dict[str, int]:
    """Return how many runs have each verdict, the gravest first."""
    counted = select(verdicts.c.verdict, func.count().label("runs")).group_by(verdicts.c.verdict)
    with database.transaction() as connection:
        found = {row.verdict: row.runs for row in connection.execute(counted)}
    return {verdict: found[verdict] for verdict in VERDICTS if verdict in found}


def setup_ranges(database: Database) -> list[SetupRange]:
    """Return the stored ranges, by setup."""
    with database.transaction() as connection:
        found = connection.execute(select(ranges).order_by(ranges.c.setup)).mappings()
        return [SetupRange(**row) for row in found]


def _stored() -> Any:
    old = (verdicts.c.digest, verdicts.c.template, verdicts.c.body, verdicts.c.changed_at)
    return select(runs.c.id, runs.c.run, *old).outerjoin(verdicts, verdicts.c.run == runs.c.id)


def _write(database: Database, columns: list[Columns], gone: list[int]) -> None:
    statement = upsert(verdicts)
    replace = {
        column.name: statement.excluded[column.name] for column in verdicts.c if not column.primary_key
    }
    if columns:
        database.connection.execute(
            statement.on_conflict_do_update(index_elements=["run"], set_=replace), columns
        )
    for number in gone:
        database.connection.execute(delete(verdicts).where(verdicts.c.run == number))


def _replace_ranges(database: Database, setups: list[SetupRange]) -> bool:
    """Replace all ranges where any differs; return whether one did."""
    setups = sorted(setups, key=attrgetter("setup"))
    if setups == setup_ranges(database):
        return False
    database.connection.execute(delete(ranges))
    if setups:
        database.connection.execute(insert(ranges), [_fields(setup) for setup in setups])
    return True


def _document(run: JudgedRun) -> dict[str, Json]:
    return {
        **{name: getattr(run, name) for name in _DECIDED},
        "reasons": list(run.reasons),
        "checks": {str(at): _fields(check) for at, check in enumerate(run.checks)},
        "range": _fields(run.range) if run.range else None,
    }


def _judged(document: dict[str, Any], identity: Mapping[str, Any]) -> JudgedRun:
    checks = document.pop("checks")
    place = document.pop("range")
    fields = {
        **document,
        **identity,
        "reasons": tuple(document["reasons"]),
        "checks": tuple(CheckResult(**checks[at]) for at in sorted(checks, key=int)),
        "range": SetupRange(**place) if place else None,
    }
    return JudgedRun(**fields)


def _fields(flat: CheckResult | SetupRange) -> dict[str, Any]:
    """Return the fields of a record without records in it, as `asdict` would in five times the time."""
    return {name: getattr(flat, name) for name in flat.__slots__}


def _said(document: Mapping[str, Json]) -> list[str]:
    return [repr(document[name]) for name in _SAID]


def _digest(document: Mapping[str, Json]) -> bytes:
    return blake2b(json.dumps(document, sort_keys=True).encode("ascii"), digest_size=8).digest()
