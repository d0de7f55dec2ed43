"""Ranges that the caller brings: which of them are those of the runs, and which stand as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from step0_wandb.errors import UsageError
from step0_wandb.ranges.history import flags, numbers, require_columns
from step0_wandb.ranges.spread import Spread
from step0_wandb.ranges.table import basis_of

if TYPE_CHECKING:
    import pandas as pd

    from step0_wandb.ranges.cells import Bools, Floats
    from step0_wandb.ranges.history import Names
    from step0_wandb.ranges.model import Model

SAME: Final = 1e-9
"""Relative difference up to which two centers are the same."""


@dataclass(frozen=True, slots=True)
class Given:
    """The caller's ranges beside the runs' setups.

    Attributes
    ----------
    table : DataFrame
        One row a setup of the runs, in their order; NaN where the caller has none.
    same : ndarray of bool, shape (setups,)
        The range is that of the runs: members can be left out exactly.
    spread : Spread
        One entry a setup: what the caller's ranges were made with where they are the same.
    basis : ndarray of object, shape (setups,)
    believed, accepted : ndarray of bool, shape (setups,)
        Not believed is what the caller does not believe, or what lies above the ceiling of the runs
        unaccepted.
    """

    table: pd.DataFrame
    same: Bools
    spread: Spread
    basis: Names
    believed: Bools
    accepted: Bools


def compare(ranges: pd.DataFrame, own: pd.DataFrame, model: Model, spread: Spread) -> Given:
    """Lay the caller's `ranges` beside the runs' `own`.

    Parameters
    ----------
    spread : Spread
        One entry a setup, from the runs alone.

    Raises
    ------
    UsageError
        `ranges` lacks a column, or has a setup twice.
    """
    require_columns(ranges, "ranges", ("n", "center", "low", "high"))
    if not ranges.index.is_unique:
        twice = ranges.index[ranges.index.duplicated()][0]
        raise UsageError(f"ranges has the setup {twice!r} twice.", "Give one row a setup, indexed by setup.")
    table = ranges.reindex(own.index)
    n, center = numbers(table, "n"), numbers(table, "center")
    near = np.isclose(center, own["center"].to_numpy(), rtol=SAME, atol=0, equal_nan=True)
    accepted = flags(table, "accepted", missing=False)
    above = center > model.history.setups.ceiling
    same = (n == own["n"].to_numpy()) & near
    return Given(
        table=table,
        same=same,
        spread=_spread_of(table, same, model, spread),
        basis=_basis(table, n, model),
        believed=flags(table, "believed", missing=True) & (accepted | ~above),
        accepted=accepted,
    )


def _basis(table: pd.DataFrame, n: Floats, model: Model) -> Names:
    members, no = np.nan_to_num(n).astype(np.int64), np.zeros(n.size, dtype=bool)
    basis = basis_of(members, model.history.setups.ceiling, no, no)
    if "basis" in table.columns:
        stated = table["basis"].to_numpy(dtype=object)
        basis = np.where(table["basis"].notna(), stated, basis)
    return basis


def _spread_of(table: pd.DataFrame, same: Bools, model: Model, spread: Spread) -> Spread:
    """Return the spread that the table was made with, where it is the same as the runs' own.

    A table with the columns of the contract alone does not state its prior: that follows from its
    `sigma` and `df` and the members, which are known.
    """
    whole = model.whole.take(model.levels.current)
    own_df = np.where(spread.repeats(whole, np.arange(same.size)), 0.0, whole.n - 1)
    df, sigma = numbers(table, "df"), numbers(table, "sigma")
    prior_df = _filled(numbers(table, "prior_df"), df - own_df)
    with np.errstate(invalid="ignore", divide="ignore"):
        left = (df * sigma**2 - np.where(own_df > 0, whole.ss, 0.0)) / prior_df
    variance = _filled(numbers(table, "prior_sigma") ** 2, left)
    stated = same & (prior_df > 0) & (variance > 0)
    return Spread(
        df=np.where(stated, prior_df, spread.df),
        variance=np.where(stated, variance, spread.variance),
        repeats_below=spread.repeats_below,
        tail_scale=_filled(numbers(table, "tail_scale"), np.ones(same.size)),
        tail_df=_filled(numbers(table, "tail_df"), np.full(same.size, np.inf)),
        alpha=_filled(numbers(table, "alpha"), spread.alpha),
    )


def _filled(values: Floats, otherwise: Floats) -> Floats:
    return np.where(np.isnan(values), otherwise, values)
