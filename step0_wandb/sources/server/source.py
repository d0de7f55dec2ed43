"""The W&B server as a source: whole pages with step 0 in them, and later only what is new.

A first sync takes a request a page. A later one asks, in one request, for the runs created since, for
those whose step 0 was still to come, and, without their histories, for the runs that were running or
that a person labeled. Where the number of runs on the server is not what it should be, their names
are listed, so that runs synced days late are found and deleted ones are marked.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.records import (
    ALIVE,
    LOST_ROW,
    NOTHING_LOGGED,
    OWN_JOB_TYPE,
    Problem,
    RunRecord,
    chunks,
    run_key,
)
from step0_wandb.sources.base import Reading, RunUpdate, SourcePage
from step0_wandb.sources.server.fetch import PAGE_SIZE, FetchedRuns, Fetcher, PageQuery
from step0_wandb.sources.server.progress import MOST_NAMES, Progress
from step0_wandb.wandb_api.batches import ProjectClient
from step0_wandb.wandb_api.client import ONE_RUN, RetryPolicy
from step0_wandb.wandb_api.paging import Listing
from step0_wandb.wandb_api.queries import names_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from step0_wandb.records import Json
    from step0_wandb.sources.base import SourceMemory
    from step0_wandb.sources.server.history import Step0Search
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.answers import RunNode, RunPage
    from step0_wandb.wandb_api.client import GraphQLClient

_TRY_NESTED_AGAIN = timedelta(days=1)
_QUICK = RetryPolicy(attempts=2)
_NAMES_AT_ONCE = 100


class ServerSource:
    """The runs of one project, or one run, on a W&B server.

    Parameters
    ----------
    address : RemoteAddress
        The project or run.
    client : GraphQLClient
        The server, with the key for it; its counts are those of this source.
    finder : Step0Finder
        Finds step 0 among the rows.
    clock : callable
        Returns the present in UTC.
    page_size : int
        Runs asked for in one request.
    """

    is_remote = True

    def __init__(
        self,
        address: RemoteAddress,
        client: GraphQLClient,
        finder: Step0Finder,
        *,
        clock: Callable[[], datetime],
        page_size: int = PAGE_SIZE,
    ) -> None:
        self.address = address
        self.client = client
        self.runs_seen = 0
        self._finder = finder
        self._clock = clock
        self._page_size = page_size

    @property
    def name(self) -> str:
        """Return the name under which the store keeps what was read."""
        return f"wandb:{self.address}"

    @property
    def requests(self) -> int:
        """Return the requests sent, retries included."""
        return self.client.requests

    def read(self, memory: SourceMemory) -> Iterator[SourcePage]:
        """Yield what is new since the cursor of `memory`; without one, everything.

        Raises
        ------
        CredentialsError
            The key is refused.
        SourceError
            The server cannot be read; the pages before are whole.
        UsageError
            The one run that was asked for does not exist.
        """
        self.runs_seen = 0
        progress = Progress.load(memory.cursor, now=self._clock())
        flat = progress.flat_until is not None and self._clock() < progress.flat_until
        project = ProjectClient(self.client, self.address)
        fetcher = Fetcher(
            project, self._finder, page_size=self._page_size, metrics=progress.metrics, flat=flat
        )
        sync = _Sync(self, fetcher, progress, memory)
        for page in sync.one(self.address.run_id) if self.address.run_id else sync.all():
            self.runs_seen += len(page.readings)
            yield page

    def reading(self, search: Step0Search, *, again: bool = False) -> Reading:
        """Return the reading of a run, `again` where it may have started again since its step 0 was read."""
        newest, *earlier = reversed([search, *search.later])
        records = tuple(self.record(start) for start in reversed(earlier))
        return Reading(self.record(newest), earlier=records, again=again)

    def record(self, search: Step0Search) -> RunRecord:
        """Return the record of one start of a run."""
        node, address = search.node, self.address
        rows = (*search.rows, *([LOST_ROW] if search.has_lost_rows else []))
        return RunRecord(
            entity=address.entity,
            project=address.project,
            run_id=node.name,
            name=node.display_name,
            url=self.client.server.run_url(address.entity, address.project, node.name),
            user=node.user,
            group=node.group,
            job_type=node.job_type,
            tags=node.tags,
            created_at=node.created_at,
            state=node.state,
            config=search.config,
            rows=rows or (NOTHING_LOGGED if node.line_count == 0 else ()),
        )

    def key(self, name: str) -> str:
        """Return the key of a run of this project."""
        return run_key(self.address.entity, self.address.project, name)

    @property
    def fingerprint(self) -> str:
        """Return what changes with the profiles."""
        return self._finder.profiles.fingerprint

    def now(self) -> datetime:
        """Return the present."""
        return self._clock()


class _Sync:
    """One reading of a source."""

    def __init__(
        self, source: ServerSource, fetcher: Fetcher, progress: Progress, memory: SourceMemory
    ) -> None:
        self._source = source
        self._fetcher = fetcher
        self._progress = progress
        self._memory = memory
        self._seen: set[str] = set()
        self._on_server: int | None = None
        self._shifted = False  # between two pages, so that the second may have skipped runs

    def one(self, name: str) -> Iterator[SourcePage]:
        """Yield the page of a single run."""
        runs = self._fetcher.by_name([name])
        key = self._source.key(name)
        if runs.gone:
            raise UsageError(
                f"The run {key} does not exist on {self._source.client.server.base_url}",
                "Check the run id: it is the last part of the run's URL.",
            )
        if runs.lost:
            raise SourceError(f"The run {key} cannot be read: {runs.lost[0].why}")
        yield self._page(runs)

    def all(self) -> Iterator[SourcePage]:
        """Yield every page of a sync."""
        old_profiles = self._progress.profiles
        if self._progress.since is None:
            old_profiles = self._progress.profiles = self._source.fingerprint
        lost = tuple(self._progress.lost)
        yield from self._news()
        if lost:
            yield self._page(self._fetcher.by_name(lost, _QUICK))
        if old_profiles != self._source.fingerprint:
            yield from self._again()
        if self._shifted or (self._on_server is not None and self._on_server != self._expected()):
            yield from self._reconcile()

    def _news(self) -> Iterator[SourcePage]:
        """Yield the runs created since, and those that were pending or watched."""
        progress = self._progress
        pending = sorted(progress.pending)
        watched = progress.watched_names()
        filters, light = progress.filters(pending[:MOST_NAMES]), progress.light_filters(self._source.now())
        query: PageQuery | None = PageQuery(filters, light=light)
        listing, unreadable = Listing(f"The runs of {self._source.address}"), list[str]()
        restarted: set[str] = set()
        while query is not None:
            page = self._fetcher.page(query)
            self._shifted |= self._on_server not in (None, page.count)
            self._on_server = page.count
            lists = {
                name: self._whole(part, light[name]) for name, part in page.light.items() if name != "named"
            }
            restarted |= {node.name for node in lists.get("watched", ()) if progress.has_restarted(node)}
            restarted |= {node.name for node in lists.get("active", ()) if node.job_type != OWN_JOB_TYPE}
            nodes = [node for name in ("watched", "labeled") for node in lists.get(name, ())]
            yield self._page(page.runs, nodes, named=page.light.get("named"))
            end = listing.next(page.names, page.end)
            unreadable += [name for part in page.light.values() for name in part.unreadable]
            query = PageQuery(filters, end) if end else None
        for names in chunks(watched[MOST_NAMES:], MOST_NAMES):
            nodes = [*self._fetcher.light(names_filter(names))]
            restarted |= {node.name for node in nodes if progress.has_restarted(node)}
            yield self._page(FetchedRuns(), nodes)
        yield from self._named(sorted(set(unreadable) - self._seen - progress.lost.keys()))
        yield from self._named(pending[MOST_NAMES:])
        again = sorted(restarted & self._memory.names.keys() - self._seen - progress.lost.keys())
        for part in chunks(again, _NAMES_AT_ONCE):
            yield self._page(self._fetcher.by_name(part, restarted=True), again=True)

    def _whole(self, page: RunPage, filters: Mapping[str, Json]) -> Sequence[RunNode]:
        """Return all runs of a light list, of which `page` may be the first part."""
        return page.nodes if page.end is None else [*self._fetcher.light(filters)]

    def _named(self, names: Sequence[str]) -> Iterator[SourcePage]:
        """Yield runs by their ids."""
        for part in chunks(names, _NAMES_AT_ONCE):
            yield self._page(self._fetcher.by_name(part, ONE_RUN))

    def _again(self) -> Iterator[SourcePage]:
        """Yield the runs in which no step 0 was found: the profiles have changed."""
        without = self._memory.names_without_step0
        yield from self._named(sorted(without - self._seen))
        self._progress.profiles = self._source.fingerprint
        yield self._page(FetchedRuns())

    def _expected(self) -> int:
        return self._progress.count + len(self._progress.lost) + self._progress.surplus

    def _reconcile(self) -> Iterator[SourcePage]:
        """Yield runs that appeared late, and mark those that are gone, by listing all names."""
        listed = set(self._fetcher.names({}))
        known = {*self._memory.names, *self._seen}
        yield from self._named(sorted(listed - known - set(self._progress.lost)))
        gone = self._surely_gone(sorted((known | set(self._progress.lost)) - listed))
        for name in gone:
            self._progress.forget(name)
        self._progress.count = len({*known, *self._seen} - set(gone) - set(self._progress.lost))
        self._progress.surplus = 0
        self._progress.surplus = (self._on_server or 0) - self._expected()
        yield self._page(FetchedRuns(), deleted=gone)

    def _surely_gone(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that the server denies; a listing that shifts may skip some."""
        there = {
            name for part in chunks(names, MOST_NAMES) for name in self._fetcher.names(names_filter(part))
        }
        return [name for name in names if name not in there]

    def _page(
        self,
        runs: FetchedRuns,
        light: Sequence[RunNode] = (),
        *,
        named: RunPage | None = None,
        deleted: Iterable[str] = (),
        again: bool = False,
    ) -> SourcePage:
        """Return the page of what was fetched, and note it as read."""
        source, progress, now = self._source, self._progress, self._source.now()
        fresh = [search for search in runs.found if search.node.name not in self._seen]
        for search in fresh:
            self._seen.add(search.node.name)
            progress.settle(search, now, again=again)
        problems = tuple(
            Problem(source.key(run.name), run.why) for run in runs.lost if progress.lose(run.name, run.why)
        )
        for name in runs.gone:
            progress.forget(name)
        changed = progress.note((node for node in light if node.name not in self._seen), now)
        if named is not None:
            progress.named_from = named.nodes[-1].created_at if named.end and named.nodes else None
            stored = self._memory.names
            renamed = (
                node for node in named.nodes if stored.get(node.name, node.display_name) != node.display_name
            )
            noted = self._seen | {node.name for node in changed}
            changed += [node for node in renamed if node.name not in noted]
        progress.trim(now)
        progress.metrics |= self._fetcher.metrics
        if self._fetcher.refused:
            progress.flat_until = now + _TRY_NESTED_AGAIN
        alive = [node for node in (*light, *(search.node for search in fresh)) if node.state in ALIVE]
        return SourcePage(
            readings=tuple(source.reading(search, again=again) for search in fresh),
            cursor=progress.save(),
            updates=tuple(
                RunUpdate(source.key(node.name), node.display_name, node.state, node.tags) for node in changed
            ),
            deleted=tuple(source.key(name) for name in (*deleted, *runs.gone)),
            problems=problems,
            heartbeats={source.key(node.name): node.heartbeat_at for node in alive if node.heartbeat_at},
            total=self._on_server,
        )
