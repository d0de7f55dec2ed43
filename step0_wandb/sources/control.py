"""What a gate asks of a server besides reading: which runs are new, how one fares, and to stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.sources.batches import ProjectClient
from step0_wandb.sources.faults import RequestFailed
from step0_wandb.sources.graphql import Asking
from step0_wandb.sources.queries import Fields, page_document, read_page, to_json

if TYPE_CHECKING:
    from datetime import datetime

    from step0_wandb.sources.address import RemoteAddress
    from step0_wandb.sources.graphql import GraphQLClient
    from step0_wandb.sources.queries import RunNode

_NEWEST = 100
_RUN = (
    "query Step0Run($entity: String!, $project: String!, $run: String!) "
    "{ project(name: $project, entityName: $entity) { run(name: $run) { id state } } }"
)
_STOP = "mutation Step0Stop($id: ID!) { stopRun(input: {id: $id}) { success } }"


class RunControl:
    """The runs of one project, as far as a gate needs them.

    Parameters
    ----------
    client : GraphQLClient
        The server, with the key for it.
    address : RemoteAddress
        The project.
    """

    def __init__(self, client: GraphQLClient, address: RemoteAddress) -> None:
        self._client = client
        self._project = ProjectClient(client, address)

    def created_since(self, moment: datetime) -> tuple[RunNode, ...]:
        """Return the newest runs created at `moment` or later, a hundred at most.

        Raises
        ------
        SourceError, CredentialsError
            The server cannot be asked.
        """
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        variables = {
            "filters": to_json({"createdAt": {"$gte": stamp}}),
            "own": to_json({}),
            "first": _NEWEST,
            "after": None,
            "order": "-created_at",
        }
        answer = self._project.ask(page_document(Fields.WHO), variables, Asking())
        return tuple(read_page(answer.get("runs")).nodes)

    def state(self, run_id: str) -> str:
        """Return a run's state; ``deleted`` where there is no such run."""
        return self._run(run_id)[1]

    def stop(self, run_id: str) -> bool:
        """Ask the server to stop a run; return whether it took the request."""
        storage_id, _ = self._run(run_id)
        try:
            answer = self._client.ask(_STOP, {"id": storage_id}, Asking())
        except RequestFailed:
            return False
        return bool((answer.get("stopRun") or {}).get("success"))

    def _run(self, run_id: str) -> tuple[str, str]:
        run = self._project.ask(_RUN, {"run": run_id}, Asking()).get("run") or {}
        return str(run.get("id", "")), str(run.get("state", "deleted"))
