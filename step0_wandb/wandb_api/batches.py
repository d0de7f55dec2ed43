"""Runs asked for by name, many in one request; a batch that fails is halved, down to one run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.wandb_api.client import ALIVE, ONE_RUN, PAGE
from step0_wandb.wandb_api.faults import BAD_REQUEST, NO_PROJECT, RequestFailed
from step0_wandb.wandb_api.queries import (
    ORDER,
    Fields,
    batch_document,
    is_whole,
    names_filter,
    page_document,
    read_page,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import Asking, GraphQLClient
    from step0_wandb.wandb_api.queries import Look

BATCH_SIZE = 25
OWN = {"jobType": OWN_JOB_TYPE}


@dataclass(frozen=True, slots=True)
class Ask:
    """One run to be read by name, and what of its history."""

    name: str
    look: Look


@dataclass(frozen=True, slots=True)
class Lost:
    """A run that could not be read, and why."""

    name: str
    why: str


@dataclass(slots=True)
class Batch:
    """What came of asking for runs by name.

    Attributes
    ----------
    nodes : dict of str to mapping
        The runs as answered, by id.
    gone : list of str
        Ids of runs that do not exist (any more).
    """

    nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
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

    def ask(self, document: str, variables: Mapping[str, object], how: Asking) -> Mapping[str, Any]:
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
            data = self.client.ask(document, {**home, **variables}, how)
        except RequestFailed as failure:
            if failure.fault.smaller:
                raise
            raise self.client.error(failure) from None
        project = data.get("project")
        if project is None:
            raise self.client.error(RequestFailed(NO_PROJECT, f"{home['entity']}/{home['project']}"))
        found: Mapping[str, Any] = project
        return found

    def batches(self, asks: Sequence[Ask], *, who: bool, how: Asking = ONE_RUN) -> Batch:
        """Return runs by name.

        Parameters
        ----------
        who : bool
            Whether identity and config come with the rows.
        how : Asking
            How hard a run is asked for that comes with no other; then it is lost.

        Raises
        ------
        SourceError, CredentialsError
            The server does not answer, or not for any run.
        """
        result = Batch()
        parts = deque(_chunks(asks, self.batch_size))
        while parts:
            part = parts.popleft()
            try:
                project = self.ask(*_question(part, who=who), PAGE if len(part) > 1 else how)
                left = _take(result, part, project, strict=())
            except RequestFailed as failure:
                needed = ("config", "history", "sampledHistory") if who else ("history", "sampledHistory")
                left = _take(result, part, usable(failure), strict=needed)
                if len(part) == 1 and left:
                    self._lose(result, part[0].name, failure)
                    continue
                if failure.fault is BAD_REQUEST:
                    self.batch_size = 1
            # Halves go to the end: between two failures the good ones show that the server lives.
            parts.extend(_chunks(left, self.batch_size if self.batch_size == 1 else -(-len(part) // 2)))
        return result

    def _lose(self, result: Batch, name: str, failure: RequestFailed) -> None:
        """Note a run as lost, once it is sure that the server lives and the run is there."""
        if failure.fault is BAD_REQUEST:
            raise self.client.error(failure)
        variables = {
            "filters": to_json(names_filter([name])),
            "first": 1,
            "order": ORDER,
            "own": to_json(OWN),
        }
        try:
            project = self.ask(page_document(Fields.NAME), variables, ALIVE)
        except RequestFailed as dead:
            raise self.client.error(dead) from None
        if read_page(project.get("runs")).nodes:
            result.lost.append(Lost(name, f"the server {failure}"))
        else:
            result.gone.append(name)


def usable(failure: RequestFailed) -> Mapping[str, Any]:
    """Return the project in an answer that came with errors; empty where there is none."""
    project = (failure.data or {}).get("project")
    return project if isinstance(project, dict) else {}


def _question(part: Sequence[Ask], *, who: bool) -> tuple[str, dict[str, object]]:
    variables: dict[str, object] = {}
    for index, ask in enumerate(part):
        variables[f"name{index}"] = ask.name
        variables |= ask.look.variables(str(index))
    return batch_document(len(part), who=who), variables


def _take(
    result: Batch, part: Sequence[Ask], project: Mapping[str, Any], *, strict: tuple[str, ...]
) -> list[Ask]:
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


def _chunks(asks: Sequence[Ask], size: int) -> list[Sequence[Ask]]:
    return [asks[start : start + size] for start in range(0, len(asks), size)]
