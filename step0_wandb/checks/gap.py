"""The gap between trainer and engine: inside the range of its setup, under its ceiling, and measured at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from step0_wandb.checks.base import SHARED, number_in, text_in
from step0_wandb.checks.columns import non_finite, numbers, texts
from step0_wandb.checks.outcomes import FAIL, PASS, SKIPPED, VACUOUS, WARN, Level, Outcomes, Why
from step0_wandb.text.formatting import apart, count, number, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from step0_wandb.checks.base import Facts, Reference, Sentence

CEILINGS_TO_BROKEN = 10.0
"""A gap of this many ceilings is broken where no range can say so."""
OWN_RANGES = ("own", "pooled", "split", "exact")
"""The bases of a range that a healthy run lies in."""


class GapCheck:
    """The gap lies in the range of its setup; in true-on-policy mode it is exactly 0."""

    name = metric = "gap"

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes:
        """Judge the gap of every run by its range, or by the ceiling where there is none."""
        gap, kind, by = numbers(runs, "gap"), texts(runs, "gap_rule", "range"), reference.by
        logged = np.isfinite(gap)
        ranged = logged & (kind == "range") & (gap != 0)
        center, low, high = (by[name].to_numpy(dtype=float) for name in ("center", "low", "high"))
        side = by["position"].to_numpy(dtype=float)
        known = ranged & np.isfinite(center) & np.isin(by["basis"].to_numpy(dtype=object), OWN_RANGES)
        # What was healthy when it came is not broken because of runs that came later.
        several = (gap >= reference.broken_ratio * center) & ~by["protected"].to_numpy(dtype=bool)

        result = Outcomes.blank(len(runs))
        result.limit[known] = np.where(gap < low, low, high)[known]
        result.set(logged & (kind == "vacuous"), VACUOUS, Why.BY_RULE)
        result.set(logged & (kind == "skipped"), SKIPPED, Why.BY_RULE)
        result.set(logged & (kind == "range") & (gap == 0), SKIPPED, Why.ZERO)
        result.set(known, PASS, Why.IN_RANGE)
        result.set(
            known & (side > 0),
            FAIL,
            Why.ABOVE_RANGE,
            level=np.where(several, Level.BROKEN, Level.SUSPECT).astype(np.int8),
        )
        result.set(known & (side < 0), FAIL, Why.BELOW_RANGE, level=Level.SUSPECT)
        result.set(known & by["moved"].to_numpy(dtype=bool), FAIL, Why.MOVED, level=Level.SUSPECT)
        doubted = known & ~by["believed"].to_numpy(dtype=bool)
        _judge_by_ceiling(result, runs, unknown=ranged & ~known, doubted=doubted)
        result.set(ranged & (gap < 0), FAIL, Why.NEGATIVE, level=Level.SUSPECT)
        on_policy = logged & (kind == "zero")
        result.limit[on_policy] = 0.0
        result.set(on_policy, PASS, Why.NOTHING)
        result.set(on_policy & (gap != 0), FAIL, Why.NOT_ZERO, level=Level.BROKEN)
        result.set(non_finite(runs, "gap"), FAIL, Why.NON_FINITE, level=Level.BROKEN)
        return result

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return why the gap is judged as it is."""
        return _SENTENCES[why](self.metric, facts)


class GapZeroCheck:
    """A gap of exactly 0 outside true-on-policy mode was not measured."""

    name = "gap-zero"
    metric = "gap"

    _SENTENCES: ClassVar[Mapping[Why, Sentence]] = SHARED | {
        Why.ZERO: lambda _metric, facts: not_measured(facts)
    }

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes:  # noqa: ARG002 - as every check
        """Warn of a gap of exactly 0."""
        gap = numbers(runs, "gap")
        ranged = np.isfinite(gap) & (texts(runs, "gap_rule", "range") == "range")
        result = Outcomes.blank(len(runs))
        result.set(ranged, PASS, Why.NOTHING)
        result.set(ranged & (gap == 0), WARN, Why.ZERO, level=Level.SUSPECT)
        by_choice = ranged & (gap == 0) & (texts(runs, "gap_zero") != "")
        result.set(by_choice, VACUOUS, Why.ZERO)
        result.set(non_finite(runs, "gap"), SKIPPED, Why.NOTHING)
        return result

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return why a 0 is suspicious."""
        return self._SENTENCES[why](self.metric, facts)


def _judge_by_ceiling(
    result: Outcomes, runs: pd.DataFrame, *, unknown: NDArray[np.bool_], doubted: NDArray[np.bool_]
) -> None:
    """Judge runs without a range, or in a setup that is not believed, by what the framework allows."""
    gap, ceiling = numbers(runs, "gap"), numbers(runs, "ceiling")
    result.limit[unknown] = ceiling[unknown]
    result.set(unknown, SKIPPED, Why.NO_RANGE)
    result.set(unknown & (gap > ceiling), WARN, Why.OVER_CEILING, level=Level.SUSPECT)
    result.set(doubted, FAIL, Why.NOT_BELIEVED, level=Level.SUSPECT)
    far = (unknown | doubted) & (gap >= CEILINGS_TO_BROKEN * ceiling)
    result.set(far, FAIL, Why.OVER_CEILING, level=Level.BROKEN)


def allowed_by(facts: Facts) -> str:
    """Return who states the ceiling of a run or setup, as the subject of "allows"."""
    return text_in(facts, "ceiling_from") or "its framework allows"


def since_text(facts: Facts, name: str) -> str:
    """Return " since 2026-11-03" for a time that is known, else nothing."""
    moment = facts.get(name)
    return f" since {moment:%Y-%m-%d}" if hasattr(moment, "strftime") and moment == moment else ""  # noqa: PLR0124 - NaT


def no_range(facts: Facts) -> str:
    """Return the sentence for a gap that nothing can be compared with yet."""
    text = f"gap {number(facts['gap'])}: no other healthy run of this setup to judge it by yet"
    if number_in(facts, "ceiling"):
        text += f"; below the {number(facts['ceiling'])} that {allowed_by(facts)}"
    return text


def _range(facts: Facts) -> str:
    return f"{number(facts['low'])} to {number(facts['high'])}"


def _healthy(facts: Facts) -> str:
    return count(int(facts["n"]), "healthy run")


def _of_center(facts: Facts) -> str:
    gap, low, high = apart(facts["gap"], facts["low"], facts["high"])
    center, at = f"the center {number(facts['center'])} of", ""
    if number_in(facts, "entropy") and facts.get("entropy_factor", 1.0) != 1:
        center, at = f"the {number(facts['center'])} expected from", f" at entropy {number(facts['entropy'])}"
    edge = (
        "; at the edge of its range, and flagged before"
        if facts["low"] <= facts["gap"] <= facts["high"]
        else ""
    )
    return (
        f"gap {gap} is {ratio(facts['ratio'])} times {center} {_healthy(facts)}{at} "
        f"(range {low} to {high}{edge})"
    )


def _in_range(facts: Facts) -> str:
    return f"gap {number(facts['gap'])} lies in the range {_range(facts)} of {_healthy(facts)}"


def _below_range(facts: Facts) -> str:
    return f"{_of_center(facts)}: below its range, so not the same measurement"


def _over_ceiling(facts: Facts) -> str:
    gap, ceiling = apart(facts["gap"], facts["ceiling"])
    times = ratio(facts["gap"] / facts["ceiling"])
    far = "just above" if times == "1.00" else f"{times} times"
    return (
        f"gap {gap} is {far} the {ceiling} that {allowed_by(facts)}, and this setup has no range of its own"
    )


def _not_believed(facts: Facts) -> str:
    return (
        f"this whole setup lies above what {allowed_by(facts)}: center {number(facts['center'])} of "
        f"{count(int(facts['n']), 'run')}, ceiling {number(facts['ceiling'])}; accept the setup if it is right"
    )


def _moved(facts: Facts) -> str:
    times = f" x{ratio(facts['moved_ratio'])}" if number_in(facts, "moved_ratio") else ""
    return (
        f"gap {number(facts['gap'])} is outside the range {_range(facts)}, but so is every run of this setup"
        f"{since_text(facts, 'moved_since')}: it has moved{times}; accept it if the new level is right"
    )


def not_measured(facts: Facts) -> str:
    """Return the sentence for a gap of exactly 0 that no mode explains."""
    because = text_in(facts, "gap_zero")
    return "gap is exactly 0 outside true-on-policy mode: it was not measured" + (
        f" ({because})" if because else ""
    )


def _not_zero(facts: Facts) -> str:
    mode = text_in(facts, "gap_why") or "in true-on-policy mode"
    return f"gap is {number(facts['gap'])} {mode}, where it must be exactly 0"


def _negative(facts: Facts) -> str:
    return f"gap is {number(facts['gap'])}: a negative value is not a measured gap"


_SENTENCES: Mapping[Why, Sentence] = SHARED | {
    Why.IN_RANGE: lambda _metric, facts: _in_range(facts),
    Why.ABOVE_RANGE: lambda _metric, facts: _of_center(facts),
    Why.BELOW_RANGE: lambda _metric, facts: _below_range(facts),
    Why.OVER_CEILING: lambda _metric, facts: _over_ceiling(facts),
    Why.NOT_BELIEVED: lambda _metric, facts: _not_believed(facts),
    Why.MOVED: lambda _metric, facts: _moved(facts),
    Why.NOT_ZERO: lambda _metric, facts: _not_zero(facts),
    Why.NEGATIVE: lambda _metric, facts: _negative(facts),
    Why.ZERO: lambda _metric, facts: not_measured(facts),
    Why.NO_RANGE: lambda _metric, facts: no_range(facts),
}
