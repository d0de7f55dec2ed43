"""Runs on disk as Miles and slime log them, and what a sync makes of them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from step0_wandb.profiles import load_profiles
from step0_wandb.sources.offline.source import OfflineSource
from step0_wandb.step0.finder import Step0Finder
from tests.support.runs import Memory, history_record, run_record, wandb_file, write_file

if TYPE_CHECKING:
    import pytest

    from step0_wandb.records import Step0
    from step0_wandb.sources.base import Reading

GAP = "train/train_rollout_logprob_abs_diff"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONFIG = {"hf_checkpoint": "/models/Qwen3-0.6B"}


def training(step: int, gap: float = 0.0152, **more: Any) -> bytes:
    """Return the history record of one optimizer step."""
    return history_record(
        {"train/step": step, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: gap, **more}
    )


def rollout(step: int = 0, **more: Any) -> bytes:
    """Return a history record of the rollout process, which has no metric of step 0."""
    return history_record({"rollout/step": step, "rollout/response_len": 512, **more})


def written(path: Path, *, hours_ago: float = 1.0, now: datetime = NOW) -> Path:
    """Set the time of the last write and return the path."""
    when = (now - timedelta(hours=hours_ago)).timestamp()
    os.utime(path, (when, when))
    return path


def one_run(root: Path, *records: bytes, **place: str) -> Path:
    """Write run ``abc`` with its config and these records, an hour before `NOW`."""
    return written(write_file(root, wandb_file(run_record("abc", CONFIG), *records), **place))


def offline_source(root: Path, now: datetime = NOW) -> OfflineSource:
    """Return the source below `root`, with the real profiles."""
    return OfflineSource(root, _finder(), clock=lambda: now)


def sync(root: Path, memory: Memory | None = None, now: datetime = NOW) -> list[Reading]:
    """Return what one sync yields, and remember it."""
    memory = Memory() if memory is None else memory
    source = offline_source(root, now)
    kept = memory.keep(source.readings(memory))
    memory.keep((), source.loose_marks)
    return kept


def step0(reading: Reading) -> Step0:
    """Return step 0 of what was read."""
    return _finder().find(reading.record)


@cache
def _finder() -> Step0Finder:
    return Step0Finder(load_profiles())


def refuse(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make a file unreadable; its mode alone would not stop a superuser."""
    opened = Path.open

    def refusing(self: Path, *args: Any, **how: Any) -> Any:
        if self == path.resolve():
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **how)

    monkeypatch.setattr(Path, "open", refusing)
