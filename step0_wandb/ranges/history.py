"""A DataFrame of runs as checked arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from step0_wandb.checks.columns import texts
from step0_wandb.errors import UsageError
from step0_wandb.ranges.prior import DEFAULT_SPREAD
from step0_wandb.ranges.prompts import OF_ONE_PROMPT
from step0_wandb.records import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from step0_wandb.ranges.cells import Bools, Floats, Ints

Names: TypeAlias = npt.NDArray[np.object_]
_Value = TypeVar("_Value", np.bool_, np.int64, np.float64)

NEVER: Final = int(np.iinfo(np.int64).min)
UNKNOWN: Final = int(np.iinfo(np.int64).max)
"""Times in microseconds since 1970: it has not happened; not recorded, which sorts as the newest."""

LABELS: Final = frozenset({"healthy", "broken", "exclude"})
GAP_RULES: Final = frozenset({"range", "zero", "vacuous", "skipped"})


@dataclass(frozen=True, slots=True)
class Setups:
    """What is known of each setup, one entry a setup in the order of their names.

    Attributes
    ----------
    names : ndarray of object
    metric : ndarray of int
        Index into `metrics`.
    spread : ndarray of float
        Standard deviation of ln(gap) that is assumed of each of `metrics` before its runs say anything.
    metrics, profile : ndarray of object
        Names; None where the frame has none.
    ceiling : ndarray of float
        NaN where the profile states none.
    exact : ndarray of bool
        True on-policy: the gap must be exactly 0.
    accepted_at, last_run : ndarray of int
        In microseconds since 1970, or `NEVER`.
    """

    names: Names
    metric: Ints
    spread: Floats
    metrics: Names
    profile: Names
    ceiling: Floats
    exact: Bools
    accepted_at: Ints
    last_run: Ints


@dataclass(frozen=True, slots=True)
class History:
    """The runs, one entry a row of the frame that they came from.

    Attributes
    ----------
    setup : ndarray of int
        Index into the setups; -1 where a run has none.
    gap, y : ndarray of float
        The gap, and its logarithm (NaN unless the gap is finite and above 0).
    candidate : ndarray of bool
        Whether the run may be a member of its setup's range: its gap can be used, and neither a
        person nor an exact check nor its resumption speaks against it.
    healthy : ndarray of bool
        Labeled healthy, so that it is a member if its gap can be used.
    zero : ndarray of bool
        A member of a true on-policy setup: its gap is exactly 0, and nothing speaks against it.
    time : ndarray of int
        When the run was created, in microseconds since 1970; `UNKNOWN` where not recorded.
    run : ndarray of object
        The key of the run; empty where the frame has none.
    was_healthy, was_flagged : ndarray of bool
        An earlier judgment called the run healthy; suspect or broken.
    log_entropy : ndarray of float
        ln(entropy) of the same row; NaN where it is not known.
    explained : ndarray of float
        What the entropy explains of ln(gap), see `covariate`; `y` is without it.
    ppo_kl : ndarray of float
        |ppo_kl| where its limit is learned, else NaN.
    prompt_set : ndarray of int
        Code of the setup, seed, and data of a run; runs without a seed count as one set.
    between : ndarray of float
        Variance of ln(gap) that is assumed between prompt sets; 0 in a setup that has one.
    """

    setups: Setups
    setup: Ints
    gap: Floats
    y: Floats
    candidate: Bools
    healthy: Bools
    zero: Bools
    time: Ints
    run: Names
    was_healthy: Bools
    was_flagged: Bools
    log_entropy: Floats
    explained: Floats
    ppo_kl: Floats
    prompt_set: Ints
    between: Floats


def read_history(runs: pd.DataFrame) -> History:
    """Check the columns of `runs` and take what ranges need from them.

    Raises
    ------
    UsageError
        `runs` is not a DataFrame, lacks `setup` or `gap`, or a column holds what it may not.
    """
    runs = with_setup_column(runs, "runs")
    require_columns(runs, "runs", ("setup", "gap"))
    of = factorize(runs, "setup")
    setup, gap = of.code, numbers(runs, "gap")
    usable = np.isfinite(gap) & (gap > 0)
    y = np.log(gap, out=np.full(gap.size, np.nan), where=usable)
    entropy = numbers(runs, "entropy")
    measured = np.isfinite(entropy) & (entropy > 0)
    time = times(runs, "created_at", UNKNOWN)
    rule, label = _choices(runs, "gap_rule", GAP_RULES), _choices(runs, "label", LABELS)
    healthy = label == "healthy"
    earlier = _choices(runs, "verdict", frozenset(VERDICTS))
    remembered = ~healthy & (label != "broken")
    clean = flags(runs, "fit", missing=True) & ~flags(runs, "exact_failed", missing=False)
    member = (setup >= 0) & (healthy | ((label == "") & clean))
    setups = _read_setups(runs, of, time, rule == "zero")
    exact = np.append(setups.exact, False)[setup]
    candidate = member & usable & ~exact & np.isin(rule, ("range", ""))
    candidate &= ~_repeats(runs, candidate & ~healthy, setup, time)
    prompt_set = _prompt_sets(runs, setup)
    run = runs["run"].to_numpy(dtype=object) if "run" in runs.columns else np.full(gap.size, "", dtype=object)
    return History(
        setups=setups,
        setup=setup,
        gap=gap,
        y=y,
        candidate=candidate,
        healthy=healthy,
        zero=member & exact & (gap == 0),
        time=time,
        run=run,
        was_healthy=remembered & (earlier == "healthy"),
        log_entropy=np.log(entropy, out=np.full(gap.size, np.nan), where=measured),
        explained=np.zeros(gap.size),
        was_flagged=remembered & ((earlier == "suspect") | (earlier == "broken")),
        ppo_kl=np.where(texts(runs, "ppo_kl_rule") == "learned", np.abs(numbers(runs, "ppo_kl")), np.nan),
        prompt_set=prompt_set,
        between=_between(runs, setups, setup, prompt_set),
    )


def _prompt_sets(runs: pd.DataFrame, setup: Ints) -> Ints:
    """Return a code of the setup and the prompts of each run, where its seed says that it chose them."""
    seed, data = factorize(runs, "seed").code, factorize(runs, "data").code
    if (seed < 0).all():
        return setup - min(int(setup.min(initial=0)), 0)
    chosen = np.where(seed >= 0, 1 + seed * (int(data.max()) + 2) + data + 1, 0)
    return pd.factorize((setup + 1) * (int(chosen.max()) + 1) + chosen)[0].astype(np.int64)


def _between(runs: pd.DataFrame, setups: Setups, setup: Ints, prompt_set: Ints) -> Floats:
    """Return the variance of ln(gap) between prompt sets, in setups that have several."""
    first = np.full(setups.names.size + 1, -1)
    first[setup] = prompt_set
    several = np.zeros(setups.names.size + 1, dtype=bool)
    several[setup[prompt_set != first[setup]]] = True
    several[-1] = False
    where = several[setup]
    if not where.any():
        return np.zeros(setup.size)
    usual = setups.spread[np.append(setups.metric, 0)[setup]]
    # Statistics that scatter more than the mean absolute difference do so between prompts as well.
    of_one = OF_ONE_PROMPT * usual / DEFAULT_SPREAD
    assumed = np.fmin(of_one / np.sqrt(numbers(runs, "prompts")), of_one)
    return np.where(where, np.where(np.isnan(numbers(runs, "prompts")), usual, assumed) ** 2, 0.0)


def _repeats(runs: pd.DataFrame, chosen: Bools, setup: Ints, time: Ints) -> Bools:
    """Return which runs repeat an earlier one bit by bit: same setup, seed, prompts and gap.

    They say that the software is deterministic, and nothing about how runs scatter.
    """
    seed, data = factorize(runs, "seed").code, factorize(runs, "data").code
    row = np.flatnonzero(chosen & (seed >= 0))
    repeats = np.zeros(setup.size, dtype=bool)
    if not row.size:
        return repeats
    row = row[np.argsort(time[row], kind="stable")]
    same = pd.DataFrame(
        {"setup": setup[row], "seed": seed[row], "data": data[row], "gap": numbers(runs, "gap")[row]}
    )
    # Where every gap of a setup is the same, its runs are all there is to compare each other with.
    varies = same.groupby("setup")["gap"].transform("nunique") > 1
    repeats[row] = (same.duplicated() & varies).to_numpy()
    return repeats


def with_setup_column(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """Return a frame with its setup as a column, where it is the index as a groupby leaves it."""
    require_columns(frame, what, ())
    if "setup" in frame.columns or "setup" not in frame.index.names:
        return frame
    return frame.reset_index()


def require_columns(frame: pd.DataFrame, what: str, names: tuple[str, ...]) -> None:
    """Raise UsageError unless `frame` is a DataFrame with these columns."""
    if not isinstance(frame, pd.DataFrame):
        raise UsageError(
            f"{what} is a {type(frame).__name__}, not a DataFrame.", f"Needed: {', '.join(names)}."
        )
    for name in names:
        if name not in frame.columns:
            found = ", ".join(map(str, frame.columns)) or "none"
            raise UsageError(
                f"{what} has no column {name!r} (its columns: {found}).", f"Needed: {', '.join(names)}."
            )


def numbers(frame: pd.DataFrame, name: str) -> Floats:
    """Return a column as floats, NaN where it is missing."""
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    try:
        return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Column {name!r} holds something that is not a number: {error}.") from error


def times(frame: pd.DataFrame, name: str, missing: int) -> Ints:
    """Return a column of times in microseconds since 1970, `missing` where there is none."""
    if name not in frame.columns or frame[name].isna().all():
        return np.full(len(frame), missing, dtype=np.int64)
    if pd.api.types.is_numeric_dtype(frame[name]):
        raise UsageError(
            f"Column {name!r} holds numbers, not times.", "Convert it with pandas.to_datetime(..., utc=True)."
        )
    try:
        # Text may come in several forms in one column: with and without fractions, or a zone.
        form = None if pd.api.types.is_datetime64_any_dtype(frame[name]) else "mixed"
        when = pd.Series(pd.to_datetime(frame[name], utc=True, format=form))
    except (TypeError, ValueError) as error:
        raise UsageError(f"Column {name!r} holds something that is not a time: {error}.") from error
    known = when.notna().to_numpy()
    microseconds = when.dt.as_unit("us").astype(np.int64).to_numpy()
    return np.where(known, microseconds, missing)


def as_times(microseconds: Ints) -> pd.DatetimeIndex:
    """Return the inverse of `times`: UTC, NaT for `NEVER` and `UNKNOWN`."""
    known = (microseconds != NEVER) & (microseconds != UNKNOWN)
    nat = np.datetime64("NaT", "us").astype(np.int64)
    return pd.DatetimeIndex(np.where(known, microseconds, nat).view("M8[us]")).tz_localize("UTC")


def flags(frame: pd.DataFrame, name: str, *, missing: bool) -> Bools:
    """Return a column of truth values, `missing` where there is none."""
    if name not in frame.columns:
        return np.full(len(frame), missing)
    column = frame[name]
    null = column.isna().to_numpy()
    if not (pd.api.types.is_bool_dtype(column) or column[~null].isin([True, False]).all()):
        raise UsageError(f"Column {name!r} holds something that is neither true nor false.")
    return np.where(null, missing, column.where(~null, missing).to_numpy(dtype=bool))


@dataclass(frozen=True, slots=True)
class Factors:
    """A column as codes into its sorted names, -1 where it is null."""

    code: Ints
    names: Names

    def first_of(self, setup: Ints, count: int) -> Ints:
        """Return the smallest code of each setup; ``len(names)`` where it has none."""
        first = np.full(count, self.names.size)
        known = (setup >= 0) & (self.code >= 0)
        np.minimum.at(first, setup[known], self.code[known])
        return first


def factorize(frame: pd.DataFrame, name: str) -> Factors:
    """Return a column of names as codes; all -1 where the frame lacks it."""
    if name not in frame.columns:
        return Factors(np.full(len(frame), -1), np.zeros(0, dtype=object))
    try:
        code, names = pd.factorize(frame[name].astype(object), sort=True)
    except TypeError as error:
        raise UsageError(f"Column {name!r} holds something that is not a name: {error}.") from error
    return Factors(code.astype(np.int64), np.asarray(names, dtype=object))


def _choices(frame: pd.DataFrame, name: str, allowed: AbstractSet[str]) -> npt.NDArray[np.str_]:
    """Return a column of words out of `allowed`, empty where there is none."""
    factors = factorize(frame, name)
    for word in factors.names:
        if word not in allowed:
            raise UsageError(f"Column {name!r} holds {word!r}.", f"Allowed: {', '.join(sorted(allowed))}.")
    return np.array([*factors.names, ""], dtype=np.str_)[factors.code]


def _read_setups(runs: pd.DataFrame, of: Factors, time: Ints, zero_rule: Bools) -> Setups:
    """Reduce what belongs to a setup from its rows to one entry."""
    count = of.names.size
    metric, profile = factorize(runs, "gap_metric"), factorize(runs, "profile")
    created = np.where(time == UNKNOWN, NEVER, time)
    ceiling = _largest(np.nan_to_num(numbers(runs, "ceiling"), nan=-np.inf), of, np.float64(-np.inf))
    return Setups(
        names=of.names,
        metric=metric.first_of(of.code, count),
        spread=_spreads(numbers(runs, "gap_spread"), metric),
        metrics=_with_none(metric.names),
        profile=_with_none(profile.names)[profile.first_of(of.code, count)],
        ceiling=np.where(np.isfinite(ceiling), ceiling, np.nan),
        exact=_largest(zero_rule, of, np.bool_(0)),
        accepted_at=_largest(times(runs, "accepted_at", NEVER), of, np.int64(NEVER)),
        last_run=_largest(created, of, np.int64(NEVER)),
    )


def _spreads(spread: Floats, metric: Factors) -> Floats:
    """Return the largest stated spread of each gap metric, and of the runs without one."""
    found = np.full(metric.names.size + 1, np.nan)
    stated = np.flatnonzero(spread > 0)
    np.fmax.at(found, metric.code[stated], spread[stated])
    return np.where(np.isnan(found), DEFAULT_SPREAD, found)


def _with_none(names: Names) -> Names:
    """Append what a setup without a name has."""
    return np.array([*names, None], dtype=object)


def _largest(values: npt.NDArray[_Value], of: Factors, start: _Value) -> npt.NDArray[_Value]:
    """Return the largest of `values` in each setup, `start` where nothing is larger."""
    largest = np.full(of.names.size, start, dtype=values.dtype)
    known = of.code >= 0
    np.maximum.at(largest, of.code[known], values[known])
    return largest
