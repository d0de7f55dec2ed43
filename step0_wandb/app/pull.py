"""The sources of a sync, read into the store: each page in one transaction, one source's failure its own.

Directories are read one after the other. Projects on a server are read side by side, since most of their
time is waiting; a page is stored by the one thread that holds the store.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from step0_wandb.errors import Step0Error
from step0_wandb.records import Problem
from step0_wandb.sources.base import Page
from step0_wandb.sources.offline.source import OfflineSource
from step0_wandb.wandb_api.address import LocalAddress, parse_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from step0_wandb.sources.base import Reading
    from step0_wandb.sources.server.source import ServerSource
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.store import Store
    from step0_wandb.wandb_api.context import Context

BATCH = 200
"""Runs of a directory that one transaction stores."""
AT_ONCE = 4
"""Projects that are read side by side."""


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What one source gave.

    Attributes
    ----------
    runs_seen, runs_new : int
        Runs that the source showed in this sync, and those of them that the store did not have.
    requests : int
        Reads sent to a server, retries included; 0 for a directory.
    error : str or None
        Why the source could not be read.
    """

    source: str
    runs_seen: int
    runs_new: int
    requests: int
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Pulled:
    """What reading one source came to."""

    result: SourceResult
    problems: tuple[Problem, ...]
    failure: Step0Error | None = None


def pull(store: Store, texts: Sequence[str], finder: Step0Finder, context: Context) -> list[Pulled]:
    """Read every source into the store; the results stand in the order of `texts`."""
    pulls = [_Pull(store, text, finder, context) for text in texts]
    remote = [pull for pull in pulls if pull.is_remote]
    for part in pulls:
        if not part.is_remote:
            part.run()
    for start in range(0, len(remote), AT_ONCE):
        _side_by_side(remote[start : start + AT_ONCE])
    return [part.pulled() for part in pulls]


class _Pull:
    """One source on its way into the store."""

    def __init__(self, store: Store, text: str, finder: Step0Finder, context: Context) -> None:
        self._store = store
        self._text = text
        self._finder = finder
        self._context = context
        self._begin = self._seconds = 0.0
        self._new = self._read = 0
        self._problems: list[Problem] = []
        self._failure: Step0Error | None = None
        self._local: OfflineSource | None = None
        self._remote: ServerSource | None = None
        self._name = text
        try:
            self._open()
        except Step0Error as error:
            self.fail(error)

    def _open(self) -> None:
        context = self._context
        address = parse_address(self._text)
        if isinstance(address, LocalAddress):
            self._name = f"file:{address.path.resolve()}"
            self._local = OfflineSource(address.path, self._finder, clock=context.clock)
            return
        from step0_wandb.sources.server.source import ServerSource
        from step0_wandb.wandb_api.credentials import find_server

        parse_address(self._text, server=find_server(context.places))
        self._name = f"wandb:{address}"
        self._remote = ServerSource(address, context.client(), self._finder, clock=context.clock)

    @property
    def is_remote(self) -> bool:
        return self._remote is not None

    def run(self) -> None:
        """Read the source from beginning to end."""
        try:
            for page in self.pages():
                self.store(page)
        except Step0Error as error:
            self.fail(error)
        self.finish()

    def pages(self) -> Iterator[Page]:
        """Return the source's pages; what the store knows is looked up before the first."""
        self._begin = time.monotonic()
        if self._remote is not None:
            known = _KnownRuns.of(self._store, self._name)
            return self._remote.read(known, self._store.cursor(self._name))
        return self._directory(self._local) if self._local is not None else iter(())

    def _directory(self, source: OfflineSource) -> Iterator[Page]:
        for batch in _batches(source.read(self._store.known(self._name))):
            yield Page(tuple(batch), {})
        self._store.save_marks(self._name, source.loose_marks)
        self._problems += source.problems

    def store(self, page: Page) -> None:
        """Store one page, with where reading goes on after it."""
        now = self._context.clock()
        items = [(reading, self._finder.facts(reading.record)) for reading in page.readings]
        with self._store.transaction():
            self._new += len(self._store.save_readings(self._name, items, now=now))
            self._store.update_runs(page.updates)
            self._store.mark_deleted(page.deleted, now=now)
            self._store.hear(page.heartbeats)
            if page.cursor:
                self._store.save_cursor(self._name, dict(page.cursor))
        self._read += len(page.readings)
        self._problems += [problem for reading in page.readings for problem in reading.problems]
        self._problems += page.problems
        self._context.progress(self._text, self._read, page.total)

    def fail(self, error: Step0Error) -> None:
        """Note why the source could not be read (further)."""
        self._failure = error
        self._problems.append(Problem(self._text, error.message))

    def finish(self) -> None:
        """Note that the source is done with."""
        self._seconds = time.monotonic() - self._begin

    def pulled(self) -> Pulled:
        """Return what came of it."""
        seen = self._local.counts.runs_seen if self._local else self._read
        requests = self._remote.client.requests if self._remote else 0
        error = self._failure.message if self._failure else None
        result = SourceResult(self._text, seen, self._new, requests, self._seconds, error)
        return Pulled(result, tuple(self._problems), self._failure)


@dataclass(frozen=True, slots=True)
class _KnownRuns:
    """The runs of a project that the store knows, looked up before other threads read."""

    ids: Collection[str]
    without_step0: Collection[str]

    @classmethod
    def of(cls, store: Store, source: str) -> _KnownRuns:
        return cls(_ids(store.keys(source=source)), _ids(store.keys(source=source, status="no-step0")))

    def names(self) -> Collection[str]:
        return self.ids

    def names_without_step0(self) -> Collection[str]:
        return self.without_step0


def _ids(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key.rsplit("/", 1)[-1] for key in keys)


def _side_by_side(pulls: Sequence[_Pull]) -> None:
    """Read several projects at once; this thread stores their pages as they come."""
    ready: queue.Queue[tuple[_Pull, Page | Exception | None]] = queue.Queue(maxsize=2 * AT_ONCE)
    stop = threading.Event()

    def read(part: _Pull, pages: Iterator[Page]) -> None:
        try:
            for page in pages:
                ready.put((part, page))
                if stop.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - the thread that waits raises it, or tells it
            ready.put((part, error))
        finally:
            ready.put((part, None))

    threads = [
        threading.Thread(target=read, args=(part, part.pages()), daemon=True, name=f"read-{at}")
        for at, part in enumerate(pulls)
    ]
    for thread in threads:
        thread.start()
    waiting = len(threads)
    try:
        while waiting:
            part, what = ready.get()
            if what is None:
                part.finish()
                waiting -= 1
            elif isinstance(what, Page):
                part.store(what)
            elif isinstance(what, Step0Error):
                part.fail(what)
            else:
                raise what
    finally:
        stop.set()


def _batches(readings: Iterable[Reading]) -> Iterator[list[Reading]]:
    iterator = iter(readings)
    while batch := list(islice(iterator, BATCH)):
        yield batch
