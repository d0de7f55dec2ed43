"""What a source gives a sync, page by page, and what of it is remembered for the next one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    """

    record: RunRecord
    marks: tuple[FileMark, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """What changed of a run whose step 0 is settled."""

    key: str
    name: str
    state: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """What one step of a sync brought; it and its cursor are to be stored together.

    Attributes
    ----------
    readings : tuple of Reading
        Runs that are new, or that were still pending.
    cursor : mapping
        Where the next sync goes on, also if this one is interrupted after this page.
    updates : tuple of RunUpdate
        Names, states and tags that changed; of a run that the store does not know, nothing.
    deleted : tuple of str
        Keys of runs that the server does not have any more.
    problems : tuple of Problem
        Runs that could not be read; told once, tried again at every sync.
    heartbeats : mapping of str to datetime
        When the runs that still run were last heard of, by key.
    total : int or None
        Runs of the project, for a progress bar.
    """

    readings: tuple[Reading, ...]
    cursor: Mapping[str, Json]
    updates: tuple[RunUpdate, ...] = ()
    deleted: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    heartbeats: Mapping[str, datetime] = field(default_factory=dict)
    total: int | None = None


class Known(Protocol):
    """What the store remembers of a source."""

    @property
    def marks(self) -> Mapping[str, FileMark]:
        """Return the marks of the source's files by path."""

    def record(self, key: str) -> RunRecord | None:
        """Return the run as stored, with the rows kept so far."""
