"""Observables that need no history: every other number of the step-0 row, by what its profile says of it.

What must hold differs from run to run, and stands with each run in the column ``observables``; runs whose
profile and config agree share one tuple of rules, so that a million runs are judged a rule at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from step0_wandb.checks.base import SHARED
from step0_wandb.checks.columns import numbers
from step0_wandb.checks.outcomes import FAIL, PASS, SKIPPED, Level, Outcomes, Why
from step0_wandb.records import LEARNED, OBSERVED
from step0_wandb.text.formatting import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from step0_wandb.checks.base import Facts, Reference, Sentence
    from step0_wandb.records import ObservableRule

    Group: TypeAlias = tuple[tuple[ObservableRule, ...], NDArray[np.intp]]
    """Rules that runs share, and the positions of these runs."""

COLUMN = "observables"
"""The column of a frame that holds the rules of each run."""
BOUND = "bound:"
"""How the names of the absolute bounds begin."""


def rules_of(groups: Iterable[Group], name: str) -> Iterator[tuple[ObservableRule, NDArray[np.intp]]]:
    """Yield each rule for one observable, with the positions of the runs that it holds for."""
    for rules, where in groups:
        rule = next((rule for rule in rules if rule.name == name), None)
        if rule is not None:
            yield rule, where


def grouped(runs: pd.DataFrame) -> Iterator[Group]:
    """Yield each tuple of rules with the positions of its runs; equal tuples may come more than once."""
    if COLUMN not in runs:
        return
    column = runs[COLUMN].to_numpy(dtype=object)
    # By identity: runs of one plan share one tuple, and hashing a million tuples would take minutes.
    ids = np.fromiter(map(id, column), dtype=np.int64, count=len(column))
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(first) + 1))
    for at, where in enumerate(first):
        rules = column[where]
        if isinstance(rules, tuple):
            yield rules, order[bounds[at] : bounds[at + 1]]


def names_in(groups: Iterable[Group]) -> tuple[str, ...]:
    """Return the names of all observables that some run has, in the order of the rules."""
    return tuple(dict.fromkeys(rule.name for rules, _ in groups for rule in rules))


def rule_in(facts: Facts, name: str) -> ObservableRule:
    """Return the rule of one run for an observable that it has."""
    rules: tuple[ObservableRule, ...] = facts[COLUMN]
    return next(rule for rule in rules if rule.name == name)


def _outside(name: str, facts: Facts) -> str:
    rule = rule_in(facts, name)
    if rule.kind == "finite":
        are = "are" if " and " in rule.metric else "is"
        return f"{rule.metric} {are} NaN or infinite: {rule.why}"
    value = number(facts[OBSERVED + name])
    return f"{rule.title} is {value} ({rule.metric}), where {_limit_text(rule, facts)}: {rule.why}"


def _limit_text(rule: ObservableRule, facts: Facts) -> str:
    low, high = rule.low, rule.high
    if rule.name.startswith(BOUND):
        far = high if high is not None else low
        return f"{'less' if high is not None else 'more'} than {number(far)} is expected in every setup"
    if low is None or high is None:
        limit = number(facts.get(f"{rule.name}_limit"))
        return f"at {'most' if low is None else 'least'} {limit} is expected"
    if low == -high:
        return f"it must be 0 (limit {number(abs(facts[f'{rule.name}_limit']))})"
    if high - low < _NARROW * high:
        return f"it must be {number((low + high) / 2)}"
    if low < _TINY:
        return f"more than 0 and at most {number(high)} is expected"
    return f"{number(low)} to {number(high)} is expected"


_NARROW = 1e-3
_TINY = 1e-20


@dataclass(frozen=True)
class ObservableCheck:
    """One observable that needs no history, for the runs that log it.

    Attributes
    ----------
    groups : tuple of Group or None
        Of the runs that will be judged, where they are known: all checks of a million runs share them.
    """

    name: str
    groups: tuple[Group, ...] | None = field(default=None, compare=False, repr=False)

    _SENTENCES: ClassVar[Mapping[Why, Sentence]] = SHARED | {
        Why.OVER_LIMIT: _outside,
        Why.BY_RULE: lambda name, facts: rule_in(facts, name).why,
    }

    @property
    def metric(self) -> str:
        """Return the column of the value."""
        return OBSERVED + self.name

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes:  # noqa: ARG002 - as every check
        """Judge every run by its rule."""
        return self.outcomes(runs)

    def outcomes(self, runs: pd.DataFrame) -> Outcomes:
        """Judge every run by its rule; runs without one are not asked."""
        result = Outcomes.blank(len(runs))
        result.why[:] = Why.NOT_ASKED
        value, gap = numbers(runs, self.metric), np.nan_to_num(np.abs(numbers(runs, "gap")))
        for rule, where in rules_of(grouped(runs) if self.groups is None else self.groups, self.name):
            self._apply(result, rule, where, value=value[where], gap=gap[where] if rule.or_gap else None)
        return result

    def _apply(
        self,
        result: Outcomes,
        rule: ObservableRule,
        where: NDArray[np.intp],
        *,
        value: NDArray[np.float64],
        gap: NDArray[np.float64] | None,
    ) -> None:
        """Judge the runs at some positions, whose values and gaps are given, by one rule."""
        logged = ~np.isnan(value)
        if rule.kind == "skipped":
            result.set(where[logged], SKIPPED, Why.BY_RULE)
            return
        low = np.full(len(where), -np.inf if rule.low is None else rule.low)
        high = np.full(len(where), np.inf if rule.high is None else rule.high)
        if gap is not None:
            low, high = np.minimum(low, -gap), np.maximum(high, gap)
        result.limit[where] = np.where(np.isfinite(high) & ((value > low) | ~np.isfinite(low)), high, low)
        result.set(where[logged], PASS, Why.NOTHING)
        outside = logged & ((value < low) | (value > high))
        broken = outside & (
            (value >= (np.inf if rule.broken_high is None else rule.broken_high))
            | (value <= (-np.inf if rule.broken_low is None else rule.broken_low))
        )
        if rule.broken_high is None and rule.broken_low is None:
            broken[:] = False
        result.set(where[outside], FAIL, Why.OVER_LIMIT, level=Level.SUSPECT)
        result.set(where[broken], FAIL, Why.OVER_LIMIT, level=Level.BROKEN)

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return what the number is and where it should lie."""
        return self._SENTENCES[why](self.name, facts)


def history_free(runs: pd.DataFrame) -> tuple[ObservableCheck, ...]:
    """Return the checks of all observables of these runs that need no other runs."""
    groups = tuple(grouped(runs))
    return tuple(ObservableCheck(name, groups) for name in names_in(groups) if not name.startswith(LEARNED))
