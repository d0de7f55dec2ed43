"""How far the variance of one setup may be trusted: what the others teach about it.

Sources: G. K. Smyth (2004), Stat. Appl. Genet. Mol. Biol. 3(1), Article 3,
doi:10.2202/1544-6115.1027, for the model ``s^2 ~ s0^2 F(d, d0)``, its estimate by the moments of
ln(s^2) (section 6.2) and the inverse of the trigamma function (appendix).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Floats

DEFAULT_DF: Final = 4.0
DEFAULT_VARIANCE: Final = 0.03**2
"""What is assumed of the spread of ln(gap) before the setups have said anything."""

FEW: Final = 5
"""With fewer setups that repeat a run, their variances are averaged with the default."""
ENOUGH: Final = 10
"""With fewer setups, d0 is at most their number: moments of so few variances overstate it."""
DF_LIMITS: Final = (3.0, 30.0)
SMALLEST: Final = 1e-5
"""A variance below this share of the median does not measure the spread (bit-equal retries)."""
STRAY: Final = 1e-3
"""A variance more extreme than all but this share of setups at d0 = 3 is an outlier."""


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
    repeats_below: float = SMALLEST * DEFAULT_VARIANCE


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


def prior_of(variance: Floats, d: Floats) -> Prior:
    """Estimate the prior that ranges use, from the setups of one gap metric.

    Repeats of one launch (a variance of nearly 0) are left out, and so is a variance that does not
    belong to the others': taken in, one such setup in ten opens the ranges of all (measured: false
    alarms of 26 % instead of 0.2 %).

    Parameters
    ----------
    variance, d : ndarray of float, shape (setups,)
        Of the members of each setup; those with d < 1 are ignored.
    """
    measured = (d >= 1) & (variance > SMALLEST * DEFAULT_VARIANCE)
    variance, d = variance[measured], d[measured]
    if variance.size >= FEW:
        varied = variance >= SMALLEST * np.median(variance)
        variance, d = variance[varied], d[varied]
        usual = _belongs(variance, d)
        variance, d = variance[usual], d[usual]
    if variance.size < FEW:
        return _few(variance, d)
    prior = moment_prior(variance, d)
    highest = DF_LIMITS[1] if variance.size >= ENOUGH else variance.size
    return Prior(float(np.clip(prior.df, DF_LIMITS[0], highest)), prior.variance, prior.repeats_below)


def _belongs(variance: Floats, d: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each variance could be one of the population, were d0 as low as it may be."""
    df = DF_LIMITS[0]
    scale = np.exp(np.median(log_variance(variance, d)) + special.psi(df / 2) - np.log(df / 2))
    ratio = variance / scale
    return (special.fdtr(d, df, ratio) >= STRAY) & (special.fdtrc(d, df, ratio) >= STRAY)


def _few(variance: Floats, d: Floats) -> Prior:
    """Average ln(s^2) of a few setups with the default's, by the inverse of their variances."""
    trigamma = special.polygamma(1, np.append(d, DEFAULT_DF) / 2)
    weight = 1 / (trigamma + special.polygamma(1, DEFAULT_DF / 2))
    weight[-1] = 1 / trigamma[-1]
    e = np.append(log_variance(np.maximum(variance, SMALLEST), d), np.log(DEFAULT_VARIANCE))
    return Prior(DEFAULT_DF, float(np.exp(weight @ e / weight.sum())))
