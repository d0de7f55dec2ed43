"""The rate limiter of all sources together: at most four requests under way, at one polite rate."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, the sleep and the randomness of a client; tests bring their own.

    Attributes
    ----------
    now : callable
        Returns monotonic seconds.
    sleep : callable
        Waits for so many seconds.
    chance : callable
        Returns a number from 0 to 1, to spread retries.
    today : callable
        Returns the present in UTC, for servers that name a date.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    today: Callable[[], datetime] = lambda: datetime.now(UTC)


class RateLimiter:
    """Shared by all clients of a process; safe in threads.

    Parameters
    ----------
    in_flight : int
        Most requests under way at one time.
    per_second : float
        Most requests started in a second.

    Attributes
    ----------
    failing_s : float
        Seconds that the clients together have spent on runs that fail, while the server gives others.
    """

    def __init__(self, *, in_flight: int = 4, per_second: float = 20.0, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.failing_s = 0.0
        self._slots = threading.BoundedSemaphore(in_flight)
        self._interval_s = 1 / per_second
        self._lock = threading.Lock()
        self._next = self.clock.now()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Wait until one more request may be under way; it is over at the end of the block."""
        with self._slots:
            with self._lock:
                start = max(self.clock.now(), self._next)
                self._next = start + self._interval_s
            if (wait_s := start - self.clock.now()) > 0:
                self.clock.sleep(wait_s)
            yield

    def hold(self, seconds: float) -> None:
        """Start no request of any source for so many seconds: the server asked for it."""
        with self._lock:
            self._next = max(self._next, self.clock.now() + seconds)

    def spend_on_failing(self, seconds: float) -> None:
        """Note seconds spent on runs that fail."""
        with self._lock:
            self.failing_s += seconds
