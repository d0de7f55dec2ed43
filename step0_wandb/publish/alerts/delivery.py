"""Alerts on their last way: to a W&B server, to a webhook, or into the log.

On a W&B server an alert is raised on the run itself, by the mutation that the client uses, whose answer
confirms it; nothing of the run is touched. A server that refuses it there gets it on the sync's own run.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from step0_wandb import __version__
from step0_wandb.errors import CredentialsError, SourceError, Step0Error
from step0_wandb.publish.alerts.webhook import webhook_body, webhook_refusal, webhook_url
from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.wandb_api.client import RetryPolicy
from step0_wandb.wandb_api.faults import FORBIDDEN, NOT_FOUND, QUERY_ERROR, REFUSED, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.settings.load import Loaded
    from step0_wandb.store import Message
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
_ONCE_MORE = RetryPolicy(attempts=3)
_REFUSALS = {
    FORBIDDEN: "does not let this key alert (HTTP 403)",
    NOT_FOUND: "has no such run, or does not show it to this key (HTTP 404)",
    REFUSED: "",
}
"""Faults by which a server says no to this very alert; after any other it may have taken it."""
_SAYS_NO = re.compile(
    r"permission|denied|forbidden|not (?:found|allowed|authorized)|no access", re.IGNORECASE
)
"""What tells a no from trouble, where it comes as a GraphQL error with HTTP 200."""
_CONNECT_S, _DEADLINE_S, _BODY_BYTES = 5.0, 15.0, 1 << 20


class Delivery:
    """Hands messages to those who take them; one for a sync.

    A channel that is out of reach is not tried again by the same delivery.
    """

    def __init__(self, loaded: Loaded, context: Context) -> None:
        self._webhook_env = loaded.settings.alerts.webhook_env
        self._context = context
        self._out_of_reach: dict[str, str] = {}

    def takes(self, channel: str) -> bool:
        """Return whether a channel is set up at all."""
        return channel != "webhook" or self._webhook_env is not None

    def send(self, message: Message) -> str | None:
        """Hand over one message; return None where it was taken, else why not."""
        if failure := self._out_of_reach.get(message.channel):
            return failure
        try:
            if message.channel == "wandb":
                self._wandb.send(message)
            elif message.channel == "webhook":
                self._webhook.send(message)
        except OutOfReachError as error:
            self._out_of_reach[message.channel] = error.message
            return error.message
        except Step0Error as error:
            return error.message
        return None

    @cached_property
    def _wandb(self) -> WandbAlerts:
        return WandbAlerts(self._context.client())

    @cached_property
    def _webhook(self) -> Webhook:
        return Webhook(self._webhook_env or "", self._context.places.environ)


class OutOfReachError(SourceError):
    """Whoever takes alerts does not answer, or not to us; no other alert would fare better."""


class RefusedError(SourceError):
    """The answer to this very alert is no."""


class WandbAlerts:
    """Raises alerts on one W&B server."""

    def __init__(self, client: GraphQLClient) -> None:
        self._client = client
        self._own: set[tuple[str, str]] = set()

    def send(self, message: Message) -> None:
        """Raise an alert on its run, or on the sync's own run where the server refuses that.

        Raises
        ------
        OutOfReachError
            The server does not answer, or refuses the key.
        SourceError
            The server does not take this alert.
        """
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
                raise RefusedError(f"on the run {refusal.message}; on {OWN_RUN} {error.message}") from None

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
        place = (message.entity, message.project)
        if place not in self._own:
            self._make_own(*place)
            self._own.add(place)
        self._raise(message)

    def _make_own(self, entity: str, project: str) -> None:
        where = {"entity": entity, "project": project, "run": OWN_RUN}
        found = self._ask(_FIND_OWN, where).get("project")
        if not isinstance(found, dict):
            # Making a run would make its project too.
            raise RefusedError("the server has no such project, or does not show it to this key")
        if not found.get("run"):
            self._ask(_MAKE_OWN, where | {"type": OWN_JOB_TYPE, "state": "finished"})

    def _ask(self, document: str, variables: Mapping[str, object]) -> Mapping[str, object]:
        try:
            return self._client.ask(document, variables, _ONCE_MORE)
        except RequestFailed as failure:
            no_by_text = failure.fault is QUERY_ERROR and _SAYS_NO.search(failure.detail)
            if failure.fault in _REFUSALS or no_by_text:
                raise RefusedError(f"the server {_REFUSALS.get(failure.fault) or failure}") from None
            error = self._client.error(failure)
            if isinstance(error, CredentialsError) or self._client.waited_too_long(0.0):
                raise OutOfReachError(error.message) from None
            raise error from None
        except SourceError as error:
            raise OutOfReachError(error.message) from None


class Webhook:
    """Posts to the one URL that an environment variable holds, once each, and follows no redirect.

    Nothing tells it that a message whose answer was lost arrived: it is posted again at the next sync,
    so that people get it at least once.
    """

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        from step0_wandb.wandb_api.http import HttpLimits, HttpTransport

        headers = {"Content-Type": "application/json", "User-Agent": f"step0-wandb/{__version__}"}
        limits = HttpLimits(connect_s=_CONNECT_S, deadline_s=_DEADLINE_S, body_bytes=_BODY_BYTES)
        self._name = name
        self._transport = HttpTransport(webhook_url(name, environ), headers, environ=environ, limits=limits)

    def send(self, message: Message) -> None:
        """Post one message.

        Raises
        ------
        OutOfReachError
            Nobody answers.
        SourceError
            The answer is no.
        """
        try:
            with _unlogged():
                reply = self._transport.post(webhook_body(message.title, message.text))
        except RequestFailed as failure:
            raise OutOfReachError(f"the webhook (from {self._name}) {failure}") from None
        if refusal := webhook_refusal(reply.status):
            raise RefusedError(f"the webhook (from {self._name}) {refusal}")


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep urllib3 from logging the path of the URL, which is the secret of most webhooks."""
    logger = logging.getLogger("urllib3.connectionpool")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was
