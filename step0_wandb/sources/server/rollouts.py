"""The rows of one server run that carry metrics, from the first to the last: what every rollout logged.

The server thins a sampled history out where it has more rows than samples, so it is asked in windows of
no more steps than samples, and for one metric at a time, since a row that lacks one of the keys asked for
is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.records import HistoryRow, chunks
from step0_wandb.step0.policies import of_policy
from step0_wandb.wandb_api.answers import SHAPE_ERRORS, numbers
from step0_wandb.wandb_api.batches import ProjectClient
from step0_wandb.wandb_api.client import RetryPolicy
from step0_wandb.wandb_api.queries import STEP, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.profiles import Profile
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient

WINDOW = 500
"""Steps, and samples, of one window."""
MOST_STEPS = 1_000_000
"""A longer history is not read: it would take more than some hundred requests."""
_AT_ONCE = 20
"""Windows of one request, a metric each."""
_RUN = "query Step0{}($entity: String!, $project: String!, $run: String!{}) {{ project(name: $project, entityName: $entity) {{ run(name: $run) {{ {} }} }} }}"
_KEYS = _RUN.format("Keys", "", "state historyKeys")
_ROWS = _RUN.format("Rollouts", ", $specs: [JSONString!]!", "sampledHistory(specs: $specs)")


class RolloutRows:
    """Reads the metric rows of one run, each row once.

    Parameters
    ----------
    client : GraphQLClient
        The server, with the key for it.
    address : RemoteAddress
        The run.
    profile : Profile
        Knows the metrics and the step keys.
    policy : str, optional
        The policy whose rows are wanted, where the run trains several; they come under plain names.

    Attributes
    ----------
    state : str
        The run's state at the last look; empty before the first.
    """

    def __init__(
        self, client: GraphQLClient, address: RemoteAddress, profile: Profile, *, policy: str | None = None
    ) -> None:
        self._client = client
        self._project = ProjectClient(client, address)
        self._address = address
        self._profile = profile
        self._policy = policy
        self._prefix = f"{policy}/" if policy else ""
        self._next = 0
        self.state = ""

    def read(self) -> tuple[HistoryRow, ...]:
        """Return the rows that were logged since the last call, the first time all of them.

        Raises
        ------
        SourceError, CredentialsError
            The server cannot be asked.
        UsageError
            The run does not exist.
        """
        run = self._ask(_KEYS, {})
        self.state = str(run.get("state") or "")
        try:
            return self._new_rows(run.get("historyKeys") or {})
        except SHAPE_ERRORS as error:
            raise SourceError(f"W&B describes the history of {self._address} in an unknown way") from error

    def _new_rows(self, known: Mapping[str, Any]) -> tuple[HistoryRow, ...]:
        last = known.get("lastStep")
        if last is None or last < self._next:
            return ()
        if last - self._next > MOST_STEPS:
            raise SourceError(f"W&B says that {self._address} has {int(last):,} steps, which is not read")
        specs = list(self._specs(known.get("keys") or {}, int(last)))
        rows: dict[float, dict[str, float]] = {}
        for some in chunks(specs, _AT_ONCE):
            for samples in self._ask(_ROWS, {"specs": some}).get("sampledHistory") or ():
                for sample in samples or ():
                    values = numbers(sample)
                    if self._policy:
                        values = of_policy(values, self._policy)
                    rows.setdefault(values[STEP], {}).update(values)
        self._next = int(last) + 1
        return tuple(HistoryRow(rows[step], int(step)) for step in sorted(rows))

    def _specs(self, logged: Mapping[str, Any], last: int) -> Iterator[str]:
        steps = (self._prefix + key for key in self._profile.step.keys)
        step = next((key for key in steps if key in logged), STEP)
        moves = self._profile.rollouts
        names = {*moves.learning_rate, *moves.grad_norm} if moves else set()
        metrics = sorted(
            {self._prefix + name for name in self._profile.metrics.names | names} & logged.keys()
        )
        for low in range(self._next, last + 1, WINDOW):
            for metric in metrics:
                keys = (metric,) if step == STEP else (step, metric)
                yield Window(low, low + WINDOW).spec(*keys, samples=WINDOW)

    def _ask(self, document: str, variables: Mapping[str, object]) -> Mapping[str, Any]:
        project = self._project.fetch(document, {"run": self._address.run_id, **variables}, RetryPolicy())
        run: Mapping[str, Any] | None = project.get("run")
        if run is None:
            raise UsageError(f"The run {self._address} does not exist on {self._client.server.base_url}")
        return run
