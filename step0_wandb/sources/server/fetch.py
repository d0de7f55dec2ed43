"""Pages of runs from a server, each run with the rows of its step 0, whatever fails on the way."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.sources.server.history import MOST_STARTS, Step0Search, first_query, later_starts
from step0_wandb.text.redact import scrub
from step0_wandb.wandb_api.answers import (
    ODD_RUN,
    SHAPE_ERRORS,
    UnreadableRun,
    read_history,
    read_page,
    read_run,
    read_samples,
)
from step0_wandb.wandb_api.batches import OWN, LostRun, RunQuery, usable
from step0_wandb.wandb_api.client import ONE_RUN, PAGE, PROBE, RetryPolicy, is_connection
from step0_wandb.wandb_api.faults import BAD_REQUEST, RequestFailed
from step0_wandb.wandb_api.paging import Listing
from step0_wandb.wandb_api.queries import (
    LIGHT_PAGE,
    ORDER,
    STEP,
    Fields,
    HistoryQuery,
    Window,
    page_document,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from step0_wandb.records import Json
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.wandb_api.answers import RunNode, RunPage
    from step0_wandb.wandb_api.batches import ProjectClient, RunBatch

PAGE_SIZE = 100
_SMALLEST_PAGE = 10
_FAILURES_BEFORE_FLAT = 2
LIGHT = ("watched", "labeled", "active", "named")
_Scanned = dict[tuple[str, str], list[dict[str, float]]]
"""The rows of a step key with a metric next to it, by both."""
_STRICT = ("config", "history", "sampledHistory")


@dataclass(frozen=True, slots=True)
class FetchedRuns:
    """Runs that were asked for.

    Attributes
    ----------
    found : tuple of Step0Search
        Each with the rows of its step 0, and its config without secrets.
    lost : tuple of LostRun
        Those that exist and cannot be read.
    gone : tuple of str
        Ids of runs that do not exist (any more).
    """

    found: tuple[Step0Search, ...] = ()
    lost: tuple[LostRun, ...] = ()
    gone: tuple[str, ...] = ()

    def __add__(self, other: FetchedRuns) -> FetchedRuns:
        return FetchedRuns(self.found + other.found, self.lost + other.lost, self.gone + other.gone)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which page is asked for, and what comes with it.

    Attributes
    ----------
    filters : mapping
        W&B's filter of the runs.
    after : str or None
        Where the page begins.
    light : mapping of str to mapping
        Filters of runs that come without config and history, under the names in `LIGHT`.
    """

    filters: Mapping[str, Json]
    after: str | None = None
    light: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """One page of runs.

    Attributes
    ----------
    names : tuple of str
        The ids of the page's runs, our own too.
    light : mapping of str to RunPage
        Runs without config and history, under the names in `LIGHT`.
    count : int or None
        Runs of the project, our own left out; None where the server does not say.
    end : str or None
        Where the next page begins; None after the last.
    """

    runs: FetchedRuns
    names: tuple[str, ...] = ()
    light: Mapping[str, RunPage] = field(default_factory=dict)
    count: int | None = None
    end: str | None = None


class Fetcher:
    """Reads the runs of one project.

    Attributes
    ----------
    page_size : int
        Runs in a page; it shrinks where the server cannot do more.
    metrics : frozenset of str
        The metrics seen in this project; each one that is looked for costs the server a scan a run.
    flat : bool
        Whether runs are read by name, because their histories do not come with a page.
    refused : bool
        Whether the server has said that it cannot do that.
    """

    def __init__(
        self,
        project: ProjectClient,
        finder: Step0Finder,
        *,
        page_size: int = PAGE_SIZE,
        metrics: Iterable[str] = (),
        flat: bool = False,
    ) -> None:
        self.page_size = page_size
        self.flat = flat
        self.refused = False
        self._project = project
        self._finder = finder
        self.metrics = finder.metrics.intersection(metrics)
        self._failures = 0

    @property
    def _first_query(self) -> HistoryQuery:
        return first_query(self.metrics or self._finder.metrics)

    def page(self, query: PageQuery) -> FetchedPage:
        """Return one page of runs.

        Raises
        ------
        SourceError, CredentialsError
            What the table in `faults` says.
        """
        if self.flat:
            return self._by_names(query, LIGHT_PAGE)
        size, history = self.page_size, self._first_query
        strict: tuple[str, ...] = ()
        try:
            project = self._project.ask(*self._request(query, Fields.ALL, size), PAGE)
            self._failures = 0
        except RequestFailed as failure:
            self._ask_for_less(failure)
            project, strict = usable(failure), _STRICT
        if not is_connection(project.get("runs")):  # lost to an error, or part of it
            return self._by_names(query, size)
        page = read_page(project["runs"], strict)
        runs = self._searched(page.nodes, history)
        if page.missing:
            listed = self._names_page(query, size)[1]
            whole = {node.name for node in page.nodes}
            runs += self.by_name([node.name for node in listed.nodes if node.name not in whole])
        return _fetched_page(project, page, runs)

    def names(self, filters: Mapping[str, Json]) -> Iterator[str]:
        """Yield the ids of the runs that a filter takes, our own left out."""
        for page in self._light_pages(filters, Fields.NAME):
            yield from (node.name for node in page.nodes if node.job_type != OWN_JOB_TYPE)

    def light(self, filters: Mapping[str, Json]) -> Iterator[RunNode]:
        """Yield the runs that a filter takes, without config and history."""
        for page in self._light_pages(filters, Fields.IDENTITY):
            yield from page.nodes

    def by_name(
        self, names: Sequence[str], retry: RetryPolicy = ONE_RUN, *, restarted: bool = False
    ) -> FetchedRuns:
        """Return runs by their ids.

        Parameters
        ----------
        retry : RetryPolicy
            Of a run that is asked for alone.
        restarted : bool
            Whether these runs seem to have started again.
        """
        history = replace(self._first_query, scans=self._scans() if restarted else ())
        batch = self._project.read_runs([RunQuery(name, history) for name in names], whole=True, retry=retry)
        nodes, lost, scanned = [], batch.lost, dict[str, _Scanned]()
        for name, raw in batch.nodes.items():
            samples = raw.get("sampledHistory") or []
            asked = len(history.metrics)
            try:
                first = samples[:asked] if isinstance(samples, list) else samples  # which `read_run` refuses
                nodes.append(read_run({**raw, "sampledHistory": first}))
                scanned[name] = {
                    pair: read_samples({"sampledHistory": [rows]})
                    for pair, rows in zip(history.scans, samples[asked:], strict=False)
                }
            except UnreadableRun as error:
                lost.append(LostRun(name, str(error)))
        return self._searched(nodes, history, scanned) + FetchedRuns(lost=tuple(lost), gone=tuple(batch.gone))

    def _scans(self) -> tuple[tuple[str, str], ...]:
        """Return the step keys of the project's frameworks, each with a metric that stands next to it."""
        seen = self.metrics or self._finder.metrics
        found = {
            (key, min(logged))
            for profile in self._finder.profiles.by_name.values()
            if (logged := seen & profile.metrics.names)
            for key in profile.step.keys
            if key != STEP
        }
        return tuple(sorted(found))

    def _request(self, query: PageQuery, fields: Fields, size: int) -> tuple[str, Mapping[str, object]]:
        variables: dict[str, object] = {
            "filters": to_json(query.filters),
            "first": size,
            "after": query.after,
            "order": ORDER,
            "own": to_json(OWN),
        }
        variables |= {name: to_json(filters) for name, filters in query.light.items()}
        if fields is Fields.ALL:
            variables |= self._first_query.variables()
        return page_document(fields, tuple(query.light)), variables

    def _ask_for_less(self, failure: RequestFailed) -> None:
        self._failures += 1
        self.page_size = max(_SMALLEST_PAGE, self.page_size // 2)
        self.refused = failure.fault is BAD_REQUEST
        self.flat = self.refused or self._failures >= _FAILURES_BEFORE_FLAT

    def _names_page(self, query: PageQuery, size: int) -> tuple[Mapping[str, Any], RunPage]:
        project = self._project.fetch(*self._request(query, Fields.NAME, size), PROBE)
        return project, read_page(project["runs"])

    def _by_names(self, query: PageQuery, size: int) -> FetchedPage:
        """Return a page whose runs are read by name, because the nested query does not work for it."""
        project, page = self._names_page(query, size)
        names = [node.name for node in page.nodes if node.job_type != OWN_JOB_TYPE]
        return _fetched_page(project, page, self.by_name(names))

    def _light_pages(self, filters: Mapping[str, Json], fields: Fields) -> Iterator[RunPage]:
        query: PageQuery | None = PageQuery(filters)
        listing = Listing("The runs of a project")
        while query is not None:
            project = self._project.fetch(*self._request(query, fields, LIGHT_PAGE), RetryPolicy())
            page = read_page(project["runs"])
            yield page
            end = listing.next(page.names, page.end)
            query = PageQuery(filters, end) if end else None

    def _searched(
        self, nodes: Sequence[RunNode], history: HistoryQuery, scanned: Mapping[str, _Scanned] | None = None
    ) -> FetchedRuns:
        """Return the runs with the rows of their step 0, which may take further requests.

        Parameters
        ----------
        scanned : mapping of str to mapping, optional
            What the step keys of some runs are, by their ids; these are looked through for later starts.
        """
        scanned = scanned or {}
        searches: dict[str, Step0Search] = {}
        lost: dict[str, LostRun] = {}
        for node in nodes:
            if node.job_type == OWN_JOB_TYPE:
                continue
            with _losing(node.name, lost):
                config = scrub(node.config)
                searches[node.name] = Step0Search(node, history, config=config, finder=self._finder)
        while unfinished := {
            name: search.next for name, search in searches.items() if search.next and name not in lost
        }:
            for name, part in self._histories(unfinished, lost, keys=True).items():
                with _losing(name, lost):
                    searches[name].add(read_history(part))
        may_have_several = {
            name: search
            for name, search in searches.items()
            if name not in lost and (scanned.get(name) or len(search.node.writers) > 1)
        }
        self._find_later_starts(may_have_several, scanned, lost)
        found = tuple(search for name, search in searches.items() if name not in lost)
        names = {name for search in found for row in search.rows for name in row.values}
        self.metrics |= self._finder.metrics & names
        return FetchedRuns(found, tuple(lost.values()))

    def _find_later_starts(
        self, searches: Mapping[str, Step0Search], scanned: Mapping[str, _Scanned], lost: dict[str, LostRun]
    ) -> None:
        """Add the later starts of runs that may have some: one request for all that are not scanned, one for the rest."""
        scans = {name: query for name, search in searches.items() if (query := search.scan()) is not None}
        rows = {name: _rows_of(query, scanned.get(name) or {}) for name, query in scans.items()}
        missing = {name: query for name, query in scans.items() if not rows[name]}
        for name, node in self._histories(missing, lost).items():
            with _losing(name, lost):
                rows[name] = read_samples(node)
        looks = [
            RunQuery(name, HistoryQuery(window, Window(0, 1), (), 1), at)
            for name, query in scans.items()
            if name not in lost
            for at, window in enumerate(later_starts(rows[name], query.step_key)[-MOST_STARTS:])
        ]
        batch = self._project.read_runs(looks, whole=False)
        _note_lost(batch, lost)
        for look in looks:
            if look.name not in lost:
                with _losing(look.name, lost):
                    searches[look.name].start_at(look.history, read_history(batch.nodes[look.key]))
        for name, query in scans.items():
            steps = [row[query.step_key] for row in rows[name]]
            if searches[name].later and steps[0] > min(steps):
                searches[name].take_late_rows()

    def _histories(
        self, queries: Mapping[str, HistoryQuery], lost: dict[str, LostRun], *, keys: bool = False
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return parts of the histories of runs; runs that cannot be read are added to `lost`."""
        asked = [RunQuery(*item) for item in queries.items()]
        batch = self._project.read_runs(asked, whole=False, keys=keys)
        _note_lost(batch, lost)
        return batch.nodes


def _rows_of(query: HistoryQuery, scanned: _Scanned) -> list[dict[str, float]]:
    """Return the rows of a step key where they came with the run."""
    rows = (found for (key, _), found in scanned.items() if key == query.step_key and found)
    return next(rows, [])


def _note_lost(batch: RunBatch, lost: dict[str, LostRun]) -> None:
    lost |= {run.name: run for run in batch.lost}
    lost |= {name: LostRun(name, "it was deleted while it was read") for name in batch.gone}


@contextmanager
def _losing(name: str, lost: dict[str, LostRun]) -> Iterator[None]:
    """Add a run to `lost` where the block cannot read what the server says of it."""
    try:
        yield
    except UnreadableRun as error:
        lost[name] = LostRun(name, str(error))
    except SHAPE_ERRORS as error:
        lost[name] = LostRun(name, ODD_RUN.format(type(error).__name__))


def _fetched_page(project: Mapping[str, Any], page: RunPage, runs: FetchedRuns) -> FetchedPage:
    total, own = project.get("total"), project.get("own")
    return FetchedPage(
        runs=runs,
        names=page.names,
        light={name: read_page(project[name]) for name in LIGHT if is_connection(project.get(name))},
        count=total - own if isinstance(total, int) and isinstance(own, int) else None,
        end=page.end,
    )
