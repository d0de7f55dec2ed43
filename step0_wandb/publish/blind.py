"""What is not checked, why, and what would change that: in the same words wherever it is shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.text import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.records import CheckResult, JudgedRun

UNEXPLAINED = {
    "unchecked": "nothing could be checked",
    "pending": "step 0 is not logged yet",
    "no-step0": "no step 0 was found",
}
WITHOUT_STEP0 = ("pending", "no-step0")


@dataclass(frozen=True, slots=True)
class Blind:
    """Something that is not checked for some runs of a profile, and why or what would change it."""

    what: str
    profile: str
    why: str
    runs: int
    of: int


def blind_spots(runs: Sequence[JudgedRun]) -> tuple[Blind, ...]:
    """Return what is not checked, the most frequent first."""
    profiles = Counter(run.profile or "" for run in runs)
    amounts = Counter(
        (", ".join(what), run.profile or "", why) for run in runs for why, what in _of_run(run).items()
    )
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Blind(what, profile, why, amount, profiles[profile]) for (what, profile, why), amount in ordered
    )


def _of_run(run: JudgedRun) -> dict[str, list[str]]:
    """Return what was not checked in one run, by why."""
    spots: dict[str, list[str]] = {}
    if run.verdict not in WITHOUT_STEP0:
        for result in run.checks:
            # Without a gap there is no zero gap either, and nobody needs to be told so.
            if result.outcome in ("vacuous", "skipped") and result.check != "gap-zero":
                spots.setdefault(_why(result, run.reasons), []).append(result.check)
    if run.verdict in UNEXPLAINED:
        for reason in run.reasons or (UNEXPLAINED[run.verdict],):
            spots.setdefault(reason, [run.verdict])
    return spots


def _why(result: CheckResult, reasons: Sequence[str]) -> str:
    """Return why a check says nothing, in the same words for every run that it is true of."""
    why = result.message.removeprefix(f"{result.check} {number(result.value)}: ") or "does not apply"
    # A reason may go on where the check stops: with the switch that would change it.
    return next((reason for reason in reasons if reason.startswith(why)), why)
