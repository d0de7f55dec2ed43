"""Simulated fleets of runs, whose truth is known.

The center and the spread of every setup are drawn, so that the probability with which its next run
falls outside a range is a formula: no run has to be drawn to know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Sequence

MEDIAN_GAP, CENTER_LOG_SD = 0.013, 0.3
"""Centers of the setups: lognormal, most between 0.007 and 0.024, as frameworks report them."""

BROKEN = (2.0, 20.0)
"""Broken runs have their gap multiplied with a factor drawn evenly on a log scale from here."""


SHAPE = 4.0
"""Of skewed noise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fleet is drawn from.

    Attributes
    ----------
    sizes : sequence of int
        Runs of each setup; a pair (low, high) of `between` draws them evenly.
    log_sd : float
        Standard deviation of ln(gap) in a setup, in the root mean square.
    spread_df : float
        The smaller, the more the setups' spreads differ: variance = log_sd^2 spread_df / chi2.
    log_sd_between : tuple of float, optional
        Log sd of each setup drawn evenly on a log scale between these instead: unlike setups.
    noise_df : float
        Degrees of freedom of the noise, a t scaled to unit variance; infinite: normal.
    skewed : bool
        Noise from a gamma distribution of shape 4 (skewness 1) instead, its long tail upwards.
    broken : float
        Share of unlabeled broken runs in the history.
    """

    sizes: Sequence[int] = ()
    between: tuple[int, int] | None = None
    setups: int = 100
    log_sd: float = 0.02
    spread_df: float = 8.0
    log_sd_between: tuple[float, float] | None = None
    noise_df: float = np.inf
    skewed: bool = False
    broken: float = 0.0


@dataclass(frozen=True, slots=True)
class Fleets:
    """Several fleets drawn from one plan; each has a gap metric of its own, so that none teaches another.

    Attributes
    ----------
    runs : DataFrame
        One row a run: run, setup, gap_metric, gap, created_at, and `broken` (the truth).
    truth : DataFrame
        Indexed by setup: fleet, center (mean of ln(gap)), sd (of ln(gap)), noise_df.
    """

    runs: pd.DataFrame
    truth: pd.DataFrame
    skewed: bool = False

    def outside(self, low: pd.Series, high: pd.Series, factor: float) -> pd.Series:
        """Return for each setup how probable it is that a next run lies outside its limits.

        Parameters
        ----------
        low, high : Series
            Indexed by setup; NaN where there is no limit on that side.
        factor : float
            What the gap of the next run is multiplied with.
        """
        truth = self.truth
        below = self._cdf(np.log(low.reindex(truth.index).clip(lower=np.finfo(float).tiny)), factor)
        above = 1 - self._cdf(np.log(high.reindex(truth.index)), factor)
        return below.fillna(0) + above.fillna(0)

    def _cdf(self, limit: pd.Series, factor: float) -> pd.Series:
        truth = self.truth
        noise_df = float(truth["noise_df"].iloc[0])
        z = (limit - truth["center"] - np.log(factor)) / truth["sd"]
        if self.skewed:
            return pd.Series(stats.gamma.cdf(SHAPE + z * np.sqrt(SHAPE), SHAPE), truth.index)
        if np.isinf(noise_df):
            return pd.Series(stats.norm.cdf(z), truth.index)
        return pd.Series(stats.t.cdf(z * np.sqrt(noise_df / (noise_df - 2)), noise_df), truth.index)


def draw_fleets(plan: Plan, rng: np.random.Generator, fleets: int = 1) -> Fleets:
    """Draw `fleets` fleets."""
    setups = plan.setups * fleets
    sizes = (
        rng.integers(*plan.between, setups, endpoint=True) if plan.between else np.resize(plan.sizes, setups)
    )
    center = rng.normal(np.log(MEDIAN_GAP), CENTER_LOG_SD, setups)
    sd = plan.log_sd * np.sqrt(plan.spread_df / rng.chisquare(plan.spread_df, setups))
    if plan.log_sd_between:
        sd = np.exp(rng.uniform(*np.log(plan.log_sd_between), setups))
    of = np.repeat(np.arange(setups), sizes)
    if plan.skewed:
        noise = (rng.gamma(SHAPE, size=of.size) - SHAPE) / np.sqrt(SHAPE)
    elif np.isinf(plan.noise_df):
        noise = rng.standard_normal(of.size)
    else:
        noise = rng.standard_t(plan.noise_df, of.size) * np.sqrt((plan.noise_df - 2) / plan.noise_df)
    broken = rng.random(of.size) < plan.broken
    factor = np.where(broken, rng.uniform(*np.log(BROKEN), of.size), 0.0)
    fleet = np.arange(setups) // plan.setups
    names = np.array([f"setup {index:06d}" for index in range(setups)], dtype=object)
    minutes = rng.permutation(of.size)
    runs = pd.DataFrame(
        {
            "run": [f"team/project/{index:07d}" for index in range(of.size)],
            "setup": names[of],
            "gap_metric": np.array([f"gap {index:05d}" for index in range(fleets)], dtype=object)[fleet[of]],
            "gap": np.exp(center[of] + sd[of] * noise + factor),
            "created_at": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(minutes, unit="min"),
            "broken": broken,
        }
    )
    truth = pd.DataFrame(
        {"fleet": fleet, "center": center, "sd": sd, "noise_df": plan.noise_df},
        index=pd.Index(names, name="setup"),
    )
    return Fleets(runs, truth, plan.skewed)
