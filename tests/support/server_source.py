"""The server source against the double: a store in memory, and time that passes only by sleeping."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from step0_wandb.profiles import load_profiles
from step0_wandb.sources.base import SourceMemory
from step0_wandb.sources.server.fetch import PAGE_SIZE
from step0_wandb.sources.server.source import ServerSource
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.wandb_api.address import RemoteAddress
from step0_wandb.wandb_api.client import GraphQLClient
from step0_wandb.wandb_api.credentials import Places, find_account
from step0_wandb.wandb_api.http import HttpLimits
from step0_wandb.wandb_api.rate_limit import Clock, RateLimiter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from step0_wandb.records import Json, Problem, RunRecord
    from step0_wandb.sources.base import RunUpdate, SourcePage
    from tests.support.wandb_server import WandbServer

NOWHERE = Path("/nowhere")
START = datetime(2026, 11, 1, tzinfo=UTC)
CONFIG = {"hf_checkpoint": "/models/Qwen3-0.6B", "global_batch_size": 256}
PATIENT = HttpLimits(deadline_s=10.0)
HASTY = HttpLimits(deadline_s=0.3)
"""For tests with hangs, which take real time."""


@cache
def shipped_finder() -> Step0Finder:
    """Return the finder of the shipped profiles, loaded once."""
    return Step0Finder(load_profiles())


class SleepyTime:
    """Seconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.naps.append(seconds)
        self.now += seconds

    def clock(self) -> Clock:
        """Return the clock for a client."""
        return Clock(now=lambda: self.now, sleep=self.sleep, chance=lambda: 0.5)


@dataclass
class MemoryStore:
    """What the store keeps of one server source."""

    finder: Step0Finder
    runs: dict[str, RunRecord] = field(default_factory=dict)
    cursor: dict[str, Json] | None = None
    problems: list[Problem] = field(default_factory=list)
    updates: list[RunUpdate] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    readings: int = 0

    def memory(self) -> SourceMemory:
        """Return what a source is told of earlier readings."""
        without = (
            name for name, record in self.runs.items() if self.finder.find(record).status == "no-step0"
        )
        return SourceMemory(
            self.cursor, {name: record.name for name, record in self.runs.items()}, frozenset(without)
        )

    def take(self, page: SourcePage) -> None:
        """Store a page, as one transaction does."""
        for reading in page.readings:
            self.runs[reading.record.run_id] = reading.record
        for key in page.deleted:
            self.runs.pop(key.rpartition("/")[2], None)
        self.cursor = dict(page.cursor)
        for update in page.updates:
            name = update.key.rpartition("/")[2]
            if name in self.runs:
                self.runs[name] = replace(self.runs[name], name=update.name)
        self.readings += len(page.readings)
        self.problems += page.problems
        self.updates += page.updates
        self.deleted += page.deleted

    def take_all(self, runs: dict[str, RunRecord], *, cursor: dict[str, Json] | None) -> None:
        """Hold what another store holds."""
        self.runs, self.cursor = dict(runs), cursor

    def gaps(self) -> dict[str, float | None]:
        """Return the gap of every run."""
        return {name: self.finder.find(record).gap for name, record in self.runs.items()}


class Lab:
    """One project on the double, its store, and a source for each sync."""

    def __init__(self, server: WandbServer, *, project: str = "rl", limits: HttpLimits = PATIENT) -> None:
        self.server = server
        self.project = project
        self.limits = limits
        self.page_size = PAGE_SIZE
        self.time = SleepyTime()
        self.finder = shipped_finder()
        self.store = MemoryStore(self.finder)
        self.source: ServerSource = self.open()

    def add(self, run_id: str, *, minutes: float = 0.0, at: int = 3, **options: Any) -> None:
        """Put a Miles run on the server, `at` rows before its first optimizer step."""
        options.setdefault("rows", miles_rows(at=at))
        options.setdefault("config", CONFIG)
        created_at = START + timedelta(minutes=minutes)
        self.server.add_run("lab", self.project, run_id, created_at=created_at, **options)

    def open(self, run_id: str | None = None) -> ServerSource:
        """Return a new source, as a new process would have it."""
        environ = {"WANDB_API_KEY": self.server.api_key, "WANDB_BASE_URL": self.server.url}
        account = find_account(Places(environ, NOWHERE, NOWHERE))
        limiter = RateLimiter(per_second=1e6, clock=self.time.clock())
        client = GraphQLClient(account, limiter=limiter, environ={}, limits=self.limits)
        address = RemoteAddress("lab", self.project, run_id)
        return ServerSource(
            address, client, self.finder, clock=lambda: START + timedelta(days=30), page_size=self.page_size
        )

    def pages(self, run_id: str | None = None) -> Iterator[SourcePage]:
        """Yield the pages of a sync without storing them."""
        self.source = self.open(run_id)
        return self.source.read(self.store.memory())

    def sync(self) -> int:
        """Run a whole sync; return its requests."""
        for page in self.pages():
            self.store.take(page)
        return self.source.client.requests


def miles_rows(*, at: int = 3, gap: float = 0.015, steps: int = 3) -> list[dict[str, Any]]:
    """Return the history of a Miles run: rollout rows, then a row for each optimizer step."""
    before = [{"rollout/step": 0, "rollout/response_len/mean": 512.0} for _ in range(at)]
    training = [
        {
            "train/step": step,
            "train/ppo_kl": 0.0,
            "train/pg_clipfrac": 0.0,
            "train/train_rollout_logprob_abs_diff": gap * (1 + step),
        }
        for step in range(steps)
    ]
    return [*before, *training]
