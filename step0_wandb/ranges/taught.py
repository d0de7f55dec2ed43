"""What the setups of one gap metric share, carried from one fit to the next.

A store of a million runs is not fitted again for one new run. The setups that changed are, together with what
the others have taught: the variances of their levels, from which the prior is estimated again, and the
tail and the slope of the last full fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from step0_wandb.ranges.cells import Moments
from step0_wandb.ranges.prior import prior_of
from step0_wandb.ranges.spread import Spread, Tail
from step0_wandb.records import SetupFit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.ranges.cells import Floats
    from step0_wandb.ranges.model import Model
    from step0_wandb.ranges.prior import Prior


NORMAL: Final = Tail()


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class Taught:
    """What is known of one gap metric before the runs at hand say anything.

    Attributes
    ----------
    tail : Tail
    slope, reach : float
        See `covariate.Covariate`.
    default : float
        Standard deviation of ln(gap) that is assumed at first.
    variance, d : ndarray of float, shape (levels,)
        Of the levels of setups that are not among the runs, and their degrees of freedom.
    prior : Prior or None
        The prior as it stands; None estimates it from these levels and those of the runs.
    """

    tail: Tail = NORMAL
    slope: float = 0.0
    reach: float = 0.0
    default: float = 0.03
    variance: Floats = field(default_factory=_none)
    d: Floats = field(default_factory=_none)
    prior: Prior | None = None

    def prior_with(self, variance: Floats, d: Floats) -> Prior:
        """Return the prior, given the levels of the runs at hand."""
        if self.prior is not None:
            return self.prior
        return prior_of(np.concatenate([self.variance, variance]), np.concatenate([self.d, d]), self.default)

    def document(self) -> dict[str, Any]:
        """Return it as JSON, without the levels."""
        numbers = [self.tail.scale, self.tail.df, self.slope, self.reach, self.default]
        return {"numbers": [str(number) for number in numbers]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Taught:
        """Return what `document` made."""
        scale, df, slope, reach, default = map(float, document["numbers"])
        return cls(Tail(scale, df), slope, reach, default)


def taught_by(model: Model) -> dict[str | None, Taught]:
    """Return what a fit of all runs has taught, by gap metric; without their levels."""
    spread, covariate = model.fleet.spread, model.covariate
    return {
        name: Taught(
            Tail(float(spread.tail_scale[at]), float(spread.tail_df[at])),
            float(covariate.slope[at]),
            float(covariate.reach[at]),
            float(model.history.setups.spread[at]),
        )
        for at, name in enumerate(model.history.setups.metrics)
    }


def setup_fits(model: Model) -> list[SetupFit]:
    """Return the levels of every setup of a model."""
    levels, setups = model.levels, model.history.setups
    own: list[list[tuple[int, float, float]]] = [[] for _ in setups.names]
    current = [0] * setups.names.size
    order = np.lexsort((levels.number, levels.setup))
    in_force = levels.current[levels.setup] == np.arange(levels.setup.size)
    for at in order:
        setup = int(levels.setup[at])
        if in_force[at]:
            current[setup] = len(own[setup])
        n, mean, ss = (float(values[at]) for values in (model.whole.n, model.whole.mean, model.whole.ss))
        own[setup].append((int(n), mean, ss))
    return [
        SetupFit(str(name), setups.metrics[metric], current[at], tuple(own[at]))
        for at, (name, metric) in enumerate(zip(setups.names, setups.metric, strict=True))
    ]


def variances(fits: Iterable[SetupFit]) -> dict[str | None, tuple[list[float], list[float]]]:
    """Return the variance of every level, and its degrees of freedom, by gap metric."""
    found: dict[str | None, tuple[list[float], list[float]]] = {}
    for fit in fits:
        variance, d = found.setdefault(fit.metric, ([], []))
        for n, _, ss in fit.levels:
            if n:
                variance.append(ss / max(n - 1, 1))
                d.append(n - 1.0)
    return found


def moments_in_force(fits: Sequence[SetupFit]) -> Moments:
    """Return the moments of the level in force of each setup."""
    rows = np.array([fit.levels[fit.current] for fit in fits], dtype=np.float64).reshape(-1, 3)
    return Moments(rows[:, 0], rows[:, 1], rows[:, 2])


def spread_of(taught: Sequence[Taught], alpha: float) -> Spread:
    """Return the spread of each gap metric, from the levels that are known of it."""
    none = np.zeros(0)
    return Spread.of([one.prior_with(none, none) for one in taught], [one.tail for one in taught], alpha)
