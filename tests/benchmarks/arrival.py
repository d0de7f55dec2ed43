"""What people are told as runs arrive one by one: ``python -m tests.benchmarks.arrival``.

Every run is a directory of its own, and after each comes a sync, as cron does it. The table says what
became of the runs when they came and in the end, and how many alerts, questions and all clears there were.
``--series FILE`` adds histories of real gaps: a table with the columns ``gap`` and ``seed``, in each order
of the seeds.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from step0_wandb.app.sync import Job, run_sync
from step0_wandb.settings.load import load_settings
from step0_wandb.store import Store
from tests.support.miles import miles_run

START = datetime(2026, 11, 1, tzinfo=UTC)
ESTABLISHED = (0.0150, 0.0152, 0.0149, 0.0151, 0.0148, 0.0153)


@dataclass(frozen=True)
class History:
    """Gaps in the order in which their runs arrive, and their seeds where they differ."""

    name: str
    gaps: tuple[float, ...]
    seeds: tuple[int, ...] = ()


@dataclass
class Told:
    """What people were told."""

    came: list[str] = field(default_factory=list)
    now: list[str] = field(default_factory=list)
    alerts: set[tuple[object, object]] = field(default_factory=set)
    note: str = ""


def histories() -> list[History]:
    """Return the histories of the design."""
    rng = np.random.default_rng(1)
    twenty = tuple(0.015 * np.exp(0.02 * rng.standard_normal(20)))
    after = np.exp(0.02 * rng.standard_normal(6))
    return [
        History("retried at x1.3", (*ESTABLISHED, 0.0195, 0.0194)),
        History("two low runs", (0.0150, 0.0152, 0.0149, 0.0151, 0.0068, 0.0069)),
        History("3 healthy, 5 retries", (0.0150, 0.0152, 0.0149, 0.0501, 0.0499, 0.0502, 0.0500, 0.0498)),
        History("20 runs, then x1.15", (*twenty, *(0.015 * 1.15 * after))),
        History("20 runs, then x1.5", (*twenty, *(0.015 * 1.5 * after))),
    ]


def of_series(path: Path) -> list[History]:
    """Return the real runs of a file, in each order of their seeds."""
    frame = pd.read_csv(path, sep="\t", comment="#")
    parts = {seed: tuple(part["gap"]) for seed, part in frame.groupby("seed", sort=False)}
    return [
        History(
            f"seeds {' '.join(map(str, order))}",
            tuple(gap for seed in order for gap in parts[seed]),
            tuple(int(seed) for seed in order for _ in parts[seed]),
        )
        for order in itertools.permutations(parts)
    ]


def arrive(history: History, folder: Path) -> Told:
    """Let the runs of a history arrive one by one, with a sync after each."""
    told = Told()
    loaded = load_settings(cwd=folder, environ={}, flags={"store": str(folder / "step0.db")})
    for at, gap in enumerate(history.gaps):
        moment = START + timedelta(hours=at)
        seed = {"config": {"seed": history.seeds[at]}} if history.seeds else {"config": {"seed": at}}
        miles_run(folder, f"r{at:03d}", float(gap), started=int(moment.timestamp()), **seed)
        run_sync(Job(loaded, (str(folder / "wandb"),), clock=lambda moment=moment: moment))
        with Store.open(loaded.store, mode="read") as store:
            verdicts = {run.run: run.verdict for run in store.verdicts.iterate()}
            waiting = [one for queued in store.outbox.unsent() for one in queued.message.subjects]
            told.alerts |= {(row["subject"], row["level"]) for row in store.outbox.sent()}
            told.alerts |= {(one.name, one.level) for one in waiting}
            told.note = next((setup.note for setup in store.verdicts.ranges()), "")
        told.now = [verdicts[key] for key in sorted(verdicts)]
        told.came.append(told.now[-1])
    return told


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--series", type=Path, help="a table of real gaps")
    options = parser.parse_args()
    every = histories() + (of_series(options.series) if options.series else [])
    for history in every:
        with tempfile.TemporaryDirectory() as folder:
            told = arrive(history, Path(folder))
        alerts = Counter(str(level) for _, level in told.alerts)
        print(f"{history.name}\n  when they came  {dict(Counter(told.came))}", flush=True)
        print(f"  in the end      {dict(Counter(told.now))}\n  alerts          {dict(alerts)}")
        print(f"  setup           {told.note or 'nothing'}", flush=True)


if __name__ == "__main__":
    main()
