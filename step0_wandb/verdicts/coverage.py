"""What is not checked, why, and what would change that: the same text wherever it is shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from step0_wandb.text.formatting import count, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.profiles import Profiles
    from step0_wandb.records import CheckResult, Json, JudgedRun

UNEXPLAINED = {
    "unchecked": "nothing could be checked",
    "pending": "step 0 is not logged yet",
    "no-step0": "no step 0 was found",
}
WITHOUT_STEP0 = ("pending", "no-step0")
NO_GAP = "no gap was logged"
NO_HOLE = ("step 0 is not logged yet", "no other healthy run of this setup", "gap is exactly 0")
"""How reasons begin that go away with time, or that are alarms: no holes in what is checked."""
MAIN_CHECKS = frozenset({"ppo_kl", "clip_frac", "gap", "every-rollout", "first-update"})
"""The checks whose absence leaves a hole; observables are told where `profiles` lists them."""
UNREAD = "no metric of a known framework"
ENDED = "it ended before its first "
MOST_REASONS = 2
"""Reasons that the one line about a profile gives."""


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
    return count_unchecked(runs).blind_spots()


@dataclass(frozen=True, slots=True)
class Unchecked:
    """What was not checked in how many runs.

    Attributes
    ----------
    profiles : Counter of str
        Runs of each profile.
    amounts : Counter of (str, str, str)
        By what was not checked, the profile, and why.
    outcomes : Counter of (str, str)
        By check and outcome, of the runs that have a step 0.
    """

    profiles: Counter[str] = field(default_factory=Counter)
    amounts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def blind_spots(self) -> tuple[Blind, ...]:
        """Return what was not checked, the most frequent first."""
        ordered = sorted(self.amounts.items(), key=lambda item: (-item[1], item[0]))
        return tuple(
            Blind(what, profile, why, amount, self.profiles[profile])
            for (what, profile, why), amount in ordered
        )

    def add(self, without_step0: Mapping[tuple[str | None, str, str], int]) -> None:
        """Count runs without a step 0, given by profile, status and why."""
        for (profile, status, why), amount in without_step0.items():
            self.profiles[profile or ""] += amount
            self.amounts[status, profile or "", why or UNEXPLAINED[status]] += amount

    def document(self) -> Json:
        """Return it as JSON."""
        amounts: list[Json] = [[*key, amount] for key, amount in sorted(self.amounts.items())]
        outcomes: list[Json] = [[*key, amount] for key, amount in self.outcomes.items()]
        return [dict(self.profiles), amounts, outcomes]

    @classmethod
    def from_documents(cls, documents: Iterable[Json]) -> Unchecked:
        """Return the sum of what `document` made."""
        total = cls()
        for profiles, amounts, outcomes in cast("Iterable[Any]", documents):
            total.profiles.update(profiles)
            for counter, parts in ((total.amounts, amounts), (total.outcomes, outcomes)):
                for *key, amount in parts:
                    counter[tuple(key)] += amount
        return total


def count_unchecked(runs: Iterable[JudgedRun]) -> Unchecked:
    """Count what was not checked in some runs."""
    found = Unchecked()
    for run in runs:
        if run.verdict not in WITHOUT_STEP0:
            found.outcomes.update((result.check, result.outcome) for result in run.checks)
        found.profiles[run.profile or ""] += 1
        found.amounts.update((", ".join(what), run.profile or "", why) for why, what in _of_run(run).items())
    return found


def coverage(runs: Iterable[JudgedRun]) -> tuple[str, ...]:
    """Return one line a profile about what is not checked in its runs: their silence is not health.

    The gap comes first, and what would make it known. A profile that leaves nothing out has no line.
    """
    return coverage_lines(count_unchecked(runs))


def coverage_lines(found: Unchecked) -> tuple[str, ...]:
    """Return what `coverage` does, of runs that were counted."""
    by_profile: dict[str, list[Blind]] = {}
    for spot in found.blind_spots():
        if _is_hole(spot):
            by_profile.setdefault(spot.profile, []).append(spot)
    return tuple(_line(spots) for _, spots in sorted(by_profile.items()))


def silent_setups(
    configs: Iterable[tuple[str, str, Mapping[str, Json]]], profiles: Profiles
) -> tuple[str, ...]:
    """Return one line a project whose runs do not all say what their setup needs.

    Such a run is taken for one of the default setup, and so may share a range with runs that differ. Nothing
    is said where no run of the project has the keys: then there is nothing that could differ.

    Parameters
    ----------
    configs : iterable of (project, profile, config)
        The project as ``entity/project``.
    """
    runs: Counter[tuple[str, str]] = Counter()
    silent: dict[tuple[str, str], Counter[tuple[str, tuple[str, ...]]]] = {}
    for project, name, config in configs:
        if profile := profiles.by_name.get(name):
            runs[project, name] += 1
            silent.setdefault((project, name), Counter()).update(profile.silent_on(config).items())
    return tuple(
        f"{amount:,} of {runs[project, name]:,} {name} runs of {project} do not say their {label} precision"
        f" ({', '.join(keys)}): runs that differ in it would share a range"
        for (project, name), counts in sorted(silent.items())
        for (label, keys), amount in sorted(counts.items())
        if amount < runs[project, name]
    )


def _is_hole(spot: Blind) -> bool:
    if spot.what == "no-step0":
        return spot.why.startswith((UNREAD, ENDED))
    return not spot.why.startswith(NO_HOLE)


def _line(spots: Sequence[Blind]) -> str:
    """Return for one profile what is left out in how many of its runs, and why."""
    amounts: Counter[str] = Counter()
    what: dict[str, str] = {}
    for spot in spots:
        amounts[spot.why] += spot.runs
        what.setdefault(spot.why, spot.what)
    whys = sorted(amounts, key=lambda why: (not why.startswith(NO_GAP), -amounts[why], why))
    first, *others = whys[:MOST_REASONS]
    parts = [f"{_name(what[first], first)} on {_of_all(spots[0], amounts[first])}{_reason(first)}"]
    parts += [f"{_name(what[why], why)} on {amounts[why]:,}{_reason(why)}" for why in others]
    if len(whys) > MOST_REASONS:
        parts.append(count(len(whys) - MOST_REASONS, "more reason"))
    return "; ".join(parts)


def _of_all(spot: Blind, amount: int) -> str:
    """Return how many runs, and of how many where they have a profile in common."""
    return f"{amount:,} of {count(spot.of, f'{spot.profile} run')}" if spot.profile else count(amount, "run")


def _name(what: str, why: str) -> str:
    if why.startswith(NO_GAP):
        return "gap"
    return "anything" if what in UNEXPLAINED else what


def _reason(why: str) -> str:
    rest = why.removeprefix(NO_GAP)
    return rest if rest.startswith((":", ",")) or not rest else f": {rest}"


def _of_run(run: JudgedRun) -> dict[str, list[str]]:
    """Return what was not checked in one run, by why."""
    spots: dict[str, list[str]] = {}
    if run.verdict not in WITHOUT_STEP0:
        for result in run.checks:
            # Without a gap there is no zero gap either, and nobody needs to be told so.
            if result.outcome in ("vacuous", "skipped") and result.check in MAIN_CHECKS:
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
