"""Runs from W&B's run directories on disk; online runs leave the same files as offline ones."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from step0_wandb.errors import SourceError
from step0_wandb.records import run_key
from step0_wandb.sources.base import SourcePage
from step0_wandb.sources.offline.directories import Directories, state_of
from step0_wandb.sources.offline.runfile import Lookout, RunFile
from step0_wandb.sources.offline.walk import find_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from step0_wandb.records import Problem
    from step0_wandb.sources.base import FileMark, Reading, SourceMemory
    from step0_wandb.sources.offline.walk import Found
    from step0_wandb.step0.finder import Step0Finder

BATCH = 200
"""Runs that one page holds."""


@dataclass(frozen=True, slots=True)
class OfflineCounts:
    """What a reading came across.

    Attributes
    ----------
    runs_seen : int
        Runs in the directories, whether they had to be read or not.
    files_without_run : int
        Files that hold no run of others (yet): empty, a header only, no ``.wandb`` file at all, or a
        run of this tool itself.
    bytes_read : int
        Of all files together.
    """

    runs_seen: int = 0
    files_without_run: int = 0
    bytes_read: int = 0


class OfflineSource:
    """W&B run directories below a root.

    Parameters
    ----------
    root : Path
        A directory that holds run directories at any depth, one run directory, or one ``.wandb`` file.
    finder : Step0Finder
        Knows which history rows step 0 may be made of.
    clock : callable
        Returns the time, with its zone.
    """

    is_remote = False
    requests = 0

    def __init__(self, root: Path, finder: Step0Finder, *, clock: Callable[[], datetime]) -> None:
        self.root = root
        self._lookout = Lookout(finder)
        self._clock = clock
        self._aside: list[RunFile] = []
        self._problems: list[Problem] = []
        self._runs_seen = self._bytes_read = 0
        self._named = ""

    @property
    def counts(self) -> OfflineCounts:
        """Return what the last reading came across; the runs are known at once, the rest at its end."""
        return OfflineCounts(self._runs_seen, len(self._aside), self._bytes_read)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return what could not be read and belongs to no run; complete at the end of the reading."""
        return (*self._problems, *(problem for file in self._aside for problem in file.problems))

    @property
    def loose_marks(self) -> tuple[FileMark, ...]:
        """Return marks, without a run, of the files that give none; complete at the end of the reading.

        Kept with the others, they save opening these files again, and telling again what is wrong
        with them. A file that could not be opened has none: it is tried again.
        """
        marks = (file.mark_of("", over=True, settled=True) for file in self._aside)
        return tuple(mark for mark in marks if mark)

    @property
    def name(self) -> str:
        """Return the name under which the store keeps what was read."""
        return f"file:{self.root.resolve()}"

    @property
    def runs_seen(self) -> int:
        """Return how many runs the directories hold, whether they had to be read or not."""
        return self._runs_seen

    def read(self, memory: SourceMemory) -> Iterator[SourcePage]:
        """Yield what is new since `memory`; the last page has what belongs to no run.

        Raises
        ------
        UsageError, SourceError
            As `readings`.
        """
        readings = self.readings(memory)
        while batch := tuple(islice(readings, BATCH)):
            yield SourcePage(batch)
        yield SourcePage(marks=self.loose_marks, problems=self.problems)

    def readings(self, known: SourceMemory) -> Iterator[Reading]:
        """Return the runs that are new or changed since `known`, in the order of their keys.

        Raises
        ------
        UsageError
            If there is nothing at the root.
        SourceError
            If the root holds no run directory, or is a file that is not a readable ``.wandb`` file.
        """
        self._aside, self._problems = [], []
        self._runs_seen = self._bytes_read = 0
        found = find_files(self.root)
        self._named = found.named
        self._problems += found.problems
        groups = self._by_run(found, known)
        self._runs_seen = len(groups)
        return self._readings(groups, known)

    def _by_run(self, found: Found, known: SourceMemory) -> dict[str, list[RunFile]]:
        groups: dict[str, list[RunFile]] = defaultdict(list)
        marks = known.marks
        for path in sorted(found.files):
            file = RunFile(found.files[path], marks.get(path))
            if file.mark and not (file.mark.run or file.unchanged):
                file = RunFile(file.found, None)
            if key := file.mark.run if file.mark else self._key_of(file):
                groups[key].append(file)
            else:
                self._set_aside(file)
        _adopt(groups)
        return groups

    def _key_of(self, file: RunFile) -> str:
        """Return the key of the run that a new file belongs to; empty if it holds none."""
        try:
            info = file.identify(self._lookout)
        except (SourceError, OSError) as error:
            file.fail(error)
            if self.root.is_file():
                hint = error.hint if isinstance(error, SourceError) else "Run it as a user who may read it."
                raise SourceError(f"{self.root}: {file.problems[-1].what}", hint) from error
            return ""
        return run_key(info.entity, info.project, info.run_id) if info else ""

    def _set_aside(self, *files: RunFile) -> None:
        self._aside += files
        self._bytes_read += sum(file.bytes_read for file in files)

    def _readings(self, groups: dict[str, list[RunFile]], known: SourceMemory) -> Iterator[Reading]:
        now = self._clock()
        for key in sorted(groups):
            files = groups.pop(key)  # what was read of a run goes with its reading
            if all(file.unchanged for file in files) and state_of(files, now) != "crashed":
                continue
            run = self._directories(key, files, known)
            run.read(now, named=self._named)
            if run.is_own:
                self._set_aside(*run.files)
                self._runs_seen -= 1
                continue
            if any(file.path == self._named for file in run.files):
                yield run.reading_of(self._named, now)
            else:
                yield from run.readings(now)
            self._bytes_read += sum(file.bytes_read for file in run.files) + run.bytes_read_again

    def _directories(self, key: str, files: Sequence[RunFile], known: SourceMemory) -> Directories:
        prior = known.record(key) if any(file.mark for file in files) else None
        if prior is None:  # what the marks stand for is gone: everything is read again
            files = [RunFile(file.found, None) if file.mark else file for file in files]
        return Directories(key, files, prior=prior, lookout=self._lookout)


def _adopt(groups: dict[str, list[RunFile]]) -> None:
    """Give new files whose run record is lost to the one run that has their run id, if there is one."""
    for key in [key for key in groups if key.startswith("_/_/")]:
        others = [other for other in groups if other != key and other.endswith(key[len("_/_") :])]
        if len(others) == 1 and not any(file.mark for file in groups[key]):
            groups[others[0]] += groups.pop(key)
