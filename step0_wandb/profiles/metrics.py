"""The metric names of a profile.

A gap is a number whose perfect value is 0, so that ranges can work on its logarithm. Where a framework
logs a ratio (NeMo RL's mean ``exp(|Δ log-prob|)``, 1 when the two sides agree) the metric's `perfect`
value is subtracted: the gap of 1.0152 is 0.0152. The row keeps what was logged.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from step0_wandb.profiles.schema import ProfileTable, first_of
from step0_wandb.records import BOUND_DEFAULTS, ObservableRule

if TYPE_CHECKING:
    from collections.abc import Mapping

_GAP_STATISTICS = ("mean-abs", "k3", "signed-mean", "probability", "ratio", "log-perplexity")
BOUNDS = {name: (BOUND_DEFAULTS[name], BOUND_DEFAULTS[name]) for name in _GAP_STATISTICS} | {
    # verl's documentation calls a KL above 0.1 critical.
    "k3": (0.2 * BOUND_DEFAULTS["k3"], BOUND_DEFAULTS["k3"])
}
"""By statistic the gap from which a run is suspect, and broken, whatever its setup shows.

In nats, as a probability, or above a ratio of 1; the settings may move them.
"""


class GapMetric(ProfileTable):
    """One metric that measures the gap.

    Attributes
    ----------
    statistic : str
        What it is, for people: two statistics are never compared.
    unit : str
        ``nat`` (log-probs), ``probability`` or ``ratio``.
    direction : str
        Which side minus which, where the sign or the order matters.
    perfect : float
        The value of two sides that agree, which is subtracted: 0 for differences, 1 for ratios.
    signed : bool
        Whether positive and negative differences cancel, so that 0 proves nothing.
    ceiling : float or None
        The gap that the framework itself allows; `ceiling_from` says who does, as the end of a
        sentence "above what ...".
    bound : str
        Which absolute bound holds, see `BOUNDS`; empty takes that of the unit and the sign, ``none``
        is for a maximum over tokens, which may be anything.
    spread : float or None
        Standard deviation of ln(gap) among the runs of a setup that is assumed before they say
        anything, where it is not the usual 0.03: estimates of a KL scatter twice as much.
    """

    metric: str
    statistic: str
    unit: Literal["nat", "probability", "ratio"] = "nat"
    direction: str = ""
    perfect: float = 0.0
    signed: bool = False
    ceiling: float | None = None
    ceiling_from: str = ""
    bound: Literal["", "none", "mean-abs", "k3", "signed-mean", "probability", "ratio", "log-perplexity"] = ""
    spread: float | None = None

    def of(self, values: Mapping[str, float]) -> float:
        """Return the gap of a row that has the metric: 0 when the two sides agree."""
        return values[self.metric] - self.perfect

    def bound_rule(self) -> ObservableRule:
        """Return the absolute bound; a value at the bound is broken."""
        suspect, broken = BOUNDS[self.statistic_bound]
        return ObservableRule(
            name=f"bound:{self.statistic_bound}",
            metric=self.metric,
            kind="interval",
            title="gap",
            why="the two sides do not compute the same model",
            low=math.nextafter(-suspect, 0.0),
            high=math.nextafter(suspect, 0.0),
            broken_low=-broken,
            broken_high=broken,
        )

    @property
    def statistic_bound(self) -> str:
        """Return which absolute bound holds: the one that is named, else that of the unit and the sign."""
        if self.bound:
            return self.bound
        if self.unit != "nat":
            return self.unit
        return "signed-mean" if self.signed else "mean-abs"


class Metrics(ProfileTable):
    """The metric names of the checks; the first name that a row has counts.

    Attributes
    ----------
    ppo_kl_perfect : float
        What ``ppo_kl`` is logged as when the policy has not moved; subtracted. It is 1 where a framework
        logs the mean ratio of new to old probabilities instead: ratio - 1 is -ppo_kl to first order.
    entropy : tuple of str
        Names of the mean entropy of the same row, which explains part of the gap.
    marks : tuple of str
        Names by which a training row is known even when it carries none of the values, so that a
        missing metric or a resumed run can be told from a run of another kind.
    """

    ppo_kl: tuple[str, ...] = ()
    ppo_kl_perfect: float = 0.0
    clip_frac: tuple[str, ...] = ()
    gap: tuple[GapMetric, ...] = ()
    entropy: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        """Return every metric name."""
        return frozenset((*self.ppo_kl, *self.clip_frac, *(gap.metric for gap in self.gap), *self.marks))

    def ppo_kl_of(self, values: Mapping[str, float]) -> float | None:
        """Return the PPO-KL of a row: 0 when the policy has not moved."""
        value = first_of(values, self.ppo_kl)
        return None if value is None else value - self.ppo_kl_perfect

    def clip_frac_of(self, values: Mapping[str, float]) -> float | None:
        """Return the clip fraction of a row."""
        return first_of(values, self.clip_frac)

    @model_validator(mode="after")
    def _some(self) -> Metrics:
        if not self.names:
            raise PydanticCustomError("metrics", "a profile names at least one metric")
        return self
