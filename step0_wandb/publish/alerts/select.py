"""Which runs and setups to alert about: what is new, and what is no longer true.

A run alerts once a level and channel: when it is `broken`, or `suspect` for a reason that alerts. When it
is healthy after that, or a person says so, the same channel gets one all clear. A whole setup that moved
or is not believed alerts once, not run by run. There are no alerts about runs that passed when they came
or that a person has labeled, about setups that are muted, and about runs that are older than
``alerts.since`` and no longer running.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from step0_wandb.checks.columns import texts
from step0_wandb.checks.outcomes import Why
from step0_wandb.records import ALIVE, FLAGGED
from step0_wandb.store import Subject
from step0_wandb.store.outbox import CLEAR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from step0_wandb.records import JudgedRun, SetupRange
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.store import RunPresence, Store
    from step0_wandb.store.outbox import AlertLevel, Severity
    from step0_wandb.verdicts.judge import Judgment

_ORDER: Final[tuple[AlertLevel, ...]] = ("broken", "suspect", "moved", "doubted", "question", CLEAR)
"""The levels as a digest lists them."""
_SEVERITY: Final[Mapping[AlertLevel, Severity]] = {"broken": "ERROR", CLEAR: "INFO"}
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_CLEAR_WITHIN: Final = timedelta(days=30)
"""Alerts that are older get no all clear: nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A run to alert about, or a setup with the runs that show it, the oldest first.

    Attributes
    ----------
    origin : {"server", "disk"}
        Where all `runs` were read.
    """

    subject: Subject
    runs: tuple[JudgedRun, ...]
    origin: str

    @property
    def first(self) -> JudgedRun:
        """Return the oldest of the runs, which stays the first."""
        return self.runs[0]

    @property
    def entity(self) -> str:
        """Return the team or user that the runs belong to."""
        return self.first.run.split("/", 1)[0]

    @property
    def severity(self) -> Severity:
        """Return W&B's severity."""
        return _SEVERITY.get(self.subject.level, "WARN")

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Return what alerts are sorted by; it does not change from one sync to the next."""
        return (_ORDER.index(self.subject.level), *_age(self.first))


@dataclass(frozen=True, slots=True)
class Selection:
    """What a judgment gives to alert about.

    Attributes
    ----------
    standing : set of Subject
        Everything that is true now, alerted already or not; a queued message about anything else is
        withdrawn.
    alerts : tuple of Alert
        What is young enough to alert about, alerted already or not.
    clears : mapping of str to tuple of Alert
        All clears that are due, by channel.
    """

    standing: frozenset[Subject] = frozenset()
    alerts: tuple[Alert, ...] = ()
    clears: Mapping[str, tuple[Alert, ...]] = field(default_factory=dict)

    def due(self, channel: str, alerted: set[Subject]) -> list[Alert]:
        """Return what a channel is to send, given what it has alerted; the gravest first, clears last."""
        new = [alert for alert in self.alerts if not _is_alerted(alert.subject, alerted)]
        clears = [alert for alert in self.clears.get(channel, ()) if alert.subject not in alerted]
        return sorted((*new, *clears), key=lambda alert: alert.order)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run to which an alert or an all clear may be due.

    Attributes
    ----------
    why : int
        Why the check of its gap came out as it did; see `Why`.
    needs_attention : bool
        It is suspect by something that is worth an alert.
    passed : bool
        It passed when it came, so that only its setup's question tells of it.
    asks : bool
        It is of the newer one of two levels of its setup, which a person has to tell apart.
    """

    run: JudgedRun
    why: int
    needs_attention: bool
    passed: bool
    asks: bool = False


def candidates(
    store: Store, judgment: Judgment, runs: Sequence[JudgedRun], setups: Iterable[SetupRange] = ()
) -> list[Candidate]:
    """Return the runs of a judgment that are flagged, or whose alert went out.

    Parameters
    ----------
    runs : sequence of JudgedRun
        Those of `judgment`, in its order.
    setups : iterable of SetupRange
        Their setups, with what there is to ask.
    """
    asking = {run for setup in setups if setup.question for run in setup.question.levels[-1].runs}
    sent = {run_of(str(row["subject"])) for row in store.outbox.sent()}
    before = texts(judgment.runs, "verdict")
    why, attention = judgment.outcomes["gap"].why, judgment.needs_attention
    return [
        Candidate(
            run,
            int(why[at]),
            bool(attention[at]),
            before[at] in ("healthy", "no-range"),
            run.run in asking,
        )
        for at, run in enumerate(runs)
        if run.verdict in FLAGGED or run.run in sent
    ]


def select(store: Store, settings: AlertsSettings, found: Sequence[Candidate], *, now: datetime) -> Selection:
    """Return what to alert about among the candidates."""
    muted = {setup for setup, mute in store.people.mutes().items() if mute.until > now}
    heard = [candidate for candidate in found if candidate.run.setup not in muted]
    standing: dict[Subject, list[JudgedRun]] = defaultdict(list)
    for one in heard:
        for subject in _subjects(one.run, one.why, settings.levels, needs_attention=one.needs_attention):
            standing[subject].append(one.run)
        if one.asks and one.run.setup and one.run.label is None and "suspect" in settings.levels:
            standing[Subject(one.run.setup, "question")].append(one.run)
    clears = _clears(store, [one.run for one in heard], now=now) if settings.levels else {}
    wanted = {run.run for some in (*standing.values(), *clears.values()) for run in some}
    presence = store.runs.presence(wanted)

    def exists(run: JudgedRun) -> bool:
        return not presence[run.run].deleted

    standing = _only(standing, exists)
    fresh = _only(standing, lambda run: run.state in ALIVE or _created(run) >= now - settings.since)
    passed = {one.run.run for one in found if one.passed}
    by_channel: dict[str, list[Alert]] = defaultdict(list)
    for (channel, subject), some in _only(clears, exists).items():
        by_channel[channel].append(_alert(subject, some, presence))
    return Selection(
        frozenset(standing) | {subject for _, subject in clears},
        tuple(
            _alert(subject, some, presence)
            for subject, some in fresh.items()
            if subject.is_setup or some[0].run not in passed
        ),
        {channel: tuple(alerts) for channel, alerts in by_channel.items()},
    )


def subject_name(run: JudgedRun) -> str:
    """Return what a run is called among what was alerted: each start under one run id alerts by itself."""
    return run.run if run.start == 1 else f"{run.run}@{run.start}"


def run_of(name: str) -> str:
    """Return the key of the run that `subject_name` names.

    Examples
    --------
    >>> run_of("team/rl/job7@2"), run_of("team/rl/job7")
    ('team/rl/job7', 'team/rl/job7')
    """
    key, mark, start = name.rpartition("@")
    return key if mark and start.isdecimal() else name


def _subjects(run: JudgedRun, why: int, levels: Sequence[str], *, needs_attention: bool) -> Iterator[Subject]:
    """Yield what one run gives to alert about; a run in a moved setup speaks for the setup alone."""
    if run.label is not None:
        return
    if run.verdict == "broken" and "broken" in levels:
        yield Subject(subject_name(run), "broken")
    if "suspect" not in levels:
        return
    if needs_attention:
        yield Subject(subject_name(run), "suspect")
    if run.setup and why == Why.MOVED:
        yield Subject(run.setup, "moved")
    if run.setup and why == Why.NOT_BELIEVED:
        yield Subject(run.setup, "doubted")


def _clears(
    store: Store, runs: Iterable[JudgedRun], *, now: datetime
) -> dict[tuple[str, Subject], list[JudgedRun]]:
    """Return by channel and subject the runs whose alert went out and is no longer true."""
    healthy = {run.run: run for run in runs if run.verdict == "healthy" or run.label == "exclude"}
    found: dict[tuple[str, Subject], list[JudgedRun]] = {}
    for row in store.outbox.sent():
        run = healthy.get(run_of(str(row["subject"])))
        is_recent = datetime.fromisoformat(str(row["at"])) > now - _CLEAR_WITHIN
        if run and row["level"] in ("broken", "suspect") and is_recent:
            found[str(row["channel"]), Subject(str(row["subject"]), CLEAR)] = [run]
    return found


_Key = TypeVar("_Key", Subject, "tuple[str, Subject]")


def _only(
    subjects: Mapping[_Key, list[JudgedRun]], wanted: Callable[[JudgedRun], bool]
) -> dict[_Key, list[JudgedRun]]:
    """Return the subjects with those of their runs that are wanted, if any is left."""
    kept = {subject: [run for run in some if wanted(run)] for subject, some in subjects.items()}
    return {subject: some for subject, some in kept.items() if some}


def _alert(subject: Subject, runs: Sequence[JudgedRun], presence: Mapping[str, RunPresence]) -> Alert:
    """Return the alert; of a setup that is seen on a server and on disk the runs on the server count."""
    on_server = any(presence[run.run].on_server for run in runs)
    some = [run for run in runs if presence[run.run].on_server is on_server]
    return Alert(subject, tuple(sorted(some, key=_age)), "server" if on_server else "disk")


def _is_alerted(subject: Subject, alerted: set[Subject]) -> bool:
    """Return whether people know: a run that was called broken is not called suspect later."""
    graver = Subject(subject.name, "broken")
    return subject in alerted or (subject.level == "suspect" and graver in alerted)


def _created(run: JudgedRun) -> datetime:
    return run.created_at or _EARLIEST


def _age(run: JudgedRun) -> tuple[datetime, str]:
    return (run.created_at or _LATEST, run.run)
