"""Limits and probabilities: how far out a run may lie, given the others of its setup.

The range is the prediction interval of the next run's ln(gap),
``mean +- q(1 - alpha / 2; d0 + d) * s * sqrt(1 + 1 / n)`` with s moderated as in `prior`. The
quantile q is Student's t, widened where the fleet's tails are heavier (`tails`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import special

from step0_wandb.ranges.prompts import ASSUMED_DF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.ranges.cells import Bools, Floats, Ints, Moments
    from step0_wandb.ranges.prior import Prior
    from step0_wandb.ranges.prompts import Sharing

STEPS = 16
"""Degrees of freedom are told apart this finely."""


def combined_df(df: Floats, tail_df: Floats | float) -> Floats:
    """Return the degrees of freedom of residuals whose runs are themselves t distributed.

    Few degrees of freedom make heavy tails already; the two add in quadrature. Chosen by
    calibration on simulated fleets: the plain sum of 1/df makes ranges of single runs far too wide.

    Parameters
    ----------
    df : ndarray of float
        Degrees of freedom of the moderated variance.
    tail_df : float or ndarray of float
        Degrees of freedom of the runs' own t; infinite for normal ones.
    """
    combined: Floats = 1 / np.hypot(1 / df, 1 / np.asarray(tail_df))
    return combined


@dataclass(frozen=True, slots=True)
class Tail:
    """The shape of the residuals: `scale` times a t with ``combined_df(their own, df)``.

    Attributes
    ----------
    scale : float
        At most 1: heavy tails leave less in the middle.
    df : float
        Degrees of freedom of the runs' own t; infinite for normal ones.
    """

    scale: float = 1.0
    df: float = np.inf


@dataclass(frozen=True, slots=True)
class Spread:
    """What a group of setups shares, one entry a group (a gap metric, or a single setup).

    Attributes
    ----------
    df, variance, repeats_below : ndarray of float
        See `prior.Prior`.
    tail_scale, tail_df : ndarray of float
        See `Tail`.
    alpha : ndarray of float
        Share of healthy runs that may fall outside.
    """

    df: Floats
    variance: Floats
    repeats_below: Floats
    tail_scale: Floats
    tail_df: Floats
    alpha: Floats

    @classmethod
    def of(cls, priors: Sequence[Prior], tails: Sequence[Tail], alpha: float) -> Spread:
        """Collect one prior and one tail a group."""
        return cls(
            np.array([prior.df for prior in priors]),
            np.array([prior.variance for prior in priors]),
            np.array([prior.repeats_below for prior in priors]),
            np.array([tail.scale for tail in tails]),
            np.array([tail.df for tail in tails]),
            np.full(len(priors), alpha),
        )

    def at(self, alpha: float) -> Spread:
        """Return the same for another alpha."""
        return replace(self, alpha=np.full_like(self.df, alpha))

    def repeats(self, runs: Moments, group: Ints) -> Bools:
        """Whether the runs are repeats of one launch, which say nothing about the spread."""
        few: Bools = runs.ss <= self.repeats_below[group] * (runs.n - 1)
        return few

    def scale(self, runs: Moments, group: Ints) -> Scale:
        """Return the moderated spread of `runs`, each entry belonging to its `group`."""
        repeats = self.repeats(runs, group)
        own_df = np.where(repeats, 0.0, runs.n - 1)
        df = self.df[group] + own_df
        variance = (self.df[group] * self.variance[group] + np.where(repeats, 0.0, runs.ss)) / df
        return Scale(own_df, df, np.sqrt(variance), np.sqrt(variance * (1 + 1 / runs.n)))

    def widened(self, scale: Scale, group: Ints, shared: Sharing | None) -> Scale:
        """Return the scale of runs on other prompts than those that they are compared with.

        What the others' scatter does not show of the variance between prompt sets is added. The part of
        the prior stands for the scatter of a whole fleet, which has it in it up to its own size.
        """
        if shared is None:
            return scale
        of_prior = self.df[group] / scale.df
        hidden = (1 - of_prior) * (1 - shared.shown) * shared.variance
        hidden += of_prior * np.maximum(shared.variance - self.variance[group], 0.0)
        hidden *= shared.times
        variance = scale.prediction**2
        total = variance + hidden
        # Degrees of freedom of a sum of two variances, after Satterthwaite (doi:10.2307/3002019).
        df = total**2 / (variance**2 / scale.df + hidden**2 / ASSUMED_DF)
        own_df = np.where(hidden > 0, np.floor((df - self.df[group]) * STEPS) / STEPS, scale.own_df)
        return Scale(own_df, self.df[group] + own_df, scale.sigma, np.sqrt(total))

    def half_width(self, scale: Scale, group: Ints) -> Floats:
        """Return half the width of the range, in ln(gap)."""
        # Entries share few pairs of group and n, and a quantile is slow: look each pair up once.
        pairs = np.rint(scale.own_df * STEPS).astype(np.int64) * self.df.size + group
        code, pair = pd.factorize(pairs)
        own_df, of = np.divmod(np.asarray(pair, dtype=np.int64), self.df.size)
        return self._quantile(own_df / STEPS, of)[code] * scale.prediction

    def _quantile(self, own_df: Floats, group: Ints) -> Floats:
        df = self.df[group] + own_df
        upper = 1 - self.alpha[group] / 2
        plain = special.stdtrit(df, upper)
        heavy = special.stdtrit(combined_df(df, self.tail_df[group]), upper)
        widened: Floats = np.maximum(plain, self.tail_scale[group] * heavy)
        return widened

    def p_value(self, deviation: Floats, scale: Scale, group: Ints) -> Floats:
        """Return the two-sided probability of a deviation at least that large; NaN gives NaN.

        It is below alpha exactly where the deviation is larger than the half width.
        """
        away = -np.abs(deviation) / scale.prediction
        p: Floats = 2 * special.stdtr(scale.df, away)
        if np.isfinite(self.tail_df).any():
            heavy = combined_df(scale.df, self.tail_df[group])
            p = np.maximum(p, 2 * special.stdtr(heavy, away / self.tail_scale[group]))
        return p


@dataclass(frozen=True, slots=True)
class Scale:
    """The moderated spread of some runs' ln(gap).

    Attributes
    ----------
    own_df, df : ndarray of float
        Degrees of freedom of the runs alone, and with the prior's.
    sigma : ndarray of float
        Standard deviation of one run.
    prediction : ndarray of float
        Standard deviation of the next run about the mean of these.
    """

    own_df: Floats
    df: Floats
    sigma: Floats
    prediction: Floats
