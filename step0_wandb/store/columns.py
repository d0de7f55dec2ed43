"""A run as the columns that judging works on; the same from a store and straight from a source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from step0_wandb.records import OBSERVED
from step0_wandb.store.rows import COVARIATES, nan_metrics
from step0_wandb.text.nested import lookup

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from step0_wandb.records import CheckPlan, ObservableRule, Rule, RunFacts, RunRecord
    from step0_wandb.store.rows import Columns

TIMES = ("created_at", "accepted_at")
NUMBERS = (
    "ppo_kl",
    "clip_frac",
    "gap",
    "ppo_kl_limit",
    "ppo_kl_broken_from",
    "clip_frac_limit",
    "clip_frac_broken_from",
    "ceiling",
    "gap_spread",
    "entropy",
    "prompts",
)
COLUMNS = (
    *(
        "run",
        "entity",
        "project",
        "run_id",
        "policy",
        "start",
        "superseded",
        "name",
        "url",
        "user",
        "group",
        "created_at",
        "state",
    ),
    *("profile", "setup", "ppo_kl", "clip_frac", "gap", "gap_metric", "nan_metrics"),
    *("label", "label_why", "label_who", "accepted_at", "step0", "note", "fit", "conflict"),
    *("ppo_kl_rule", "ppo_kl_limit", "ppo_kl_above", "ppo_kl_broken_from", "ppo_kl_why"),
    *("clip_frac_rule", "clip_frac_limit", "clip_frac_above", "clip_frac_broken_from", "clip_frac_why"),
    *("gap_rule", "gap_why", "ceiling", "ceiling_from", "gap_zero", "switch", "gap_spread", "observables"),
    *("contradiction", *COVARIATES),
)
"""The columns of a frame of runs, in their order.

All but `TIMES`, `NUMBERS`, ``start``, ``superseded``, ``fit`` and ``observables`` hold text or None.
``superseded`` marks a start before the newest one of its run: it takes part in the ranges and is not listed.
Behind them stands a column of numbers for each observable that a run has.
"""


def columns_of(record: RunRecord, facts: RunFacts) -> Columns:
    """Return what a source and the profiles say of a run, by column.

    What only people say (``label``, ``accepted_at``) is not among them. A metric that was logged as NaN
    is named in ``nan_metrics``, since a NaN in a DataFrame means "not logged".
    """
    step0 = facts.step0
    return {
        "run": record.key,
        "entity": record.entity,
        "project": record.project,
        "run_id": record.run_id,
        "policy": record.policy,
        "start": record.start,
        "superseded": False,
        "name": record.name,
        "url": record.url,
        "user": record.user,
        "group": record.group,
        "created_at": record.created_at,
        "state": record.state,
        "profile": step0.profile,
        "setup": facts.setup,
        "ppo_kl": step0.ppo_kl,
        "clip_frac": step0.clip_frac,
        "gap": step0.gap,
        "gap_metric": step0.gap_metric,
        "nan_metrics": nan_metrics(step0),
        "step0": step0.status,
        "note": step0.note,
        "fit": step0.fit,
        **{OBSERVED + name: value for name, value in step0.observed.items()},
        **(plan_columns(facts.plan) if facts.plan else {}),
        **{name: getattr(facts.covariates, name) for name in COVARIATES},
    }


@lru_cache
def plan_columns(plan: CheckPlan) -> Columns:
    """Return which checks apply and how, by column."""
    return {
        **_rule_columns("ppo_kl", plan.ppo_kl),
        **_rule_columns("clip_frac", plan.clip_frac),
        "gap_rule": plan.gap.kind,
        "gap_why": plan.gap.why,
        "ceiling": plan.ceiling,
        "ceiling_from": plan.ceiling_from,
        "gap_zero": plan.gap_zero,
        "switch": plan.switch,
        "gap_spread": plan.gap_spread,
        "observables": plan.observables,
        "contradiction": plan.contradiction,
    }


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a frame of runs holds beyond `COLUMNS`.

    Attributes
    ----------
    config : tuple of str
        Config keys, as dotted paths.
    metrics : tuple of str
        Numbers of the step-0 row.
    """

    config: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Return the column of each key; one that is a column already gets its kind in front."""
        taken = (*COLUMNS, *self.config)
        return (
            *(f"config.{key}" if key in COLUMNS else key for key in self.config),
            *(f"metric.{key}" if key in taken else key for key in self.metrics),
        )

    def columns_of(self, record: RunRecord, facts: RunFacts) -> Columns:
        """Return the values by column; None where the run has none."""
        values = (
            *(lookup(record.config, key) for key in self.config),
            *(facts.step0.row.get(key) for key in self.metrics),
        )
        return dict(zip(self.names(), values, strict=True))


def frame_of(rows: Iterable[Columns], wanted: Wanted | None = None) -> pd.DataFrame:
    """Return runs, given by column, as a DataFrame with all of `COLUMNS` and then what is `wanted`.

    Times are in UTC; what is missing is None in texts, NaN in numbers, NaT in times.
    """
    import pandas as pd

    found = list(rows)
    columns = {
        name: pd.Series([row.get(name) for row in found], dtype=_DTYPES.get(name, "object"))
        for name in COLUMNS
    }
    for name in TIMES:
        columns[name] = pd.to_datetime(columns[name], utc=True).astype("datetime64[us, UTC]")
    observed = dict.fromkeys(OBSERVED + rule.name for rules in _distinct(found) for rule in rules)
    for name in observed:
        columns[name] = pd.Series([row.get(name) for row in found], dtype="float64")
    for name in wanted.names() if wanted else ():
        columns[name] = pd.Series([row.get(name) for row in found], dtype="object").infer_objects()
    return pd.DataFrame(columns)


def _distinct(rows: Iterable[Columns]) -> Iterable[tuple[ObservableRule, ...]]:
    """Return the rules of all plans; runs of one plan share theirs."""
    return {id(rules): rules for row in rows if (rules := row.get("observables"))}.values()


_DTYPES = {**dict.fromkeys(NUMBERS, "float64"), "start": "int64", "superseded": "bool", "fit": "bool"}


def _rule_columns(check: str, rule: Rule) -> Columns:
    return {
        f"{check}_rule": rule.kind,
        f"{check}_limit": rule.limit,
        f"{check}_above": rule.above,
        f"{check}_broken_from": rule.broken_from,
        f"{check}_why": rule.why,
    }
