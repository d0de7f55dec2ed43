"""The records that travel through the package, from a source to a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - pydantic reads it where a range has traveled
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Item = TypeVar("Item")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What a W&B config can hold."""

VerdictName = Literal["broken", "suspect", "no-range", "unchecked", "pending", "no-step0", "healthy"]
LabelName = Literal["healthy", "broken", "exclude"]
OutcomeName = Literal["pass", "fail", "warn", "vacuous", "skipped"]

VERDICTS: tuple[VerdictName, ...] = (
    "broken",
    "suspect",
    "no-range",
    "unchecked",
    "pending",
    "no-step0",
    "healthy",
)
"""In the order in which people want to see them."""

FLAGGED: tuple[VerdictName, ...] = ("broken", "suspect")
"""The verdicts that need a person, the gravest first."""

FOUND_95 = 1.645
"""Standard deviations that 95 % of normal values do not fall short by."""
ALPHA = 0.001
"""Share of healthy runs that may fall outside their range, where nobody asks for another."""
BROKEN_RATIO = 2.0
"""A gap above its range is broken from this many times the center on, where nobody asks for another."""
BOUND_DEFAULTS: dict[str, float] = {
    "mean-abs": 0.5,
    "k3": 0.5,
    "signed-mean": 0.5,
    "probability": 0.1,
    "ratio": 1.0,
    "log-perplexity": 0.3,
    "pearson": 0.9,
    "chi2": 1.0,
    "ess": 0.3,
}
"""By statistic the value from which a run is broken whatever its setup shows, where nobody asks for another.

In nats, as a probability, or above a ratio of 1; a correlation or an effective sample size is broken below.
"""

ALIVE = frozenset({"running", "pending", "preempting"})
"""The states in which a run may still log its step 0."""

OWN_JOB_TYPE = "step0-sync"
"""The job type of the tool's own W&B runs, which are never read."""


OBSERVED = "observed."
"""What stands before the name of an observable in the columns of a frame of runs."""


def run_key(entity: str, project: str, run_id: str, policy: str | None = None) -> str:
    """Return ``entity/project/run_id``, with ``_`` for what an offline run does not record.

    One policy of a run that trains several is ``entity/project/run_id#policy``.
    """
    return f"{entity or '_'}/{project or '_'}/{run_id}" + (f"#{policy}" if policy else "")


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield items in lists of `size`, the last one shorter.

    Examples
    --------
    >>> list(chunks("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


@dataclass(frozen=True, slots=True)
class RunKey:
    """The parts of a run's key."""

    entity: str
    project: str
    run_id: str
    policy: str | None = None

    @classmethod
    def of(cls, key: str) -> RunKey:
        """Return the parts of ``entity/project/run_id`` or ``entity/project/run_id#policy``."""
        entity, project, rest = key.split("/", 2)
        run_id, _, policy = rest.partition("#")
        return cls(entity, project, run_id, policy or None)


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """The numbers of one row of a run's history.

    Attributes
    ----------
    values : mapping of str to float
        Every number of the row; nested keys are joined with ``.`` as W&B does. Text, media and
        booleans are left out; NaN and infinities are kept.
    order : int
        Position in the order of reading, for rows that carry no step of their own.
    """

    values: Mapping[str, float]
    order: int = 0


NOTHING_LOGGED = (HistoryRow({}),)
"""The rows of a run whose history is known to be empty: one without values."""
LOST_ROW = HistoryRow({"_lost": 1.0}, -1)
"""Stands for the rows of a step that is in a run's summary and not in its history; W&B's own names begin so."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as a source gives it: who it is, its config, and the history rows that matter.

    Attributes
    ----------
    entity, project, run_id : str
        Identity; ``_`` where an offline run records none.
    state : str
        W&B's state (``running``, ``finished``, ``failed``, ``crashed`` ...). On disk it comes from
        the exit record; without one it is ``running`` for 24 h after the last write, then ``crashed``.
    created_at : datetime or None
        In UTC.
    config : mapping
        The run's W&B config, nested as logged, secrets already dropped.
    rows : tuple of HistoryRow
        The rows that step 0 may be made of, in reading order; `NOTHING_LOGGED` where the history has no
        row at all, as far as a source can tell.
    policy : str or None
        The policy that the rows belong to, where the run trains several; their metric names carry no
        prefix then.
    start : int
        Which of the starts under one run id this is, the first is 1.
    """

    entity: str
    project: str
    run_id: str
    name: str = ""
    url: str | None = None
    user: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    state: str = "running"
    config: Mapping[str, Json] = field(default_factory=dict)
    rows: tuple[HistoryRow, ...] = ()
    policy: str | None = None
    start: int = 1

    @property
    def key(self) -> str:
        """Return the run's key, ``entity/project/run_id`` or ``entity/project/run_id#policy``."""
        return run_key(self.entity, self.project, self.run_id, self.policy)

    @property
    def logged_nothing(self) -> bool:
        """Whether the history is known to have no row at all."""
        return bool(self.rows) and not any(row.values for row in self.rows)

    @property
    def alive(self) -> bool:
        """Whether the run may still log its step 0."""
        return self.state in ALIVE


@dataclass(frozen=True, slots=True)
class Step0:
    """What step 0 of a run says, or why there is none.

    Attributes
    ----------
    status : {"found", "pending", "no-step0"}
    profile : str or None
        The framework whose metric names the run has.
    note : str
        Why there is no step 0, or what a reader must know about it (a hidden resume); else empty.
    fit : bool
        Whether the run may enter a range; a resumed run may not.
    step : float or None
        The value of the profile's step key.
    row : mapping of str to float
        Every number of the step-0 row, merged from the history rows of that logical step.
    gap_metric : str or None
        The metric that `gap` was read from.
    observed : mapping of str to float
        The number of each observable that the row has, by the name of its check.
    """

    status: Literal["found", "pending", "no-step0"]
    profile: str | None = None
    note: str = ""
    fit: bool = True
    step: float | None = None
    row: Mapping[str, float] = field(default_factory=dict)
    ppo_kl: float | None = None
    clip_frac: float | None = None
    gap: float | None = None
    gap_metric: str | None = None
    observed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """How one check applies to one run.

    Attributes
    ----------
    kind : str
        ``exact`` (|value| <= limit), ``learned`` (as exact until three healthy runs, then by the
        setup's own history), ``averaged`` (skipped, but a large value is suspect), ``range`` (the
        gap's range), ``zero`` (exactly 0, true on-policy), ``vacuous`` or ``skipped`` (with `why`).
    limit : float or None
        Largest absolute value that passes.
    above : str
        The verdict of a value above the limit: ``broken`` or ``suspect``.
    broken_from : float
        From this absolute value on the verdict is ``broken`` (``averaged``: ``suspect``).
    why : str
        A sentence for people: why the check proves nothing or does not apply.
    """

    kind: Literal["exact", "learned", "averaged", "range", "zero", "vacuous", "skipped"]
    limit: float | None = None
    above: Literal["broken", "suspect"] = "broken"
    broken_from: float = math.inf
    why: str = ""


@dataclass(frozen=True, slots=True)
class ObservableRule:
    """What must hold for one number of a run's step-0 row.

    Attributes
    ----------
    name : str
        The check, such as ``ref_kl``, ``bound:k3`` or ``learned:entropy``.
    metric : str
        Where the number was read.
    kind : str
        ``interval``, ``difference`` and ``finite`` lie between `low` and `high`, else the run is suspect,
        and broken from `broken_low` or `broken_high` on; ``learned`` ones are compared with the setup's
        healthy runs; ``skipped`` (with `why`).
    title, why : str
        What the number is called in a sentence, and what a value outside usually means.
    or_gap : bool
        Whether the run's own gap is the limit where that is larger.
    scale : str
        ``log`` for positive numbers, ``share`` for those from 0 to 1.
    factor : float
        Of a learned one: how many times the center, or how far from it on a share, is worth a word.
    prompts : str
        Which prompts, where only runs on the same ones compare; else empty.
    """

    name: str
    metric: str
    kind: Literal["interval", "difference", "finite", "learned", "skipped"]
    title: str
    why: str = ""
    low: float | None = None
    high: float | None = None
    broken_low: float | None = None
    broken_high: float | None = None
    or_gap: bool = False
    scale: Literal["log", "share"] = "log"
    factor: float = 2.0
    prompts: str = ""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """Which checks apply to a run, and how; decided by its profile and config alone.

    Attributes
    ----------
    ceiling : float or None
        The gap that the framework itself allows; what there is before a range exists.
    ceiling_from : str
        Who allows it, as the end of a sentence "above what ...".
    gap_zero : str
        Why a gap of exactly 0 was not measured, where the config shows it; else empty.
    switch : str
        What to set so that a missing metric is logged.
    observables : tuple of ObservableRule
        What must hold for the other numbers of the row, one for each that it has.
    contradiction : str
        What of the config contradicts itself, such as another model on one side; else empty.
    gap_spread : float or None
        Standard deviation of ln(gap) that is assumed of the gap metric at first; None as ranges assume.
    """

    ppo_kl: Rule
    clip_frac: Rule
    gap: Rule
    ceiling: float | None = None
    ceiling_from: str = ""
    gap_zero: str = ""
    switch: str = ""
    observables: tuple[ObservableRule, ...] = ()
    contradiction: str = ""
    gap_spread: float | None = None


@dataclass(frozen=True, slots=True)
class Covariates:
    """What explains part of a run's gap; None where it is not known.

    Attributes
    ----------
    entropy : float or None
        Mean entropy of the step-0 row, in nats a token.
    seed : str or None
        What decides which prompts the run drew, as text.
    data : str or None
        Which prompts there were to draw from, and how many were drawn.
    prompts : float or None
        Number of prompts in the row.
    """

    entropy: float | None = None
    seed: str | None = None
    data: str | None = None
    prompts: float | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What profiles and settings make of a stored run; computed again when they change.

    Attributes
    ----------
    setup : str or None
        The readable label of the run's setup; None without a profile or a step 0.
    plan : CheckPlan or None
        None without a step 0.
    """

    step0: Step0
    setup: str | None = None
    plan: CheckPlan | None = None
    covariates: Covariates = Covariates()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read, in one line: where it is, and what is wrong with it."""

    where: str
    what: str


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
