"""How fast one may ask: at most four requests under way, at one polite rate, for all sources together."""

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
class Time:
    """The clock, the sleep and the chance of a client; tests bring their own.

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


class Pace:
    """Shared by all clients of a process; safe in threads.

    Parameters
    ----------
    in_flight : int
        Most requests under way at one time.
    per_second : float
        Most requests started in a second.
    """

    def __init__(self, *, in_flight: int = 4, per_second: float = 20.0, time: Time | None = None) -> None:
        self.time = time or Time()
        self._places = threading.BoundedSemaphore(in_flight)
        self._interval_s = 1 / per_second
        self._lock = threading.Lock()
        self._next = self.time.now()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a place and for one's turn; the place is given back at the end."""
        with self._places:
            with self._lock:
                start = max(self.time.now(), self._next)
                self._next = start + self._interval_s
            self._sleep_until(start)
            yield

    def hold(self, seconds: float) -> None:
        """Start no request for so long, whatever its source: the server asked for it."""
        with self._lock:
            self._next = max(self._next, self.time.now() + seconds)

    def _sleep_until(self, moment: float) -> None:
        wait_s = moment - self.time.now()
        if wait_s > 0:
            self.time.sleep(wait_s)
