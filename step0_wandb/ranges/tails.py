"""Heavier tails than the normal's, estimated once for all setups of a gap metric.

Each member's deviation from the others of its setup, divided by its standard error, follows a t
distribution if ln(gap) is normal. One setup has too few of them to tell; the whole fleet has
enough. Where the fleet's lie further out, the quantile of the range is widened so that alpha stays
true; it is never made narrower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from step0_wandb.ranges.cells import moments_of, take, without_itself
from step0_wandb.ranges.spread import Tail, combined_df

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.screen import Rows
    from step0_wandb.ranges.spread import Spread


@dataclass(frozen=True, slots=True)
class Residuals:
    """Standardized leave-one-out residuals of members, one entry a run.

    Attributes
    ----------
    group : ndarray of int
        The gap metric.
    value, df : ndarray of float
        The residual, and the degrees of freedom of the t it follows if ln(gap) is normal.
    limit : ndarray of float
        The largest absolute value that the run could have and still be a member.
    independent : ndarray of float
        The run's share of the n - 1 independent residuals among the n of its setup.
    """

    group: Ints
    value: Floats
    df: Floats
    limit: Floats
    independent: Floats


NORMAL: Final = Tail()


def residuals_of(rows: Rows, members: Bools, spread: Spread) -> Residuals:
    """Return the residuals of the members that have others to be compared with.

    Repeats of one launch are left out: they do not deviate at all.
    """
    of_cell = moments_of(rows.y, members, rows.cells)
    whole = rows.cells.spread_moments(of_cell)
    group = rows.cells.spread_ints(rows.group)
    index = np.flatnonzero(members & (whole.n > 1) & ~spread.repeats(whole, group))
    y, group = rows.y[index], group[index]
    others = without_itself(y, np.ones(y.size, dtype=bool), take(whole, index))
    shared = rows.sharing(members)
    scale = spread.widened(spread.scale(others, group), group, shared and take(shared, index))
    return Residuals(
        group=group,
        value=(y - others.mean) / scale.prediction,
        df=scale.df,
        limit=spread.half_width(scale, group) / scale.prediction,
        independent=others.n / (others.n + 1),
    )


SCALES: Final = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
WEIGHTS: Final = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3)
"""1 / degrees of freedom, down to about three; a finer grid changes no range by a percent."""
COST: Final = 22.0
"""Log-likelihood that a unit of 1 / df must bring: few residuals then keep the normal's tail."""
LARGEST_SAMPLE: Final = 5_000
PATIENCE: Final = 4
"""Heavier tails are not tried after this many that were no better."""


def fit_tail(residuals: Residuals) -> Tail:
    """Return the tail under which the residuals are likeliest, with a cost on its weight.

    The likelihood is that of residuals cut off at `limit`, because what lies further out was
    screened away; it is composed of each run's own (residuals of one setup depend on each other).
    """
    if residuals.value.size > LARGEST_SAMPLE:
        rng = np.random.default_rng(0)
        residuals = take(residuals, rng.choice(residuals.value.size, LARGEST_SAMPLE, replace=False))
    best, likeliest, worse = NORMAL, _best_scale(residuals, np.inf).log_likelihood, 0
    for weight in WEIGHTS:
        found = _best_scale(residuals, 1 / weight)
        if found.log_likelihood - COST * weight > likeliest:
            best, likeliest, worse = found.tail, found.log_likelihood - COST * weight, 0
        else:
            worse += 1
        if worse == PATIENCE:
            break
    return best


@dataclass(frozen=True, slots=True)
class _Fit:
    tail: Tail
    log_likelihood: float


def _best_scale(residuals: Residuals, df: float) -> _Fit:
    fits = [_Fit(Tail(scale, df), _log_likelihood(residuals, Tail(scale, df))) for scale in SCALES]
    return max(fits, key=lambda fit: fit.log_likelihood)


def _log_likelihood(residuals: Residuals, tail: Tail) -> float:
    df = combined_df(residuals.df, tail.df)
    value, limit = residuals.value / tail.scale, residuals.limit / tail.scale
    density = (
        special.gammaln((df + 1) / 2)
        - special.gammaln(df / 2)
        - np.log(df) / 2
        - (df + 1) / 2 * np.log1p(value * value / df)
    )
    inside = np.log1p(-2 * special.stdtr(df, -limit))
    return float(residuals.independent @ (density - np.log(tail.scale) - inside))
