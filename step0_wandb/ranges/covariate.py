"""What the entropy of the same row says about the gap: where answers are more random, it is larger.

Within a setup ln(gap) rises with ln(entropy), by about 0.6 in real runs. Taken out, what is left of the
scatter is smaller and a fault shows at a smaller factor. The slope is learned from all setups of one gap
metric, shrunk to that; it is 0 where the runs do not show that it helps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.history import History
    from step0_wandb.ranges.screen import Fleet
    from step0_wandb.ranges.taught import Taught

USUAL_SLOPE, SLOPE_SD = 0.6, 0.3
"""What is assumed of the slope before the runs say anything."""
HELPS_FROM: Final = 3.0
"""Standard errors by which a slope must differ from 0, or the entropy explains nothing."""
LARGEST: Final = float(np.log(1.5))
"""An entropy explains no more than this of ln(gap): beyond it something else is wrong, too."""
USUAL_RANGE: Final = 4.0
"""A run whose ln(entropy) lies this many standard deviations off is judged without it."""


@dataclass(frozen=True, slots=True)
class Covariate:
    """What the entropy explains.

    Attributes
    ----------
    slope : ndarray of float, shape (metrics,)
        Of ln(gap) on ln(entropy); 0 where it does not help.
    reach : ndarray of float, shape (metrics,)
        The largest distance of ln(entropy) from its setup's that is usual.
    usual : ndarray of float, shape (setups,)
        ln(entropy) of the setup's healthy runs; NaN where none has one.
    """

    slope: Floats
    reach: Floats
    usual: Floats

    def explained(self, log_entropy: Floats, setup: Ints, metric: Ints) -> Floats:
        """Return by how much ln(gap) of each run is raised by its entropy; 0 where nothing is known.

        Parameters
        ----------
        log_entropy : ndarray of float, shape (runs,)
        setup : ndarray of int, shape (runs,)
            Index into the setups; -1 where a run has none.
        metric : ndarray of int, shape (setups,)
        """
        group = np.append(metric, 0)[setup]
        away = log_entropy - np.append(self.usual, np.nan)[setup]
        usual = np.abs(away) <= self.reach[group]
        effect = np.clip(self.slope[group] * np.where(usual, away, 0.0), -LARGEST, LARGEST)
        return np.where(usual, effect, 0.0)


def fit_covariate(history: History, fleet: Fleet, known: Sequence[Taught] = ()) -> Covariate:
    """Learn from the members of every setup; `fleet` has one cell a setup.

    Parameters
    ----------
    known : sequence of Taught
        What other runs have taught of each gap metric: slope and reach stay as they are.
    """
    rows = fleet.rows
    if not np.isfinite(history.log_entropy).any():
        metrics, setups = history.setups.metrics.size, history.setups.names.size
        return Covariate(np.zeros(metrics), np.zeros(metrics), np.full(setups, np.nan))
    of_cell = rows.cells.spread_ints(np.arange(rows.cells.counts.size))
    log_entropy = history.log_entropy[rows.index]
    chosen = fleet.members & np.isfinite(log_entropy)
    x, y, cell = log_entropy[chosen], rows.y[chosen], of_cell[chosen]
    count = np.bincount(cell, minlength=rows.cells.counts.size)
    some = np.maximum(count, 1)
    mean_x = np.bincount(cell, x, count.size) / some
    dx, dy = x - mean_x[cell], y - (np.bincount(cell, y, count.size) / some)[cell]
    metrics = history.setups.metrics.size
    group = rows.group[cell]
    freedom = _sum(rows.group, np.maximum(count - 1.0, 0.0), metrics) - 1
    xx, xy, yy = (_sum(group, product, metrics) for product in (dx * dx, dx * dy, dy * dy))
    usual = np.full(history.setups.names.size, np.nan)
    usual[rows.cells.codes] = np.where(count > 0, mean_x, np.nan)
    if known:
        return Covariate(
            np.array([one.slope for one in known]), np.array([one.reach for one in known]), usual
        )
    return Covariate(_slope(xx, xy, yy, freedom), _reach(xx, freedom), usual)


def _sum(group: Ints, values: Floats, groups: int) -> Floats:
    return np.bincount(group, values, groups).astype(np.float64)


def _slope(xx: Floats, xy: Floats, yy: Floats, freedom: Floats) -> Floats:
    """Return the slope of each gap metric from its sums of squares within setups."""
    known: Bools = (freedom >= 1) & (xx > 0)
    xx = np.where(known, xx, 1.0)
    own = xy / xx
    variance = np.maximum(yy - own * xy, 0.0) / np.maximum(freedom, 1) + np.finfo(float).tiny
    information = xx / variance
    shrunk = (own * information + USUAL_SLOPE / SLOPE_SD**2) / (information + 1 / SLOPE_SD**2)
    helps = known & (own * np.sqrt(information) >= HELPS_FROM)
    return np.where(helps, shrunk, 0.0)


def _reach(xx: Floats, freedom: Floats) -> Floats:
    return USUAL_RANGE * np.sqrt(xx / np.maximum(freedom + 1, 1))
