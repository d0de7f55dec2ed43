"""Finds the printed steps of a log, in time that grows with its length alone.

Every byte is searched once. A brace is tried once as the beginning of a dict; trying in vain may cost no
more than the log is long, since a log can be full of braces that lead nowhere. What was read as a step is
not looked at again.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from step0_wandb.sources.console.printed import (
    Printed,
    bare_line,
    clean,
    is_whole,
    read_bar,
    read_pairs,
    read_panel,
)
from step0_wandb.sources.console.scan import BACK, Log
from step0_wandb.text.nested import as_float
from step0_wandb.text.python_values import LiteralError, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from step0_wandb.profiles import Profile
    from step0_wandb.profiles.schema import Console
    from step0_wandb.sources.console.scan import Readable

LONGEST_STEP = 1 << 16
"""Bytes; what is printed at greater length is not a metrics dict."""
MOST_BRACES = 16
"""Braces before a metric name that are tried as the beginning of its dict."""
SPARE_EFFORT = 1 << 22
"""Bytes that may be read in vain, in addition to as many as the log has."""
MOST_LINES = 64
"""Lines that a terminal may have broken one line into."""

BLOCKS = {
    "bar": (re.compile(rb"[\r\n]"), re.compile(rb"[\r\n]")),
    "panel": (re.compile("╭".encode()), re.compile("╰".encode())),
}
"""How what is printed around a text begins and ends, by its kind."""

_LONGEST_MARK = 512  # bytes
_LONGEST_COLOR = 32  # bytes
_COLORED = re.compile(rb"[\x1b\[\x00]")
_NUMBERED = re.compile(rb"(?:\A|\d)\s*(?:[:=]\s*)?\Z")
_INSIDE_A_KEY = frozenset("_-/'\"")
_NOT_IN_A_KEY = rb"(?:(?<=\x1b\[0m)|(?<![\w/\-'\"]))"
_REST_OF_KEY = rb"[\w/.\-]{0,80}\s{0,80}[\w/.\-]{0,80}['\"]?\s{0,80}:"
"""What may follow a text that is searched for inside and behind a key. Most mentions of a metric are not keys."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A profile whose steps are printed in a way that can be read."""

    profile: Profile
    console: Console

    def named(self, printed: Printed, number: int | None, count: int) -> dict[str, float] | None:
        """Return the values under W&B's names, with their step; None where they are not this profile's."""
        step, console = self.profile.step, self.console
        if console.step_in:
            number = next((printed.progress[key] for key in console.step_in if key in printed.progress), None)
            if number is None:
                return None
        kept = printed.values.keys() - {*console.leave_out}
        values = {console.prefix + key: value for key, value in printed.values.items() if key in kept}
        if self.profile.metrics.names.isdisjoint(values):
            return None
        if step.of(values) is not None:
            return values
        if number is not None:
            return {**values, step.keys[0]: as_float(number)}
        if self.console.kind == "bare-dict":
            return {**values, step.keys[0]: float(count)}
        return None if self.console.prefix else values

    def epoch_of(self, values: Mapping[str, float]) -> float:
        """Return how far training is, where steps are only counted: it falls back in another launch."""
        counted = self.console.kind == "bare-dict"
        return values.get(f"{self.console.prefix}epoch", -math.inf) if counted else -math.inf


class PrintedStep(NamedTuple):
    """One printed step.

    Attributes
    ----------
    place : int
        The byte where it begins.
    numbers : dict of str to int or None
        The step's number in front of it, as each of the profiles reads it that may have printed it.
    printed : Printed or None
        None where it cannot be read, or was passed over.
    """

    place: int
    numbers: dict[str, int | None]
    printed: Printed | None


class StepFinder:
    """Finds the steps of one log that are printed in one of some layouts.

    Attributes
    ----------
    skip_above : float
        Steps whose number in front is greater are passed over without being read.
    """

    def __init__(self, stream: Readable, layouts: Sequence[Layout]) -> None:
        self.skip_above = math.inf
        lines = [layout for layout in layouts if layout.console.kind == "dashes"]
        self._blocks = {
            find.encode(): layout
            for layout in layouts
            if layout.console.kind in BLOCKS
            for find in layout.console.find
        }
        self._dicts = [layout for layout in layouts if layout.console.kind in ("dict", "bare-dict")]
        self._no_numbers: dict[str, int | None] = dict.fromkeys(layout.profile.name for layout in self._dicts)
        self._marks = {_mark(layout): layout.profile.name for layout in lines}
        keys = {needle.encode() for layout in self._dicts for needle in layout.console.find}
        self._key = re.compile(b"(?:%s)%s" % (b"|".join(map(re.escape, keys)), _REST_OF_KEY))
        starts = (_NOT_IN_A_KEY + mark.pattern for mark in self._marks)
        self._line_end = re.compile(b"|".join([rb"[\r\n]", *starts]))
        words = {f"{layout.console.word}:".encode() for layout in lines}
        self.log = Log(stream, keys | words | self._blocks.keys())
        self._done = 0  # the steps before this place were read
        self._tried: set[int] = set()
        self._tried_up_to = 0  # of the braces before this place none is left to try
        self._spent = 0

    def steps(self) -> Iterator[PrintedStep]:
        """Yield the steps in the order of the log."""
        at = -1
        while (at := self.log.find(max(at + 1, self._done))) >= 0:
            if found := self._line_at(at) or self._block_around(at) or self._dict_around(at):
                yield found

    def _block_around(self, at: int) -> PrintedStep | None:
        """Return the step of a progress bar, or of a frame, that has a text here which is searched for."""
        found = (layout for text, layout in self._blocks.items() if self.log.text(at, at + len(text)) == text)
        layout = next(found, None)
        if layout is None:
            return None
        begin, end = BLOCKS[layout.console.kind]
        lowest = max(self._done, at - BACK)
        begins = [lowest, *(lowest + mark.start() for mark in begin.finditer(self.log.text(lowest, at)))]
        self._done = self._end_of_block(end, at)
        text = clean(b"\n" + self.log.text(begins[-1], self._done))
        if layout.console.kind == "panel":
            return PrintedStep(at, {layout.profile.name: None}, read_panel(text))
        bar = read_bar(text)
        # The bar says how many steps are done; they are counted from 0.
        return PrintedStep(at, {layout.profile.name: bar[0] - 1}, bar[1]) if bar and bar[0] else None

    def _end_of_block(self, end: re.Pattern[bytes], at: int) -> int:
        limit = at + LONGEST_STEP
        while (found := self.log.search(end, at, limit)) < 0:
            if self.log.end >= limit or not self.log.more(keep=at):
                return min(self.log.end, limit)
        return found

    def _line_at(self, at: int) -> PrintedStep | None:
        """Return the step of a line ``step:N - key:value - …`` that begins here."""
        before = self._character_before(at)
        if before.isalnum() or before in _INSIDE_A_KEY:
            return None
        for pattern, name in self._marks.items():
            mark = self._match(pattern, at)
            if mark is None:
                continue
            self._done = at + len(mark[0])
            number = int(mark[1])
            printed = None if number > self.skip_above else read_pairs(self._pairs())
            return PrintedStep(at, {name: number}, printed)
        return None

    def _character_before(self, at: int) -> str:
        """Return the character before a place, as it is without colors; empty at the beginning."""
        tail = self.log.text(at - _LONGEST_COLOR, at)
        if tail.isascii() and not _COLORED.search(tail):  # in a tenth of the time
            return tail[-1:].decode()
        return clean(self.log.text(at - _LONGEST_MARK, at))[-1:]

    def _pairs(self) -> str:
        """Return the rest of a line; one that breaks off inside a pair goes on in the next."""
        line = ""
        limit = self._done + LONGEST_STEP
        for _ in range(MOST_LINES):
            end = self._end_of_line(limit)
            piece = bare_line(clean(b"\n" + self.log.text(self._done, end)))
            line += (" " if line.endswith(" -") else "") + piece
            is_broken = self.log.text(end, end + 1) in {b"\n", b"\r"}
            self._done = end + is_broken
            if not is_broken or is_whole(line):
                break
        return line

    def _end_of_line(self, limit: int) -> int:
        """Return where the line ends that goes on at `_done`, or where the next step begins in it."""
        at = self._done
        while True:
            found = self.log.search(self._line_end, at, limit)
            if found >= 0:
                return found
            at = max(self._done, min(self.log.end, limit) - _LONGEST_MARK)
            if self.log.end >= limit or not self.log.more(keep=self._done):
                return min(self.log.end, limit)

    def _dict_around(self, at: int) -> PrintedStep | None:
        """Return the step whose dict has a key here."""
        if self._match(self._key, at) is None:
            return None
        brace, lowest = at, max(self._done, self._tried_up_to, at - BACK)
        for _ in range(MOST_BRACES):
            brace = self.log.last(b"{", lowest, brace)
            if brace < 0 or self._spent > SPARE_EFFORT + self.log.end:
                break
            if brace in self._tried:
                continue
            numbers = self._numbers_before(brace)
            number = min((number for number in numbers.values() if number is not None), default=None)
            is_skipped = number is not None and number > self.skip_above
            printed = None if is_skipped else self._parsed(brace, at)
            if is_skipped:
                self._done = at + 1
            if printed or number is not None:
                return PrintedStep(brace, numbers, printed)
        self._tried_up_to = at
        return None

    def _numbers_before(self, brace: int) -> dict[str, int | None]:
        tail = self.log.text(brace - _LONGEST_COLOR, brace)
        if tail.isascii() and not _COLORED.search(tail) and not _NUMBERED.search(tail):
            return self._no_numbers  # in a twentieth of the time
        before = clean(self.log.text(max(self._done, brace - _LONGEST_MARK), brace))
        found = {
            layout.profile.name: _step_before(layout.console.word).search(before) for layout in self._dicts
        }
        return {name: int(match[1]) if match else None for name, match in found.items()}

    def _parsed(self, brace: int, inside: int) -> Printed | None:
        """Return the dict that begins at a brace and ends behind `inside`; it is tried once."""
        self._tried.add(brace)
        end = inside
        while (end := self._next_end(brace, end)) and self._spent <= SPARE_EFFORT + self.log.end:
            window = self.log.text(brace, end)
            text = clean(window)
            try:
                parsed = parse(text)
            except LiteralError as error:
                self._spent += len(window)
                if error.at_end:
                    continue
                return None
            if not isinstance(parsed.value, dict) or parsed.end <= len(clean(window[: inside - brace])):
                self._spent += len(window)
                return None
            behind = 0
            for _ in range(text.count("}", 0, parsed.end)):
                behind = window.find(b"}", behind) + 1
            self._done = brace + behind
            return Printed.of(parsed.value)
        return None

    def _next_end(self, brace: int, end: int) -> int:
        """Return a place behind a closing brace beyond `end`, up to twice as far; 0 if there is none."""
        limit = brace + LONGEST_STEP
        while True:
            found = self.log.last(b"}", end, min(2 * end - brace, limit))
            if found < 0:
                found = self.log.first(b"}", end, limit)
            if found >= 0:
                return found + 1
            if self.log.end >= limit or not self.log.more(keep=brace):
                return 0

    def _match(self, pattern: re.Pattern[bytes], at: int) -> re.Match[bytes] | None:
        """Return the match of a pattern at a place; more is read only if what is held does not match."""
        while True:
            found = self.log.match(pattern, at, at + _LONGEST_MARK)
            if found or self.log.end >= at + _LONGEST_MARK or not self.log.more(keep=at):
                return found


def _mark(layout: Layout) -> re.Pattern[bytes]:
    return re.compile(rb"%s:(\d{1,400}) - " % re.escape(layout.console.word.encode()))


@cache
def _step_before(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w\-]){re.escape(word)}\s+(\d{{1,400}})\s*[:=][^\S\r\n]*$")
