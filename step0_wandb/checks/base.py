"""What every check has: a name, a judgment of whole columns, and a sentence for each outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from step0_wandb.checks.outcomes import Why
from step0_wandb.text.formatting import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from step0_wandb.checks.outcomes import Outcomes

    Facts: TypeAlias = Mapping[str, Any]
    """Everything known of one run: its columns, and those of the range it is compared with."""
    Sentence: TypeAlias = Callable[[str, Facts], str]
    """From the metric's name and the facts of a run to a sentence."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the other runs say about each run.

    Attributes
    ----------
    by : DataFrame, one row a run
        The range that each run is compared with, see `ranges.judged_by`.
    broken_ratio : float
        A gap above its range is broken from this many times the center.
    """

    by: pd.DataFrame
    broken_ratio: float


class Check(Protocol):
    """One question about every run; `registry.CHECKS` lists those that are asked."""

    @property
    def name(self) -> str:
        """Return the name in JSON, pages and settings."""

    @property
    def metric(self) -> str:
        """Return the column that the value of the check stands in."""

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes | None:
        """Return the outcome for every run; None where these runs are not asked."""

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return why the outcome is what it is; empty where the numbers say it all."""


def number_in(facts: Facts, name: str) -> bool:
    """Return whether a column of one run holds a number."""
    value = facts.get(name)
    return isinstance(value, int | float) and not math.isnan(value)


def text_in(facts: Facts, name: str) -> str:
    """Return a column of one run where it holds a text, else nothing."""
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def _non_finite(metric: str, facts: Facts) -> str:
    return f"{metric} is {number(facts[metric]) if number_in(facts, metric) else 'NaN'}"


SHARED: dict[Why, Sentence] = {
    Why.NOTHING: lambda _metric, _facts: "",
    Why.NOT_ASKED: lambda _metric, _facts: "",
    Why.NOT_LOGGED: lambda metric, _facts: f"no {metric} was logged",
    Why.BY_RULE: lambda metric, facts: text_in(facts, f"{metric}_why"),
    Why.NON_FINITE: _non_finite,
}
"""Sentences that every check may use."""
