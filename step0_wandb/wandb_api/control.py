"""What a gate asks of a server apart from reading: which runs are new, a run's state, and to stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.wandb_api.answers import read_page
from step0_wandb.wandb_api.batches import OWN, ProjectClient
from step0_wandb.wandb_api.client import RetryPolicy
from step0_wandb.wandb_api.faults import FORBIDDEN, RequestFailed
from step0_wandb.wandb_api.paging import Listing
from step0_wandb.wandb_api.queries import Fields, page_document, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.answers import RunNode
    from step0_wandb.wandb_api.client import GraphQLClient

_PAGE = 100
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
        """Return the runs created at `moment` or later, our own left out.

        Raises
        ------
        SourceError, CredentialsError
            The server cannot be asked, or has no such project.
        """
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        variables = {"filters": to_json({"createdAt": {"$gte": stamp}}), "own": to_json(OWN), "first": _PAGE}
        found: list[RunNode] = []
        after, listing = None, Listing("The runs of a project")
        while True:
            order = {"after": after, "order": "-created_at"}
            answer = self._project.fetch(page_document(Fields.IDENTITY), variables | order, RetryPolicy())
            page = read_page(answer["runs"])
            found += (node for node in page.nodes if node.job_type != OWN_JOB_TYPE)
            after = listing.next(page.names, page.end)
            if after is None:
                return tuple(found)

    def state(self, run_id: str) -> str:
        """Return a run's state; ``deleted`` where there is no such run.

        Raises
        ------
        SourceError, CredentialsError
            As `created_since`.
        """
        return str(self._run(run_id).get("state", "deleted"))

    def stop(self, run_id: str) -> bool:
        """Ask the server to stop a run; return whether it took the request.

        Raises
        ------
        SourceError, CredentialsError
            As `created_since`; False where this key may not stop the run.
        """
        try:
            answer = self._client.ask(_STOP, {"id": str(self._run(run_id).get("id", ""))}, RetryPolicy())
        except RequestFailed as failure:
            if failure.fault is FORBIDDEN:
                return False
            raise self._client.error(failure) from None
        return bool((answer.get("stopRun") or {}).get("success"))

    def _run(self, run_id: str) -> Mapping[str, Any]:
        return self._project.fetch(_RUN, {"run": run_id}, RetryPolicy()).get("run") or {}
