"""``ppo_kl`` and ``clip_frac``: 0 at the first optimizer step, by the rule of the run's profile.

How a check applies to a run stands in the plan columns (``ppo_kl_rule``, ``ppo_kl_limit`` ...); a frame
without them is judged by the strictest rule that holds for any framework whose rows are single optimizer
steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from step0_wandb.checks.base import SHARED
from step0_wandb.checks.columns import non_finite, numbers, texts
from step0_wandb.checks.outcomes import FAIL, PASS, SKIPPED, VACUOUS, WARN, Level, Outcomes, Why
from step0_wandb.text.formatting import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from step0_wandb.checks.base import Facts, Reference, Sentence


def _over_limit(metric: str, facts: Facts) -> str:
    limit = number(facts.get(f"{metric}_limit"))
    return (
        f"{metric} is {number(facts[metric])} at the first optimizer step, where it must be 0 (limit {limit})"
    )


def _over_learned(metric: str, facts: Facts) -> str:
    limit = number(facts.get(f"{metric}_limit"))
    return f"{metric} is {number(facts[metric])}, above the {limit} that this setup's healthy runs allow"


def _large_for_average(metric: str, facts: Facts) -> str:
    return f"{metric} is {number(facts[metric])}: large even for a row that averages several optimizer steps"


def _refuted(metric: str, facts: Facts) -> str:
    return (
        f"{metric} is {number(facts[metric])}, where this trainer's value is 0 by construction: its log-probs are "
        "not what this profile believes, so it may be another variant of the trainer"
    )


ROUNDING = 1e-6
"""A value that is 0 by construction is not farther from it than a float32 is rounded."""


@dataclass(frozen=True)
class ExactCheck:
    """A metric that must be 0 at step 0.

    Attributes
    ----------
    limit, broken_from : float
        The largest absolute value that passes, and the one from which a run is broken, where the plan of a
        run names no others.
    """

    name: str
    limit: float
    broken_from: float

    _SENTENCES: ClassVar[Mapping[Why, Sentence]] = SHARED | {
        Why.OVER_LIMIT: _over_limit,
        Why.OVER_LEARNED: _over_learned,
        Why.LARGE_FOR_AVERAGE: _large_for_average,
        Why.REFUTED: _refuted,
    }

    @property
    def metric(self) -> str:
        """Return the column of the value, which is named as the check."""
        return self.name

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes:
        """Judge every run by its rule; a learned limit is the noise of its setup's healthy runs."""
        noise = f"{self.name}_noise"
        return self.outcomes(runs, reference.by[noise].to_numpy() if noise in reference.by else None)

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return why the outcome is what it is."""
        return self._SENTENCES[why](self.metric, facts)

    def outcomes(self, runs: pd.DataFrame, learned: NDArray[np.float64] | None = None) -> Outcomes:
        """Judge every run by its rule.

        Parameters
        ----------
        learned : ndarray of float64, shape (n_runs,), optional
            The limit that the setup's own history gives; NaN where it gives none.
        """
        check = self.name
        value = np.abs(numbers(runs, check))
        bad = non_finite(runs, check)
        logged = np.isfinite(value) | bad
        kind = texts(runs, f"{check}_rule", "exact")
        broken_from = numbers(runs, f"{check}_broken_from", self.broken_from)
        # Of a check that cannot fail a value above its limit proves that it can.
        limited = (kind == "exact") | (kind == "learned") | (kind == "vacuous")

        result = Outcomes.blank(len(runs))
        result.limit[limited] = numbers(runs, f"{check}_limit", self.limit)[limited]
        known = np.zeros(len(runs), bool)
        if learned is not None:
            known = (kind == "learned") & np.isfinite(learned)
            result.limit[known] = learned[known]

        above = np.where(texts(runs, f"{check}_above", "suspect") == "broken", Level.BROKEN, Level.SUSPECT)
        level = np.where(value >= broken_from, Level.BROKEN, above).astype(np.int8)
        over = logged & limited & (value > result.limit)
        result.set(logged & limited, PASS, Why.NOTHING)
        result.set(logged & (kind == "vacuous"), VACUOUS, Why.BY_RULE)
        refuted = logged & (kind == "vacuous") & np.isnan(result.limit) & (value > ROUNDING)
        result.set(refuted, WARN, Why.REFUTED, level=Level.SUSPECT)
        result.set(over & ~known, FAIL, Why.OVER_LIMIT, level=level)
        result.set(over & known, FAIL, Why.OVER_LEARNED, level=level)
        result.set(logged & ((kind == "skipped") | (kind == "averaged")), SKIPPED, Why.BY_RULE)
        large = logged & (kind == "averaged") & (value >= broken_from)
        result.set(large, WARN, Why.LARGE_FOR_AVERAGE, level=Level.SUSPECT)
        result.set(bad, FAIL, Why.NON_FINITE, level=Level.BROKEN)
        return result


PPO_KL = ExactCheck("ppo_kl", limit=1e-9, broken_from=1e-2)
CLIP_FRAC = ExactCheck("clip_frac", limit=1e-10, broken_from=5e-2)
EXACT_CHECKS = (PPO_KL, CLIP_FRAC)


def exact_failed(runs: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which runs fail an exact check, and so may not enter a range.

    Where the limit is learned from the runs themselves only what is surely a fault counts.
    """
    failed = np.zeros(len(runs), bool)
    for check in EXACT_CHECKS:
        if check.name in runs or "nan_metrics" in runs:
            result = check.outcomes(runs)
            learns = texts(runs, f"{check.name}_rule", "exact") == "learned"
            failed |= np.where(learns, result.level == Level.BROKEN, result.outcome == FAIL)
    return failed
