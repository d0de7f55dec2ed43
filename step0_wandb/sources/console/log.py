"""A console log as a source: the first training step that it shows, read while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from step0_wandb.errors import NoStep0Error, SourceError
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.sources.console.printed import (
    Unfinished,
    clean,
    dashes_around,
    dict_around,
    is_key,
)
from step0_wandb.sources.console.rounding import rounded
from step0_wandb.sources.console.scan import BACK, Log
from step0_wandb.text.nested import as_float

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.profiles import Profile
    from step0_wandb.profiles.schema import Console
    from step0_wandb.records import RunFacts
    from step0_wandb.sources.console.printed import Printed
    from step0_wandb.sources.console.scan import Readable
    from step0_wandb.step0.finder import Step0Finder

SHORT_STEP, LONGEST_STEP = 1 << 13, 1 << 16
"""Bytes: most steps are shorter; what is printed at greater length is no metrics dict."""
_READERS = {"dict": dict_around, "bare-dict": dict_around, "dashes": dashes_around}


@dataclass(frozen=True, slots=True)
class ConsoleReading:
    """What a log shows of its run.

    Attributes
    ----------
    record : RunRecord
        Without a config: a log does not show it surely. Its state is ``running`` where reading stopped
        at step 0, before the end.
    resolution : mapping of str to float
        For each metric that was rounded in printing: the distance of two neighbouring prints. The true
        value lies within half of it.
    """

    record: RunRecord
    resolution: Mapping[str, float] = field(default_factory=dict)

    def facts(self, finder: Step0Finder) -> RunFacts:
        """Return the run's facts, with the checks that its rounded values cannot decide skipped."""
        return rounded(finder.facts(self.record), self.resolution, finder)


def read_console(path: Path, finder: Step0Finder) -> ConsoleReading:
    """Read a log file up to its step 0.

    Raises
    ------
    NoStep0Error
        No profile reads the log surely.
    SourceError
        The file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return read_stream(stream, finder, name=path.name)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


def read_stream(stream: Readable, finder: Step0Finder, *, name: str = "-") -> ConsoleReading:
    """Read a log, such as standard input, until its step 0 is known or it ends.

    Parameters
    ----------
    name : str
        What the run is called; its id is the part before the first suffix.

    Raises
    ------
    NoStep0Error
        No profile reads the log surely.
    """
    reader = _Reader(stream, finder)
    rows = reader.rows()
    if not rows:
        raise _unknown(name, reader.log.head, finder)
    record = RunRecord(
        entity="_",
        project="_",
        run_id=Path(name).stem,
        name=name,
        state="finished" if reader.log.ended else "running",
        rows=rows,
    )
    return ConsoleReading(record, reader.resolution)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A profile whose steps are printed in a way that can be read."""

    profile: Profile
    console: Console

    def named(self, printed: Printed, count: int) -> dict[str, float] | None:
        """Return the values under W&B's names, with their step; None where they are not this profile's."""
        step = self.profile.step
        values = {self.console.prefix + key: value for key, value in printed.values.items()}
        if self.profile.metrics.names.isdisjoint(values):
            return None
        if step.of(values) is not None:
            return values
        if printed.step is not None:
            return {**values, step.keys[0]: as_float(printed.step)}
        if self.console.kind == "bare-dict":
            return {**values, step.keys[0]: float(count)}
        return None if self.console.prefix else values


class _Reader:
    def __init__(self, stream: Readable, finder: Step0Finder) -> None:
        self.resolution: dict[str, float] = {}
        self._finder = finder
        self._layouts = _layouts(finder)
        needles = {text.encode(): None for layout in self._layouts for text in layout.console.find}
        self.log = Log(stream, tuple(needles))

    def rows(self) -> tuple[HistoryRow, ...]:
        """Return the rows of step 0, or those that show that there is none."""
        rows: tuple[HistoryRow, ...] = ()
        at = count = 0
        while self.log.find(at):
            at = self.log.at + 1
            values = self._step_here(count + 1)
            if values is None:
                continue
            count += 1
            rows = self._finder.prune((*rows, HistoryRow(values, count)), {})
            if self._finder.decided(rows, {}):
                break
        return rows

    def _step_here(self, count: int) -> dict[str, float] | None:
        """Return the step around the needle, under the names of the first profile that knows it."""
        place = _Place(self.log)
        for layout in self._layouts:
            if not is_key(self.log.text, self.log.at, layout.console):
                continue
            printed = place.read(layout.console)
            values = layout.named(printed, count) if printed else None
            if printed and values:
                for key, resolution in printed.resolution.items():
                    self.resolution.setdefault(layout.console.prefix + key, resolution)
                return values
        return None


class _Place:
    """The text around one needle, cleaned once for all who try to read it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._before = clean(log.text[max(0, log.at - BACK) : log.at])
        self._after = ""
        self._size = 0

    def read(self, console: Console) -> Printed | None:
        """Read the step here; where it goes on behind what was looked at, look on."""
        while True:
            at_end = self._size > LONGEST_STEP or (self._log.ended and self._size >= self._held)
            try:
                return _READERS[console.kind](self._before, self._after, console, at_end=at_end)
            except Unfinished:
                self._look_on()

    @property
    def _held(self) -> int:
        return len(self._log.text) - self._log.at

    def _look_on(self) -> None:
        if self._size >= self._held:
            self._log.more()
        self._size = min(max(SHORT_STEP, 4 * self._size), self._held)
        self._after = clean(self._log.text[self._log.at : self._log.at + self._size])


def _layouts(finder: Step0Finder) -> tuple[_Layout, ...]:
    """Return how steps may be printed; of profiles whose steps look alike, the first."""
    found: dict[object, _Layout] = {}
    for profile in finder.profiles.by_name.values():
        console = profile.console
        if console and console.kind != "none":
            looks = (console, profile.metrics.names, profile.step.keys)
            found.setdefault(repr(looks), _Layout(profile, console))
    return tuple(found.values())


def _unknown(name: str, head: bytes, finder: Step0Finder) -> NoStep0Error:
    """Return why a log has no step 0, in the words of the profile that knows such logs."""
    text = clean(head)
    hint = "`step0-wandb check` also reads a W&B run, and its directory."
    for profile in finder.profiles.by_name.values():
        console = profile.console
        if console and any(sign in text for sign in console.signs):
            return NoStep0Error(f"{name} looks like a log of {profile.title}: {console.why}", hint)
    return NoStep0Error(f"{name} shows no training step that a profile reads surely", hint)
