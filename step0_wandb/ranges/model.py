"""Everything the runs say about their setups, whatever the alpha of the ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from step0_wandb.ranges.cells import Cells, Moments, sorted_order
from step0_wandb.ranges.covariate import fit_covariate
from step0_wandb.ranges.history import read_history
from step0_wandb.ranges.levels import cut_levels
from step0_wandb.ranges.screen import Rows, screen_fleet
from step0_wandb.ranges.taught import Taught

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.covariate import Covariate
    from step0_wandb.ranges.history import History
    from step0_wandb.ranges.levels import Levels
    from step0_wandb.ranges.screen import Fleet


@dataclass(frozen=True, slots=True)
class Model:
    """What was learned from a history.

    Attributes
    ----------
    member : ndarray of bool, shape (runs,)
        Whether the run is a member of the range of its own level.
    whole : Moments
        Of the members of each level.
    seen : ndarray of float, shape (levels, 4)
        Smallest, second smallest, second largest and largest gap among the members, NaN where there
        are fewer.
    labeled : ndarray of bool, shape (levels,)
        A person called one of its runs healthy.
    split : ndarray of bool, shape (levels,)
        One run is left of several that lie a factor apart.
    fleet : Fleet
        Cells, priors and tails.
    """

    history: History
    covariate: Covariate
    levels: Levels
    fleet: Fleet
    member: Bools
    whole: Moments
    seen: Floats
    labeled: Bools
    split: Bools


def fit_model(
    runs: pd.DataFrame,
    broken_ratio: float,
    known: Mapping[str | None, Taught] | None = None,
    *,
    either_side: bool = False,
) -> Model:
    """Find epochs, members, priors and tails in a frame of runs, see `fit_ranges`.

    That is nearly all of the work: a range table, the range of each run and the goodness of fit are
    then made of one model.

    Parameters
    ----------
    known : mapping of str to Taught, optional
        What other setups have taught, by gap metric.
    either_side : bool
        Whether broken runs may lie lower as well as higher: true of other numbers than the gap.
    """
    history = read_history(runs)
    setups = history.setups
    default = [Taught(default=float(spread)) for spread in setups.spread]
    taught = [(known or {}).get(name, default[at]) for at, name in enumerate(setups.metrics)]
    screen = partial(screen_fleet, taught=taught, known=known is not None, either_side=either_side)
    rows = _rows(history, history.setup, setups.metric, history.was_healthy)
    fleet = screen(rows)
    covariate = fit_covariate(history, fleet, taught if known else ())
    if covariate.slope.any():
        explained = covariate.explained(history.log_entropy, history.setup, history.setups.metric)
        history = replace(history, y=history.y - explained, explained=explained)
        rows = _rows(history, history.setup, setups.metric, history.was_healthy)
        fleet = screen(rows)
    levels = cut_levels(history, fleet.spread, float(np.log(broken_ratio)))
    settled = np.where(np.append(levels.remembers, False)[levels.of_run], history.was_healthy, levels.joined)
    if levels.setup.size > history.setups.names.size or (settled & ~history.was_healthy).any():
        rows = _rows(history, levels.of_run, history.setups.metric[levels.setup], settled)
        fleet = screen(rows)
    return _model(history, covariate, levels, fleet)


def _rows(history: History, level: Ints, metric: Ints, settled: Bools) -> Rows:
    """Return the candidates in cells, one a level, each sorted by value."""
    index = np.flatnonzero(history.candidate)
    index = index[sorted_order(level[index], history.y[index])]
    cells = Cells.of(level[index])
    return Rows(
        index=index,
        y=history.y[index],
        healthy=history.healthy[index],
        settled=settled[index],
        cells=cells,
        group=metric[cells.codes],
        prompt_set=history.prompt_set[index],
        between=history.between[index],
    )


def _model(history: History, covariate: Covariate, levels: Levels, fleet: Fleet) -> Model:
    """Bring what the cells hold to the levels, which may have no cell, and to the runs."""
    rows, of, count = fleet.rows, fleet.rows.cells.codes, levels.setup.size
    member = np.zeros(history.gap.size, dtype=bool)
    member[rows.index[fleet.members]] = True
    whole = Moments(*np.zeros((3, count)))
    whole.n[of], whole.mean[of], whole.ss[of] = fleet.whole.n, fleet.whole.mean, fleet.whole.ss
    gap = history.gap[rows.index[fleet.members]]
    end = np.cumsum(fleet.whole.n).astype(np.int64)
    start = end - fleet.whole.n.astype(np.int64)
    seen = np.full((count, 4), np.nan)
    seen[of] = gap[
        np.column_stack([start, np.minimum(start + 1, end - 1), np.maximum(end - 2, start), end - 1])
    ]
    labeled, split = np.zeros((2, count), dtype=bool)
    labeled[of] = rows.cells.total(rows.healthy) > 0
    split[of] = (fleet.whole.n == 1) & (rows.cells.counts > 1) & ~labeled[of]
    return Model(history, covariate, levels, fleet, member, whole, seen, labeled, split)
