"""How long ranges and verdicts take on a large fleet.

Run ``OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.range_speed``. The runs come in random order,
a tenth of them broken, every tenth setup moves half way through, and all columns are there.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from step0_wandb.ranges import fit_ranges, goodness_of_fit, judged_by
from step0_wandb.verdicts.judge import judge

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = ((100, 20), (10_000, 10), (10_000, 100), (1, 100_000))
"""Setups, and runs of each."""


def fleet(setups: int, runs: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return a frame of runs in random order."""
    of, at = np.divmod(np.arange(setups * runs), runs)
    y = rng.normal(np.log(0.013), 0.3, setups)[of] + 0.02 * rng.standard_normal(of.size)
    y += np.where((of % 10 == 0) & (at >= runs // 2), np.log(1 / 1.5), 0.0)
    y += np.where(rng.random(of.size) < 0.1, rng.uniform(np.log(2), np.log(20), of.size), 0.0)
    names = np.array([f"miles · Model-{index:05d} · top_p=0.95" for index in range(setups)], dtype=object)
    frame = pd.DataFrame(
        {
            "run": [f"team/project/{index:08d}" for index in range(of.size)],
            "setup": names[of],
            "profile": "miles",
            "gap": np.exp(y),
            "gap_metric": "train/train_rollout_logprob_abs_diff",
            "label": None,
            "created_at": pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(at, unit="h"),
            "fit": True,
            "exact_failed": False,
            "gap_rule": "range",
            "ceiling": 0.03,
        }
    )
    return frame.sample(frac=1, random_state=rng)


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds by the clock, and of the processor (what the clock shows where nothing else runs)."""

    clock: float
    processor: float


def measure(function: Callable[[pd.DataFrame], object], frame: pd.DataFrame) -> Took:
    """Return how long one call takes."""
    clock, processor = time.perf_counter(), time.process_time()
    function(frame)
    return Took(time.perf_counter() - clock, time.process_time() - processor)


def main() -> None:
    """Print one line a size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    fit_ranges(fleet(10, 10, np.random.default_rng(0)))  # imports are not what is measured
    print("seconds by the clock (of the processor)")
    timed = (fit_ranges, judged_by, goodness_of_fit, judge)
    heads = (*(function.__name__ for function in timed), "peak memory")
    print(f"{'setups':>8s}{'runs':>10s}" + "".join(f"{head:>17s}" for head in heads))
    for setups, runs in SIZES:
        frame = fleet(setups, runs, np.random.default_rng(options.seed))
        took = [measure(function, frame) for function in timed]
        cells = "".join(f"{f'{each.clock:.2f} ({each.processor:.2f})':>17s}" for each in took)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{setups:8d}{len(frame):10d}{cells}{f'{peak:.2f} GiB':>17s}", flush=True)


if __name__ == "__main__":
    main()
