"""Runs read by name, many in one request; a batch that fails is halved, down to one run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from step0_wandb.records import OWN_JOB_TYPE, chunks
from step0_wandb.wandb_api.answers import ODD_RUN, is_whole, read_page
from step0_wandb.wandb_api.client import ONE_RUN, PAGE, PROBE, RetryPolicy, is_connection
from step0_wandb.wandb_api.faults import BAD_REQUEST, NO_PROJECT, NO_WANDB_ANSWER, RequestFailed
from step0_wandb.wandb_api.queries import ORDER, Fields, batch_document, names_filter, page_document, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.queries import HistoryQuery

BATCH_SIZE, SMALL_BATCH_SIZE = 25, 100
"""Runs of one request; the larger where little is asked of each."""
FAILING_S = 60.0
"""Seconds that a sync spends on runs that fail, all sources together; then what fails is left to the next one."""
_ONCE = RetryPolicy(attempts=1)
_SURELY_POISONED = RetryPolicy(attempts=2)
"""For a failing run that is not the first: the server has shown that it is the run that fails."""
OWN = {"jobType": OWN_JOB_TYPE}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """One run by name, and what to read of its history; `part` tells several questions about one run apart."""

    name: str
    history: HistoryQuery
    part: int = 0

    @property
    def key(self) -> str:
        """Return the name of the answer."""
        return f"{self.name}\0{self.part}" if self.part else self.name


@dataclass(frozen=True, slots=True)
class LostRun:
    """A run that could not be read, and why."""

    name: str
    why: str


@dataclass(slots=True)
class RunBatch:
    """Runs that were read by name.

    Attributes
    ----------
    nodes : dict of str to mapping
        The runs as answered, by the key of the question: the id, where it is the only one.
    gone : list of str
        Ids of runs that do not exist (any more).
    """

    nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    lost: list[LostRun] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


class ProjectClient:
    """Asks about one project.

    Attributes
    ----------
    batch_size : int
        Runs asked for by name at one time; 1 once the server has refused more.
    """

    def __init__(self, client: GraphQLClient, address: RemoteAddress) -> None:
        self.batch_size = SMALL_BATCH_SIZE
        self._read = self._poisoned = 0
        self.client = client
        self._address = address

    def ask(self, document: str, variables: Mapping[str, object], retry: RetryPolicy) -> Mapping[str, Any]:
        """Return the ``project`` of the answer.

        Raises
        ------
        RequestFailed
            As `GraphQLClient.ask`.
        SourceError, CredentialsError
            The fault is final, or there is no such project.
        """
        home = {"entity": self._address.entity, "project": self._address.project}
        try:
            data = self.client.ask(document, {**home, **variables}, retry)
        except RequestFailed as failure:
            if failure.fault.smaller:
                raise
            raise self.client.error(failure) from None
        project = data.get("project")
        if project is None:
            raise self.client.error(RequestFailed(NO_PROJECT, f"{home['entity']}/{home['project']}"))
        found: Mapping[str, Any] = project
        if " runs(" in document and not is_connection(found.get("runs")):
            raise RequestFailed(NO_WANDB_ANSWER, "data.project.runs is missing")
        return found

    def fetch(self, document: str, variables: Mapping[str, object], retry: RetryPolicy) -> Mapping[str, Any]:
        """Return what `ask` does, where nothing smaller can be asked for.

        Raises
        ------
        SourceError, CredentialsError
            As `GraphQLClient.fetch`, or there is no such project.
        """
        try:
            return self.ask(document, variables, retry)
        except RequestFailed as failure:
            raise self.client.error(failure) from None

    def read_runs(
        self, runs: Sequence[RunQuery], *, whole: bool, keys: bool = False, retry: RetryPolicy = ONE_RUN
    ) -> RunBatch:
        """Return runs by name.

        Parameters
        ----------
        whole : bool
            Whether identity and config come with the rows.
        keys : bool
            Whether the names of everything that was logged come too, where `whole` does not.
        retry : RetryPolicy
            How often a single run is asked for before it is lost.

        Raises
        ------
        SourceError, CredentialsError
            The server does not answer, or not for any run.
        """
        result = RunBatch()
        at_once = BATCH_SIZE if whole or keys else SMALL_BATCH_SIZE
        parts = deque(chunks(runs, min(self.batch_size, at_once)))
        while parts:
            part = parts.popleft()
            began = self.client.now()
            try:
                project = self.ask(*_question(part, whole=whole, keys=keys), self._retries(part, retry))
                left = _take(result, part, project, strict=())
                self._read += len(part)
                if left and len(part) == 1:
                    result.lost.append(LostRun(part[0].name, ODD_RUN.format("an answer of another shape")))
                    continue
            except RequestFailed as failure:
                self.client.limiter.spend_on_failing(self.client.now() - began)
                needed = ("config", "history", "sampledHistory") if whole else ("history", "sampledHistory")
                left = _take(result, part, usable(failure), strict=needed)
                if left and (len(part) == 1 or self._is_over(failure)):
                    self._lose(result, left, failure)
                    continue
                if failure.fault is BAD_REQUEST:
                    self.batch_size = 1
            halves = [*chunks(left, self.batch_size if self.batch_size == 1 else -(-len(part) // 2))]
            # In depth until something is given, then in breadth: good answers between two failures
            # show that the server is up.
            parts = deque([*parts, *halves] if self._read else [*halves, *parts])
        return result

    def _retries(self, part: Sequence[RunQuery], retry: RetryPolicy) -> RetryPolicy:
        if not self._read:  # the server has given nothing yet: it may be the server that fails
            return PAGE if len(part) > 1 else retry
        if (
            self.client.limiter.failing_s > FAILING_S or len(part) > 1
        ):  # halves are as good as another attempt
            return _ONCE
        return _SURELY_POISONED if self._poisoned and retry is ONE_RUN else retry

    def _is_over(self, failure: RequestFailed) -> bool:
        """Return whether no more time goes to failing runs, on a server that gives others."""
        return (
            bool(self._read)
            and self.client.limiter.failing_s > FAILING_S
            and failure.fault is not BAD_REQUEST
        )

    def _lose(self, result: RunBatch, runs: Sequence[RunQuery], failure: RequestFailed) -> None:
        """Note runs as lost; of a single one, once it is sure that the server is up and the run is there."""
        if failure.fault is BAD_REQUEST:
            raise self.client.error(failure)
        self._poisoned += len(runs)
        if len(runs) > 1:
            why = f"the server {failure}; the next sync asks for it again"
            result.lost += [LostRun(run.name, why) for run in runs]
            return
        name = runs[0].name
        variables = {
            "filters": to_json(names_filter([name])),
            "first": 1,
            "order": ORDER,
            "own": to_json(OWN),
        }
        project = self.fetch(page_document(Fields.NAME), variables, PROBE)
        if read_page(project["runs"]).nodes:
            result.lost.append(LostRun(name, f"the server {failure}"))
        else:
            result.gone.append(name)


def usable(failure: RequestFailed) -> Mapping[str, Any]:
    """Return the project in an answer that came with errors; empty where there is none."""
    project = (failure.data or {}).get("project")
    return project if isinstance(project, dict) else {}


def _question(part: Sequence[RunQuery], *, whole: bool, keys: bool) -> tuple[str, dict[str, object]]:
    variables: dict[str, object] = {}
    for index, ask in enumerate(part):
        variables[f"name{index}"] = ask.name
        variables |= ask.history.variables(str(index))
    return batch_document(len(part), whole=whole, keys=keys), variables


def _take(
    result: RunBatch, part: Sequence[RunQuery], project: Mapping[str, Any], *, strict: tuple[str, ...]
) -> list[RunQuery]:
    """Move the runs of an answer into the result; return those that are to be asked again."""
    left = []
    for index, ask in enumerate(part):
        node = project.get(f"r{index}")
        if is_whole(node, strict):
            result.nodes[ask.key] = node
        elif node is None and not strict and f"r{index}" in project:
            result.gone.append(ask.name)
        else:
            left.append(ask)
    return left
