"""GraphQL to a W&B server: retries that obey the server, a time to give up, and no secret in any text."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from step0_wandb.errors import SourceError
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
from step0_wandb.wandb_api.http import USER_AGENT, HttpLimits, HttpTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from step0_wandb.errors import Step0Error
    from step0_wandb.wandb_api.credentials import Account
    from step0_wandb.wandb_api.faults import Fault
    from step0_wandb.wandb_api.http import Reply
    from step0_wandb.wandb_api.rate_limit import RateLimiter

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_DETAIL, _HEAD = 120, 2048
_READ = {"project", "run", "runs", "node", "pageInfo", "historyKeys", "keys", "files"}
_WRITTEN = {"artifactCollection", "artifactMembership", "allViews", "upsertView", "view", "upsertModel"}
_OBJECTS = _READ | _WRITTEN | {"viewer", "teams", "models", "stopRun"}
_LISTS = {"edges"}
_CONNECTIONS = {"runs", "watched", "labeled", "active", "named", "allViews"}
"""Lists that a project has even where they are empty: null would make runs or reports vanish."""
_LONGEST_HOLD_S = 60.0
_EPOCH_FROM_S = 1e9
"""A larger number of seconds is not a wait but a time, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often one request is sent.

    Attributes
    ----------
    attempts : int or None
        Failures after which the caller asks for fewer runs; None goes on until it is time to give up.
    is_progress : bool
        Whether an answer is a good page, which restarts the time to give up.
    """

    attempts: int | None = None
    is_progress: bool = True


PAGE = RetryPolicy(attempts=3)
"""A page or batch of runs: after three failures the caller asks for fewer."""
ONE_RUN = RetryPolicy(attempts=6)
"""A single run: nothing smaller is left to ask for."""
PROBE = RetryPolicy(is_progress=False)
"""A light request whose answer shows that the server is up, not that it gives what is needed."""


class GraphQLClient:
    """Asks one server with one key; one client a source, so that its counts are those of the source.

    Parameters
    ----------
    limiter : RateLimiter
        Shared by the clients of all sources.
    environ : mapping
        For proxies and CA bundle.
    transport : HttpTransport, optional
        HTTP to the account's server unless given.

    Attributes
    ----------
    requests : int
        Requests sent, retries included.
    bytes_read : int
        Size of the answers, unpacked.
    limiter : RateLimiter
        As given.
    """

    def __init__(
        self,
        account: Account,
        *,
        limiter: RateLimiter,
        environ: Mapping[str, str],
        limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
        transport: HttpTransport | None = None,
    ) -> None:
        self.server = account.server
        self.requests = 0
        self.bytes_read = 0
        self.limiter = limiter
        self._limits = limits
        self._secrets = (account.key, account.basic_auth)
        headers = {
            "Authorization": f"Basic {account.basic_auth}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": USER_AGENT,
        }
        url = f"{self.server.base_url}/graphql"
        self._transport = transport or HttpTransport(url, headers, environ=environ, limits=limits)
        self._trouble_since: float | None = None
        self._ends: float | None = None

    def ask(
        self, document: str, variables: Mapping[str, Any], retry: RetryPolicy = RetryPolicy()
    ) -> Mapping[str, Any]:
        """Return the ``data`` of the answer.

        Raises
        ------
        RequestFailed
            The request is not to be repeated as it is; it carries the usable part of the data.
        SourceError
            No good page came until it was time to give up.
        """
        began = self.now()
        if self._ends is None:
            self._ends = began + self._limits.at_most_s
        if began > self._ends:
            raise SourceError(
                f"{self.server.base_url} was read for {self._limits.at_most_s:g} s, which is the most",
                "What was read is stored; run it again to go on there.",
            )
        if self._trouble_since is None:
            self._trouble_since = began
        data = self._with_retries(json.dumps({"query": document, "variables": variables}).encode(), retry)
        if retry.is_progress:
            self._trouble_since = None
        return data

    def _with_retries(self, body: bytes, retry: RetryPolicy) -> Mapping[str, Any]:
        began, failures = self.now(), 0
        for attempt in count():
            try:
                return self._once(body)
            except RequestFailed as failure:
                if not failure.fault.retried:
                    raise
                failures += failure.fault.smaller
                if retry.attempts is not None and failure.fault.smaller:
                    was_slow = retry is PAGE and self.now() - began > self._limits.deadline_s
                    if failures >= retry.attempts or was_slow:
                        raise
                wait_s = self._wait_s(failure, attempt)
                if self.waited_too_long(wait_s):
                    raise self._time_to_give_up(failure) from None
                self.limiter.clock.sleep(wait_s)
        raise AssertionError

    def fetch(
        self, document: str, variables: Mapping[str, Any], retry: RetryPolicy = RetryPolicy()
    ) -> Mapping[str, Any]:
        """Return what `ask` does, with every failure as the error that the user reads.

        Raises
        ------
        SourceError, CredentialsError
            The fault is final, or retries did not help.
        """
        try:
            return self.ask(document, variables, retry)
        except RequestFailed as failure:
            raise self.error(failure) from None

    def error(self, failure: RequestFailed) -> Step0Error:
        """Return the error for the user that a failure amounts to."""
        return failure.as_error(self.server.base_url)

    def waited_too_long(self, more_s: float) -> bool:
        """Return whether it will be time to give up within the next `more_s` seconds."""
        now = self.now()
        since = now if self._trouble_since is None else self._trouble_since
        out_of_time = self._ends is not None and now + more_s > self._ends
        return out_of_time or now + more_s - since > self._limits.give_up_s

    def now(self) -> float:
        """Return monotonic seconds."""
        return self.limiter.clock.now()

    def _time_to_give_up(self, failure: RequestFailed) -> Step0Error:
        error = self.error(failure)
        error.message += f"; given up after {self._limits.give_up_s:g} s without a good page"
        return error

    def _once(self, body: bytes) -> Mapping[str, Any]:
        with self.limiter.slot():
            self.requests += 1
            reply = self._transport.post(body)
        self.bytes_read += len(reply.body)
        wait_s = _asked_to_wait(reply.headers, self.limiter.clock.today)
        if wait_s is not None and reply.headers.get("ratelimit-remaining", "1").strip() == "0":
            self.limiter.hold(min(wait_s, self._limits.give_up_s, _LONGEST_HOLD_S))
        if fault := fault_of_status(reply.status):
            raise RequestFailed(fault, self._detail(fault, reply), wait_s=wait_s)
        return self._data(reply.body)

    def _detail(self, fault: Fault, reply: Reply) -> str:
        """Return what the table's row leaves open."""
        if fault is BAD_REQUEST:
            return self._first_message(reply.body)
        if fault is REDIRECT:
            with suppress(ValueError):  # where it is not a URL
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
        for name in _CONNECTIONS & (data.get("project") or {}).keys():
            if not is_connection(data["project"][name]):
                raise RequestFailed(NO_WANDB_ANSWER, f"data.project.{name} is not a list of W&B")
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

    def _wait_s(self, failure: RequestFailed, attempt: int) -> float:
        """Return how long to wait: as the server asks, else doubling, with a random spread."""
        if failure.wait_s is not None:
            self.limiter.hold(min(failure.wait_s, self._limits.give_up_s))
            return failure.wait_s
        wait_s = min(_FIRST_WAIT_S * 2.0**attempt, _LONGEST_WAIT_S)
        return wait_s * (0.75 + 0.5 * self.limiter.clock.chance())


def _asked_to_wait(headers: Mapping[str, str], today: Callable[[], datetime]) -> float | None:
    """Return the seconds that ``Retry-After`` (seconds or a date) or ``RateLimit-Reset`` name."""
    for name in ("retry-after", "ratelimit-reset"):
        text = headers.get(name, "").strip()
        if re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,9})?", text):
            seconds = float(text)
            return max(0.0, seconds - today().timestamp()) if seconds > _EPOCH_FROM_S else seconds
        try:
            moment = parsedate_to_datetime(text)
            return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - today()).total_seconds())
        except (ValueError, OverflowError, TypeError):  # a date that is none, or of a year beyond 9999
            continue
    return None


def is_connection(value: object) -> bool:
    """Return whether this is one page of a list: edges, and where the next page begins if there is one."""
    if not isinstance(value, dict) or not isinstance(value.get("edges"), list):
        return False
    info = value.get("pageInfo")
    if not isinstance(info, dict) or not isinstance(info.get("hasNextPage"), bool):
        return False
    return not info["hasNextPage"] or bool(isinstance(info.get("endCursor"), str) and info["endCursor"])


def misfit(data: Mapping[str, Any], path: str = "data") -> str:
    """Return the first field that is not of the kind that the schema says; empty where all are.

    W&B keeps its schema; a proxy, a mirror or a mock need not, and only an object has fields. Null fits
    everywhere: it is how GraphQL says that something is missing. Values of a run are not looked at, so
    that one odd run costs itself and not its page.

    Examples
    --------
    >>> misfit({"project": {"runs": {"edges": [{"node": None}]}}})
    ''
    >>> misfit({"project": {"runs": {"edges": "none"}}})
    'data.project.runs.edges'
    """
    for name, value in data.items():
        here = f"{path}.{name}"
        if value is None or name not in _OBJECTS | _LISTS:
            continue
        if not isinstance(value, list if name in _LISTS else dict):
            return here
        for part in value if name in _LISTS else (value,):
            if part is not None and not isinstance(part, dict):
                return here
            if odd := misfit(part or {}, here):
                return odd
    return ""
