"""`fit_ranges`: one range a setup."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from step0_wandb.errors import UsageError
from step0_wandb.ranges.cells import ROUNDING, Cells, moments_of, sorted_order, take
from step0_wandb.ranges.history import NEVER, as_times
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.noise import learned_noise
from step0_wandb.ranges.screen import WINDOW
from step0_wandb.ranges.trends import trends
from step0_wandb.records import ALPHA, BROKEN_RATIO

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Floats, Ints, Moments
    from step0_wandb.ranges.history import Names
    from step0_wandb.ranges.model import Model
    from step0_wandb.ranges.prompts import Sharing
    from step0_wandb.ranges.spread import Spread

OWN_DF: Final = 5
"""From this many degrees of freedom of its own a range is said to rest on its own runs."""


def fit_ranges(
    runs: pd.DataFrame, *, alpha: float = ALPHA, broken_ratio: float = BROKEN_RATIO
) -> pd.DataFrame:
    """Fit the range of each setup: where the gap of its next healthy run is expected.

    The range is a prediction interval for ln(gap). Its variance is moderated across the setups of
    one gap metric (Smyth 2004, doi:10.2202/1544-6115.1027), so that a setup with one run has a
    usable range already; unlabeled broken runs are screened out first.

    Parameters
    ----------
    runs : DataFrame
        One row a run with the columns `setup` and `gap`. Used where present: `run` (key), `label`
        ("healthy": always a member; "broken", "exclude": never), `created_at` (UTC; without it
        there are no epochs), `gap_metric`, `profile`, `ceiling`, `gap_rule` ("range"; "zero" for true
        on-policy setups; "vacuous" and "skipped" gaps enter no range), `fit` (False: never a member),
        `exact_failed` (True: only a member if labeled healthy), `accepted_at` (UTC; when a person
        accepted the setup's level), `entropy` (of the same row), `seed` and
        `data` (bit-equal gaps of equal ones count once; runs on other prompts may lie further apart, by
        `prompts`, their number in the row),
        `gap_spread` (standard deviation of ln(gap) that is assumed of a gap metric at first; default 0.03), `verdict` (of an earlier judgment: runs
        that were healthy are not outvoted by what came later), `ppo_kl` and `ppo_kl_rule` ("learned": a trainer that cannot reach
        0). The order of the rows does not matter.
    alpha : float
        Share of healthy runs that may fall outside, 0 < alpha < 1.
    broken_ratio : float
        From this ratio to the center on, a gap above the range is a broken run's, which no epoch
        may begin with.

    Returns
    -------
    DataFrame
        Indexed by `setup`, sorted, for each setup's last accepted epoch:

        ``n``
            Number of members; 0 where no gap can be used, and then the limits are NaN.
        ``center, low, high``
            Geometric mean of the members and the range about it, in the unit of the gap.
        ``seen_low, seen_high``
            Smallest and largest gap among the members.
        ``sigma, df``
            Moderated standard deviation of ln(gap), and its degrees of freedom.
        ``basis``
            What the range rests on: "own" (5 degrees of freedom or more: 6 members that are not bit-equal), "pooled" (the spread leans on the
            other setups), "split" (one run is left of several a factor apart: the lower one), "exact"
            (true on-policy: center = low = high = 0), "ceiling" or "none" (no member, with and
            without a ceiling of the profile).
        ``alpha, gap_metric, profile, ceiling``
            As asked for and as found in `runs`.
        ``accepted``
            A person accepted the level of this epoch, or a higher one before it, or labeled one of
            its runs healthy.
        ``believed``
            False where the center lies above the ceiling and nobody accepted it.
        ``ppo_kl_noise``
            The largest |ppo_kl| that is taken for noise, learned from three healthy runs or more; NaN
            where there is nothing to learn.
        ``epoch``
            Number of the epoch, from 0.
        ``moved, moved_since, moved_n``
            A move upwards that waits for a person: ratio of the new center to this one, time of its
            first run, number of its members. NaN, NaT and 0 where there is none, or where three runs
            at the accepted level followed.
        ``improved, improved_since``
            Ratio to the epoch before and time of the first run, where this epoch began with a fall.
        ``entropy, entropy_slope``
            Entropy that center and limits are for, and the slope of ln(gap) on ln(entropy); 0 where the
            entropy does not help, or is not in `runs`.
        ``other_center, other_n``
            A second level: center and number of at least two runs that agree with each other, outside
            the range but not broken by their ratio. NaN and 0 where there is none.
        ``drift, drift_since``
            By how much the line through ten members or more rises from the first to the last, and time of
            the first; NaN and NaT without a drift.
        ``lower_center, lower_n, upper_center``
            Two levels within the range, at least two members each: the setup holds two kinds of runs. NaN
            and 0 where there are none.
        ``last_run``
            When the newest run of the setup was created.
        ``prior_df, prior_sigma, tail_df, tail_scale``
            What the setups of one gap metric share: the prior of the spread, and the tail by which
            quantiles are widened (`tail_df` infinite: not at all). `judged_by` uses them again.

    Raises
    ------
    UsageError
        A column is missing or holds what it may not, or a parameter is out of range.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"setup": "miles · Qwen3-0.6B", "gap": [0.0148, 0.0151, 0.0153, 0.0157]})
    >>> fit_ranges(runs)[["n", "center", "low", "high", "basis"]].round(3)
                        n  center    low   high   basis
    setup
    miles · Qwen3-0.6B  4   0.015  0.013  0.018  pooled
    """
    check_parameters(alpha, broken_ratio)
    return range_table(fit_model(runs, broken_ratio), alpha)


def check_parameters(alpha: float, broken_ratio: float) -> None:
    """Raise UsageError for an alpha or a ratio that means nothing."""
    for name, value in (("alpha", alpha), ("broken_ratio", broken_ratio)):
        if not isinstance(value, Real):
            raise UsageError(f"{name} is {value!r}, not a number.", "Give a number, such as 0.001 or 2.")
    if not 0 < alpha < 1:
        raise UsageError(
            f"alpha is {alpha}; it is a share of runs.", "Give a number between 0 and 1, such as 0.001."
        )
    if not 1 < broken_ratio < np.inf:
        raise UsageError(f"broken_ratio is {broken_ratio}.", "Give a number above 1, such as 2.")


def range_table(model: Model, alpha: float) -> pd.DataFrame:
    """Return the ranges of a fitted model as a table; see `fit_ranges`."""
    setups, levels = model.history.setups, model.levels
    level, exact = levels.current, setups.exact
    group, spread = setups.metric, model.fleet.spread.at(alpha)
    whole = take(model.whole, level)
    n = np.where(exact, zero_members(model), whole.n).astype(np.int64)
    seen = np.where((exact & (n > 0))[:, None], 0.0, model.seen[level])
    own_df = spread.scale(whole.where_some(), group).own_df
    basis = basis_of(n, setups.ceiling, exact, model.split[level], own_df)
    index = pd.Index(setups.names, name="setup")
    columns = {
        "n": n,
        **limits_of(whole, spread, group, exact),
        "seen_low": seen[:, 0],
        "seen_high": seen[:, 3],
        "basis": words(basis, index),
        "alpha": alpha,
        "gap_metric": words(setups.metrics[group], index),
        "profile": words(setups.profile, index),
        "ceiling": setups.ceiling,
        "accepted": levels.accepted[level],
        "believed": believed_levels(model)[level],
        "ppo_kl_noise": learned_noise(model, np.full(n.size, alpha)).of_setup,
        "epoch": levels.number[level],
        **_moves(model),
        **_other_levels(model),
        **trends(model),
        "entropy": np.exp(model.covariate.usual),
        "entropy_slope": model.covariate.slope[group],
        "last_run": as_times(setups.last_run),
        "prior_df": spread.df[group],
        "prior_sigma": np.sqrt(spread.variance[group]),
        "tail_df": spread.tail_df[group],
        "tail_scale": spread.tail_scale[group],
    }
    frame = pd.DataFrame(columns, index=index).drop(columns="prediction")
    return frame[[*COLUMNS, *(name for name in frame.columns if name not in COLUMNS)]]


COLUMNS: Final = ("n", "center", "low", "high", "seen_low", "seen_high", "sigma", "df", "basis")
"""What the table of ranges and the range of a run begin with."""


def limits_of(
    others: Moments, spread: Spread, group: Ints, exact: Bools, shared: Sharing | None = None
) -> dict[str, Floats]:
    """Return center, limits and spread of ranges; NaN where nobody is a member, 0 where they must be.

    ``prediction`` is the standard deviation of the next run about the center, in ln(gap).

    Parameters
    ----------
    others : Moments
        Of the members of each range.
    group : ndarray of int
        Entry of `spread` for each.
    shared : Sharing, optional
        How far the run that is judged by each shares its prompts with the members.
    """
    scale = spread.widened(spread.scale(others.where_some(), group), group, shared)
    half = spread.half_width(scale, group)
    with np.errstate(over="ignore"):
        limits = {
            "center": np.exp(others.mean),
            "low": np.exp(others.mean - half),
            "high": np.exp(others.mean + half),
            "sigma": scale.sigma,
        }
    none = others.n == 0
    limits = {name: np.where(exact, 0.0, np.where(none, np.nan, value)) for name, value in limits.items()}
    return limits | {"df": np.where(none | exact, np.nan, scale.df), "prediction": scale.prediction}


def words(values: Names, index: pd.Index) -> pd.Series:
    """Return a column of text in which None stays None, whatever the version of pandas."""
    return pd.Series(values, index=index, dtype=object)


def zero_members(model: Model) -> Ints:
    """Return how many runs of each setup keep the contract of a gap of exactly 0."""
    history = model.history
    return np.bincount(history.setup[history.zero], minlength=history.setups.names.size)


def basis_of(n: Ints, ceiling: Floats, exact: Bools, split: Bools, own_df: Floats) -> Names:
    """Return what ranges of `n` members rest on, `own_df` of them their own; see `fit_ranges`."""
    cases = [exact, (n == 0) & np.isfinite(ceiling), n == 0, split, own_df >= OWN_DF]
    basis: Names = np.select(cases, ["exact", "ceiling", "none", "split", "own"], "pooled").astype(object)
    return basis


def believed_levels(model: Model) -> Bools:
    """Whether each level may be right: not above its ceiling, or a person stands behind it."""
    levels = model.levels
    above = np.exp(model.whole.mean) > model.history.setups.ceiling[levels.setup]
    believed: Bools = levels.accepted | (model.whole.n == 0) | ~above
    return believed


def _moves(model: Model) -> dict[str, Floats | Ints | pd.DatetimeIndex]:
    """Return the columns about proposed and adopted moves."""
    levels, mean = model.levels, model.whole.mean
    current, proposed = levels.current, levels.proposed
    waits, before = proposed >= 0, levels.before[current]
    fell = (before != current) & (mean[current] < mean[before])
    return {
        "moved": np.where(waits, np.exp(mean[proposed] - mean[current]), np.nan),
        "moved_since": as_times(np.where(waits, levels.since[proposed], NEVER)),
        "moved_n": np.where(waits, model.whole.n[proposed], 0).astype(np.int64),
        "improved": np.where(fell, np.exp(mean[current] - mean[before]), np.nan),
        "improved_since": as_times(np.where(fell, levels.since[current], NEVER)),
    }


def _other_levels(model: Model) -> dict[str, Floats | Ints]:
    """Return the columns about a second level, the larger one where there is one on either side."""
    history, levels, mean = model.history, model.levels, model.whole.mean
    count = history.setups.names.size
    level = np.append(levels.current, -1)[history.setup]
    row = np.flatnonzero(history.candidate & ~model.member & (levels.of_run == level))
    away = history.y[row] - mean[level[row]]
    row = row[away < np.log(BROKEN_RATIO) - ROUNDING]
    code = 2 * history.setup[row] + (history.y[row] > mean[level[row]])
    order = sorted_order(code, history.y[row])
    y, cells = history.y[row][order], Cells.of(code[order])
    last = np.append(np.diff(code[order]) != 0, True)
    near = ~last & (np.append(np.diff(y), np.inf) <= WINDOW)
    first = cells.smallest(np.where(near, np.arange(y.size), np.inf))
    found = np.isfinite(first)
    start = y[np.where(found, first, cells.starts).astype(np.int64)]
    joined = cells.spread(found.astype(np.float64)) > 0
    joined &= (y >= cells.spread(start)) & (y <= cells.spread(start) + WINDOW)
    whole = moments_of(y, joined, cells)
    n, center = np.zeros((2, count))
    order = np.argsort(whole.n, kind="stable")
    n[cells.codes[order] // 2], center[cells.codes[order] // 2] = whole.n[order], whole.mean[order]
    return {"other_center": np.where(n > 0, np.exp(center), np.nan), "other_n": n.astype(np.int64)}
