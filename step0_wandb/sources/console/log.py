"""A console log as a source: the first training step of the newest launch that it shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from step0_wandb.errors import NoStep0Error, SourceError
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.sources.console.launch import launch_config
from step0_wandb.sources.console.printed import clean
from step0_wandb.sources.console.rounding import rounded
from step0_wandb.sources.console.steps import Layout, StepFinder
from step0_wandb.step0.policies import of_policy, prefixes, split_policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from step0_wandb.records import Json, RunFacts
    from step0_wandb.sources.console.printed import Printed
    from step0_wandb.sources.console.scan import Readable
    from step0_wandb.sources.console.steps import PrintedStep
    from step0_wandb.step0.finder import Step0Finder

ANOTHER_WAY = "`step0-wandb check` also reads a W&B run, and its directory."
"""What to do about a log that cannot be read."""


@dataclass(frozen=True, slots=True)
class ConsoleReading:
    """What a log shows of its run.

    Attributes
    ----------
    record : RunRecord
        Without a config: a log does not show it surely. Its state is ``running`` where reading stopped
        at step 0, before the end.
    resolution : mapping of str to float
        For each metric that was rounded in printing: the distance of two neighboring prints. The true
        value lies within half of it.
    earlier : tuple of ConsoleReading
        The earlier launches that wrote their own step 0 to the same log, the oldest first.
    """

    record: RunRecord
    resolution: Mapping[str, float] = field(default_factory=dict)
    earlier: tuple[ConsoleReading, ...] = ()

    def parts(self, finder: Step0Finder) -> list[tuple[RunRecord, RunFacts]]:
        """Return each policy with its facts; checks that its rounded values cannot decide are skipped."""
        return [
            (part, rounded(finder.facts(part), of_policy(self.resolution, part.policy or ""), finder))
            for part in split_policies(self.record, finder)
        ]


def read_console(path: Path, finder: Step0Finder) -> ConsoleReading:
    """Read a log file; of several launches in it the newest counts.

    Raises
    ------
    NoStep0Error
        No profile reads the log surely.
    SourceError
        The file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return read_stream(stream, finder, name=path.name, enough=lambda: False)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


def read_stream(
    stream: Readable, finder: Step0Finder, *, name: str = "-", enough: Callable[[], bool] = lambda: True
) -> ConsoleReading:
    """Read a log, such as standard input, to its end, or until its step 0 is known and that is enough.

    Parameters
    ----------
    name : str
        What the run is called; its id is the part before the first suffix.
    enough : callable
        Asked before more is read than it takes to know step 0; a later launch may stand there.

    Raises
    ------
    NoStep0Error
        No profile reads the log surely.
    """
    reader = _LogReader(stream, finder)
    reader.read(enough)
    readings = list(reader.readings(name))
    if not readings:
        raise _unknown(name, reader.log.head, finder)
    with_step0 = [
        reading
        for reading in readings
        if any(facts.step0.status == "found" for _, facts in reading.parts(finder))
    ]
    if not with_step0 and reader.unread < min(start.first for start in reader.latest):
        raise NoStep0Error(
            f"{name} shows step {reader.unread:g}, but in a form that cannot be read", ANOTHER_WAY
        )
    *earlier, newest = [
        replace(reading, record=replace(reading.record, start=number))
        for number, reading in enumerate(with_step0 or readings[-1:], 1)
    ]
    return replace(newest, earlier=tuple(earlier))


@dataclass(slots=True)
class _Start:
    """What one launch has printed so far.

    Attributes
    ----------
    first, last : float
        The lowest and the highest step.
    values : mapping of str to float
        The numbers of its first step.
    config : mapping
        What its config surely has, by how it prints.
    """

    rows: tuple[HistoryRow, ...] = ()
    resolution: dict[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    first: float = math.inf
    last: float = -math.inf
    epoch: float = -math.inf
    count: int = 0
    config: dict[str, Json] = field(default_factory=dict)

    def is_over(self, step: float | None, values: Mapping[str, float], epoch: float) -> bool:
        """Return whether a step is of another launch.

        Several processes may print the same step, with the same numbers. A launch that resumes from a
        checkpoint goes on above the first step and is not a start.
        """
        if epoch < self.epoch:
            return True
        if step is None or step > self.first or not self.rows:
            return False
        shared = self.values.keys() & values.keys()
        return self.last > step or any(repr(values[name]) != repr(self.values[name]) for name in shared)


class _LogReader:
    """Reads one log.

    Attributes
    ----------
    starts : dict of str to list of _Start
        The launches in the log, by policy, which is empty where the run has but one; the last goes on.
    unread : float
        The lowest step that is there and cannot be read.
    """

    def __init__(self, stream: Readable, finder: Step0Finder) -> None:
        self._finder = finder
        self._layouts = _layouts(finder)
        self._printed = StepFinder(stream, self._layouts)
        self._order = 0
        self.log = self._printed.log
        self.starts: dict[str, list[_Start]] = {}
        self.unread = math.inf

    @property
    def latest(self) -> list[_Start]:
        """Return the newest launch of each policy."""
        return [starts[-1] for starts in self.starts.values()] or [_Start()]

    def read(self, enough: Callable[[], bool]) -> None:
        """Read the log to its end, or until step 0 is known and that is enough."""
        for step in self._printed.steps():
            if not self._take(step):
                self._pass_over(step)
            elif self._is_known():
                self._printed.skip_above = min(start.first for start in self.latest)
                self.log.enough = enough
            else:
                self._printed.skip_above = math.inf
                self.log.enough = lambda: False

    def readings(self, name: str) -> Iterator[ConsoleReading]:
        """Yield each launch, under the names of the log, as a run of this name."""
        state = "finished" if self.log.ended else "running"
        launched = launch_config(self.log.head.decode("utf-8", errors="replace"))
        for at in range(max(map(len, self.starts.values()), default=0)):
            parts = {policy: starts[at] for policy, starts in self.starts.items() if at < len(starts)}
            rows = [
                HistoryRow(_prefixed(row.values, policy), row.order)
                for policy, start in parts.items()
                for row in start.rows
            ]
            resolution: dict[str, float] = {}
            config: dict[str, Json] = {}
            for policy, start in parts.items():
                resolution |= _prefixed(start.resolution, policy)
                config |= start.config
            record = RunRecord("_", "_", Path(name).stem, name=name, state=state, config=config | launched)
            rows.sort(key=lambda row: row.order)
            yield ConsoleReading(replace(record, rows=tuple(rows)), resolution)

    def _is_known(self) -> bool:
        """Return whether step 0 is there; which policies there are is known once one has gone on."""
        has_gone_on = "" in self.starts or any(start.last > start.first for start in self.latest)
        return has_gone_on and all(self._finder.decided(start.rows, start.config) for start in self.latest)

    def _pass_over(self, step: PrintedStep) -> None:
        number = min((number for number in step.numbers.values() if number is not None), default=math.inf)
        if number > self._printed.skip_above:
            for start in self.latest:
                start.last = max(start.last, number)
        elif step.printed is None:
            self.unread = min(self.unread, number)

    def _take(self, found: PrintedStep) -> bool:
        """Add a step to its launch: without a policy, or that of the policies in front of its names."""
        if found.printed is None:
            return False
        if self._add("", found.printed, found.numbers):
            return True
        metrics = (name for name in self._finder.metrics if "/" in name)
        policies = sorted(prefixes(found.printed.values, {*metrics}))
        taken = [self._add(policy, found.printed.of_policy(policy), found.numbers) for policy in policies]
        return any(taken)

    def _add(self, policy: str, printed: Printed, numbers: Mapping[str, int | None]) -> bool:
        """Add a step to its launch, under the names of the first profile that knows it."""
        starts = self.starts.get(policy) or [_Start()]
        start = starts[-1]
        for layout in self._layouts:
            if layout.profile.name not in numbers:
                continue
            number = numbers[layout.profile.name]
            values = layout.named(printed, number, start.count + 1)
            if values is None:
                continue
            step, epoch = layout.profile.step.of(values), layout.epoch_of(values)
            if start.is_over(step, values, epoch):
                start = _Start()
                starts.append(start)
                values = layout.named(printed, number, 1) or values
                step = layout.profile.step.of(values)
            start.count += 1
            start.epoch = epoch
            if step is not None:
                start.values = values if step < start.first else start.values
                start.first, start.last = min(start.first, step), max(start.last, step)
            for key, resolution in printed.resolution.items():
                start.resolution.setdefault(layout.console.prefix + key, resolution)
            self._order += 1
            start.config = layout.console.config
            start.rows = self._finder.prune((*start.rows, HistoryRow(values, self._order)), start.config)
            self.starts[policy] = starts
            return True
        return False


def _prefixed(values: Mapping[str, float], policy: str) -> dict[str, float]:
    return {f"{policy}/{name}" if policy else name: value for name, value in values.items()}


def _layouts(finder: Step0Finder) -> tuple[Layout, ...]:
    """Return how steps may be printed, the surest first; of profiles whose steps look alike, the first."""
    found: dict[object, Layout] = {}
    for profile in finder.profiles.by_name.values():
        console = profile.console
        if console and console.kind != "none":
            looks = (console, profile.metrics.names, profile.step.keys)
            found.setdefault(repr(looks), Layout(profile, console))
    return tuple(sorted(found.values(), key=lambda layout: not layout.console.step_in))


def _unknown(name: str, head: bytes, finder: Step0Finder) -> NoStep0Error:
    """Return why a log has no step 0, in the words of the profile that knows such logs."""
    text = clean(head)
    for profile in finder.profiles.by_name.values():
        console = profile.console
        if console and any(sign in text for sign in console.signs):
            return NoStep0Error(f"{name} looks like a log of {profile.title}: {console.why}", ANOTHER_WAY)
    return NoStep0Error(f"{name} shows no training step that a profile reads surely", ANOTHER_WAY)
