"""One ``.wandb`` file of a run: what it has shown so far, and where reading goes on."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from step0_wandb.errors import NoStep0Error, SourceError
from step0_wandb.records import HistoryRow, Problem
from step0_wandb.sources.base import FileMark
from step0_wandb.sources.console.log import read_console
from step0_wandb.sources.offline import messages
from step0_wandb.sources.offline.frames import (
    BLOCK,
    FIRST,
    FULL,
    START,
    Damage,
    LogReader,
    Record,
    begins_well,
)
from step0_wandb.sources.offline.messages import RunInfo
from step0_wandb.sources.offline.walk import RUN_DIRECTORY, SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.records import Json
    from step0_wandb.sources.offline.frames import ReadAt
    from step0_wandb.sources.offline.messages import ConfigChange
    from step0_wandb.sources.offline.walk import FoundFile
    from step0_wandb.step0.finder import Step0Finder

TURN = 1024 * 1024
"""In bytes; what is read of one file before the run's other files have their turn."""

TAIL = 64 * 1024
"""In bytes; an exit record is looked for so far from the end of a file."""

_PLACE_BITS = 40  # of HistoryRow.order: the byte in the file; the bits above say which file
_MANY_ROWS = 32
_PAST_ROLLOUTS = 3  # asynchronous jobs are a rollout or two ahead of their trainer
_TOLD_IN_FULL = 3


@dataclass(frozen=True)
class Lookout:
    """What to look out for in a history.

    Attributes
    ----------
    needles : tuple of bytes
        A record without any of them holds no row that matters and is not decoded. Of a nested name
        only the last part stands in one piece in the record.
    """

    finder: Step0Finder
    needles: tuple[bytes, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = sorted({name.rpartition(".")[2].encode() for name in self.finder.keys})
        object.__setattr__(self, "needles", tuple(parts))

    def is_metric(self, name: str) -> bool:
        """Return whether a name is a metric of any profile, also under a policy."""
        return name in self.finder.metrics or name.partition("/")[2] in self.finder.metrics

    def is_past(self, values: Mapping[str, float]) -> bool:
        """Return whether a row is of a rollout so late that those of the first are all there."""
        names = self.finder.context
        return any(
            value >= _PAST_ROLLOUTS and (name in names or name.partition("/")[2] in names)
            for name, value in values.items()
        )


class RunFile:
    """One ``.wandb`` file, read in turns.

    Parameters
    ----------
    found : FoundFile
        The file as listed; what is written later is left for the next sync.
    mark : FileMark or None
        How far it was read before. A file that is smaller than then was replaced: it is read again.

    Attributes
    ----------
    rows : tuple of HistoryRow
        The rows of this file's history that matter.
    changes : list of ConfigChange
        What this reading saw done to the config.
    config : mapping
        The run's config after the last turn, where this file says something else than others its own.
    info : RunInfo or None
        Who the run is, once its run record was read.
    ended_as : str or None
        A word once the end is known (``finished`` or ``failed`` from an exit record), else None.
    decided, is_past, at_end, failed, begun : bool
        Whether this file's rows decide step 0; it shows rollouts far behind step 0; all of it was read;
        it cannot be read; anything of a run was seen in it.
    has_history : bool
        Whether this reading saw a row of the history, whatever it holds.
    """

    __slots__ = (
        "_damage",
        "_number",
        "_problems",
        "at_end",
        "begun",
        "bytes_read",
        "changes",
        "config",
        "decided",
        "ended_as",
        "failed",
        "found",
        "has_history",
        "info",
        "is_past",
        "mark",
        "offset",
        "rows",
        "turns",
    )

    def __init__(self, found: FoundFile, mark: FileMark | None) -> None:
        if mark is not None and found.size < mark.size:
            mark = None
        self.found = found
        self.mark = mark
        self.offset = mark.offset if mark else START
        self.rows: tuple[HistoryRow, ...] = ()
        self.changes: list[ConfigChange] = []
        self.config: dict[str, Json] = {}
        self.info: RunInfo | None = None
        self.ended_as: str | None = "ended" if mark and mark.ended else None
        self.decided = self.is_past = self.at_end = self.failed = self.begun = False
        self.has_history = False
        self.turns = self.bytes_read = 0
        self._number = _number_of(found.path)
        self._damage: list[Damage] = []
        self._problems: list[Problem] = []

    @property
    def path(self) -> str:
        """Return the path without links."""
        return self.found.path

    @property
    def stamp(self) -> str:
        """Return when the directory was made, as its name says in local time; empty where it does not."""
        match = RUN_DIRECTORY.fullmatch(Path(self.path).parent.name)
        return (match["stamp"] or "") if match else ""

    @property
    def written_s(self) -> float:
        """Return the time of the last write, in seconds since 1970."""
        return self.found.mtime_ns / 1e9

    @property
    def unchanged(self) -> bool:
        """Whether the file is as it was when it was last read."""
        mark = self.mark
        return mark is not None and (mark.size, mark.mtime_ns) == (self.found.size, self.found.mtime_ns)

    @property
    def settled(self) -> bool:
        """Whether an earlier reading was done with it, as far as step 0 goes."""
        return self.mark is not None and self.mark.settled

    @property
    def has_more(self) -> bool:
        """Whether there is more to read for step 0."""
        return not (self.at_end or self.decided or self.failed or self.settled or self.unchanged)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return what could not be read; of many damaged records the first few and how many more."""
        told = [
            Problem(self.path, f"skipped the damaged record at byte {place.offset}: {place.what}")
            for place in self._damage[:_TOLD_IN_FULL]
        ]
        if more := len(self._damage) - len(told):
            last = self._damage[-1].offset
            told.append(Problem(self.path, f"skipped {more} more damaged records, the last at byte {last}"))
        return (*self._problems, *told)

    def identify(self, lookout: Lookout) -> RunInfo | None:
        """Return who the run is; None for a file that holds no run (yet).

        The first block says it, or else reading goes on until something does. The run id is the file
        name's where the run record is lost.

        Raises
        ------
        SourceError
            If this is no ``.wandb`` file.
        OSError
            If it cannot be read.
        """
        with self._opened() as read:
            head = read(0, min(BLOCK, self.found.size))
        if not begins_well(head):
            self.at_end = True
        elif info := _first_info(head):
            return info
        while not (self.info or self.at_end or (self.begun and self.offset >= TURN)):
            self.turn(lookout, {}, budget=TURN)
        if not (self.info or self.begun):
            return None
        named = Path(self.path).name.removesuffix(SUFFIX).removeprefix("run-")
        return (self.info or RunInfo()).or_else(RunInfo(run_id=named))

    def turn(self, lookout: Lookout, config: Mapping[str, Json], *, budget: int) -> None:
        """Read on for about `budget` bytes, or until step 0 is decided.

        Parameters
        ----------
        config : mapping
            The run's config as known so far; becomes `config` with what this file does to it.

        Raises
        ------
        OSError
            If the file cannot be read; what was read before that counts.
        """
        self.turns += 1
        self.config = dict(config)
        for change in self.changes:
            change.apply_to(self.config)
        with self._opened() as read:
            if self.turns == 1 and self.mark and self._was_replaced(read):
                self.offset, self.rows, self.ended_as = START, (), None
            stop = self.offset + budget
            reader = LogReader(read, self.found.size, offset=self.offset)
            try:
                for item in reader.records():
                    if isinstance(item, Damage):
                        self._damage.append(item)
                        continue
                    self._take(item, lookout)
                    if self.decided or reader.offset >= stop:
                        return
                self.at_end = True
            finally:
                self.offset = reader.offset
                if not self.decided:
                    self.rows = lookout.finder.prune(self.rows, self.config)

    def look_for_end(self) -> None:
        """Look for an exit record near the end of the file, and for nothing else.

        Raises
        ------
        OSError
            If the file cannot be read.
        """
        size = self.found.size
        with self._opened() as read:
            for reach in (1, TAIL):  # it nearly always is in the last block
                start = max(size - reach, 0) // BLOCK * BLOCK
                if start <= self.offset:
                    reader = LogReader(read, size, offset=self.offset)
                else:
                    reader = LogReader(read, size, offset=start, midway=True)
                for item in reader.records():
                    if isinstance(item, Record):
                        self._take_end(item)
                if self.ended_as:
                    return

    def take_output_log(self, lookout: Lookout) -> None:
        """Take step 0 from the console log that the client keeps next to the file, if it shows one.

        A number that was rounded in printing is left out: without its resolution it would prove too much.
        """
        log = Path(self.path).parent / "files" / "output.log"
        if not log.is_file():
            return
        try:
            reading = read_console(log, lookout.finder)
        except (NoStep0Error, SourceError):
            return
        if not any(facts.step0.status == "found" for _, facts in reading.parts(lookout.finder)):
            return
        self.rows = tuple(
            HistoryRow(
                {name: value for name, value in row.values.items() if name not in reading.resolution},
                self._number << _PLACE_BITS | row.order,
            )
            for row in reading.record.rows
        )
        self.decided = lookout.finder.has_metrics(self.rows)
        rounded = "" if self.decided else ", but its numbers are rounded too much to be judged"
        what = f"ends before its first row; step 0 was read from files/output.log next to it{rounded}"
        self._problems.append(Problem(self.path, what))

    def fail(self, error: OSError | SourceError) -> None:
        """Note that the file cannot be read, or is no ``.wandb`` file."""
        if isinstance(error, OSError):
            self.failed = True
            self._problems.append(Problem(self.path, f"cannot be read: {error.strerror}"))
        else:
            self._problems.append(Problem(self.path, error.message))

    def wrote(self, row: HistoryRow) -> bool:
        """Return whether a row of an earlier reading comes from this file."""
        return was_written_to(self.path, row)

    def mark_of(self, run: str, *, over: bool, settled: bool) -> FileMark | None:
        """Return how far the file is read; where it could not be opened, how far it was before.

        Parameters
        ----------
        run : str
            The run's key.
        over : bool
            Whether nothing more is expected of the run, with or without an exit record.
        settled : bool
            Whether the run needs no more reading for step 0.
        """
        if self.failed:
            return self.mark
        return FileMark(
            self.path,
            run,
            self.found.size,
            self.found.mtime_ns,
            self.offset,
            ended=over or self.ended_as is not None,
            settled=settled or self.settled,
        )

    def _take(self, record: Record, lookout: Lookout) -> None:
        data = record.data
        try:
            content = messages.decode(data)
            kind = content.WhichOneof("kind")
            if kind == "history":
                self.begun = self.has_history = True
                if any(needle in data for needle in lookout.needles):
                    self._take_row(record, messages.row(content.history), lookout)
            elif kind == "run":
                self._change(messages.config_change(content.run.config))
                self.info = messages.run_info(content.run).or_else(self.info)
            elif kind == "config":
                self._change(messages.config_change(content.config))
            elif kind == "environment":
                self._change(messages.environment(content.environment))
            elif kind == "exit":
                self._end(content.exit.exit_code)
        except messages.RecordError:  # its checksum is right: no W&B client that we know wrote it
            self._damage.append(Damage(record.offset, record.offset + len(data), "it is not a W&B record"))

    def _take_row(self, record: Record, values: Mapping[str, float], lookout: Lookout) -> None:
        finder = lookout.finder
        if not finder.wants(values):
            self.is_past = self.is_past or lookout.is_past(values)
            return
        row = HistoryRow(values, self._number << _PLACE_BITS | record.offset)
        self.rows = (*self.rows, row)
        if finder.has_metrics((row,)):
            self.decided = finder.decided(self.rows, self.config)
        if self.decided or len(self.rows) > _MANY_ROWS:
            self.rows = finder.prune(self.rows, self.config)

    def _take_end(self, record: Record) -> None:
        if messages.EXIT_TAG not in record.data:
            return
        # Damage is told by the reading of the whole file, where that comes to it.
        with suppress(messages.RecordError):
            content = messages.decode(record.data)
            if content.WhichOneof("kind") == "exit":
                self._end(content.exit.exit_code)

    def _end(self, code: int) -> None:
        self.begun = True
        self.ended_as = "failed" if code else "finished"

    def _change(self, change: ConfigChange) -> None:
        self.begun = True
        self.changes.append(change)
        change.apply_to(self.config)

    def _was_replaced(self, read: ReadAt) -> bool:
        """Return whether no record begins where reading stopped before: then it is another file."""
        first = next(LogReader(read, self.found.size, offset=self.offset).frames(), None)
        return isinstance(first, Damage)

    @contextmanager
    def _opened(self) -> Iterator[ReadAt]:
        with Path(self.path).open("rb", buffering=0) as file:

            def read(offset: int, size: int) -> bytes:
                file.seek(offset)
                data = file.read(size)
                self.bytes_read += len(data)
                return data

            yield read


def was_written_to(path: str, row: HistoryRow) -> bool:
    """Return whether a row was read from the file of this path, without links."""
    return row.order >> _PLACE_BITS == _number_of(path)


def _number_of(path: str) -> int:
    return crc32(path.encode()) >> 9


def _first_info(head: bytes) -> RunInfo | None:
    """Return who the run is by a file's first block, which may end inside the run record."""
    for frame in LogReader(lambda at, size: head[at : at + size], len(head)).frames():
        if isinstance(frame, Damage) or frame.kind not in (FULL, FIRST):
            continue
        with suppress(messages.RecordError):  # damage, which the reading in turns comes to and tells
            info = messages.first_run_info(frame.data)
            if info and info.run_id:
                return info
    return None
