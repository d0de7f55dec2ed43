"""The words for outcomes and verdicts: each reason is one sentence with its numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from step0_wandb.checks.exact import Why
from step0_wandb.text.formatting import number
from step0_wandb.verdicts.reference_gaps import published_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from step0_wandb.records import VerdictName


def outcome(check: str, why: Why, facts: Mapping[str, Any]) -> str:
    """Return the sentence for one check's outcome; empty where the numbers say it all."""
    return _OUTCOMES[why](check.replace("gap-zero", "gap"), facts)


def reasons(verdict: VerdictName, said: Sequence[str], facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all reasons of one verdict: what a person said, what failed, then what is missing."""
    found = [*_label(facts), *said]
    note = _text(facts, "note")
    if verdict in ("pending", "no-step0"):
        found.append(note)
    elif note:
        found.append(f"kept out of the ranges: {note}")
    if not said and verdict == "no-range":
        found.append(_no_range("gap", facts) if _is_number(facts, "gap") else _missing(facts))
        found += _published(facts)
    if not said and verdict == "unchecked":
        found.append(_by_rule("gap", facts) if _is_number(facts, "gap") else _missing(facts))
    return tuple(dict.fromkeys(text for text in found if text))


def _published(facts: Mapping[str, Any]) -> list[str]:
    """Return what others published of the setup: information where nothing else is known, no verdict."""
    if not _is_number(facts, "gap"):
        return []
    return [known.beside(facts["gap"]) for known in published_for(_text(facts, "setup"))]


def setup_note(row: Mapping[str, Any]) -> str:
    """Return what must be known of a whole setup; empty for most."""
    if not bool(row.get("believed", True)):
        return (
            f"this whole setup lies above what {_allows(row)}: centre {number(row['center'])} of "
            f"{_runs(row['n'])}, ceiling {number(row.get('ceiling'))}; accept it if it is right"
        )
    if _is_number(row, "moved"):
        return (
            f"this setup has moved x{row['moved']:.2g}{_since(row, 'moved_since')}; accept it if it is right"
        )
    if _is_number(row, "improved"):
        return f"this setup has fallen to x{row['improved']:.2g}{_since(row, 'improved_since')}"
    return ""


def _label(facts: Mapping[str, Any]) -> list[str]:
    label = _text(facts, "label")
    if not label:
        return []
    why, who = _text(facts, "label_why"), _text(facts, "label_who")
    return [f"labelled {label}" + (f" by {who}" if who else "") + (f": {why}" if why else "")]


def _missing(facts: Mapping[str, Any]) -> str:
    switch = _text(facts, "switch")
    return "no gap was logged" + (f": {switch}" if switch else "")


def _over_limit(check: str, facts: Mapping[str, Any]) -> str:
    limit = number(facts.get(f"{check}_limit"))
    return (
        f"{check} is {number(facts[check])} at the first optimizer step, where it must be 0 (limit {limit})"
    )


def _over_learned(check: str, facts: Mapping[str, Any]) -> str:
    limit = number(facts.get(f"{check}_limit"))
    return f"{check} is {number(facts[check])}, above the {limit} that this setup's healthy runs allow"


def _large_for_average(check: str, facts: Mapping[str, Any]) -> str:
    return f"{check} is {number(facts[check])}: large even for a row that averages several optimizer steps"


def _non_finite(check: str, facts: Mapping[str, Any]) -> str:
    value = facts.get(check)
    return f"{check} is {number(value) if _is_number(facts, check) else 'NaN'}"


def _by_rule(check: str, facts: Mapping[str, Any]) -> str:
    return _text(facts, f"{check}_why")


def _not_logged(check: str, _facts: Mapping[str, Any]) -> str:
    return f"no {check} was logged"


def _of_centre(facts: Mapping[str, Any]) -> str:
    ratio = facts["ratio"]
    times = f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"  # noqa: PLR2004 - one digit is enough from 2 on
    return (
        f"gap {number(facts['gap'])} is {times} times the centre {number(facts['center'])} of "
        f"{_healthy(facts['n'])} (range {_range(facts)})"
    )


def _in_range(_check: str, facts: Mapping[str, Any]) -> str:
    return f"gap {number(facts['gap'])} lies in the range {_range(facts)} of {_healthy(facts['n'])}"


def _below_range(_check: str, facts: Mapping[str, Any]) -> str:
    return f"{_of_centre(facts)}: below its range, so not the same measurement"


def _over_ceiling(_check: str, facts: Mapping[str, Any]) -> str:
    times = facts["gap"] / facts["ceiling"]
    return (
        f"gap {number(facts['gap'])} is {times:.1f} times the {number(facts['ceiling'])} that {_allows(facts)}, "
        "and this setup has no range of its own"
    )


def _no_range(_check: str, facts: Mapping[str, Any]) -> str:
    text = f"gap {number(facts['gap'])}: no other healthy run of this setup to judge it by yet"
    if _is_number(facts, "ceiling"):
        text += f"; below the {number(facts['ceiling'])} that {_allows(facts)}"
    return text


def _not_believed(_check: str, facts: Mapping[str, Any]) -> str:
    return (
        f"this whole setup lies above what {_allows(facts)}: centre {number(facts['center'])} of "
        f"{_runs(facts['n'])}, ceiling {number(facts['ceiling'])}; accept the setup if it is right"
    )


def _moved(_check: str, facts: Mapping[str, Any]) -> str:
    times = f" x{facts['moved_ratio']:.2g}" if _is_number(facts, "moved_ratio") else ""
    return (
        f"gap {number(facts['gap'])} is outside the range {_range(facts)}, but so is every run of this setup"
        f"{_since(facts, 'moved_since')}: it has moved{times}; accept it if the new level is right"
    )


def _zero(_check: str, facts: Mapping[str, Any]) -> str:
    because = _text(facts, "gap_zero")
    return "gap is exactly 0 outside true-on-policy mode: it was not measured" + (
        f" ({because})" if because else ""
    )


def _not_zero(_check: str, facts: Mapping[str, Any]) -> str:
    return f"gap is {number(facts['gap'])} in true-on-policy mode, where it must be exactly 0"


def _negative(_check: str, facts: Mapping[str, Any]) -> str:
    return f"gap is {number(facts['gap'])}: a negative value is no measurement of a gap"


def _nothing(_check: str, _facts: Mapping[str, Any]) -> str:
    return ""


_OUTCOMES: dict[Why, Callable[[str, Mapping[str, Any]], str]] = {
    Why.NOTHING: _nothing,
    Why.NOT_LOGGED: _not_logged,
    Why.BY_RULE: _by_rule,
    Why.NON_FINITE: _non_finite,
    Why.OVER_LIMIT: _over_limit,
    Why.OVER_LEARNED: _over_learned,
    Why.LARGE_FOR_AVERAGE: _large_for_average,
    Why.IN_RANGE: _in_range,
    Why.ABOVE_RANGE: lambda _check, facts: _of_centre(facts),
    Why.BELOW_RANGE: _below_range,
    Why.OVER_CEILING: _over_ceiling,
    Why.NOT_BELIEVED: _not_believed,
    Why.MOVED: _moved,
    Why.NOT_ZERO: _not_zero,
    Why.NEGATIVE: _negative,
    Why.ZERO: _zero,
    Why.NO_RANGE: _no_range,
    Why.NOT_ASKED: _nothing,
}


def _allows(facts: Mapping[str, Any]) -> str:
    return _text(facts, "ceiling_from") or "its framework allows"


def _range(facts: Mapping[str, Any]) -> str:
    return f"{number(facts['low'])} to {number(facts['high'])}"


def _healthy(n: float) -> str:
    return f"{int(n)} healthy run" + ("" if int(n) == 1 else "s")


def _runs(n: float) -> str:
    return f"{int(n)} run" + ("" if int(n) == 1 else "s")


def _since(facts: Mapping[str, Any], name: str) -> str:
    moment = facts.get(name)
    return f" since {moment:%Y-%m-%d}" if hasattr(moment, "strftime") and moment == moment else ""  # noqa: PLR0124 - NaT


def _is_number(facts: Mapping[str, Any], name: str) -> bool:
    value = facts.get(name)
    return isinstance(value, int | float) and not math.isnan(value)


def _text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""
