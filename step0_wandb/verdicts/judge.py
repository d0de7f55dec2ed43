"""Checks and ranges to a verdict for every run, with its reasons in sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from step0_wandb.checks.base import Reference
from step0_wandb.checks.columns import texts
from step0_wandb.checks.gap import OWN_RANGES
from step0_wandb.checks.observables import history_free
from step0_wandb.checks.outcomes import OUTCOMES, PASS, Level, Why
from step0_wandb.checks.registry import CHECKS, exact_failed
from step0_wandb.ranges.judging import judged_in
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.table import check_parameters, range_table
from step0_wandb.records import ALPHA, BROKEN_RATIO, CheckResult, JudgedRun, SetupRange
from step0_wandb.verdicts import reasons
from step0_wandb.verdicts.learned import learned_checks
from step0_wandb.verdicts.questions import question_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from step0_wandb.checks.base import Check
    from step0_wandb.checks.outcomes import Outcomes
    from step0_wandb.ranges.model import Model
    from step0_wandb.records import VerdictName
    from step0_wandb.verdicts.learned import LearnedCheck
    from step0_wandb.verdicts.lessons import Lessons


class _Nothing:
    """A column that is not there."""

    def __getitem__(self, _at: int) -> None:
        return None


_NOTHING = _Nothing()


@dataclass(frozen=True)
class Judgment:
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
        By name of the check, in the order of `checks.registry`, then those of observables.
    checks_by_name : mapping of str to Check
    verdict : ndarray of str, shape (n_runs,)
        With labels respected.
    learned : tuple of LearnedCheck
        The checks that compare observables with those of other runs.
    """

    runs: pd.DataFrame
    model: Model
    by: pd.DataFrame
    ranges: pd.DataFrame
    outcomes: dict[str, Outcomes]
    checks_by_name: Mapping[str, Check]
    verdict: NDArray[np.object_]
    alpha: float
    learned: tuple[LearnedCheck, ...] = ()

    def take(self, positions: NDArray[np.intp]) -> Judgment:
        """Return the judgment of some runs, by their positions."""
        return Judgment(
            self.runs.iloc[positions],
            self.model,
            self.by.iloc[positions],
            self.ranges,
            {check: result.take(positions) for check, result in self.outcomes.items()},
            self.checks_by_name,
            self.verdict[positions],
            self.alpha,
        )

    @property
    def needs_attention(self) -> NDArray[np.bool_]:
        """Return which runs are suspect by something that is worth an alert.

        That is everything but a gap below its range, and a move of the whole setup, which is told once.
        """
        quiet = (Why.BELOW_RANGE, Why.MOVED, Why.NOT_BELIEVED, Why.ZERO)
        loud = [(result.level > 0) & ~np.isin(result.why, quiet) for result in self.outcomes.values()]
        suspect: NDArray[np.bool_] = self.verdict == "suspect"
        attention: NDArray[np.bool_] = suspect & np.logical_or.reduce(loud)
        return attention

    def reasons(self, at: int) -> tuple[str, ...]:
        """Return the reasons of one verdict, the gravest first; `at` is a position."""
        facts = self._facts(at)
        said = [
            (-int(result.level[at]), self.checks_by_name[check].sentence(Why(result.why[at]), facts))
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
                OUTCOMES[result.outcome[at]],
                self.value(self.checks_by_name[check].metric, at),
                None if np.isnan(result.limit[at]) else float(result.limit[at]),
                self.checks_by_name[check].sentence(Why(result.why[at]), facts),
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
            policy=facts["run"].partition("#")[2] or None,
            start=int(_given(facts, "start") or 1),
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
    alpha: float = ALPHA,
    broken_ratio: float = BROKEN_RATIO,
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
        A gap above its range is broken from this many times the center, below that it is suspect.

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
    told = np.flatnonzero((result.verdict != "healthy") | texts(runs, "note").astype(bool))
    part = result.take(told)
    reason[told] = ["; ".join(part.reasons(at)) for at in range(len(told))]
    return runs.assign(
        verdict=result.verdict,
        reason=reason,
        **{name: result.by[name].to_numpy() for name in ("ratio", "p_value", "low", "high")},
    )


def weigh(  # noqa: PLR0913 - three of them are settings, which callers pass together
    runs: pd.DataFrame,
    ranges: pd.DataFrame | None = None,
    *,
    alpha: float = ALPHA,
    broken_ratio: float = BROKEN_RATIO,
    observables_alpha: float = ALPHA,
    lessons: Lessons | None = None,
) -> Judgment:
    """Judge every run, and keep what each verdict rests on; `judge` shows the short form.

    Parameters
    ----------
    observables_alpha : float
        Share of healthy runs that all learned observables together may flag.
    lessons : Lessons, optional
        What runs have taught that are not among these.
    """
    check_parameters(alpha, broken_ratio)
    check_parameters(observables_alpha, broken_ratio)
    if "exact_failed" not in runs:
        runs = runs.assign(exact_failed=exact_failed(runs))
    model = fit_model(runs, broken_ratio, lessons.gaps if lessons else None)
    by = judged_in(model, ranges, alpha).set_axis(runs.index)
    if ranges is None:
        ranges = range_table(model, alpha)
    reference = Reference(by, broken_ratio)
    learned = learned_checks(
        runs, alpha=observables_alpha, broken_ratio=broken_ratio, spreads=lessons.spreads if lessons else None
    )
    by = by.assign(**{name: column for check in learned for name, column in check.columns().items()})
    asked = [(check, check.judge(runs, reference)) for check in (*CHECKS, *history_free(runs), *learned)]
    outcomes = {check.name: result for check, result in asked if result is not None}
    checks = {check.name: check for check, _ in asked}
    verdict = _verdicts(runs, by, outcomes)
    return Judgment(runs, model, by, ranges, outcomes, checks, verdict, alpha, learned)


def judged_runs(result: Judgment, *, only: str | None = None) -> list[JudgedRun]:
    """Return the judgment as one record a run; `only` names the one run that is wanted."""
    keys = result.runs["run"].tolist()
    return [result.judged(at) for at, key in enumerate(keys) if only is None or key == only]


def setup_ranges(result: Judgment) -> list[SetupRange]:
    """Return the fitted ranges as one record a setup."""
    rows: list[dict[str, Any]] = [
        dict(zip(result.ranges.columns, row, strict=True))
        for row in result.ranges.itertuples(index=False, name=None)
    ]
    found = []
    for setup, row in zip(result.ranges.index, rows, strict=True):
        question = question_of(str(setup), row, result) if row.get("other_n", 0) > 1 else None
        found.append(replace(setup_range(str(setup), row, result.alpha), question=question))
        if question:
            found[-1] = replace(found[-1], note=question.text)
    return found


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
        moved_runs=int(row.get("moved_n") or 0),
        note=reasons.setup_note(row),
    )


def _verdicts(runs: pd.DataFrame, by: pd.DataFrame, outcomes: dict[str, Outcomes]) -> NDArray[np.object_]:
    level = np.maximum.reduce([result.level for result in outcomes.values()])
    passed = {check: result.outcome == PASS for check, result in outcomes.items()}
    logged_gap = outcomes["gap"].why == Why.NO_RANGE
    verdict = np.full(len(runs), "unchecked", dtype=object)
    verdict[passed["ppo_kl"] | passed["clip_frac"] | logged_gap] = "no-range"
    on_policy = texts(runs, "gap_rule", "range") == "zero"
    verdict[passed["gap"] & (on_policy | np.isin(by["basis"].to_numpy(dtype=object), OWN_RANGES))] = "healthy"
    verdict[level == Level.SUSPECT] = "suspect"
    verdict[level == Level.BROKEN] = "broken"
    status = texts(runs, "step0", "found")
    verdict[status != "found"] = status[status != "found"]
    label = texts(runs, "label")
    spoken = (label == "healthy") | (label == "broken")
    verdict[spoken] = label[spoken]
    return verdict
