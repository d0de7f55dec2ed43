"""How large a store gets, and how fast it is: ``python -m tests.benchmarks.store_size``.

The runs are like those of Miles: hundreds of config keys of which 20 to 40 differ from run to run
(numbers, paths, names), a step-0 row of 60 metrics, a verdict with its checks and range, and the mark of
one file. Sizes are those of the closed file at two counts of runs; the difference gives the bytes of one
run, which the table carries on to 100,000. ``--runs 100000`` measures the whole.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
import time
import zlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd  # noqa: F401 - see `measure`

from step0_wandb.records import (
    CheckPlan,
    CheckResult,
    HistoryRow,
    JudgedRun,
    Rule,
    RunFacts,
    RunRecord,
    SetupRange,
    Step0,
)
from step0_wandb.sources.base import FileMark, Reading
from step0_wandb.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SOURCE = "/mnt/shared/logs/wandb"
METRIC = "train/train_rollout_logprob_abs_diff"
MODELS = ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B", "GLM-Z1-9B")
WORDS = """tensor pipeline context expert model parallel size hidden layer norm attention head rotary base
dropout optimizer adam beta eps lr warmup decay style iters min max weight clip grad rollout batch global
micro num steps temperature top sglang server port mem fraction static router policy timeout engine eval
interval prompt data path save load ref checkpoint format bridge mode use enable disable log recompute
granularity method moe balancing loss coeff token dispatcher fp8 recipe quant kv cache seed"""
COMMON = (None, None, False, False, True, 0, 1, 8, 4096, 0.0, 1.0, 0.95, 1e-8, "bf16", "flash", "cosine", [])
PLAN = CheckPlan(
    Rule("exact", 1e-9, "broken", 1e-2),
    Rule("exact", 1e-10, "broken", 5e-2),
    Rule("range"),
    0.03,
    "Miles allows",
)
ALLOWED_MB = 200
AT = 100_000


@dataclass(frozen=True)
class Fleet:
    """Runs like those of one team."""

    keys: int
    nested: bool

    def readings(self, first: int, last: int) -> Iterator[tuple[Reading, RunFacts]]:
        """Yield runs as a source gives them."""
        return (self.reading(number) for number in range(first, last))

    def reading(self, number: int) -> tuple[Reading, RunFacts]:
        """Return one run as a source gives it, with its facts."""
        rng = _rng(number)
        run_id = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8))
        model = rng.choice(MODELS)
        group = f"{model.lower()}-grpo_{run_id}"
        row = _row(rng)
        record = RunRecord(
            "my-team",
            "my-rl-project",
            run_id,
            name=f"{group}-RANK_0",
            url=f"https://wandb.example.com/my-team/my-rl-project/runs/{run_id}",
            user=f"user{rng.randrange(40)}",
            group=group,
            created_at=NOW - timedelta(seconds=61 * number + rng.random()),
            state="finished",
            config=self._config(rng, model, run_id),
            rows=(HistoryRow(row),),
        )
        mark = FileMark(
            f"{SOURCE}/offline-run-20261101_{number:06d}-{run_id}/run-{run_id}.wandb",
            record.key,
            size=2**20 + rng.randrange(2**16),
            mtime_ns=1_790_000_000_000_000_000 + rng.randrange(10**15),
            offset=98_304,
            ended=True,
            settled=True,
        )
        step0 = Step0(
            "found", "miles", step=0.0, row=row, ppo_kl=0.0, clip_frac=0.0, gap=row[METRIC], gap_metric=METRIC
        )
        return Reading(record, (mark,)), RunFacts(step0, f"miles · {model}", PLAN)

    def _config(self, rng: random.Random, model: str, run_id: str) -> dict[str, object]:
        flat = dict(_common(self.keys))
        for name in rng.sample(_names(60), rng.randint(20, 40)):
            flat[name] = rng.choice(
                (
                    rng.randrange(1000),
                    round(rng.random(), 4),
                    f"/mnt/shared/models/{model}/torch_dist",
                    f"/mnt/shared/checkpoints/{run_id}/{name}",
                    f"{name}-{rng.randrange(10**6)}",
                )
            )
        if not self.nested:
            return flat
        nested: dict[str, dict[str, object]] = {}
        for name, value in flat.items():
            section, _, key = name.partition("_")
            nested.setdefault(section, {})[key] = value
        return dict(nested)


def judged(reading: Reading, facts: RunFacts) -> JudgedRun:
    """Return a verdict like those that `judge` gives."""
    record, step0 = reading.record, facts.step0
    gap = step0.gap or 0.0
    center = 0.0152 + gap * 1e-4
    low, high = center * 0.95, center * 1.05
    place = SetupRange(
        facts.setup or "", "miles", 999, center, low, high, low * 1.01, high * 0.99, gap, 1002.5, 0.001, "own"
    )
    says = f"gap {gap:.4g} lies in the range {low:.4g} to {high:.4g} of 999 healthy runs"
    return JudgedRun(
        *(record.key, record.name, record.url, record.user, record.group, record.created_at, record.state),
        *("miles", facts.setup, step0.ppo_kl, step0.clip_frac, gap, METRIC, "healthy", None, ()),
        checks=(
            CheckResult("ppo_kl", "pass", 0.0, 1e-9, ""),
            CheckResult("clip_frac", "pass", 0.0, 1e-10, ""),
            CheckResult("gap", "pass", gap, high, says),
            CheckResult("gap-zero", "pass", gap, None, ""),
        ),
        range=place,
        ratio=gap / center,
        p_value=abs(gap - center) / center,
    )


@dataclass(frozen=True)
class Measured:
    """What storing a fleet costs: bytes of the file, runs a second."""

    total: int
    each: float
    write: float
    judge: float
    read: float
    frame_s: float


def measure(fleet: Fleet, runs: int, folder: Path) -> Measured:
    """Store `runs` runs with verdicts, and read them back; pandas is loaded before the clock starts."""
    path = folder / f"{fleet.keys}-{fleet.nested}.db"
    sizes = []
    writing = judging = 0.0
    for first in (0, runs // 2):
        with Store.open(path, mode="write") as store:
            for start in range(first, first + runs // 2, 1000):
                some = list(fleet.readings(start, start + 1000))
                writing -= time.perf_counter()
                store.sources.save_readings(SOURCE, some, now=NOW)
                writing += time.perf_counter()
            every = [judged(*item) for item in fleet.readings(0, first + runs // 2)]
            judging -= time.perf_counter()
            store.verdicts.save(every, (), now=NOW)
            judging += time.perf_counter()
        sizes.append(path.stat().st_size)
    with Store.open(path, mode="read") as store:
        started = time.perf_counter()
        assert sum(1 for _ in store.runs.records()) == runs
        reading = time.perf_counter() - started
        started = time.perf_counter()
        assert len(store.runs.frame()) == runs
        frame_s = time.perf_counter() - started
    each = (sizes[1] - sizes[0]) / (runs // 2)
    total = int(sizes[1] + each * (AT - runs))
    return Measured(total, each, runs / writing, 1.5 * runs / judging, runs / reading, frame_s * AT / runs)


def plain(fleet: Fleet, runs: int = 200) -> tuple[float, float]:
    """Return the bytes of a run as JSON, and as deflated JSON."""
    texts = []
    for reading, facts in fleet.readings(0, runs):
        record, verdict = reading.record, judged(reading, facts)
        parts = (asdict(reading), asdict(facts), asdict(verdict))
        assert record.config
        texts.append(json.dumps(parts, default=str).encode())
    return sum(map(len, texts)) / runs, sum(len(zlib.compress(text, 9)) for text in texts) / runs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How large a store gets, and how fast it is.")
    parser.add_argument("--runs", type=int, default=10_000, help="runs to store, a multiple of 2,000")
    runs = parser.parse_args().runs
    print(f"{runs:,} runs stored; MB at {AT:,} runs ({ALLOWED_MB} allowed)\n")
    print("                    bytes a run               MB in all            runs a second      s a frame")
    print("config           JSON   zlib   ours      JSON  zlib  ours    write   judge    read   of 100,000")
    for fleet in (Fleet(600, nested=False), Fleet(600, nested=True), Fleet(1237, nested=False)):
        with tempfile.TemporaryDirectory() as folder:
            ours = measure(fleet, runs, Path(folder))
        text, deflated = plain(fleet)
        print(
            f"{fleet.keys:5} {'nested' if fleet.nested else 'flat':6} {text:9,.0f} {deflated:6,.0f} {ours.each:6,.0f}"
            f" {text * AT / 1e6:9,.0f} {deflated * AT / 1e6:5,.0f} {ours.total / 1e6:5,.0f}"
            f" {ours.write:8,.0f} {ours.judge:7,.0f} {ours.read:7,.0f} {ours.frame_s:9.1f}"
        )


def _row(rng: random.Random) -> dict[str, float]:
    """Return the numbers of a step-0 row; a trainer's metrics are 32 bits wide, a clock is not."""
    row = {"_step": 1, "_runtime": 61 + rng.random(), "_timestamp": 1.79e9 + rng.random(), "train/step": 0}
    row |= {f"train/{name}": _single(rng.lognormvariate(-4, 1)) for name in _names(53)}
    return row | {"train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, METRIC: _single(rng.gauss(0.0152, 2e-4))}


def _rng(seed: str | int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same fleet each time is the point


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


@cache
def _names(count: int) -> list[str]:
    rng, words = _rng("names"), WORDS.split()
    found: dict[str, None] = {}
    while len(found) < count:
        found["_".join(rng.choices(words, k=rng.randint(2, 5)))] = None
    return list(found)


@cache
def _common(count: int) -> dict[str, object]:
    rng = _rng("common")
    return {name: rng.choice(COMMON) for name in _names(count)}


if __name__ == "__main__":
    main()
