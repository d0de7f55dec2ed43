"""`judged_by`: the range that each run is compared with, its own value left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pandas as pd

from step0_wandb.errors import UsageError
from step0_wandb.ranges.cells import take, without_itself
from step0_wandb.ranges.history import NEVER, as_times, flags, numbers, require_columns
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.noise import learned_noise
from step0_wandb.ranges.prompts import sharing
from step0_wandb.ranges.spread import Scale, Spread
from step0_wandb.ranges.table import (
    COLUMNS,
    basis_of,
    believed_levels,
    check_parameters,
    limits_of,
    range_table,
    words,
    zero_members,
)
from step0_wandb.records import ALPHA, BROKEN_RATIO

if TYPE_CHECKING:
    import numpy.typing as npt

    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.history import Names
    from step0_wandb.ranges.model import Model

Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"
"""By the names of `judged_by`, one entry a run that has a setup."""

WITHOUT_SETUP: Final = {
    "n": 0,
    "basis": "none",
    "entropy_factor": 1.0,
    "member": False,
    "epoch": -1,
    "accepted": False,
    "believed": True,
    "moved": False,
    "protected": False,
    "moved_n": 0,
}


def judged_by(
    runs: pd.DataFrame,
    ranges: pd.DataFrame | None = None,
    *,
    alpha: float = ALPHA,
    broken_ratio: float = BROKEN_RATIO,
) -> pd.DataFrame:
    """Return the range that each run is compared with, and how far out it lies.

    A member of a range is compared with the other members alone, or its own value would vouch for
    it; a run that is not a member with all of them. Each run is judged by the range of its own epoch;
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
            -1 below the range, 0 inside, 1 above; NaN without a range or a gap. By a column `verdict` of
            an earlier judgment a run that was healthy is inside from alpha / 3 on, and one that was
            flagged from 3 alpha on.
        ``entropy_factor``
            What the entropy of the run's row does to its gap; center and limits are multiplied with it.
        ``member``
            Whether the run is a member of the range, and was left out.
        ``epoch``
            Number of the run's epoch, from 0; -1 without a setup.
        ``accepted, believed``
            As in `fit_ranges`, of the range it is judged by. A range that is used as it stands, of
            which nobody says that it is accepted, is not believed above the ceiling of the runs.
        ``protected``
            The run was healthy when it came, and no person has spoken on its setup since: what came
            later may make it suspect, but not broken.
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
    spread = take(model.fleet.spread.at(alpha), model.history.setups.metric)
    row = np.flatnonzero(model.history.setup >= 0)
    if ranges is None:
        judged = _by_own(model, row, spread)
    else:
        own = compare(ranges, range_table(model, alpha), model, spread)
        spread = own.spread
        judged = _as_it_stands(_by_own(model, row, spread), own, model.history.setup[row], model)
    return _frame(judged, row, model, spread)


def _by_own(model: Model, row: Ints, spread: Spread) -> Columns:
    """Judge the runs at `row` by the range that the runs themselves give.

    Parameters
    ----------
    spread : Spread
        One entry a setup.
    """
    history, levels = model.history, model.levels
    setup, of = history.setup[row], levels.of_run[row]
    level = levels.judged_by[of]
    exact, gap = history.setups.exact[setup], history.gap[row]
    member = model.member[row] & (of == level)
    others = without_itself(history.y[row], member, take(model.whole, level))
    shared = sharing(history.prompt_set[row], history.between[row], member, level)
    n = np.where(exact, zero_members(model)[setup] - history.zero[row], others.n).astype(np.int64)
    seen = model.seen[level]
    seen_low = np.where(member & (gap == seen[:, 0]), seen[:, 1], seen[:, 0])
    seen_high = np.where(member & (gap == seen[:, 3]), seen[:, 2], seen[:, 3])
    none = others.n == 0
    own_df = spread.scale(others.where_some(), setup).own_df
    return {
        "n": n,
        **limits_of(others, spread, setup, exact, shared),
        "seen_low": np.where(exact, 0.0, np.where(none, np.nan, seen_low)),
        "seen_high": np.where(exact, 0.0, np.where(none, np.nan, seen_high)),
        "basis": basis_of(n, history.setups.ceiling[setup], exact, model.split[level], own_df),
        "member": np.where(exact, history.zero[row], member),
        "accepted": levels.accepted[level],
        "believed": believed_levels(model)[level],
        "moved": of != level,
        "protected": history.was_healthy[row] & ~model.labeled[level],
        "ppo_kl_noise": learned_noise(model, spread.alpha).of_run[row],
    }


def _as_it_stands(judged: Columns, ranges: CallerRanges, setup: Ints, model: Model) -> Columns:
    """Put the caller's range where it differs from what the runs give."""
    stands = (~ranges.same & ~model.history.setups.exact)[setup]
    table = {name: numbers(ranges.table, name)[setup] for name in (*RANGE_NUMBERS, "ppo_kl_noise")}
    found = judged | {name: np.where(stands, table[name], judged[name]) for name in RANGE_NUMBERS}
    with np.errstate(divide="ignore", invalid="ignore"):
        as_stated = found["sigma"] * np.sqrt(1 + 1 / found["n"])
    found["prediction"] = np.where(stands, as_stated, judged["prediction"])
    found["n"] = np.nan_to_num(found["n"]).astype(np.int64)
    for name, stated in (
        ("basis", ranges.basis),
        ("accepted", ranges.accepted),
        ("believed", ranges.believed),
    ):
        found[name] = np.where(stands, stated[setup], judged[name])
    found["ppo_kl_noise"] = np.where(ranges.same[setup], judged["ppo_kl_noise"], table["ppo_kl_noise"])
    return found | {name: judged[name] & ~stands for name in ("member", "moved")}


RANGE_NUMBERS: Final = tuple(name for name in COLUMNS if name != "basis")


def _frame(judged: Columns, row: Ints, model: Model, spread: Spread) -> pd.DataFrame:
    """Return one row a run: the range, how far out the run lies, and the move it belongs to."""
    levels, history = model.levels, model.history
    of, gap, waits = levels.of_run[row], history.gap[row], judged["moved"]
    mean = model.whole.mean
    judged |= {name: judged[name] * np.exp(history.explained[row]) for name in ("center", "low", "high")}
    center, low, high = judged["center"], judged["low"], judged["high"]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(center > 0, gap / center, np.nan)
    p = _p_value(judged, gap, spread, history.setup[row])
    side = np.where(gap > high, 1.0, np.where(gap < low, -1.0, 0.0))
    alpha = spread.alpha[history.setup[row]]
    outside = _reluctant(
        side, ratio, p, alpha, EarlierVerdicts(history.was_healthy[row], history.was_flagged[row])
    )
    moved = np.exp(mean[of] - mean[levels.judged_by[of]])
    index = pd.Index(row)
    columns = {
        **{name: judged[name] for name in COLUMNS},
        "basis": words(judged["basis"], index),
        "ratio": ratio,
        "p_value": p,
        "position": np.where(np.isnan(gap) | np.isnan(low), np.nan, outside),
        "entropy_factor": np.exp(history.explained[row]),
        "member": judged["member"],
        "epoch": levels.number[of],
        **{name: judged[name] for name in ("accepted", "believed", "protected", "ppo_kl_noise", "moved")},
        "moved_ratio": np.where(waits, moved, np.nan),
        "moved_since": as_times(np.where(waits, levels.since[of], NEVER)),
        "moved_n": np.where(waits, model.whole.n[of], 0).astype(np.int64),
    }
    frame = pd.DataFrame(columns, index=index)
    if row.size == history.gap.size:
        return frame
    types = frame.dtypes[list(WITHOUT_SETUP)]
    return frame.reindex(range(history.gap.size)).fillna(WITHOUT_SETUP).astype(types.to_dict())


@dataclass(frozen=True, slots=True)
class EarlierVerdicts:
    """What an earlier judgment said of each run."""

    healthy: Bools
    flagged: Bools


RELUCTANCE: Final = 3.0
"""A verdict changes to flagged below alpha / 3 and back above 3 alpha, so that verdicts do not flap: with
every run of another setup the ranges move a little."""


def _reluctant(outside: Floats, ratio: Floats, p: Floats, alpha: Floats, before: EarlierVerdicts) -> Floats:
    """Return the side on which each run lies outside, 0 for none, given what was said of it before."""
    stays = before.healthy & (p >= alpha / RELUCTANCE)
    flagged = before.flagged & (p <= alpha * RELUCTANCE)
    return np.where(stays, 0.0, np.where(flagged & (outside == 0), np.sign(ratio - 1), outside))


def _p_value(judged: Columns, gap: Floats, spread: Spread, setup: Ints) -> Floats:
    """Return the two-sided probability of a gap at least that far out; 0 or 1 where it must be 0."""
    df, sigma = judged["df"], judged["sigma"]
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.log(np.maximum(gap, 0)) - np.log(judged["center"])
        p = spread.p_value(away, Scale(df, df, sigma, judged["prediction"]), setup)
    return np.where(judged["basis"] == "exact", np.where(np.isnan(gap), np.nan, gap == 0), p)


SAME: Final = 1e-9
"""Relative difference up to which two centers are the same."""


@dataclass(frozen=True, slots=True)
class CallerRanges:
    """The caller's ranges next to the runs' setups.

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


def compare(ranges: pd.DataFrame, own: pd.DataFrame, model: Model, spread: Spread) -> CallerRanges:
    """Lay the caller's `ranges` next to the runs' `own`.

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
    if "setup" in ranges.columns and "setup" not in ranges.index.names:
        ranges = ranges.set_index("setup")  # as a file of text has it
    if not ranges.index.is_unique:
        twice = ranges.index[ranges.index.duplicated()][0]
        raise UsageError(f"ranges has the setup {twice!r} twice.", "Give one row a setup, indexed by setup.")
    table = ranges.reindex(own.index)
    n, center = numbers(table, "n"), numbers(table, "center")
    near = np.isclose(center, own["center"].to_numpy(), rtol=SAME, atol=0, equal_nan=True)
    accepted = flags(table, "accepted", missing=False)
    above = center > model.history.setups.ceiling
    same = (n == own["n"].to_numpy()) & near
    return CallerRanges(
        table=table,
        same=same,
        spread=_spread_of(table, same, model, spread),
        basis=_basis(table, n, model),
        believed=flags(table, "believed", missing=True) & (accepted | ~above),
        accepted=accepted,
    )


def _basis(table: pd.DataFrame, n: Floats, model: Model) -> Names:
    members, no = np.nan_to_num(n).astype(np.int64), np.zeros(n.size, dtype=bool)
    basis = basis_of(members, model.history.setups.ceiling, no, no, np.maximum(np.nan_to_num(n) - 1, 0.0))
    if "basis" in table.columns:
        stated = table["basis"].to_numpy(dtype=object)
        basis = np.where(table["basis"].notna(), stated, basis)
    return basis


def _spread_of(table: pd.DataFrame, same: Bools, model: Model, spread: Spread) -> Spread:
    """Return the spread that the table was made with, where it is the same as the runs' own.

    A table with the columns of the contract alone does not state its prior: that follows from its
    `sigma` and `df` and the members, which are known.
    """
    whole = take(model.whole, model.levels.current)
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
