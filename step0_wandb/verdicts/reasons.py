"""The reasons of a verdict: a person's label, the sentences of what failed, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from step0_wandb.checks.base import number_in, text_in
from step0_wandb.checks.gap import allowed_by, no_range, not_measured, since_text
from step0_wandb.text.formatting import count, number, ratio
from step0_wandb.verdicts.reference_gaps import published_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.records import VerdictName


def reasons(verdict: VerdictName, said: Sequence[str], facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all reasons of one verdict: what a person said, what failed, then what is missing."""
    found = [*_label(facts), *said]
    note = text_in(facts, "note")
    if verdict in ("pending", "no-step0"):
        found.append(note)
    elif note:
        found.append(f"kept out of the ranges: {note}")
    if not said and verdict == "no-range":
        found.append(no_range(facts) if number_in(facts, "gap") else _missing(facts))
        found += _published(facts)
    if not said and verdict == "unchecked":
        found.append(_unchecked(facts))
    return tuple(dict.fromkeys(text for text in found if text))


def _published(facts: Mapping[str, Any]) -> list[str]:
    """Return what others published of the setup: information where nothing else is known, no verdict."""
    if not number_in(facts, "gap"):
        return []
    return [known.describe(facts["gap"]) for known in published_for(text_in(facts, "setup"))]


def setup_note(row: Mapping[str, Any]) -> str:
    """Return what must be known of a whole setup; empty for most."""
    if not bool(row.get("believed", True)):
        return (
            f"this whole setup lies above what {allowed_by(row)}: center {number(row['center'])} of "
            f"{count(int(row['n']), 'run')}, ceiling {number(row.get('ceiling'))}; accept it if it is right"
        )
    if number_in(row, "moved"):
        return f"this setup has moved x{ratio(row['moved'])}{since_text(row, 'moved_since')}; accept it if it is right"
    if number_in(row, "improved"):
        return f"this setup has fallen to x{ratio(row['improved'])}{since_text(row, 'improved_since')}"
    if number_in(row, "lower_center"):
        lower, upper, n = row["lower_center"], row["upper_center"], int(row["lower_n"])
        return (
            f"two levels within this range: {number(lower)} ({count(n, 'run')}) and {number(upper)} "
            f"({count(int(row['n']) - n, 'run')}), x{ratio(upper / lower)} apart"
        )
    if number_in(row, "drift"):
        return f"this setup drifts: x{ratio(row['drift'])} over {count(int(row['n']), 'run')}{since_text(row, 'drift_since')}"
    return ""


def _label(facts: Mapping[str, Any]) -> list[str]:
    label = text_in(facts, "label")
    if not label:
        return []
    why, who = text_in(facts, "label_why"), text_in(facts, "label_who")
    return [f"labeled {label}" + (f" by {who}" if who else "") + (f": {why}" if why else "")]


def _unchecked(facts: Mapping[str, Any]) -> str:
    """Return why the gap proves nothing."""
    if not number_in(facts, "gap"):
        return _missing(facts)
    return text_in(facts, "gap_why") or (not_measured(facts) if facts["gap"] == 0 else "")


def _missing(facts: Mapping[str, Any]) -> str:
    switch = text_in(facts, "switch")
    return "no gap was logged" + (f": {switch}" if switch else "")
