"""GraphQL to a W&B server: retries that obey the server, patience, and no secret in any text."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tenacity import Retrying, retry_if_exception

from step0_wandb import __version__
from step0_wandb.text.formatting import clean
from step0_wandb.wandb_api.faults import (
    BAD_REQUEST,
    NO_WANDB_ANSWER,
    QUERY_ERROR,
    REDIRECT,
    REFUSED,
    SERVER_ERROR,
    RequestFailed,
    fault_of_status,
)
from step0_wandb.wandb_api.http import HttpTransport, Limits
from step0_wandb.wandb_api.shapes import misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from tenacity import RetryCallState

    from step0_wandb.errors import Step0Error
    from step0_wandb.wandb_api.credentials import Account
    from step0_wandb.wandb_api.faults import Fault
    from step0_wandb.wandb_api.http import Reply, Transport
    from step0_wandb.wandb_api.rate_limit import Pace

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_DETAIL, _HEAD = 120, 2048


@dataclass(frozen=True, slots=True)
class Asking:
    """How hard one question is asked.

    Attributes
    ----------
    attempts : int or None
        Failures after which fewer runs are asked for; None goes on until patience ends.
    is_progress : bool
        Whether an answer is a good page, with which patience begins anew.
    """

    attempts: int | None = None
    is_progress: bool = True


PAGE = Asking(attempts=3)
"""A page or batch of runs: after three failures it is asked smaller."""
ONE_RUN = Asking(attempts=6)
"""A single run: nothing smaller is left, and a run is called poisoned only once it surely is."""
ALIVE = Asking(is_progress=False)
"""A light question whose answer shows that the server lives, not that it gives what is needed."""


class GraphQLClient:
    """Asks one server with one key; one for each source, so that its counts are the source's.

    Parameters
    ----------
    account : Account
        Server and key.
    pace : Pace
        Shared by the clients of all sources.
    environ : mapping
        For proxies and CA bundle.
    transport : Transport, optional
        What carries the requests; HTTP to the account's server unless given.

    Attributes
    ----------
    requests : int
        Requests sent, retries included.
    bytes_read : int
        Size of the answers, unpacked.
    """

    def __init__(
        self,
        account: Account,
        *,
        pace: Pace,
        environ: Mapping[str, str],
        limits: Limits = Limits(),  # noqa: B008 - frozen
        transport: Transport | None = None,
    ) -> None:
        self.server = account.server
        self.requests = 0
        self.bytes_read = 0
        self._pace = pace
        self._limits = limits
        self._basic = base64.b64encode(f"api:{account.key}".encode()).decode()
        self._secrets = (account.key, self._basic)
        self._transport = transport or self._http(environ)
        self._trouble_since: float | None = None

    def _http(self, environ: Mapping[str, str]) -> HttpTransport:
        headers = {
            "Authorization": f"Basic {self._basic}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": f"step0-wandb/{__version__}",
        }
        url = f"{self.server.base_url}/graphql"
        return HttpTransport(url, headers, environ=environ, limits=self._limits)

    def ask(self, document: str, variables: Mapping[str, Any], how: Asking = Asking()) -> Mapping[str, Any]:
        """Return the ``data`` of the answer.

        Raises
        ------
        RequestFailed
            The request is not to be repeated as it is; it carries the usable part of the data.
        SourceError
            No good page came for as long as patience lasts.
        """
        if self._trouble_since is None:
            self._trouble_since = self.now()
        patience = _Patience(self, how)
        retrying = Retrying(
            retry=retry_if_exception(_is_retried),
            stop=patience.ends,
            wait=self._wait,
            sleep=self._pace.time.sleep,
            reraise=True,
        )
        body = json.dumps({"query": document, "variables": variables}).encode()
        try:
            data = retrying(self._once, body)
        except RequestFailed as failure:
            if patience.is_over:
                raise self._given_up(failure) from None
            raise
        if how.is_progress:
            self._trouble_since = None
        return data

    def error(self, failure: RequestFailed) -> Step0Error:
        """Return the error for the user that a failure amounts to."""
        return failure.as_error(self.server.base_url)

    def waited_too_long(self, more_s: float) -> bool:
        """Return whether patience ends within the next `more_s` seconds."""
        now = self.now()
        since = now if self._trouble_since is None else self._trouble_since
        return now + more_s - since > self._limits.patience_s

    @property
    def deadline_s(self) -> float:
        """Return how long one request may take, in seconds."""
        return self._limits.deadline_s

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._pace.time.now()

    def _given_up(self, failure: RequestFailed) -> Step0Error:
        error = self.error(failure)
        error.message += f"; given up after {self._limits.patience_s:g} s without a good page"
        return error

    def _once(self, body: bytes) -> Mapping[str, Any]:
        with self._pace.turn():
            self.requests += 1
            reply = self._transport.post(body)
        self.bytes_read += len(reply.body)
        wait_s = _asked_to_wait(reply.headers, self._pace.time.today)
        if wait_s is not None and reply.headers.get("ratelimit-remaining", "1").strip() == "0":
            self._pace.hold(min(wait_s, self._limits.patience_s))
        if fault := fault_of_status(reply.status):
            raise RequestFailed(fault, self._detail(fault, reply), wait_s=wait_s)
        return self._data(reply.body)

    def _detail(self, fault: Fault, reply: Reply) -> str:
        """Return what the table's row leaves open."""
        if fault is BAD_REQUEST:
            return self._first_message(reply.body)
        if fault is REDIRECT:
            return self._safe(urlsplit(reply.headers.get("location", "")).netloc)
        return f"HTTP {reply.status}" if fault in (SERVER_ERROR, REFUSED) else ""

    def _data(self, body: bytes) -> Mapping[str, Any]:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise RequestFailed(NO_WANDB_ANSWER, self._safe(body[:_HEAD].decode(errors="replace"))) from None
        data = answer.get("data") if isinstance(answer, dict) else None
        if isinstance(data, dict) and (odd := misfit(data)):
            raise RequestFailed(NO_WANDB_ANSWER, f"{self._safe(odd)} is not what W&B's schema says")
        if isinstance(answer, dict) and answer.get("errors"):
            detail = self._first_message(body)
            raise RequestFailed(QUERY_ERROR, detail, data=data if isinstance(data, dict) else None)
        if not isinstance(data, dict):
            raise RequestFailed(NO_WANDB_ANSWER, "an answer without data")
        return data

    def _first_message(self, body: bytes) -> str:
        """Return the first message of GraphQL errors; empty where the body holds none."""
        try:
            message = json.loads(body)["errors"][0]["message"]
        except (ValueError, LookupError, TypeError):
            return ""
        return self._safe(str(message))

    def _safe(self, text: str) -> str:
        """Return what a server said, harmless and without the key, in one short line."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return clean(text)[:_DETAIL]  # the head alone: a tail might be half a key

    def _wait(self, state: RetryCallState) -> float:
        """Return how long to wait, in seconds: what the server asks, else doubling, with a spread."""
        failure = state.outcome.exception() if state.outcome else None
        if isinstance(failure, RequestFailed) and failure.wait_s is not None:
            self._pace.hold(min(failure.wait_s, self._limits.patience_s))
            return failure.wait_s
        wait_s = min(_FIRST_WAIT_S * 2.0 ** (state.attempt_number - 1), _LONGEST_WAIT_S)
        return wait_s * (0.75 + 0.5 * self._pace.time.chance())


class _Patience:
    """Decides when one question has been asked often enough."""

    def __init__(self, client: GraphQLClient, how: Asking) -> None:
        self.is_over = False
        self._client = client
        self._how = how
        self._failures = 0
        self._began = client.now()

    def ends(self, state: RetryCallState) -> bool:
        failure = state.outcome.exception() if state.outcome else None
        smaller = isinstance(failure, RequestFailed) and failure.fault.smaller
        self._failures += smaller
        if self._how.attempts is not None and smaller:
            long = self._client.now() - self._began > self._client.deadline_s
            if self._failures >= self._how.attempts or (long and self._how is PAGE):
                return True
        self.is_over = self._client.waited_too_long(state.upcoming_sleep)
        return self.is_over


def _is_retried(error: BaseException) -> bool:
    return isinstance(error, RequestFailed) and error.fault.retried


def _asked_to_wait(headers: Mapping[str, str], today: Callable[[], datetime]) -> float | None:
    """Return the seconds that ``Retry-After`` (seconds or a date) or ``RateLimit-Reset`` name."""
    for name in ("retry-after", "ratelimit-reset"):
        text = headers.get(name, "").strip()
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            continue
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - today()).total_seconds())
    return None
