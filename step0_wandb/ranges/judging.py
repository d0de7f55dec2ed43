"""`judged_by`: the range that each run is compared with, its own value left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from step0_wandb.ranges.cells import without_itself
from step0_wandb.ranges.given import compare
from step0_wandb.ranges.history import NEVER, as_times, numbers
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.noise import learned_noise
from step0_wandb.ranges.spread import Scale
from step0_wandb.ranges.table import (
    BROKEN_RATIO,
    basis_of,
    believed_levels,
    check_parameters,
    range_table,
    words,
    zero_members,
)

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.given import Given
    from step0_wandb.ranges.history import Names
    from step0_wandb.ranges.model import Model
    from step0_wandb.ranges.spread import Spread

WITHOUT_SETUP: Final = {
    "n": 0,
    "basis": "none",
    "member": False,
    "epoch": -1,
    "accepted": False,
    "believed": True,
    "moved": False,
    "moved_n": 0,
}


def judged_by(
    runs: pd.DataFrame,
    ranges: pd.DataFrame | None = None,
    *,
    alpha: float = 0.001,
    broken_ratio: float = BROKEN_RATIO,
) -> pd.DataFrame:
    """Return the range that each run is compared with, and how far out it lies.

    A member of a range is compared with the other members alone, or its own value would vouch for
    it; a run that is no member with all of them. Each run is judged by the range of its own epoch;
    while a move upwards waits for a person, by that of the epoch before.

    Parameters
    ----------
    runs : DataFrame
        As for `fit_ranges`.
    ranges : DataFrame, optional
        What `fit_ranges` returned, or a table indexed by setup with the columns `n, center, low,
        high` and as many of the others as there are. None: fitted from `runs`. Where `n` and
        `center` equal what `runs` gives, members are left out exactly; otherwise the range is used
        as it stands. A setup that is not in it has no range.
    alpha : float
        Share of healthy runs that may fall outside; a column `alpha` of `ranges` goes before it.
    broken_ratio : float
        As for `fit_ranges`.

    Returns
    -------
    DataFrame
        Aligned with `runs`, one row a run:

        ``n, center, low, high, seen_low, seen_high, sigma, df, basis``
            As in `fit_ranges`, of the runs it is compared with; 0 and NaN where there is no range.
        ``ratio``
            Gap divided by the center.
        ``p_value``
            Two-sided probability of a gap at least that far out, were the run healthy. It is below
            alpha where the gap lies outside.
        ``position``
            -1 below the range, 0 inside, 1 above; NaN without a range or a gap.
        ``member``
            Whether the run is a member of the range, and was left out.
        ``epoch``
            Number of the run's epoch, from 0; -1 without a setup.
        ``accepted, believed``
            As in `fit_ranges`, of the range it is judged by. A range that is used as it stands, of
            which nobody says that it is accepted, is not believed above the ceiling of the runs.
        ``ppo_kl_noise``
            As in `fit_ranges`, learned from the runs it is compared with.
        ``moved, moved_ratio, moved_since, moved_n``
            Whether the run belongs to a move upwards that nobody accepted: ratio of its center to
            the one before, time of its first run, number of its members.

    Raises
    ------
    UsageError
        As for `fit_ranges`, or `ranges` lacks a column or has a setup twice.
    """
    check_parameters(alpha, broken_ratio)
    return judged_in(fit_model(runs, broken_ratio), ranges, alpha).set_axis(runs.index)


def judged_in(model: Model, ranges: pd.DataFrame | None, alpha: float) -> pd.DataFrame:
    """Return what `judged_by` does of the runs of a fitted model, in their order."""
    spread = model.fleet.spread.at(alpha).take(model.history.setups.metric)
    if ranges is None:
        judged = _by_own(model, spread)
    else:
        given = compare(ranges, range_table(model, alpha), model, spread)
        spread = given.spread
        judged = _as_it_stands(_by_own(model, spread), given, model)
    return _frame(judged, model, spread)


@dataclass(frozen=True, slots=True)
class Judged:
    """The range of each run, one entry a run that has a setup.

    Attributes
    ----------
    row : ndarray of int
        Where the run is in the frame.
    n, center, low, high, seen_low, seen_high, sigma, df, basis : ndarray
        As in `fit_ranges`; NaN where there is no range.
    member, accepted, believed, moved : ndarray of bool
    noise : ndarray of float
        `ppo_kl_noise`.
    """

    row: Ints
    n: Ints
    center: Floats
    low: Floats
    high: Floats
    seen_low: Floats
    seen_high: Floats
    sigma: Floats
    df: Floats
    basis: Names
    member: Bools
    accepted: Bools
    believed: Bools
    moved: Bools
    noise: Floats


def _by_own(model: Model, spread: Spread) -> Judged:
    """Judge each run by the range that the runs themselves give; `spread` has one entry a setup."""
    history, levels = model.history, model.levels
    row = np.flatnonzero(history.setup >= 0)
    setup, of = history.setup[row], levels.of_run[row]
    level = levels.judged_by[of]
    exact, gap = history.setups.exact[setup], history.gap[row]
    member = model.member[row] & (of == level)
    others = without_itself(history.y[row], member, model.whole.take(level))
    scale = spread.scale(others.where_some(), setup)
    half = spread.half_width(scale, setup)
    none = (others.n == 0) | exact
    n = np.where(exact, zero_members(model)[setup] - history.zero[row], others.n).astype(np.int64)
    seen = model.seen[level]
    lowest, highest = member & (gap == seen[:, 0]), member & (gap == seen[:, 3])

    def known(values: Floats, *, unknown: Bools = none) -> Floats:
        return np.where(exact, 0.0, np.where(unknown, np.nan, values))

    with np.errstate(over="ignore"):
        low, high = np.exp(others.mean - half), np.exp(others.mean + half)
    return Judged(
        row=row,
        n=n,
        center=known(np.exp(others.mean)),
        low=known(low),
        high=known(high),
        seen_low=known(np.where(lowest, seen[:, 1], seen[:, 0])),
        seen_high=known(np.where(highest, seen[:, 2], seen[:, 3])),
        sigma=known(scale.sigma),
        df=np.where(none, np.nan, scale.df),
        basis=basis_of(n, history.setups.ceiling[setup], exact, model.split[level]),
        member=np.where(exact, history.zero[row], member),
        accepted=levels.accepted[level],
        believed=believed_levels(model)[level],
        moved=of != level,
        noise=learned_noise(model, spread.alpha).of_run[row],
    )


def _as_it_stands(judged: Judged, given: Given, model: Model) -> Judged:
    """Put the caller's range where it is another than the runs give."""
    setup = model.history.setup[judged.row]
    stands = (~given.same & ~model.history.setups.exact)[setup]

    def column(name: str, own: Floats) -> Floats:
        return np.where(stands, numbers(given.table, name)[setup], own)

    n = np.nan_to_num(column("n", judged.n.astype(np.float64))).astype(np.int64)
    return replace(
        judged,
        n=n,
        center=column("center", judged.center),
        low=column("low", judged.low),
        high=column("high", judged.high),
        seen_low=column("seen_low", judged.seen_low),
        seen_high=column("seen_high", judged.seen_high),
        sigma=column("sigma", judged.sigma),
        df=column("df", judged.df),
        basis=np.where(stands, given.basis[setup], judged.basis),
        member=judged.member & ~stands,
        accepted=np.where(stands, given.accepted[setup], judged.accepted),
        believed=np.where(stands, given.believed[setup], judged.believed),
        moved=judged.moved & ~stands,
        noise=np.where(given.same[setup], judged.noise, numbers(given.table, "ppo_kl_noise")[setup]),
    )


def _frame(judged: Judged, model: Model, spread: Spread) -> pd.DataFrame:
    """Return one row a run: the range, how far out the run lies, and the move it belongs to."""
    levels, history = model.levels, model.history
    of = levels.of_run[judged.row]
    mean = model.whole.mean
    gap = history.gap[judged.row]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(judged.center > 0, gap / judged.center, np.nan)
    outside = np.where(gap > judged.high, 1.0, np.where(gap < judged.low, -1.0, 0.0))
    moved = np.exp(mean[of] - mean[levels.judged_by[of]])
    index = pd.Index(judged.row)
    columns = {
        "n": judged.n,
        "center": judged.center,
        "low": judged.low,
        "high": judged.high,
        "seen_low": judged.seen_low,
        "seen_high": judged.seen_high,
        "sigma": judged.sigma,
        "df": judged.df,
        "basis": words(judged.basis, index),
        "ratio": ratio,
        "p_value": _p_value(judged, gap, spread, history.setup[judged.row]),
        "position": np.where(np.isnan(gap) | np.isnan(judged.low), np.nan, outside),
        "member": judged.member,
        "epoch": levels.number[of],
        "accepted": judged.accepted,
        "believed": judged.believed,
        "ppo_kl_noise": judged.noise,
        "moved": judged.moved,
        "moved_ratio": np.where(judged.moved, moved, np.nan),
        "moved_since": as_times(np.where(judged.moved, levels.since[of], NEVER)),
        "moved_n": np.where(judged.moved, model.whole.n[of], 0).astype(np.int64),
    }
    frame = pd.DataFrame(columns, index=index)
    return frame if judged.row.size == history.gap.size else _with_all_rows(frame, history.gap.size)


def _with_all_rows(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Add the runs without a setup, which have no range."""
    types = frame.dtypes
    return (
        frame.reindex(range(rows)).fillna(WITHOUT_SETUP).astype({name: types[name] for name in WITHOUT_SETUP})
    )


def _p_value(judged: Judged, gap: Floats, spread: Spread, setup: Ints) -> Floats:
    """Return the two-sided probability of a gap at least that far out; 0 or 1 where it must be 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        prediction = judged.sigma * np.sqrt(1 + 1 / judged.n)
        away = np.log(np.maximum(gap, 0)) - np.log(judged.center)
        p = spread.p_value(away, Scale(judged.df, judged.df, judged.sigma, prediction), setup)
    return np.where(judged.basis == "exact", np.where(np.isnan(gap), np.nan, gap == 0), p)
