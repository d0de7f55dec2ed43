"""The sources of a sync, read into the store: each page in one transaction, one source's failure its own.

Directories are read one after the other. Projects on a server are read side by side, since most of their
time is waiting; a page is stored by the one thread that holds the store.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from step0_wandb.errors import Step0Error
from step0_wandb.records import Problem
from step0_wandb.sources.base import SourcePage
from step0_wandb.sources.registry import open_source
from step0_wandb.step0.policies import split_policies
from step0_wandb.text.redact import redact, redact_keys, redact_record
from step0_wandb.wandb_api.address import safe_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from step0_wandb.records import RunFacts, RunRecord, Step0
    from step0_wandb.sources.base import Reading, Source
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.store import Store
    from step0_wandb.wandb_api.context import Context

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
class PullResult:
    """What reading one source came to."""

    result: SourceResult
    problems: tuple[Problem, ...]
    failure: Step0Error | None = None


def pull(store: Store, texts: Sequence[str], finder: Step0Finder, context: Context) -> list[PullResult]:
    """Read every source into the store; the results stand in the order of `texts`."""
    pulls = [_Pull(store, text, finder, context) for text in texts]
    remote = [pull for pull in pulls if pull.is_remote]
    for part in pulls:
        if not part.is_remote:
            part.run()
    for start in range(0, len(remote), AT_ONCE):
        _read_concurrently(remote[start : start + AT_ONCE])
    return [part.result() for part in pulls]


class _Pull:
    """One source on its way into the store."""

    def __init__(self, store: Store, text: str, finder: Step0Finder, context: Context) -> None:
        self._store = store
        self._text = safe_text(text)
        self._finder = finder
        self._context = context
        self._begin = self._seconds = 0.0
        self._new = self._read = 0
        self._problems: list[Problem] = []
        self._failure: Step0Error | None = None
        self._source: Source | None = None
        try:
            self._source = open_source(text, finder, context)
        except Step0Error as error:
            self.fail(error)

    @property
    def is_remote(self) -> bool:
        return self._source is not None and self._source.is_remote

    def run(self) -> None:
        """Read the source from beginning to end."""
        try:
            for page in self.pages():
                self.store(page)
        except Step0Error as error:
            self.fail(error)
        self.finish()

    def pages(self) -> Iterator[SourcePage]:
        """Return the source's pages; what the store remembers is looked up before the first."""
        self._begin = time.monotonic()
        return self._source.read(self._store.sources.memory(self._source.name)) if self._source else iter(())

    def store(self, page: SourcePage) -> None:
        """Store one page, with where reading goes on after it."""
        if self._source is None:
            raise ValueError("a page of no source")
        page = _safe_page(page)
        name, now = self._source.name, self._context.clock()
        items = [item for reading in page.readings for item in self._items(reading)]
        with self._store.transaction():
            new = self._store.sources.save_readings(name, items, now=now)
            self._new += len({key.partition("#")[0] for key in new})  # policies of one run count as one
            self._store.runs.update(page.updates)
            self._store.runs.mark_deleted(page.deleted, now=now)
            self._store.runs.save_heartbeats(page.heartbeats)
            self._store.sources.save_marks(name, page.marks)
            if page.cursor:
                self._store.sources.save_cursor(name, dict(page.cursor))
        self._read += len(page.readings)
        self._problems += [problem for reading in page.readings for problem in reading.problems]
        self._problems += page.problems
        self._context.progress(self._text, self._read, page.total)

    def _items(self, reading: Reading) -> Iterator[tuple[Reading, RunFacts]]:
        """Yield what to store of a reading: a record for each start that is new or has changed, and policy."""
        try:
            # What is on disk tells starts apart by itself.
            starts = [*reading.earlier, reading.record] if reading.marks else self._numbered(reading)
            for start in starts:
                for record in split_policies(start, self._finder):
                    yield replace(reading, record=record, earlier=()), self._finder.facts(record)
        except Exception as error:  # noqa: BLE001 - one odd run must not end the sync of all others
            what = f"nothing could be made of it ({type(error).__name__})"
            self._problems.append(Problem(reading.record.key, what))

    def _numbered(self, reading: Reading) -> list[RunRecord]:
        """Return the starts of a run with their numbers; earlier ones that are stored stay as they are."""
        stored = [
            (old, new)
            for new in split_policies(reading.record, self._finder)
            if (old := self._store.runs.record(new.key)) is not None
        ]
        starts = [*(() if stored else reading.earlier), reading.record]
        number = len(reading.earlier) + 1
        if stored:
            restarted = reading.again and any(_has_other_step0(self._finder, *pair) for pair in stored)
            number = max(number, max(old.start for old, _ in stored) + restarted)
        return [replace(start, start=at) for at, start in enumerate(starts, start=number - len(starts) + 1)]

    def fail(self, error: Step0Error) -> None:
        """Note why the source could not be read (further)."""
        self._failure = error
        self._problems.append(_safe(Problem(self._text, error.message)))

    def finish(self) -> None:
        """Note that the source is done with."""
        self._seconds = time.monotonic() - self._begin

    def result(self) -> PullResult:
        """Return what came of it."""
        seen, requests = (self._source.runs_seen, self._source.requests) if self._source else (0, 0)
        error = redact_keys(self._failure.message) if self._failure else None
        result = SourceResult(self._text, seen, self._new, requests, self._seconds, error)
        return PullResult(result, tuple(self._problems), self._failure)


def _has_other_step0(finder: Step0Finder, old: RunRecord, new: RunRecord) -> bool:
    """Return whether a run whose step 0 was found shows another one, or none (yet)."""
    before, after = finder.find(old), finder.find(new)
    return before.status == "found" and _values(before) != _values(after)


def _values(step0: Step0) -> tuple[str, ...]:
    return tuple(repr(value) for value in (step0.status, step0.ppo_kl, step0.clip_frac, step0.gap))


def _safe_page(page: SourcePage) -> SourcePage:
    """Return a page without secrets: nothing after this point sees one."""
    return replace(
        page,
        readings=tuple(
            replace(
                reading, record=redact_record(reading.record), problems=tuple(map(_safe, reading.problems))
            )
            for reading in page.readings
        ),
        updates=tuple(
            replace(update, name=redact(update.name), tags=tuple(map(redact, update.tags)))
            for update in page.updates
        ),
        problems=tuple(map(_safe, page.problems)),
    )


def _safe(problem: Problem) -> Problem:
    """Return a problem without keys: a server or a file name may bring them."""
    return Problem(redact_keys(problem.where), redact_keys(problem.what))


def _read_concurrently(pulls: Sequence[_Pull]) -> None:
    """Read several projects at once; this thread stores their pages as they come."""
    ready: queue.Queue[tuple[_Pull, SourcePage | Exception | None]] = queue.Queue(maxsize=2 * AT_ONCE)
    stop = threading.Event()

    def read(part: _Pull, pages: Iterator[SourcePage]) -> None:
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
            elif isinstance(what, SourcePage):
                part.store(what)
            elif isinstance(what, Step0Error):
                part.fail(what)
            else:
                raise what
    finally:
        stop.set()
