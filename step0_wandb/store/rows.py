"""Records and facts as columns of the table ``runs``, and back."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from step0_wandb.records import Covariates, HistoryRow, RunFacts, RunRecord, Step0
from step0_wandb.store.codec import parsed, reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Row

    from step0_wandb.records import CheckPlan, Json
    from step0_wandb.store.templates import Plans, Templates

Origin = Literal["disk", "server"]
Columns = dict[str, Any]
"""Values by column, as SQLAlchemy takes them; `schema` has their types."""

METRICS = ("ppo_kl", "clip_frac", "gap")
COVARIATES = ("entropy", "seed", "data", "prompts")
_STATUSES = ("found", "pending", "no-step0")


def identity_columns(record: RunRecord) -> Columns:
    """Return who a run is, and how it does."""
    return {
        "name": record.name,
        "url": record.url,
        "user": record.user,
        "group": record.group,
        "job_type": record.job_type,
        "tags": tags_text(record.tags),
        "created_at": record.created_at,
        "state": record.state,
    }


def tags_text(tags: Sequence[str]) -> str | None:
    """Return tags as they are stored."""
    return json.dumps(tags) if tags else None


def capture_columns(record: RunRecord, templates: Templates) -> Columns:
    """Return what a run logged: its config, and the rows that matter."""
    config = templates.pack("config", record.config)
    rows = templates.pack(
        "rows",
        {str(at): {"order": row.order, "values": dict(row.values)} for at, row in enumerate(record.rows)},
    )
    return {
        "config_template": config.template,
        "config": config.body,
        "rows_template": rows.template,
        "rows": rows.body,
    }


def facts_columns(facts: RunFacts, rows: Sequence[HistoryRow], plans: Plans) -> Columns:
    """Return what profiles and settings make of a run with these history rows."""
    step0 = facts.step0
    return {
        "step0": step0.status,
        "profile": step0.profile,
        "note": step0.note,
        "fit": step0.fit,
        "step": _number(step0.step),
        **{name: _number(getattr(step0, name)) for name in METRICS},
        "gap_metric": step0.gap_metric,
        "nan_metrics": nan_metrics(step0),
        "step0_row": _derive(step0.row, rows) if step0.row else None,
        "setup": facts.setup,
        "plan_id": plans.number_of(facts.plan) if facts.plan else None,
        "observed": _packed(facts) if facts.plan and facts.plan.observables else None,
        **asdict(facts.covariates),
        "entropy": _number(facts.covariates.entropy),
    }


def record_of(row: Row[Any], templates: Templates) -> RunRecord:
    """Return the run as its source gave it."""
    with reading(f"the run {row.run}"):
        return identity_of(
            row, config=templates.unpack(row.config_template, row.config), rows=rows_of(row, templates)
        )


def identity_of(
    row: Row[Any], *, config: Mapping[str, Json] | None = None, rows: tuple[HistoryRow, ...] = ()
) -> RunRecord:
    """Return who the run is, with its config and rows where they were read.

    Raises
    ------
    ValueError
        The row stands under the key of another run: the file is damaged.
    """
    record = RunRecord(
        entity=row.entity,
        project=row.project,
        run_id=row.run_id,
        policy=row.policy,
        start=row.start,
        name=row.name,
        url=row.url,
        user=row.user,
        group=row.group,
        job_type=row.job_type,
        tags=tuple(cast("list[str]", parsed(row.tags))) if row.tags else (),
        created_at=row.created_at,
        state=row.state,
        config=config if config is not None else {},
        rows=rows,
    )
    if row.run != record.key and not row.run.startswith(f"{record.key}@"):
        raise ValueError(f"it is stored as {record.key}")
    return record


def rows_of(row: Row[Any], templates: Templates) -> tuple[HistoryRow, ...]:
    """Return the history rows of a run."""
    with reading(f"the rows of {row.run}"):
        document = cast("dict[str, dict[str, Any]]", templates.unpack(row.rows_template, row.rows))
        return tuple(
            HistoryRow(document[at]["values"], document[at]["order"]) for at in sorted(document, key=int)
        )


def step0_of(row: Row[Any], rows: Sequence[HistoryRow] = ()) -> Step0:
    """Return step 0 of the run; without the history rows its own row is empty."""
    if row.step0 not in _STATUSES:
        raise ValueError(f"{row.step0!r} is not a status")
    values: dict[str, Any] = {name: checked(getattr(row, name)) for name in METRICS}
    for name in row.nan_metrics.split():
        values[name] = math.nan
    return Step0(
        status=row.step0,
        profile=row.profile,
        note=row.note,
        fit=row.fit,
        step=row.step,
        row=_derived(row.step0_row, rows) if row.step0_row and rows else {},
        gap_metric=row.gap_metric,
        **values,
    )


def facts_of(row: Row[Any], plans: Plans, rows: Sequence[HistoryRow] = ()) -> RunFacts:
    """Return what profiles and settings made of the run."""
    with reading(f"the run {row.run}"):
        plan = plans.get(row.plan_id) if row.plan_id is not None else None
        step0 = step0_of(row, rows)
        if plan is not None and row.observed is not None:
            step0 = replace(step0, observed=_unpacked(row.observed, plan))
        return RunFacts(step0, row.setup, plan, Covariates(row.entropy, row.seed, row.data, row.prompts))


def _packed(facts: RunFacts) -> bytes:
    """Return the numbers of the observables as 8 bytes each, in the order of the plan's rules."""
    rules = facts.plan.observables if facts.plan else ()
    values = (facts.step0.observed.get(rule.name, math.nan) for rule in rules)
    return struct.pack(f"<{len(rules)}d", *values)


def _unpacked(body: bytes, plan: CheckPlan) -> dict[str, float]:
    values = struct.unpack(f"<{len(body) // 8}d", body)
    return {rule.name: value for rule, value in zip(plan.observables, values, strict=False)}


def nan_metrics(step0: Step0) -> str:
    """Return the metrics that were logged as NaN, which a database and a DataFrame take for missing."""
    return " ".join(name for name in METRICS if _is_nan(getattr(step0, name)))


def _derive(step0_row: Mapping[str, float], rows: Sequence[HistoryRow]) -> str:
    """Return the step-0 row by the history rows that it was merged from, and what is missing then.

    It is nearly always one of them, or several of which the first has a say.
    """
    text = {name: repr(value) for name, value in step0_row.items()}
    parts = []
    for at, row in enumerate(rows):
        right = sum(text.get(name) == repr(value) for name, value in row.values.items())
        if right and text.keys() >= row.values.keys():
            parts.append((-right, at))
    used = [at for _, at in sorted(parts)]
    merged = _merged(rows, used)
    rest = {name: value for name, value in step0_row.items() if repr(merged.get(name)) != text[name]}
    return json.dumps([used, rest] if rest else [used])


def _derived(text: str, rows: Sequence[HistoryRow]) -> dict[str, float]:
    used, *rest = cast("list[Any]", parsed(text))
    return _merged(rows, used) | dict(*rest)


def _merged(rows: Sequence[HistoryRow], used: Sequence[int]) -> dict[str, float]:
    values: dict[str, float] = {}
    for at in reversed(used):
        values |= rows[at].values
    return values


def checked(value: object) -> float | None:
    """Return a stored number, or None.

    Raises
    ------
    TypeError
        It is none: the file is damaged.
    """
    if value is not None and not isinstance(value, int | float):
        raise TypeError(f"{str(value)[:40]!r} is not a number")
    return value


def _number(value: float | None) -> float | None:
    return None if _is_nan(value) else value


def _is_nan(value: float | None) -> bool:
    return value is not None and math.isnan(value)
