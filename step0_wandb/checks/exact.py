"""The checks that need no range: arrays in, outcomes out.

Every function works on whole columns; one position is one run. How a check applies to a run stands in
the plan columns (``ppo_kl_rule``, ``ppo_kl_limit`` ...); a frame without them is judged by the strictest
rule that holds for any framework whose rows are single optimizer steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from step0_wandb.records import OutcomeName

ExactCheck = Literal["ppo_kl", "clip_frac"]
EXACT_CHECKS: tuple[ExactCheck, ...] = ("ppo_kl", "clip_frac")
DEFAULT_LIMIT = {"ppo_kl": 1e-9, "clip_frac": 1e-10}
DEFAULT_BROKEN_FROM = {"ppo_kl": 1e-2, "clip_frac": 5e-2}

OUTCOMES: tuple[OutcomeName, ...] = ("pass", "fail", "warn", "vacuous", "skipped")
PASS, FAIL, WARN, VACUOUS, SKIPPED = range(5)


class Level(IntEnum):
    """How grave an outcome is."""

    FINE = 0
    SUSPECT = 1
    BROKEN = 2


class Why(IntEnum):
    """What an outcome rests on; `sentences` has the words."""

    NOTHING = 0
    NOT_LOGGED = 1
    BY_RULE = 2
    NON_FINITE = 3
    OVER_LIMIT = 4
    OVER_LEARNED = 5
    LARGE_FOR_AVERAGE = 6
    IN_RANGE = 7
    ABOVE_RANGE = 8
    BELOW_RANGE = 9
    OVER_CEILING = 10
    NOT_BELIEVED = 11
    MOVED = 12
    NOT_ZERO = 13
    NEGATIVE = 14
    ZERO = 15
    NO_RANGE = 16
    NOT_ASKED = 17


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of one check for every run.

    Attributes
    ----------
    outcome, level, why : ndarray of int8, shape (n_runs,)
        Index into `OUTCOMES`, a `Level`, a `Why`.
    limit : ndarray of float64, shape (n_runs,)
        Largest absolute value that passes; NaN where there is none.
    """

    outcome: NDArray[np.int8]
    level: NDArray[np.int8]
    why: NDArray[np.int8]
    limit: NDArray[np.float64]

    @classmethod
    def blank(cls, n_runs: int) -> Outcomes:
        """Return outcomes that say ``skipped: not logged`` for every run."""
        return cls(
            np.full(n_runs, SKIPPED, np.int8),
            np.zeros(n_runs, np.int8),
            np.full(n_runs, Why.NOT_LOGGED, np.int8),
            np.full(n_runs, np.nan),
        )

    def take(self, positions: NDArray[np.intp]) -> Outcomes:
        """Return the outcomes of some runs, by their positions."""
        return Outcomes(
            self.outcome[positions], self.level[positions], self.why[positions], self.limit[positions]
        )

    def set(
        self,
        where: NDArray[np.bool_],
        outcome: int,
        why: Why,
        *,
        level: int | NDArray[np.int8] = Level.FINE,
    ) -> None:
        """Set the outcome of the runs in `where`; a later call beats an earlier one."""
        self.outcome[where] = outcome
        self.why[where] = why
        self.level[where] = level if isinstance(level, int) else level[where]


def numbers(runs: pd.DataFrame, name: str, default: float = np.nan) -> NDArray[np.float64]:
    """Return a column as floats, `default` where the column is missing."""
    if name not in runs:
        return np.broadcast_to(np.float64(default), len(runs))
    return pd.to_numeric(runs[name]).to_numpy(dtype=np.float64, na_value=np.nan)


def texts(runs: pd.DataFrame, name: str, default: str = "") -> NDArray[np.object_]:
    """Return a column as texts, `default` where the column or a value is missing."""
    if name not in runs:
        return np.broadcast_to(np.array(default, dtype=object), len(runs))
    column = runs[name].astype(object)
    return column.where(column.notna(), default).to_numpy(dtype=object)


def flags(runs: pd.DataFrame, name: str, *, default: bool) -> NDArray[np.bool_]:
    """Return a column as booleans, `default` where the column or a value is missing."""
    if name not in runs:
        return np.broadcast_to(np.bool_(default), len(runs))
    column = runs[name].astype(object)
    return column.where(column.notna(), default).to_numpy(dtype=bool)


def non_finite(runs: pd.DataFrame, name: str) -> NDArray[np.bool_]:
    """Return where a metric was logged as NaN or an infinity.

    A NaN in the column alone means "not logged"; ``nan_metrics`` names the metrics of a run that were
    logged as NaN.
    """
    logged = np.isinf(numbers(runs, name))
    if "nan_metrics" in runs:
        said = texts(runs, "nan_metrics")
        some = said != ""
        logged[some] |= np.fromiter((name in text.split() for text in said[some]), bool, int(some.sum()))
    return logged


def exact(runs: pd.DataFrame, check: ExactCheck, learned: NDArray[np.float64] | None = None) -> Outcomes:
    """Judge ``ppo_kl`` or ``clip_frac`` of every run by its rule.

    Parameters
    ----------
    learned : ndarray of float64, shape (n_runs,), optional
        The limit that the setup's own history gives; NaN where it gives none.
    """
    value = np.abs(numbers(runs, check))
    bad = non_finite(runs, check)
    logged = np.isfinite(value) | bad
    kind = texts(runs, f"{check}_rule", "exact")
    broken_from = numbers(runs, f"{check}_broken_from", DEFAULT_BROKEN_FROM[check])
    # Of a check that cannot fail a value above its limit proves that it can.
    limited = (kind == "exact") | (kind == "learned") | (kind == "vacuous")

    result = Outcomes.blank(len(runs))
    result.limit[limited] = numbers(runs, f"{check}_limit", DEFAULT_LIMIT[check])[limited]
    known = np.zeros(len(runs), bool)
    if learned is not None:
        known = (kind == "learned") & np.isfinite(learned)
        result.limit[known] = learned[known]

    above = np.where(texts(runs, f"{check}_above", "suspect") == "broken", Level.BROKEN, Level.SUSPECT)
    level = np.where(value >= broken_from, Level.BROKEN, above).astype(np.int8)
    over = logged & limited & (value > result.limit)
    result.set(logged & limited, PASS, Why.NOTHING)
    result.set(logged & (kind == "vacuous"), VACUOUS, Why.BY_RULE)
    result.set(over & ~known, FAIL, Why.OVER_LIMIT, level=level)
    result.set(over & known, FAIL, Why.OVER_LEARNED, level=level)
    result.set(logged & ((kind == "skipped") | (kind == "averaged")), SKIPPED, Why.BY_RULE)
    large = logged & (kind == "averaged") & (value >= broken_from)
    result.set(large, WARN, Why.LARGE_FOR_AVERAGE, level=Level.SUSPECT)
    result.set(bad, FAIL, Why.NON_FINITE, level=Level.BROKEN)
    return result


def exact_failed(runs: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which runs fail an exact check, and so may not enter a range.

    Where the limit is learned from the runs themselves only what is surely a fault counts.
    """
    failed = np.zeros(len(runs), bool)
    for check in EXACT_CHECKS:
        if check in runs or "nan_metrics" in runs:
            result = exact(runs, check)
            learns = texts(runs, f"{check}_rule", "exact") == "learned"
            failed |= np.where(learns, result.level == Level.BROKEN, result.outcome == FAIL)
    return failed
