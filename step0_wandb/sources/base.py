"""What every source of runs does: it is opened by its address, and gives what is new page by page.

A new source is one module with a class that is a `Source`, and one entry in `registry.OPENERS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from step0_wandb.records import Json, Problem, RunRecord


@dataclass(frozen=True, slots=True)
class FileMark:
    """How far one ``.wandb`` file was read, so that the next sync goes on there.

    Attributes
    ----------
    run : str
        Key of the run that the file belongs to; empty while the file names none.
    size, offset : int
        In bytes; reading goes on at `offset`, the start of a record.
    mtime_ns : int
        Time of the last write, in nanoseconds since 1970.
    ended : bool
        Whether an exit record was seen.
    settled : bool
        Whether the file need not be read for step 0 any more (decided, or given up).
    """

    path: str
    run: str
    size: int
    mtime_ns: int
    offset: int
    ended: bool = False
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """One run as read in this sync: new, or changed since the last one.

    Attributes
    ----------
    marks : tuple of FileMark
        One for each of the run's files; empty for a run from a server.
    problems : tuple of Problem
        What could not be read this time; known damage is not told again.
    earlier : tuple of RunRecord
        The starts before that of `record` that the same history shows, in their order.
    again : bool
        Whether the step 0 of the run was read before, and the run may have started again since.
    """

    record: RunRecord
    marks: tuple[FileMark, ...] = ()
    problems: tuple[Problem, ...] = ()
    earlier: tuple[RunRecord, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """What changed of a run whose step 0 is settled."""

    key: str
    name: str
    state: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourcePage:
    """One part of what a source shows; everything in it is stored in one transaction.

    Attributes
    ----------
    readings : tuple of Reading
        Runs that are new, or that were still pending.
    cursor : mapping
        Where the next sync goes on, also if this one is interrupted after this page; empty where a
        source needs none.
    updates : tuple of RunUpdate
        Names, states and tags that changed; of a run that the store does not know, nothing.
    deleted : tuple of str
        Keys of runs that the source does not have any more.
    problems : tuple of Problem
        What could not be read; told once, tried again at every sync.
    marks : tuple of FileMark
        Marks of files that belong to no run.
    heartbeats : mapping of str to datetime
        The last sign of life of the runs that still run, by key.
    total : int or None
        Runs of the source, for a progress bar.
    """

    readings: tuple[Reading, ...] = ()
    cursor: Mapping[str, Json] = field(default_factory=dict)
    updates: tuple[RunUpdate, ...] = ()
    deleted: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    marks: tuple[FileMark, ...] = ()
    heartbeats: Mapping[str, datetime] = field(default_factory=dict)
    total: int | None = None


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """What the store remembers of one source; without arguments, of a source that was never read.

    Attributes
    ----------
    cursor : mapping or None
        The cursor of the last page that was stored.
    names : mapping of str to str
        Display names of the runs read from this source, without deleted ones, by their ids.
    names_without_step0 : frozenset of str
        Ids of those in which no step 0 was found.
    marks : mapping of str to FileMark
        The marks of the source's files, by path.
    record : callable
        Returns a run as stored, with the rows kept so far, by its key; only on the store's thread.
    """

    cursor: Mapping[str, Json] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    names_without_step0: frozenset[str] = frozenset()
    marks: Mapping[str, FileMark] = field(default_factory=dict)
    record: Callable[[str], RunRecord | None] = lambda _key: None


class Source(Protocol):
    """Something that holds runs."""

    @property
    def name(self) -> str:
        """Return the name under which the store keeps what was read."""

    @property
    def is_remote(self) -> bool:
        """Whether reading is mostly waiting for a server: such sources are read concurrently, on threads."""

    @property
    def runs_seen(self) -> int:
        """Return how many runs the last reading showed, whether they had to be read or not."""

    @property
    def requests(self) -> int:
        """Return the requests sent to a server, retries included."""

    def read(self, memory: SourceMemory) -> Iterator[SourcePage]:
        """Yield what is new, page by page.

        Raises
        ------
        SourceError, CredentialsError, UsageError
            The source cannot be read (further); the pages before are whole.
        """
