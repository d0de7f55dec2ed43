"""Setups that move to another level: runs written to disk, synced, and how each was judged."""

from datetime import UTC, datetime

import numpy as np

from step0_wandb.app.sync import Job, run_sync
from step0_wandb.settings.load import load_settings
from step0_wandb.store import Store
from tests.support.miles import miles_run

NOW = datetime(2026, 1, 10, tzinfo=UTC)
HOUR = 3600
START = 1767225600


def write(folder, prefix, level, count, *, first_hour, backend):  # noqa: PLR0913 - one a fact
    noise = np.random.default_rng(len(prefix) + count).normal(0, 0.02, count)
    for at in range(count):
        gap = float(level * np.exp(noise[at]))
        config = {"sglang_attention_backend": backend, "seed": at}
        miles_run(folder, f"{prefix}{at:02}", gap, started=START + HOUR * (first_hour + at), config=config)


def sync(folder):
    loaded = load_settings(cwd=folder, environ={}, flags={"store": str(folder / "step0.db")})
    return run_sync(Job(loaded, sources=(str(folder),), clock=lambda: NOW))


def verdicts(folder, prefix):
    with Store.open(folder / "step0.db", mode="read") as store:
        return {run.verdict for run in store.verdicts.runs() if run.run.rsplit("/", 1)[-1].startswith(prefix)}
