"""Runs read by name, many in one request; a batch that fails is halved, down to one run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.wandb_api.client import ONE_RUN, PAGE, PROBE
from step0_wandb.wandb_api.faults import BAD_REQUEST, NO_PROJECT, RequestFailed
from step0_wandb.wandb_api.queries import (
    ORDER,
    Fields,
    batch_document,
    chunks,
    is_whole,
    names_filter,
    page_document,
    read_page,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient, RetryPolicy
    from step0_wandb.wandb_api.queries import HistoryQuery

BATCH_SIZE = 25
OWN = {"jobType": OWN_JOB_TYPE}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """One run by name, and what to read of its history."""

    name: str
    history: HistoryQuery


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
        The runs as answered, by id.
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
        self.batch_size = BATCH_SIZE
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

    def read_runs(self, asks: Sequence[RunQuery], *, whole: bool, retry: RetryPolicy = ONE_RUN) -> RunBatch:
        """Return runs by name.

        Parameters
        ----------
        whole : bool
            Whether identity and config come with the rows.
        retry : RetryPolicy
            How often a single run is asked for before it is lost.

        Raises
        ------
        SourceError, CredentialsError
            The server does not answer, or not for any run.
        """
        result = RunBatch()
        parts = deque(chunks(asks, self.batch_size))
        while parts:
            part = parts.popleft()
            try:
                project = self.ask(*_question(part, whole=whole), PAGE if len(part) > 1 else retry)
                left = _take(result, part, project, strict=())
            except RequestFailed as failure:
                needed = ("config", "history", "sampledHistory") if whole else ("history", "sampledHistory")
                left = _take(result, part, usable(failure), strict=needed)
                if len(part) == 1 and left:
                    self._lose(result, part[0].name, failure)
                    continue
                if failure.fault is BAD_REQUEST:
                    self.batch_size = 1
            # Halves go to the end: between two failures the good ones show that the server lives.
            parts.extend(chunks(left, self.batch_size if self.batch_size == 1 else -(-len(part) // 2)))
        return result

    def _lose(self, result: RunBatch, name: str, failure: RequestFailed) -> None:
        """Note a run as lost, once it is sure that the server lives and the run is there."""
        if failure.fault is BAD_REQUEST:
            raise self.client.error(failure)
        variables = {
            "filters": to_json(names_filter([name])),
            "first": 1,
            "order": ORDER,
            "own": to_json(OWN),
        }
        project = self.fetch(page_document(Fields.NAME), variables, PROBE)
        if read_page(project.get("runs")).nodes:
            result.lost.append(LostRun(name, f"the server {failure}"))
        else:
            result.gone.append(name)


def usable(failure: RequestFailed) -> Mapping[str, Any]:
    """Return the project in an answer that came with errors; empty where there is none."""
    project = (failure.data or {}).get("project")
    return project if isinstance(project, dict) else {}


def _question(part: Sequence[RunQuery], *, whole: bool) -> tuple[str, dict[str, object]]:
    variables: dict[str, object] = {}
    for index, ask in enumerate(part):
        variables[f"name{index}"] = ask.name
        variables |= ask.history.variables(str(index))
    return batch_document(len(part), whole=whole), variables


def _take(
    result: RunBatch, part: Sequence[RunQuery], project: Mapping[str, Any], *, strict: tuple[str, ...]
) -> list[RunQuery]:
    """Move the runs of an answer into the result; return those that are to be asked again."""
    left = []
    for index, ask in enumerate(part):
        node = project.get(f"r{index}")
        if is_whole(node, strict):
            result.nodes[ask.name] = node
        elif node is None and not strict:
            result.gone.append(ask.name)
        else:
            left.append(ask)
    return left
