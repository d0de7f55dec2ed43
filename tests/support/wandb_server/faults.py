"""Faults on demand: at random, scripted, or tied to one poisoned run.

=================  ==========================================================================
kind               what the client sees
=================  ==========================================================================
400 ... 504        that status with a short text; ``429`` and ``503`` with ``Retry-After``
429-date           429 whose ``Retry-After`` is a date
429-ratelimit      429 with W&B's ``RateLimit-Remaining`` and ``RateLimit-Reset``
reset              the connection is reset before anything is answered
hang               nothing, until `Faults.release` or `hang_s`, then a reset
html               status 200 and a web page
empty              status 200 and no body
redirect           302 to another host
null-data          status 200 and GraphQL `errors` with ``data: null``
lost               *the request is executed*, then answered 502
lost-reset         *executed*, then the connection is reset
slow               *executed*, the answer drips in
truncated          *executed*, half the announced body, then the end of the connection
malformed          *executed*, half the body, announced as the whole
wrong-type         *executed*, the right body declared as ``text/html``
null-project       *executed*, but every field of the query's root is null
partial-node       *executed*, but one run of the page is null, with an entry in `errors`
slow-close         *executed*, drips in without a length, on a connection that closes
same-cursor        *executed*, but every list has a next page, behind the same cursor
no-news            *executed*, but every list has a next page, which is the first again
null-runs          *executed*, but every list of the project is null
partial-history    *executed*, but one run's `sampledHistory` is null, with an entry in `errors`
=================  ==========================================================================
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .records import Request

    Match = Callable[[Request], bool]

REFUSALS = {
    "400": 400,
    "401": 401,
    "403": 403,
    "404": 404,
    "408": 408,
    "429": 429,
    "429-date": 429,
    "429-ratelimit": 429,
    "500": 500,
    "501": 501,
    "502": 502,
    "503": 503,
    "504": 504,
}
UNEXECUTED = frozenset({*REFUSALS, "reset", "hang", "html", "empty", "redirect", "null-data"})
EXECUTED = frozenset(
    {
        "lost",
        "lost-reset",
        "slow",
        "slow-close",
        "same-cursor",
        "no-news",
        "null-runs",
        "truncated",
        "malformed",
        "wrong-type",
        "null-project",
        "partial-node",
        "partial-history",
    }
)
KINDS = UNEXECUTED | EXECUTED
ENDLESS = frozenset({"same-cursor", "no-news"})
"""Valid answers, of which there is no last one."""
FINAL = ENDLESS | {"400", "401", "403", "404", "501", "redirect", "null-project"}
RETRIABLE = KINDS - FINAL
"""What a client should get over by asking again."""


@dataclass(slots=True)
class Script:
    """A fault to be played on the next requests that match."""

    kind: str
    times: float
    match: Match


@dataclass(frozen=True, slots=True)
class Poison:
    """What becomes of every query that reads one run (only certain fields of it, if any)."""

    kind: str
    fields: frozenset[str]


@dataclass(slots=True)
class Faults:
    """Decides which fault, if any, is played on a request.

    Parameters
    ----------
    rate : float
        Share of the matching requests that fail, from 0 to 1.
    seed : int
        Of the random choice; the same requests in the same order meet the same faults.
    kinds : iterable of str
        What to choose from; everything that a client should retry, unless given.
    match : callable
        Which requests may fail; the GraphQL ones, unless given.
    hang_s, drip_s : float
        How long a hang lasts, and the pause between two pieces of a slow answer.
    pieces : int
        Into how many pieces a slow answer is cut.
    retry_after_s : int
        What ``Retry-After`` and ``RateLimit-Reset`` say.
    """

    rate: float = 0.0
    seed: int = 0
    kinds: Iterable[str] = RETRIABLE
    match: Match = lambda request: request.is_graphql
    hang_s: float = 30.0
    drip_s: float = 0.05
    pieces: int = 20
    retry_after_s: int = 1
    scripts: list[Script] = field(default_factory=list)
    poisoned: dict[str, Poison] = field(default_factory=dict)
    _random: random.Random = field(init=False, repr=False)
    _released: threading.Event = field(default_factory=threading.Event, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - faults need a seed, not secrecy
        self.kinds = tuple(sorted(self.kinds))
        require_known(self.kinds)

    def next(self, kind: str, *, times: float = 1, match: Match | None = None) -> None:
        """Play a fault on the next `times` matching requests, before any random one.

        `match` sees every request before anything is executed, so that it is also the place to kill
        a client between two of its requests (with ``reset``: before, with ``lost-reset``: after one).
        """
        require_known([kind])
        with self._lock:
            self.scripts.append(Script(kind, times, match or (lambda request: request.is_graphql)))

    def always(self, kind: str, *, match: Match | None = None) -> None:
        """Play a fault on every matching request from now on: a dead server."""
        self.next(kind, times=float("inf"), match=match or (lambda _request: True))

    def poison(self, run_id: str, kind: str = "502", *, fields: Iterable[str] = ()) -> None:
        """Play a fault on every query that reads this run, or one of these costly fields of it.

        Costly are ``config``, ``history``, ``historyKeys`` and ``sampledHistory``.
        """
        require_known([kind])
        self.poisoned[run_id] = Poison(kind, frozenset(fields))

    def clear(self) -> None:
        """Play no fault any more, and release the requests that hang."""
        with self._lock:
            self.scripts.clear()
            self.poisoned.clear()
            self.rate = 0.0
        self.release()

    def release(self) -> None:
        """End the hangs that are under way."""
        ended, self._released = self._released, threading.Event()
        ended.set()

    def hang(self) -> None:
        """Wait as a hanging server does."""
        self._released.wait(self.hang_s)

    def choose(self, request: Request) -> str | None:
        """Return the fault to play on a request, None for none."""
        with self._lock:
            for script in self.scripts:
                if script.times > 0 and script.match(request):
                    script.times -= 1
                    return script.kind
            if self.rate and self.match(request) and self._random.random() < self.rate:
                return self._random.choice(list(self.kinds))
        return None

    def choose_poison(self, touched: dict[str, set[str]]) -> str | None:
        """Return the fault of the first poisoned run that a query has read, None for none."""
        for run_id, poison in self.poisoned.items():
            read = touched.get(run_id)
            if read is not None and (not poison.fields or poison.fields & read):
                return poison.kind
        return None


def require_known(kinds: Iterable[str]) -> None:
    """Raise ValueError for a kind of fault that does not exist."""
    unknown = sorted(set(kinds) - KINDS)
    if unknown:
        raise ValueError(f"unknown faults {unknown}; there are {sorted(KINDS)}")
