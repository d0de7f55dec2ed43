"""How far the variance of one setup may be trusted: what the others teach about it.

The model is ``s^2 ~ s0^2 F(d, d0)``: G. K. Smyth (2004), Stat. Appl. Genet. Mol. Biol. 3(1), Article 3,
doi:10.2202/1544-6115.1027, with its estimate by the moments of ln(s^2) (section 6.2) and the inverse of
the trigamma function (appendix). A few setups say little about d0 and s0, and a plug-in of what they
say makes ranges too narrow (measured: 1 % false alarms with five setups). So both are integrated over a
grid, and what is left is one prior with the same quantiles for a single run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Floats

DEFAULT_SPREAD: Final = 0.03
"""What is assumed of the standard deviation of ln(gap) before the setups have said anything."""
SPREAD_LOG_SD: Final = 0.25
"""How far ln(s0) may lie from the default's, as a standard deviation."""
DF_GRID: Final = np.array([2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20, 30.0])
DF_CENTER, DF_LOG_SD = 6.0, 0.4
"""What is assumed of d0: lognormal. d0 = 2 lets setups differ by a factor of thirty."""
SPREAD_STEPS: Final = 25
MATCHED: Final = (0.0005, 0.25)
"""Tail probabilities at which the prior that is left agrees with the integral."""

SMALLEST: Final = 1e-5
"""A variance below this share of the median does not measure the spread (bit-equal retries)."""
STRAY: Final = 1e-3
STRAY_DF: Final = 3.0
"""A variance more extreme than all but `STRAY` of the setups at this d0 is an outlier."""
FEW: Final = 5
"""With fewer setups there is no telling which of them is an outlier."""
LARGEST_SAMPLE: Final = 1_000
"""More setups say nothing new about two numbers."""


@dataclass(frozen=True, slots=True)
class Prior:
    """The prior of the variances: ``s^2 ~ variance * F(d, df)``.

    Attributes
    ----------
    df : float
        d0, infinite when the setups differ no more than chance makes them.
    variance : float
        s0^2, of ln(gap).
    repeats_below : float
        Members whose variance lies below this are repeats of one launch; they say where the center
        is and nothing about the spread.
    """

    df: float
    variance: float
    repeats_below: float = SMALLEST * DEFAULT_SPREAD**2


def inverse_trigamma(x: float) -> float:
    """Return y > 0 with trigamma(y) = x, for x > 0, by Newton's method on 1 / trigamma."""
    y = 0.5 + 1 / x
    for _ in range(50):
        value = float(special.polygamma(1, y))
        step = value * (1 - value / x) / float(special.polygamma(2, y))
        y += step
        if -step < 1e-10 * y:
            break
    return y


def log_variance(variance: Floats, d: Floats) -> Floats:
    """Return ln(s^2) with the bias of its d degrees of freedom taken out (Smyth's e)."""
    unbiased: Floats = np.log(variance) - special.psi(d / 2) + np.log(d / 2)
    return unbiased


def moment_prior(variance: Floats, d: Floats) -> Prior:
    """Estimate d0 and s0^2 from variances by the moments of their logarithms.

    The same estimate as ``fitFDist`` of R's limma; d0 is not limited here.

    Parameters
    ----------
    variance, d : ndarray of float, shape (setups,)
        Sample variances and their degrees of freedom, each at least 1; two setups or more.
    """
    median = float(np.median(variance))
    variance = np.maximum(variance, SMALLEST * (median if median > 0 else 1.0))
    e = log_variance(variance, d)
    excess = float(np.var(e, ddof=1) - np.mean(special.polygamma(1, d / 2)))
    if excess <= 0:
        return Prior(np.inf, float(np.mean(variance)), SMALLEST * median)
    df = 2 * inverse_trigamma(excess)
    variance0 = float(np.exp(np.mean(e) + special.psi(df / 2) - np.log(df / 2)))
    return Prior(df, variance0, SMALLEST * median)


def squeeze(variance: Floats, d: Floats, prior: Prior) -> Floats:
    """Return the posterior variances ``(d0 s0^2 + d s^2) / (d0 + d)``."""
    if np.isinf(prior.df):
        return np.full_like(variance, prior.variance)
    posterior: Floats = (prior.df * prior.variance + d * variance) / (prior.df + d)
    return posterior


def prior_of(variance: Floats, d: Floats, default: float = DEFAULT_SPREAD) -> Prior:
    """Return the prior that ranges use, from the setups of one gap metric.

    Repeats of one launch (a variance of nearly 0) are left out, and so is a variance that does not
    belong to the others': taken in, one such setup in ten opens the ranges of all (measured: false
    alarms of 26 % instead of 0.2 %).

    Parameters
    ----------
    variance, d : ndarray of float, shape (setups,)
        Of the members of each setup; those with d < 1 are ignored.
    default : float
        Standard deviation of ln(gap) that is assumed before the setups say anything.
    """
    repeats = SMALLEST * default**2
    measured = (d >= 1) & (variance > repeats)
    variance, d = variance[measured], d[measured]
    if variance.size >= FEW:
        varied = variance >= SMALLEST * np.median(variance)
        variance, d = variance[varied], d[varied]
        usual = _belongs(variance, d)
        variance, d = variance[usual], d[usual]
        repeats = SMALLEST * float(np.median(variance))
    # In the order of their values: the order of the setups must not matter, nor that one more came.
    order = np.lexsort((d, variance))
    if variance.size > LARGEST_SAMPLE:
        order = order[np.linspace(0, variance.size - 1, LARGEST_SAMPLE).astype(np.int64)]
    variance, d = variance[order], d[order]
    found = _integrated(variance, d, default)
    return Prior(found.df, found.variance, repeats)


def _belongs(variance: Floats, d: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each variance could be one of the population."""
    df = STRAY_DF
    scale = np.exp(np.median(log_variance(variance, d)) + special.psi(df / 2) - np.log(df / 2))
    ratio = variance / scale
    return (special.fdtr(d, df, ratio) >= STRAY) & (special.fdtrc(d, df, ratio) >= STRAY)


def _integrated(variance: Floats, d: Floats, default: float) -> Prior:
    """Return the prior whose single-run prediction has the quantiles of the posterior mixture."""
    start = np.log(default)
    # The posterior of ln(s0) lies between the default and what the moments say; a grid that is as
    # fine as a fleet is sure of s0 has to be laid out there.
    at = np.log(moment_prior(variance, d).variance) / 2 if variance.size > 1 else start
    margin = 4 / np.sqrt(1 / SPREAD_LOG_SD**2 + variance.size / 2)
    if variance.size == 1:
        margin *= 2
    log_s0 = np.linspace(min(start, at) - margin, max(start, at) + margin, SPREAD_STEPS)
    log_weight = -(((log_s0 - start) / SPREAD_LOG_SD) ** 2)[:, None] / 2
    log_weight = log_weight - (np.log(DF_GRID / DF_CENTER) / DF_LOG_SD) ** 2 / 2
    for j, df in enumerate(DF_GRID):
        constant = special.gammaln((d + df) / 2) - special.gammaln(d / 2) - special.gammaln(df / 2)
        x = d / df * variance * np.exp(-2 * log_s0)[:, None]
        log_weight[:, j] += (constant + d / 2 * np.log(x) - (d + df) / 2 * np.log1p(x)).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    held = weight > NEGLIGIBLE
    weight = weight[held] / weight[held].sum()
    df = np.broadcast_to(DF_GRID, held.shape)[held]
    scale = np.exp(np.broadcast_to(log_s0[:, None], held.shape)[held])

    far, near = (_quantile(probability, df, scale, weight) for probability in MATCHED)
    # The shape of a t is the ratio of its two quantiles, which falls with its degrees of freedom.
    reach = special.stdtrit(SHAPES[:, None], 1 - np.array(MATCHED))
    matched = float(np.exp(np.interp(-far / near, -reach[:, 0] / reach[:, 1], np.log(SHAPES))))
    return Prior(matched, (near / float(special.stdtrit(matched, 1 - MATCHED[1]))) ** 2)


NEGLIGIBLE: Final = 1e-4
BISECTIONS: Final = 24
SHAPES: Final = np.geomspace(1.5, 60, 60)


def _quantile(probability: float, df: Floats, scale: Floats, weight: Floats) -> float:
    """Return the distance that a mixture of t distributions exceeds with `probability`."""
    each = special.stdtrit(df, 1 - probability) * scale
    low, high = float(each.min()), float(each.max())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        beyond = float(weight @ special.stdtr(df, -middle / scale))
        low, high = (middle, high) if beyond > probability else (low, middle)
    return (low + high) / 2
