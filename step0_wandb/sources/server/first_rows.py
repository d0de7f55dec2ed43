"""The first rows of one server run, whole, with the names of all that it has logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.text.redact import scrub
from step0_wandb.wandb_api.answers import SHAPE_ERRORS, UnreadableRun, read_run
from step0_wandb.wandb_api.batches import ProjectClient
from step0_wandb.wandb_api.client import RetryPolicy

if TYPE_CHECKING:
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient

_RUN = (
    "query Step0FirstRows($entity: String!, $project: String!, $run: String!, $rows: Int!, $high: Int64!) {"
    " project(name: $project, entityName: $entity) { run(name: $run) { name displayName state createdAt config"
    " historyKeys summaryMetrics history(minStep: 0, maxStep: $high, samples: $rows) } } }"
)


def first_rows(client: GraphQLClient, address: RemoteAddress, count: int) -> RunRecord:
    """Return a run with its first `count` rows, and one row more without values for each other name.

    Raises
    ------
    SourceError, CredentialsError
        The server cannot be asked.
    UsageError
        The run does not exist.
    """
    asked = {"run": address.run_id, "rows": count, "high": count}
    node = ProjectClient(client, address).fetch(_RUN, asked, RetryPolicy()).get("run")
    if node is None:
        raise UsageError(f"The run {address} does not exist on {client.server.base_url}")
    try:
        run = read_run(node)
    except (UnreadableRun, *SHAPE_ERRORS) as error:
        raise SourceError(f"W&B describes {address} in an unknown way") from error
    logged = {name for row in run.seen.rows for name in row.values}
    later = dict.fromkeys(sorted(run.seen.keys - logged), float("nan"))
    return RunRecord(
        address.entity,
        address.project,
        run.name,
        name=run.display_name,
        url=f"{client.server.base_url}/{address.entity}/{address.project}/runs/{run.name}",
        state=run.state,
        created_at=run.created_at,
        config=scrub(run.config),
        rows=(*run.seen.rows, *([HistoryRow(later, len(run.seen.rows))] if later else [])),
    )
