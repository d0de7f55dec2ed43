"""Runs as a source hands them to the store, each with a sensible default for what a test leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from step0_wandb.records import CheckPlan, HistoryRow, Rule, RunFacts, RunRecord, Step0
from step0_wandb.sources.base import FileMark, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from step0_wandb.store import Store

NOW = datetime(2026, 11, 1, 8, 30, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
DISK = "file:/data/wandb"
SERVER = "wandb:team/rl"
KEY = "team/rl/aa11"
OFFLINE_KEY = "_/rl/aa11"
SETUP = "miles · Qwen3-0.6B"
METRIC = "train/train_rollout_logprob_abs_diff"
PLAN = CheckPlan(
    ppo_kl=Rule("exact", 1e-9, "broken", 1e-2),
    clip_frac=Rule("exact", 1e-10, "broken", 5e-2),
    gap=Rule("range"),
    ceiling=0.03,
    ceiling_from="Miles itself allows",
)


def row(gap: float = 0.0152, **more: float) -> dict[str, float]:
    """Return the numbers of a step-0 row."""
    return {"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, METRIC: gap, **more}


def record(run_id: str = "aa11", *, gap: float = 0.0152, **changes: Any) -> RunRecord:
    """Return a finished run of a project on the server; `changes` as given."""
    known = RunRecord(
        entity="team",
        project="rl",
        run_id=run_id,
        name=f"name-{run_id}",
        url=f"https://wandb.example.com/team/rl/runs/{run_id}",
        user="mia",
        group="g1",
        created_at=NOW - timedelta(days=1),
        state="finished",
        config={"hf_checkpoint": "/models/Qwen3-0.6B", "args": {"lr": 1e-6, "seed": 1}},
        rows=(HistoryRow(row(gap)),),
    )
    return replace(known, **changes)


def offline(run_id: str = "aa11", **changes: Any) -> RunRecord:
    """Return the same run as its directory tells of it: no entity, URL, user."""
    return record(run_id, **{"entity": "_", "url": None, "user": None, **changes})


def facts(gap: float | None = 0.0152, *, ppo_kl: float | None = 0.0, **changes: Any) -> RunFacts:
    """Return what the profiles make of a run whose step 0 was found."""
    step0 = Step0("found", "miles", step=0.0, ppo_kl=ppo_kl, clip_frac=0.0, gap=gap, gap_metric=METRIC)
    numbers = {METRIC: gap, "train/ppo_kl": ppo_kl}
    values = {name: value for name, value in (row() | numbers).items() if value is not None}
    return replace(RunFacts(replace(step0, row=values), SETUP, PLAN), **changes)


def pending() -> RunFacts:
    """Return what is known of a run that has not logged its step 0."""
    return RunFacts(Step0("pending", note="step 0 is not logged yet"))


def mark(run_id: str = "aa11", *, run: str = "", size: int = 1000, **changes: Any) -> FileMark:
    """Return how far the file of an offline run was read."""
    path = f"/data/wandb/offline-run-1-{run_id}/run-{run_id}.wandb"
    return replace(FileMark(path, run or f"_/rl/{run_id}", size, 1_700_000_000_000_000_001, size), **changes)


def from_server(run_id: str = "aa11", *, gap: float = 0.0152, **changes: Any) -> tuple[Reading, RunFacts]:
    """Return a reading of the server, with its facts."""
    return Reading(record(run_id, gap=gap, **changes)), facts(gap)


def from_disk(run_id: str = "aa11", *, gap: float = 0.0152, **changes: Any) -> tuple[Reading, RunFacts]:
    """Return a reading of the run's directory, with its facts."""
    return Reading(offline(run_id, gap=gap, **changes), (mark(run_id),)), facts(gap)


def save(store: Store, *items: tuple[Reading, RunFacts], source: str = SERVER, now: datetime = NOW) -> object:
    """Store readings, as a sync does first."""
    return store.sources.save_readings(source, items, now=now)


def judge(store: Store) -> None:
    """Take note of everything, as a sync does last."""
    store.verdicts.save((), (), now=NOW)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Act as a user without special rights, also where the tests run as root."""
    rights = os.getresuid()
    if rights == (0, 0, 0):
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(*rights)


def python(code: str, *arguments: Path | str) -> subprocess.Popen[str]:
    """Start a Python program; it reads its arguments from ``sys.argv``."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
