"""What judging gives: the outcome of each check, the range of each setup, the verdict of each run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - pydantic reads it where a range has traveled
from typing import ClassVar

from step0_wandb.records.names import FOUND_95, LabelName, OutcomeName, VerdictName  # noqa: TC001 - as above


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One question about a run, answered.

    Attributes
    ----------
    outcome : {"pass", "fail", "warn", "vacuous", "skipped"}
        ``vacuous``: it passed but could not have failed.
    message : str
        A sentence for people; empty when there is nothing to add to the numbers.
    """

    check: str
    outcome: OutcomeName
    value: float | None
    limit: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Level:
    """Runs of a setup whose gaps agree.

    Attributes
    ----------
    center : float
        Geometric mean of their gaps.
    runs : tuple of str
        The keys of the newest of them, at most 50.
    """

    center: float
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What a person has to say of a setup: which of two levels is right.

    Attributes
    ----------
    text : str
        The question as a sentence.
    levels : tuple of Level
        The one in force first.
    differs : tuple of str
        Config keys that have one value in all runs of the newer level, and another in the older one.
    """

    text: str
    levels: tuple[Level, ...]
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """A level that a setup's runs have moved to.

    Attributes
    ----------
    ratio : float
        Its center divided by that of the level before.
    since : datetime or None
        When the first run at that level was created.
    runs : int
        How many runs are at that level.
    """

    ratio: float
    since: datetime | None
    runs: int


@dataclass(frozen=True, slots=True)
class SetupRange:
    """The range of one setup: where the gap of its next healthy run is expected.

    Attributes
    ----------
    n : int
        Number of members, the healthy runs that the range rests on.
    center, low, high, seen_low, seen_high : float or None
        In the unit of the gap metric; ``seen_*`` are the smallest and largest member.
    sigma : float or None
        Moderated standard deviation of ln(gap).
    df : float or None
        Degrees of freedom of `sigma`.
    alpha : float
        Share of healthy runs that fall outside.
    basis : str
        What the range rests on: ``own``, ``pooled``, ``split``, ``ceiling``, ``exact`` or ``none``.
    accepted : bool
        Whether a person accepted the setup's level.
    believed : bool
        False where the center lies above what the framework allows, and nobody accepted it.
    ppo_kl_noise : float or None
        The largest |ppo_kl| that is taken for noise, where the setup's healthy runs show some.
    last_run : datetime or None
        When the newest run of the setup was created.
    moved : float or None
        Ratio to the level before, of a level that runs have moved to: waiting for a person upwards,
        adopted by itself downwards.
    moved_since : datetime or None
        When the first run at that level was created.
    moved_runs : int
        How many runs are at that level.
    note : str
        A sentence about the whole setup (not believed, moved, and what changed then); else empty.
    question : Question or None
        What a person has to answer; None where all runs agree.
    """

    setup: str
    profile: str
    n: int
    center: float | None
    low: float | None
    high: float | None
    seen_low: float | None
    seen_high: float | None
    sigma: float | None
    df: float | None
    alpha: float
    basis: str
    accepted: bool = False
    gap_metric: str | None = None
    last_run: datetime | None = None
    moved: float | None = None
    moved_since: datetime | None = None
    note: str = ""
    believed: bool = True
    ppo_kl_noise: float | None = None
    moved_runs: int = 0
    question: Question | None = None

    DERIVED: ClassVar = ("expects_from",)
    """Properties that documents show like fields."""
    SHOWN_AS: ClassVar = {"moved": "move", "moved_since": None, "moved_runs": None}
    """Properties that documents show in the place of fields; None: nothing."""

    @property
    def move(self) -> Move | None:
        """Return the move; None where there is none."""
        return None if self.moved is None else Move(self.moved, self.moved_since, self.moved_runs)

    @property
    def expects_from(self) -> float | None:
        """Return the smallest factor on the gap of a healthy run that is found with 95 %."""
        if self.center is None or self.high is None or self.sigma is None or not self.center:
            return None
        return self.high / self.center * math.exp(FOUND_95 * self.sigma)


@dataclass(frozen=True, slots=True)
class SetupFit:
    """What the fit of one setup leaves for those of the others.

    Attributes
    ----------
    metric : str or None
        Its gap metric.
    current : int
        Position in `levels` of the one in force.
    levels : tuple of (int, float, float)
        Members, mean of ln(gap) and sum of squares, a level.
    """

    setup: str
    metric: str | None
    current: int
    levels: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class EarlierStart:
    """A start of a run before its newest one: which, when, and what became of it.

    Attributes
    ----------
    start : int
        The first is 1.
    created_at : datetime or None
        In UTC.
    """

    start: int
    created_at: datetime | None
    verdict: VerdictName
    gap: float | None


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One run with its verdict, as every output shows it (``RUN`` of the JSON contract).

    Attributes
    ----------
    verdict : str
        The tool's own verdict; `label` beats it where a person has spoken.
    reasons : tuple of str
        Sentences, the gravest first.
    range : SetupRange or None
        The range that the run was judged by, its own value left out.
    ratio : float or None
        Gap divided by the center of that range.
    p_value : float or None
        Two-sided probability of a gap at least that far out, were the run healthy.
    policy : str or None
        The policy that this is about, where the run trains several.
    start, starts : int
        Which start of the run this is, the newest one, and how many there are.
    earlier : tuple of EarlierStart
        The starts before it, the oldest first.
    """

    run: str
    name: str
    url: str | None
    user: str | None
    group: str | None
    created_at: datetime | None
    state: str
    profile: str | None
    setup: str | None
    ppo_kl: float | None
    clip_frac: float | None
    gap: float | None
    gap_metric: str | None
    verdict: VerdictName
    label: LabelName | None
    reasons: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    range: SetupRange | None
    ratio: float | None
    p_value: float | None
    policy: str | None = None
    start: int = 1
    starts: int = 1
    earlier: tuple[EarlierStart, ...] = ()

    @property
    def must_stop(self) -> bool:
        """Whether it is broken, or suspect because its config contradicts itself, which no training mends."""
        contradicts = any(check.check == "config" and check.outcome != "pass" for check in self.checks)
        is_flagged = self.verdict == "broken" or (self.verdict == "suspect" and contradicts)
        return is_flagged and self.label != "exclude"
