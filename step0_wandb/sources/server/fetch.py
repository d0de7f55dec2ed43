"""Pages of runs from a server, each run with the rows of its step 0, whatever fails on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.sources.server.history import Trace, first_look
from step0_wandb.text.redact import scrub
from step0_wandb.wandb_api.batches import OWN, Ask, Lost, usable
from step0_wandb.wandb_api.client import ALIVE, ONE_RUN, PAGE, Asking
from step0_wandb.wandb_api.faults import BAD_REQUEST, RequestFailed
from step0_wandb.wandb_api.queries import (
    MOST_BESIDES,
    ORDER,
    Fields,
    Unreadable,
    page_document,
    read_history,
    read_page,
    read_run,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from step0_wandb.records import Json
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.wandb_api.batches import ProjectClient
    from step0_wandb.wandb_api.queries import Look, RunNode, RunPage

PAGE_SIZE = 100
_SMALLEST_PAGE = 10
_TRIES_NESTED = 2
BESIDES = ("watched", "labeled")
_STRICT = ("config", "history", "sampledHistory")


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs that were asked for.

    Attributes
    ----------
    found : tuple of Trace
        Each with the rows of its step 0, and its config without secrets.
    lost : tuple of Lost
        Those that exist and cannot be read.
    gone : tuple of str
        Ids of runs that do not exist (any more).
    """

    found: tuple[Trace, ...] = ()
    lost: tuple[Lost, ...] = ()
    gone: tuple[str, ...] = ()

    def __add__(self, other: Runs) -> Runs:
        return Runs(self.found + other.found, self.lost + other.lost, self.gone + other.gone)


@dataclass(frozen=True, slots=True)
class Question:
    """Which page is asked for, and what comes along.

    Attributes
    ----------
    filters : mapping
        W&B's filter of the runs.
    after : str or None
        Where the page begins.
    besides : mapping of str to mapping
        Filters of runs that come along without config and history, under the names
        in `BESIDES`.
    """

    filters: Mapping[str, Json]
    after: str | None = None
    besides: Mapping[str, Mapping[str, Json]] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of runs.

    Attributes
    ----------
    besides : tuple of RunNode
        The watched and labeled runs, without config and history.
    more_besides : bool
        Whether there are more of them.
    count : int or None
        Runs of the project, our own left out; None where the server does not say.
    end : str or None
        Where the next page begins; None after the last.
    """

    runs: Runs
    besides: tuple[RunNode, ...] = ()
    more_besides: bool = False
    count: int | None = None
    end: str | None = None


class Fetcher:
    """Reads the runs of one project.

    Attributes
    ----------
    page_size : int
        Runs in a page; it shrinks where the server cannot do more.
    metrics : frozenset of str
        The metrics seen in this project; every one that is looked for costs the server a scan a run.
    flat : bool
        Whether runs are read by name, as their histories do not come with a page.
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
        self._failed = 0

    @property
    def _look(self) -> Look:
        """Return the first look at a run, for the metrics that this project has."""
        return first_look(self.metrics or self._finder.metrics)

    def page(self, question: Question) -> Page:
        """Return one page of runs.

        Raises
        ------
        SourceError, CredentialsError
            What the table in `faults` says.
        """
        if self.flat:
            return self._by_names(question, MOST_BESIDES)
        size, look = self.page_size, self._look
        strict: tuple[str, ...] = ()
        try:
            project = self._ask(question, Fields.ALL, size, PAGE)
            self._failed = 0
        except RequestFailed as failure:
            self._learn(failure)
            project, strict = usable(failure), _STRICT
        if project.get("runs") is None:
            return self._by_names(question, size)
        page = read_page(project["runs"], strict)
        runs = self._traced(page.nodes, look)
        if page.missing:
            runs += self._missing(question, size, page)
        return self._page(project, page, runs)

    def names(self, filters: Mapping[str, Json]) -> Iterator[list[str]]:
        """Yield the ids of the runs that a filter takes, our own left out, page by page."""
        for page in self._light(filters, Fields.NAME):
            yield [node.name for node in page.nodes if node.job_type != OWN_JOB_TYPE]

    def light(self, filters: Mapping[str, Json]) -> Iterator[RunNode]:
        """Yield the runs that a filter takes, without config and history."""
        for page in self._light(filters, Fields.WHO):
            yield from page.nodes

    def by_name(self, names: Sequence[str], how: Asking = ONE_RUN) -> Runs:
        """Return runs by their ids; `how` hard one is asked for that comes with no other."""
        look = self._look
        batch = self._project.batches([Ask(name, look) for name in names], who=True, how=how)
        nodes, lost = [], batch.lost
        for name, raw in batch.nodes.items():
            try:
                nodes.append(read_run(raw))
            except Unreadable as error:
                lost.append(Lost(name, str(error)))
        return self._traced(nodes, look) + Runs(lost=tuple(lost), gone=tuple(batch.gone))

    def _ask(self, question: Question, fields: Fields, size: int, how: Asking) -> Mapping[str, Any]:
        besides = question.besides or {}
        variables: dict[str, object] = {
            "filters": to_json(question.filters),
            "first": size,
            "after": question.after,
            "order": ORDER,
            "own": to_json(OWN),
        }
        variables |= {name: to_json(filters) for name, filters in besides.items()}
        if fields is Fields.ALL:
            variables |= self._look.variables()
        return self._project.ask(page_document(fields, tuple(besides)), variables, how)

    def _learn(self, failure: RequestFailed) -> None:
        """Ask for less from now on."""
        self._failed += 1
        self.page_size = max(_SMALLEST_PAGE, self.page_size // 2)
        self.refused = failure.fault is BAD_REQUEST
        self.flat = self.refused or self._failed >= _TRIES_NESTED

    def _surely(self, question: Question, fields: Fields, size: int, how: Asking) -> Mapping[str, Any]:
        """Ask what nothing smaller can replace."""
        try:
            return self._ask(question, fields, size, how)
        except RequestFailed as failure:
            raise self._project.client.error(failure) from None

    def _by_names(self, question: Question, size: int) -> Page:
        """Return a page whose runs are read by name, as the nested query does not work for it."""
        project = self._surely(question, Fields.NAME, size, ALIVE)
        page = read_page(project.get("runs"))
        names = [node.name for node in page.nodes if node.job_type != OWN_JOB_TYPE]
        return self._page(project, page, self.by_name(names))

    def _missing(self, question: Question, size: int, page: RunPage) -> Runs:
        """Return the runs of a page that its answer lacks."""
        listed = read_page(self._surely(question, Fields.NAME, size, ALIVE).get("runs"))
        whole = {node.name for node in page.nodes}
        return self.by_name([node.name for node in listed.nodes if node.name not in whole])

    def _light(self, filters: Mapping[str, Json], fields: Fields) -> Iterator[RunPage]:
        after: str | None = None
        while True:
            project = self._surely(Question(filters, after), fields, MOST_BESIDES, Asking())
            page = read_page(project.get("runs"))
            yield page
            after = page.end
            if after is None:
                return

    def _page(self, project: Mapping[str, Any], page: RunPage, runs: Runs) -> Page:
        total, own = project.get("total"), project.get("own")
        besides = [read_page(project[name]) for name in BESIDES if project.get(name)]
        return Page(
            runs=runs,
            besides=tuple(node for part in besides for node in part.nodes),
            more_besides=any(part.end for part in besides),
            count=total - own if isinstance(total, int) and isinstance(own, int) else None,
            end=page.end,
        )

    def _traced(self, nodes: Sequence[RunNode], look: Look) -> Runs:
        """Return the runs with the rows of their step 0, which may take further requests."""
        traces = {
            node.name: Trace(node, look, config=scrub(node.config), finder=self._finder)
            for node in nodes
            if node.job_type != OWN_JOB_TYPE
        }
        lost: dict[str, Lost] = {}
        while open_ := [
            Ask(name, trace.next) for name, trace in traces.items() if trace.next and name not in lost
        ]:
            batch = self._project.batches(open_, who=False)
            lost |= {run.name: run for run in batch.lost}
            lost |= {name: Lost(name, "it went away while it was read") for name in batch.gone}
            for name, raw in batch.nodes.items():
                try:
                    traces[name].add(read_history(raw))
                except Unreadable as error:
                    lost[name] = Lost(name, str(error))
        found = tuple(trace for name, trace in traces.items() if name not in lost)
        names = {name for trace in found for row in trace.rows for name in row.values}
        self.metrics |= self._finder.metrics & names
        return Runs(found, tuple(lost.values()))
