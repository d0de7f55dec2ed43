"""What the members of one level show together: a slow drift, or two levels that one setup hides.

Neither makes a run suspect: each lies within the range, which they have widened. They are told of the setup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from step0_wandb.ranges.cells import Cells, sorted_order
from step0_wandb.ranges.history import NEVER, UNKNOWN, as_times
from step0_wandb.ranges.prior import DEFAULT_SPREAD

if TYPE_CHECKING:
    import pandas as pd

    from step0_wandb.ranges.cells import Floats, Ints
    from step0_wandb.ranges.model import Model

FEWEST: Final = 10
"""Runs that a drift needs."""
RARE: Final = 1e-5
"""Probability of a slope by chance: every new run asks again, and 1,000 of them may raise one false alarm."""
WORTH_TELLING: Final = float(np.log(1.1))
APART: Final = 4.0
"""Standard deviations of either side that lie between the two levels that a setup hides."""
PRIOR_DF: Final = 4.0


def trends(model: Model) -> dict[str, Floats | Ints | pd.DatetimeIndex]:
    """Return what the members of each setup's level in force show together, see `fit_ranges`."""
    return _drifts(model) | _hidden_levels(model)


def _members(model: Model) -> Ints:
    """Return the rows of the members of the levels in force."""
    current = np.append(model.levels.current, -1)[model.history.setup]
    return np.flatnonzero(model.member & (model.levels.of_run == current))


def _drifts(model: Model) -> dict[str, Floats | pd.DatetimeIndex]:
    """Return the columns about drifts: by how much the line through a setup's runs in time order rises."""
    history, count = model.history, model.history.setups.names.size
    row = _members(model)
    # Seeds that came one after the other would look like a drift.
    row = row[(history.time[row] != UNKNOWN) & (history.between[row] == 0)]
    row = row[sorted_order(history.setup[row], history.time[row])]
    cells, y = Cells.of(history.setup[row]), history.y[row]
    n = cells.counts.astype(np.float64)
    # Runs of one moment share a place: their order in the frame says nothing.
    begins = np.append(True, (np.diff(history.setup[row]) != 0) | (np.diff(history.time[row]) != 0))[
        : row.size
    ]
    moment = np.cumsum(begins) - 1
    place = np.bincount(moment, np.arange(row.size)) / np.maximum(np.bincount(moment), 1)
    x = place[moment] - cells.spread(cells.starts + (n - 1) / 2)
    away = y - cells.spread(cells.total(y) / n)
    xx, xy, yy = (cells.total(values) for values in (x * x, x * away, away * away))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = xy / xx
        t = slope * np.sqrt(xx * (n - 2) / np.maximum(yy - slope * xy, np.finfo(float).tiny))
        rare = (n >= FEWEST) & (2 * special.stdtr(n - 2, -np.abs(t)) < RARE)
    rise = slope * (n - 1)
    told = np.flatnonzero(rare & (np.abs(rise) >= WORTH_TELLING))
    drift, since = np.full(count, np.nan), np.full(count, NEVER)
    drift[cells.codes[told]] = np.exp(rise[told])
    since[cells.codes[told]] = history.time[row[cells.starts[told]]]
    return {"drift": drift, "drift_since": as_times(since)}


def _hidden_levels(model: Model) -> dict[str, Floats | Ints]:
    """Return the columns about two levels within one range, at least two runs in each."""
    history, count = model.history, model.history.setups.names.size
    row = _members(model)
    row = row[sorted_order(history.setup[row], history.y[row])]
    cells, y = Cells.of(history.setup[row]), history.y[row]
    place = np.arange(row.size) - cells.spread_ints(cells.starts)
    inner = (place >= 1) & (place < cells.spread_ints(cells.counts) - 3 + 1)
    step = np.where(inner, np.append(np.diff(y), 0.0), -1.0)
    widest = np.maximum.reduceat(step, cells.starts) if row.size else np.zeros(0)
    at_widest = np.where(step == cells.spread(widest), np.arange(row.size), row.size)
    split = np.minimum.reduceat(at_widest, cells.starts) if row.size else cells.starts
    upper = np.arange(row.size) > cells.spread_ints(split)
    sides = [cells.total(upper == side) for side in (False, True)]
    centers = [
        cells.total(np.where(upper == side, y, 0.0)) / np.maximum(size, 1)
        for side, size in zip((False, True), sides, strict=True)
    ]
    within = cells.total((y - np.where(upper, *(cells.spread(one) for one in reversed(centers)))) ** 2)
    spread = np.sqrt((PRIOR_DF * DEFAULT_SPREAD**2 + within) / (PRIOR_DF + cells.counts - 2))
    told = np.flatnonzero(widest >= np.maximum(APART * spread, WORTH_TELLING))
    lower_n = np.zeros(count, dtype=np.int64)
    low, high = np.full((2, count), np.nan)
    lower_n[cells.codes[told]] = sides[0][told]
    low[cells.codes[told]], high[cells.codes[told]] = (np.exp(one[told]) for one in centers)
    return {"lower_center": low, "lower_n": lower_n, "upper_center": high}
