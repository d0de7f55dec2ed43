"""`goodness_of_fit`: whether the runs of a setup are as normal as their range assumes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from scipy import special

from step0_wandb.ranges.cells import Cells, moments_of, runs_of, take
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.prior import DEFAULT_SPREAD, DF_GRID, SMALLEST, moment_prior, prior_of
from step0_wandb.ranges.screen import SCREEN_ALPHA, Rows
from step0_wandb.ranges.spread import Spread, combined_df
from step0_wandb.ranges.table import check_parameters
from step0_wandb.ranges.tails import NORMAL, residuals_of
from step0_wandb.records import BROKEN_RATIO

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.model import Model
    from step0_wandb.ranges.prior import Prior

OUTER: Final = 0.05
OUTERMOST: Final = 0.01
SIMULATIONS: Final = 99
"""The p-value is a multiple of 1 / 100."""
LARGEST_SAMPLE: Final = 2_000
"""Residuals that are tested: enough to see a misfit that matters, few enough to be quick."""


def goodness_of_fit(runs: pd.DataFrame, *, broken_ratio: float = BROKEN_RATIO) -> pd.DataFrame:
    """Say for each gap metric how well its runs follow the distribution that ranges start from.

    One setup has too few runs to tell; here the leave-one-out residuals of all setups are pooled.
    Each is turned into the probability of a smaller one, which is uniform if ln(gap) is normal in a
    setup and its variance as the prior says. The Anderson-Darling statistic compares them with the
    uniform distribution and looks at the tails most (Anderson & Darling 1954, J. Am. Stat. Assoc.
    49, 765, doi:10.1080/01621459.1954.10501232). Residuals of one setup depend on each other and
    the prior is estimated, so that its p-value comes from simulated fleets of the same sizes
    (parametric bootstrap: Stute et al. 1993, Metrika 40, 243, doi:10.1007/BF02613687).

    Parameters
    ----------
    runs, broken_ratio
        As for `fit_ranges`.

    Returns
    -------
    DataFrame
        Indexed by `gap_metric`, one row for each that has a setup:

        ``n``
            Number of residuals: members that have others to be compared with.
        ``statistic, p_value``
            Of the test, on at most 2,000 residuals of whole setups; NaN without residuals. A small
            p-value says that ln(gap) is not normal; ranges are then widened by the tail below.
        ``beyond_5pct, beyond_1pct``
            Share of the residuals in the outer 5 % and 1 % of the distribution that ranges use,
            with its tail: what is left of the misfit.
        ``screened``
            Share of the runs with a usable gap that are not members.
        ``tail_df, tail_scale``
            Ranges are widened to `tail_scale` times a t with `tail_df` degrees of freedom; infinite:
            not at all.
        ``prior_df, prior_sigma``
            The prior of the spread of ln(gap) in a setup.

    Raises
    ------
    UsageError
        As for `fit_ranges`.
    """
    check_parameters(SCREEN_ALPHA, broken_ratio)
    return fitness_table(fit_model(runs, broken_ratio))


def fitness_table(model: Model) -> pd.DataFrame:
    """Return how well the runs of a fitted model follow it; see `goodness_of_fit`."""
    metric = model.history.setups.metric
    table = pd.DataFrame(
        [_row(model, group) for group in np.unique(metric)],
        index=pd.Index(model.history.setups.metrics[np.unique(metric)], name="gap_metric"),
        columns=COLUMNS,
    )
    return table.astype({"n": np.int64})


COLUMNS: Final = (
    "n",
    "statistic",
    "p_value",
    "beyond_5pct",
    "beyond_1pct",
    "screened",
    "tail_df",
    "tail_scale",
    "prior_df",
    "prior_sigma",
)


def _row(model: Model, group: int) -> dict[str, float]:
    """Return one row of the table."""
    fleet = model.fleet
    cell = np.flatnonzero(fleet.rows.group == group)
    row = runs_of(fleet.rows.cells.starts[cell], fleet.rows.cells.counts[cell])
    rows, members = fleet.rows.only(cell, row), fleet.members[row]
    found = residuals_of(rows, members, fleet.spread)
    df = combined_df(found.df, fleet.spread.tail_df[group])
    beyond = 2 * special.stdtr(df, -np.abs(found.value) / fleet.spread.tail_scale[group])
    test = _test(rows, members, np.random.default_rng(0))
    return {
        "n": found.value.size,
        "statistic": test.statistic,
        "p_value": test.p_value,
        "beyond_5pct": _share(beyond < OUTER),
        "beyond_1pct": _share(beyond < OUTERMOST),
        "screened": _share(~members),
        "tail_df": fleet.spread.tail_df[group],
        "tail_scale": fleet.spread.tail_scale[group],
        "prior_df": fleet.spread.df[group],
        "prior_sigma": float(np.sqrt(fleet.spread.variance[group])),
    }


def _share(chosen: Bools) -> float:
    return float(chosen.mean()) if chosen.size else np.nan


@dataclass(frozen=True, slots=True)
class Test:
    """An Anderson-Darling statistic and the share of simulated fleets that reach it."""

    statistic: float
    p_value: float


def _test(rows: Rows, members: Bools, rng: np.random.Generator) -> Test:
    """Test a sample of the members against fleets that are as normal as ranges assume."""
    whole = moments_of(rows.y, members, rows.cells)
    tested = _sample(np.flatnonzero(members), whole.n.astype(np.int64), rng)
    if not tested.row.size:
        return Test(np.nan, np.nan)
    cells = Cells.of(tested.cell)
    prior = _prior(rows.y[tested.row], cells)
    statistic = _statistic(rows.y[tested.row], cells, prior)
    reached = 0
    for _ in range(SIMULATIONS):
        variance = prior.variance * prior.df / rng.chisquare(prior.df, cells.counts.size)
        y = cells.spread(np.sqrt(variance)) * rng.standard_normal(tested.row.size)
        reached += _statistic(y, cells, _prior(y, cells)) >= statistic
    return Test(statistic, (1 + reached) / (1 + SIMULATIONS))


@dataclass(frozen=True, slots=True)
class _Sample:
    """Rows to test, and the cell that each belongs to."""

    row: Ints
    cell: Ints


def _sample(member: Ints, n: Ints, rng: np.random.Generator) -> _Sample:
    """Take whole cells in random order, as many as `LARGEST_SAMPLE` allows; of a larger one a part.

    Parameters
    ----------
    member, n : ndarray of int
        Rows of the members, cell by cell, and how many each cell has.
    """
    cell = np.repeat(np.arange(n.size), n)
    order = rng.permutation(np.flatnonzero(n > 1))
    chosen = order[np.cumsum(n[order]) <= LARGEST_SAMPLE]
    if order.size and not chosen.size:
        part = np.sort(rng.choice(np.flatnonzero(cell == order[0]), LARGEST_SAMPLE, replace=False))
        return _Sample(member[part], cell[part])
    taken = np.isin(cell, chosen)
    return _Sample(member[taken], cell[taken])


def _rows(y: Floats, cells: Cells) -> Rows:
    none = np.zeros(y.size, dtype=bool)
    group = np.zeros(cells.counts.size, dtype=np.int64)
    at = np.arange(y.size)
    return Rows(at, y, none, none, cells, group, at, np.zeros(y.size))


def _prior(y: Floats, cells: Cells) -> Prior:
    """Return the moment estimate: a hundred times faster than the ranges' own, and a test may use it."""
    whole = moments_of(y, np.ones(y.size, dtype=bool), cells)
    d = whole.n - 1
    variance = whole.ss / np.maximum(d, 1)
    measured = variance > SMALLEST * DEFAULT_SPREAD**2
    if measured.sum() <= 1:
        return prior_of(variance, d)
    prior = moment_prior(variance[measured], d[measured])
    return replace(prior, df=float(np.clip(prior.df, DF_GRID[0], DF_GRID[-1])))


def _statistic(y: Floats, cells: Cells, prior: Prior) -> float:
    """Return the Anderson-Darling statistic of the residuals; what screening would drop is left out."""
    spread = Spread.of([prior], [NORMAL], SCREEN_ALPHA)
    found = residuals_of(_rows(y, cells), np.ones(y.size, dtype=bool), spread)
    found = take(found, np.abs(found.value) <= found.limit)
    return anderson_darling(special.stdtr(found.df, found.value))


def anderson_darling(probability: Floats) -> float:
    """Return the Anderson-Darling distance of `probability`, shape (n,), from the uniform distribution.

    NaN where n is 0.
    """
    n = probability.size
    if not n:
        return np.nan
    # A residual beyond all probability stays finite.
    u = np.sort(np.clip(probability, np.finfo(float).tiny, 1 - np.finfo(float).epsneg))
    odd = 2 * np.arange(1, n + 1) - 1
    return float(-n - odd @ (np.log(u) + np.log1p(-u[::-1])) / n)
