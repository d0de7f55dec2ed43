"""Checks and ranges to a verdict for every run, with its reasons in sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from step0_wandb.checks import exact
from step0_wandb.checks.exact import FAIL, PASS, SKIPPED, VACUOUS, WARN, Level, Outcomes, Why
from step0_wandb.ranges.judging import judged_in
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.table import check_parameters, range_table
from step0_wandb.records import CHECKS, LATER_CHECKS, CheckResult, JudgedRun, SetupRange
from step0_wandb.verdicts import reasons

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from step0_wandb.ranges.model import Model
    from step0_wandb.records import VerdictName

CEILINGS_TO_BROKEN = 10.0
"""A gap of this many ceilings is broken where no range can say so."""
OWN_RANGES = ("own", "pooled", "split", "exact")
"""The bases of a range that a healthy run lies in."""


class _Nothing:
    """A column that is not there."""

    def __getitem__(self, _at: int) -> None:
        return None


_NOTHING = _Nothing()


@dataclass(frozen=True)
class Judgement:
    """The verdict of every run, in columns, with what it rests on.

    Attributes
    ----------
    runs : DataFrame
        The runs as given.
    model : Model
        What the runs say about their setups.
    by : DataFrame, one row a run
        The range that each run was judged by, see `ranges.judged_by`.
    ranges : DataFrame, one row a setup
        As given, or as the runs give them.
    outcomes : mapping of str to Outcomes
        By check, in the order of `records.CHECKS`, then `records.LATER_CHECKS` where they were asked for.
    verdict : ndarray of str, shape (n_runs,)
        With labels respected.
    """

    runs: pd.DataFrame
    model: Model
    by: pd.DataFrame
    ranges: pd.DataFrame
    outcomes: dict[str, Outcomes]
    verdict: NDArray[np.object_]
    alpha: float

    def take(self, positions: NDArray[np.intp]) -> Judgement:
        """Return the judgement of some runs, by their positions."""
        return Judgement(
            self.runs.iloc[positions],
            self.model,
            self.by.iloc[positions],
            self.ranges,
            {check: result.take(positions) for check, result in self.outcomes.items()},
            self.verdict[positions],
            self.alpha,
        )

    def reasons(self, at: int) -> tuple[str, ...]:
        """Return the reasons of one verdict, the gravest first; `at` is a position."""
        facts = self._facts(at)
        said = [
            (-int(result.level[at]), reasons.outcome(check, Why(result.why[at]), facts))
            for check, result in self.outcomes.items()
            if result.level[at]
        ]
        said.sort(key=lambda item: item[0])
        return reasons.reasons(cast("VerdictName", self.verdict[at]), [text for _, text in said], facts)

    def checks(self, at: int) -> tuple[CheckResult, ...]:
        """Return every check of one run with its outcome."""
        facts = self._facts(at)
        return tuple(
            CheckResult(
                check,
                exact.OUTCOMES[result.outcome[at]],
                self.value("gap" if check == "gap-zero" else check, at),
                None if np.isnan(result.limit[at]) else float(result.limit[at]),
                reasons.outcome(check, Why(result.why[at]), facts),
            )
            for check, result in self.outcomes.items()
            if result.why[at] != Why.NOT_ASKED
        )

    def judged(self, at: int) -> JudgedRun:
        """Return one run with its verdict; needs every column that `load_runs` gives."""
        facts = self._facts(at)
        return JudgedRun(
            run=facts["run"],
            name=_given(facts, "name") or "",
            url=_given(facts, "url"),
            user=_given(facts, "user"),
            group=_given(facts, "group"),
            created_at=_given(facts, "created_at"),
            state=facts["state"],
            profile=_given(facts, "profile"),
            setup=_given(facts, "setup"),
            ppo_kl=self.value("ppo_kl", at),
            clip_frac=self.value("clip_frac", at),
            gap=self.value("gap", at),
            gap_metric=_given(facts, "gap_metric"),
            verdict=cast("VerdictName", self.verdict[at]),
            label=_given(facts, "label"),
            reasons=self.reasons(at),
            checks=self.checks(at),
            range=self.range(at),
            ratio=_given(facts, "ratio"),
            p_value=_given(facts, "p_value"),
        )

    def value(self, metric: str, at: int) -> float | None:
        """Return a metric of one run: NaN where NaN was logged, None where nothing was."""
        value = self._columns.get(metric, _NOTHING)[at]
        if value is None or pd.isna(value):
            said = self._columns.get("nan_metrics", _NOTHING)[at]
            return float("nan") if isinstance(said, str) and metric in said.split() else None
        return float(value)

    def range(self, at: int) -> SetupRange | None:
        """Return the range that one run was judged by, or None."""
        facts = self._facts(at)
        if not np.isfinite(facts["center"]):
            return None
        place = setup_range(facts["setup"], facts, self.alpha)
        moved = _given(facts, "moved_ratio") if facts["moved"] else None
        return replace(place, last_run=None, moved=moved, moved_since=None, note="")

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        """Every column that sentences may need, as lists: reading a row is what is done most."""
        limits = {f"{check}_limit": pd.Series(result.limit) for check, result in self.outcomes.items()}
        columns: dict[str, list[Any]] = {}
        for part in (self.by.items(), self.runs.items(), limits.items()):
            columns |= {str(name): column.tolist() for name, column in part}
        return columns

    def _facts(self, at: int) -> dict[str, Any]:
        return {name: column[at] for name, column in self._columns.items()}


def judge(
    runs: pd.DataFrame,
    ranges: pd.DataFrame | None = None,
    *,
    alpha: float = 0.001,
    broken_ratio: float = 2.0,
) -> pd.DataFrame:
    """Judge every run.

    Parameters
    ----------
    runs : DataFrame, one row a run
        Needs the columns ``setup`` and ``gap``; everything else that `load_runs` gives is used where
        present.
    ranges : DataFrame, optional
        As `fit_ranges` returns it; None fits the runs themselves. Where a setup's ``n`` and ``center``
        equal what `runs` itself gives, its members are judged with their own value left out; otherwise
        the range is used as it stands.
    alpha : float
        Share of healthy runs that fall outside their range.
    broken_ratio : float
        A gap above its range is broken from this many times the centre, below that it is suspect.

    Returns
    -------
    DataFrame
        The input with ``verdict, reason, ratio, p_value, low, high``; ``low`` and ``high`` are the range
        that the run was judged by, ``reason`` joins the reasons by ``; ``.

    Raises
    ------
    UsageError
        A column is missing, or `alpha` or `broken_ratio` makes no sense.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"setup": "a", "gap": [0.0150, 0.0152, 0.0149, 0.0461]})
    >>> judge(runs)["verdict"].tolist()
    ['healthy', 'healthy', 'healthy', 'broken']
    """
    result = weigh(runs, ranges, alpha=alpha, broken_ratio=broken_ratio)
    reason = np.full(len(runs), "", dtype=object)
    told = np.flatnonzero((result.verdict != "healthy") | exact.texts(runs, "note").astype(bool))
    part = result.take(told)
    reason[told] = ["; ".join(part.reasons(at)) for at in range(len(told))]
    return runs.assign(
        verdict=result.verdict,
        reason=reason,
        **{name: result.by[name].to_numpy() for name in ("ratio", "p_value", "low", "high")},
    )


def weigh(
    runs: pd.DataFrame,
    ranges: pd.DataFrame | None = None,
    *,
    alpha: float = 0.001,
    broken_ratio: float = 2.0,
) -> Judgement:
    """Judge every run, and keep what each verdict rests on; `judge` shows the short form."""
    check_parameters(alpha, broken_ratio)
    if "exact_failed" not in runs:
        runs = runs.assign(exact_failed=exact.exact_failed(runs))
    model = fit_model(runs, broken_ratio)
    by = judged_in(model, ranges, alpha).set_axis(runs.index)
    if ranges is None:
        ranges = range_table(model, alpha)
    outcomes = {
        "ppo_kl": exact.exact(runs, "ppo_kl", by["ppo_kl_noise"].to_numpy()),
        "clip_frac": exact.exact(runs, "clip_frac"),
        "gap": _gap(runs, by, broken_ratio),
        "gap-zero": _gap_zero(runs),
    }
    assert tuple(outcomes) == CHECKS  # noqa: S101 - the outputs rely on the order
    outcomes |= {check: _answered(runs, check) for check in LATER_CHECKS if f"{check}_outcome" in runs}
    return Judgement(runs, model, by, ranges, outcomes, _verdicts(runs, by, outcomes), alpha)


def judged_runs(result: Judgement, *, only: str | None = None) -> list[JudgedRun]:
    """Return the judgement as one record a run; `only` names the one run that is wanted."""
    keys = result.runs["run"].tolist()
    return [result.judged(at) for at, key in enumerate(keys) if only is None or key == only]


def setup_ranges(result: Judgement) -> list[SetupRange]:
    """Return the fitted ranges as one record a setup."""
    rows: list[dict[str, Any]] = [
        dict(zip(result.ranges.columns, row, strict=True))
        for row in result.ranges.itertuples(index=False, name=None)
    ]
    return [
        setup_range(str(setup), row, result.alpha)
        for setup, row in zip(result.ranges.index, rows, strict=True)
    ]


def _given(facts: Mapping[str, Any], name: str) -> Any:
    """Return a value of a row as Python has it, None where there is none."""
    value = facts.get(name)
    if value is None or pd.isna(value):
        return None
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


def setup_range(setup: str, row: Mapping[str, Any], alpha: float) -> SetupRange:
    """Return a row of `fit_ranges` or `judged_by` as a record."""
    numbers = {
        name: _given(row, name)
        for name in (
            "center",
            "low",
            "high",
            "seen_low",
            "seen_high",
            "sigma",
            "df",
            "gap_metric",
            "last_run",
            "ppo_kl_noise",
        )
    }
    move = "moved" if _given(row, "moved_since") else "improved"
    return SetupRange(
        setup=setup,
        profile=_given(row, "profile") or setup.split(" · ", 1)[0],
        n=int(row["n"]),
        **numbers,
        alpha=alpha,
        basis=row["basis"],
        accepted=bool(row.get("accepted", False)),
        believed=bool(row.get("believed", True)),
        moved=_given(row, move),
        moved_since=_given(row, f"{move}_since"),
        note=reasons.setup_note(row),
    )


def _gap(runs: pd.DataFrame, by: pd.DataFrame, broken_ratio: float) -> Outcomes:
    """Judge the gap of every run by its range, or by the ceiling where there is none."""
    gap = exact.numbers(runs, "gap")
    kind = exact.texts(runs, "gap_rule", "range")
    bad = exact.non_finite(runs, "gap")
    logged = np.isfinite(gap)
    ranged = logged & (kind == "range") & (gap != 0)
    center, low, high = (by[name].to_numpy(dtype=float) for name in ("center", "low", "high"))
    known = ranged & np.isfinite(center) & np.isin(by["basis"].to_numpy(dtype=object), OWN_RANGES)
    believed = by["believed"].to_numpy(dtype=bool)
    several = np.where(gap >= broken_ratio * center, Level.BROKEN, Level.SUSPECT).astype(np.int8)

    result = Outcomes.blank(len(runs))
    result.limit[known] = np.where(gap < low, low, high)[known]
    result.set(logged & (kind == "vacuous"), VACUOUS, Why.BY_RULE)
    result.set(logged & (kind == "skipped"), SKIPPED, Why.BY_RULE)
    result.set(logged & (kind == "range") & (gap == 0), SKIPPED, Why.ZERO)
    result.set(known, PASS, Why.IN_RANGE)
    result.set(known & (gap > high), FAIL, Why.ABOVE_RANGE, level=several)
    result.set(known & (gap < low), FAIL, Why.BELOW_RANGE, level=Level.SUSPECT)
    moved = by["moved"].to_numpy(dtype=bool)
    result.set(known & moved, FAIL, Why.MOVED, level=Level.SUSPECT)
    _ceiling(result, runs, unknown=ranged & ~known, doubted=known & ~believed)
    result.set(ranged & (gap < 0), FAIL, Why.NEGATIVE, level=Level.SUSPECT)
    on_policy = logged & (kind == "zero")
    result.limit[on_policy] = 0.0
    result.set(on_policy, PASS, Why.NOTHING)
    result.set(on_policy & (gap != 0), FAIL, Why.NOT_ZERO, level=Level.BROKEN)
    result.set(bad, FAIL, Why.NON_FINITE, level=Level.BROKEN)
    return result


def _ceiling(
    result: Outcomes, runs: pd.DataFrame, *, unknown: NDArray[np.bool_], doubted: NDArray[np.bool_]
) -> None:
    """Judge runs without a range, or in a setup that is not believed, by what the framework allows."""
    gap = exact.numbers(runs, "gap")
    ceiling = exact.numbers(runs, "ceiling")
    result.limit[unknown] = ceiling[unknown]
    result.set(unknown, SKIPPED, Why.NO_RANGE)
    result.set(unknown & (gap > ceiling), WARN, Why.OVER_CEILING, level=Level.SUSPECT)
    result.set(doubted, FAIL, Why.NOT_BELIEVED, level=Level.SUSPECT)
    far = (unknown | doubted) & (gap >= CEILINGS_TO_BROKEN * ceiling)
    result.set(far, FAIL, Why.OVER_CEILING, level=Level.BROKEN)


def _gap_zero(runs: pd.DataFrame) -> Outcomes:
    """Warn of a gap of exactly 0 that was not measured."""
    gap = exact.numbers(runs, "gap")
    ranged = np.isfinite(gap) & (exact.texts(runs, "gap_rule", "range") == "range")
    result = Outcomes.blank(len(runs))
    result.set(ranged, PASS, Why.NOTHING)
    result.set(ranged & (gap == 0), WARN, Why.ZERO, level=Level.SUSPECT)
    result.set(exact.non_finite(runs, "gap"), SKIPPED, Why.NOTHING)
    return result


def _answered(runs: pd.DataFrame, check: str) -> Outcomes:
    """Return the outcomes of a check whose answers came with the runs, see `rollouts.Later.columns`."""
    said = exact.texts(runs, f"{check}_outcome")
    result = Outcomes.blank(len(runs))
    result.set(said == "", SKIPPED, Why.NOT_ASKED)
    for outcome, name in enumerate(exact.OUTCOMES):
        result.set(said == name, outcome, Why.BY_RULE)
    result.level[:] = np.nan_to_num(exact.numbers(runs, f"{check}_level"))
    result.limit[:] = exact.numbers(runs, f"{check}_limit")
    return result


def _verdicts(runs: pd.DataFrame, by: pd.DataFrame, outcomes: dict[str, Outcomes]) -> NDArray[np.object_]:
    level = np.maximum.reduce([result.level for result in outcomes.values()])
    passed = {check: result.outcome == PASS for check, result in outcomes.items()}
    logged_gap = outcomes["gap"].why == Why.NO_RANGE
    verdict = np.full(len(runs), "unchecked", dtype=object)
    verdict[passed["ppo_kl"] | passed["clip_frac"] | logged_gap] = "no-range"
    on_policy = exact.texts(runs, "gap_rule", "range") == "zero"
    verdict[passed["gap"] & (on_policy | np.isin(by["basis"].to_numpy(dtype=object), OWN_RANGES))] = "healthy"
    verdict[level == Level.SUSPECT] = "suspect"
    verdict[level == Level.BROKEN] = "broken"
    status = exact.texts(runs, "step0", "found")
    verdict[status != "found"] = status[status != "found"]
    label = exact.texts(runs, "label")
    spoken = (label == "healthy") | (label == "broken")
    verdict[spoken] = label[spoken]
    return verdict
