"""W&B's own alerts: raised on the run they are about, by the mutation that the wandb client uses.

The answer confirms the alert, and nothing of the run is changed. Where the server refuses it on that run,
it is raised on the sync's own run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from step0_wandb.errors import CredentialsError, SourceError, Step0Error
from step0_wandb.publish.alerts.channels.base import NotAllowedError, OutOfReachError, RefusedError
from step0_wandb.publish.wandb.target import home_of
from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.wandb_api.faults import FORBIDDEN, NOT_FOUND, QUERY_ERROR, REFUSED, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from step0_wandb.settings.load import Loaded
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.sources.server.diagnose import Finding
    from step0_wandb.store import Message
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.context import Context

OWN_RUN: Final = OWN_JOB_TYPE
"""The id of the sync's own run, one a project."""
WAIT: Final = timedelta(hours=24)
"""How long a server drops an alert of the same title on the same run."""

_ALERT = (
    "mutation Step0Alert($entity: String!, $project: String!, $run: String!, $title: String!, "
    "$text: String!, $severity: AlertSeverity!, $wait: Duration) { notifyScriptableRunAlert(input: "
    "{entityName: $entity, projectName: $project, runName: $run, title: $title, text: $text, "
    "severity: $severity, waitDuration: $wait}) { success } }"
)
_FIND_OWN = (
    "query Step0OwnRun($entity: String!, $project: String!, $run: String!) "
    "{ project(name: $project, entityName: $entity) { run(name: $run) { id } } }"
)
_MAKE_OWN = (
    "mutation Step0MakeOwnRun($entity: String!, $project: String!, $run: String!, $type: String!, "
    "$state: String!) { upsertBucket(input: {entityName: $entity, modelName: $project, name: $run, "
    "displayName: $run, jobType: $type, state: $state}) { bucket { id } } }"
)
_REFUSALS = {
    FORBIDDEN: "does not let this key alert (HTTP 403)",
    NOT_FOUND: "did not find the run, or this key has no access (HTTP 404)",
    REFUSED: "",
}
"""Faults by which a server says no to this very alert; after any other it may have taken it."""
_SAYS_NO = re.compile(
    r"permission|denied|forbidden|not (?:found|allowed|authorized)|no access", re.IGNORECASE
)
"""What tells a no from trouble, where it comes as a GraphQL error with HTTP 200."""
_MAY_WRITE = (
    "query Step0MayWrite($entity: String!, $project: String!) "
    "{ project(name: $project, entityName: $entity) { readOnly } }"
)


class WandbChannel:
    """Alerts on the runs of a W&B server."""

    name = "wandb"
    label = "W&B"
    turn_off = "alerts.wandb = false"
    origins = frozenset({"server"})
    drops_repeats = True

    def is_on(self, settings: AlertsSettings) -> bool:
        """Return whether the settings leave it on."""
        return settings.wandb

    def audience(self, entity: str) -> str:
        """Return the team, whose runs are not another team's business."""
        return entity

    def trial_targets(self, projects: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return every project."""
        return projects

    def sender(self, loaded: Loaded, context: Context) -> WandbSender:
        """Return what raises alerts on the server of the settings."""
        return WandbSender(context.client(), home_of(loaded))

    def findings(
        self, _loaded: Loaded, context: Context, projects: Sequence[tuple[str, str]]
    ) -> Iterator[Finding]:
        """Yield whether the key may write to each project, as the server says."""
        from step0_wandb.sources.server.diagnose import Finding
        from step0_wandb.wandb_api.client import RetryPolicy

        client = context.client() if projects else None
        for entity, project in projects:
            name, where = f"alerts in {entity}/{project}", {"entity": entity, "project": project}
            try:
                answer = client.fetch(_MAY_WRITE, where, RetryPolicy(attempts=2)) if client else {}
            except Step0Error as error:
                yield Finding(name, "warn", f"whether the key may write cannot be found out: {error.message}")
                continue
            if (answer.get("project") or {}).get("readOnly"):
                off = f"{self.turn_off}, report.state = false and report.wandb = ''"
                yield Finding(name, "warn", f"this key may only read there; set {off}, or use another key")
            else:
                yield Finding(name, "ok", "this key may write there; `doctor --test-alert` sends an alert")


class WandbSender:
    """Raises alerts on one W&B server.

    Parameters
    ----------
    home : RemoteAddress or None
        The one project whose own run is used; None uses the own run of each message's project.
    """

    def __init__(self, client: GraphQLClient, home: RemoteAddress | None = None) -> None:
        self._client = client
        self._home = home
        self._own_runs: set[tuple[str, str]] = set()

    def send(self, message: Message) -> None:
        """Raise an alert on its run, or on the sync's own run where the server refuses that."""
        if message.url and not self._client.server.owns(message.url):
            host = urlsplit(message.url).netloc
            raise RefusedError(f"it belongs to {host}, which is not the W&B server in use")
        if message.run_id == OWN_RUN:
            self._raise_on_own(message)
            return
        try:
            self._raise(message)
        except RefusedError as refusal:
            note = f"(raised here, because on the run itself {refusal.message})"
            try:
                self._raise_on_own(replace(message, run_id=OWN_RUN, text=f"{message.text}\n{note}"))
            except RefusedError as error:
                what = f"on the run {refusal.message}; on {OWN_RUN} {error.message}"
                raise type(error)(what) from None

    def _raise(self, message: Message) -> None:
        variables = {
            "entity": message.entity,
            "project": message.project,
            "run": message.run_id,
            "title": message.title,
            "text": message.text,
            "severity": message.severity,
            "wait": WAIT // timedelta(milliseconds=1),
        }
        answer = self._ask(_ALERT, variables).get("notifyScriptableRunAlert")
        success = answer.get("success") if isinstance(answer, dict) else None
        if success is False:
            raise RefusedError("the server does not take the alert")
        if not success:  # it may have come through: elsewhere it would be a second one
            raise SourceError("the server does not confirm the alert")

    def _raise_on_own(self, message: Message) -> None:
        """Raise an alert on the sync's own run, which is made where a project has none."""
        if self._home:
            message = replace(message, entity=self._home.entity, project=self._home.project)
        place = (message.entity, message.project)
        if place not in self._own_runs:
            self._make_own(*place)
            self._own_runs.add(place)
        self._raise(message)

    def _make_own(self, entity: str, project: str) -> None:
        where = {"entity": entity, "project": project, "run": OWN_RUN}
        found = self._ask(_FIND_OWN, where).get("project")
        if not isinstance(found, dict) and not self._home:
            # Making a run would make its project too, which only who names a home wants.
            raise RefusedError("project not found, or this key has no access")
        if not isinstance(found, dict) or not found.get("run"):
            self._ask(_MAKE_OWN, where | {"type": OWN_JOB_TYPE, "state": "finished"})

    def _ask(self, document: str, variables: Mapping[str, object]) -> Mapping[str, object]:
        from step0_wandb.wandb_api.client import RetryPolicy

        try:
            return self._client.ask(document, variables, RetryPolicy(attempts=3))
        except RequestFailed as failure:
            no_by_text = failure.fault is QUERY_ERROR and _SAYS_NO.search(failure.detail)
            if failure.fault in _REFUSALS or no_by_text:
                is_about_key = failure.fault is FORBIDDEN or "permission" in failure.detail.lower()
                refused = NotAllowedError if is_about_key else RefusedError
                raise refused(f"the server {_REFUSALS.get(failure.fault) or failure}") from None
            error = self._client.error(failure)
            if isinstance(error, CredentialsError) or self._client.waited_too_long(0.0):
                raise OutOfReachError(error.message) from None
            raise error from None
        except SourceError as error:
            raise OutOfReachError(error.message) from None
