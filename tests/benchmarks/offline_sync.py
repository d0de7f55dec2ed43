"""How fast run directories are read: ``python -m tests.benchmarks.offline_sync``.

The directories are like those of Miles: 600 config keys, of which 30 differ from run to run, system metrics every few records, step 0 after
the evaluation and rollout rows, then a long history, 1 MB each. The large file repeats real records, as
a long run does. Next to ours stands the plain way: every record of every file through the W&B client's
own protobuf classes. Times are the best of three, with the files in the page cache; on a busy machine
look at the processor's.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from step0_wandb.profiles import load_profiles
from step0_wandb.sources.offline.frames import LogReader, Record
from step0_wandb.sources.offline.source import OfflineSource
from step0_wandb.step0.finder import Step0Finder
from tests.support.runs import (
    BLOCK,
    Memory,
    append,
    exit_record,
    filler_record,
    history_record,
    run_record,
    wandb_file,
    write_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1_000_000
STAMP = "20260101_{:06d}"
WORDS = tuple(f"word{number}" for number in range(64))
SCALARS = (None, False, True, 0, 1, 8, 4096, 0.0, 1.0, 0.95, 1e-8, "bf16", "flash", "cosine", [], ["a", "b"])


FINDER = Step0Finder(load_profiles())


@dataclass(frozen=True)
class Timing:
    """The best of some runs, as time on the clock and on the processor, and what it returned."""

    seconds: float
    cpu: float
    result: Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directories", type=int, default=1000)
    parser.add_argument("--large-mb", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="write the files here and leave them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="step0-bench-") as scratch:
        root = given.keep or Path(scratch)
        history = [*_beginning(_rng(7)), *_history(_rng(8), MB)]
        print(f"{given.directories} directories of 1 MB each are being written ...", flush=True)
        for number in range(given.directories):
            _write(root / "many", history, number)
        _report_many(root / "many")
        _report_program(root / "many", root / "step0.db")
        small = _write(root / "small", history, 0)
        large = root / "large" / small.parent.name / small.name
        _write_large(large, history, given.large_mb * MB)
        _report_sizes(small, large)
        for path in (small, large):
            _report_command(f"check of {path.stat().st_size / MB:,.0f} MB", "check", path.parent)


def _report_program(root: Path, store: Path) -> None:
    """Report the whole program, with its start, the store and the verdicts."""
    print(f"\n{'the whole program':34}{'seconds':>9}{'cpu s':>8}")
    for what in ("first sync", "second sync, nothing changed"):
        _report_command(what, "sync", root, "--store", store)


def _report_command(what: str, *words: str | Path) -> None:
    program = [sys.executable, "-m", "step0_wandb", *map(str, words)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what:34}{seconds:>9.2f}{cpu:>8.2f}")


def _report_many(root: Path) -> None:
    files = sorted(root.rglob("*.wandb"))
    total = sum(path.stat().st_size for path in files)
    first = _best(lambda: _read(root, Memory()))
    again = _best(lambda: _read(root, first.result.memory))
    sample = files[:: max(1, len(files) // 20)]
    plain = _best(lambda: [_plainly(path) for path in sample])
    scale = len(files) / len(sample)
    print(f"{'':34}{'dirs':>7}{'MB':>7}{'seconds':>9}{'cpu s':>8}{'cpu ms/run':>12}{'read':>8}")
    for what, timing, times, read in (
        ("first pass", first, 1, first.result.bytes_read),
        ("second pass, nothing changed", again, 1, again.result.bytes_read),
        ("client's protobuf, every record *", plain, scale, total),
    ):
        seconds, cpu = timing.seconds * times, timing.cpu * times
        sizes = f"{len(files):>7,}{total / MB:>7,.0f}"
        print(
            f"{what:34}{sizes}{seconds:>9.2f}{cpu:>8.2f}{cpu / len(files) * 1000:>12.2f}{read / total:>8.1%}"
        )
    print(f"* {len(sample)} directories measured, multiplied")


def _report_sizes(small: Path, large: Path) -> None:
    print(f"\n{'one file until step 0 is judged':34}{'MB':>14}{'ms':>9}{'cpu ms':>8}")
    for path in (small, large):
        timing = _best(lambda path=path: _read(path, Memory()), times=9)
        size = path.stat().st_size / MB
        print(f"{'':34}{size:>14,.0f}{timing.seconds * 1000:>9.1f}{timing.cpu * 1000:>8.1f}")


def _best(action: Callable[[], Any], times: int = 3) -> Timing:
    timings = []
    for _ in range(times):
        start, cpu = time.perf_counter(), time.process_time()
        result = action()
        timings.append(Timing(time.perf_counter() - start, time.process_time() - cpu, result))
    return min(timings, key=lambda timing: timing.seconds)


@dataclass(frozen=True)
class Pass:
    """What a sync remembers, and how much it read."""

    memory: Memory
    bytes_read: int


def _read(root: Path, before: Memory) -> Pass:
    source = OfflineSource(root, FINDER, clock=lambda: datetime.now(UTC))
    after = Memory(dict(before.marks), dict(before.records))
    for reading in after.keep(source.readings(before)):
        assert FINDER.find(reading.record).gap is not None
    return Pass(after, source.counts.bytes_read)


def _plainly(path: Path) -> int:
    """Return the history rows of a file, by the client's own classes; it has no reader of files any more."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    rows = 0
    for item in LogReader(lambda at, size: data[at : at + size], len(data)).records():
        if isinstance(item, Record):
            rows += wandb_internal_pb2.Record.FromString(item.data).WhichOneof("record_type") == "history"
    return rows


def _write(root: Path, history: list[bytes], number: int) -> Path:
    run_id = f"run{number:05d}"
    record = run_record(run_id, _config(_rng(number)), started=1767225600 + number)
    content = wandb_file(record, *history, exit_record())
    return write_file(root, content, run_id=run_id, stamp=STAMP.format(number))


def _write_large(path: Path, history: list[bytes], size: int) -> None:
    path.parent.mkdir(parents=True)
    head = wandb_file(run_record("run00000", _config(_rng(0))), *history)
    whole = head[: len(head) // BLOCK * BLOCK]  # ends inside a record: the next block begins a new one
    body = wandb_file(*_history(_rng(9), MB))[BLOCK:]
    body = body[: len(body) // BLOCK * BLOCK]
    with path.open("wb") as file:
        file.write(whole)
        while file.tell() < size:
            file.write(body)
        file.write(append(b"", exit_record()))


def _config(rng: random.Random) -> dict[str, Any]:
    shared = _rng(1)
    keys = {"_".join(shared.sample(WORDS, 3)): shared.choice(SCALARS) for _ in range(600)}
    own = {name: rng.choice(SCALARS) for name in rng.sample(sorted(keys), 30)}
    return (
        keys
        | own
        | {
            "hf_checkpoint": "/models/Qwen3-0.6B",
            "load": f"/checkpoints/{rng.randrange(10**6)}",
            "wandb_key": "0123456789abcdef" * 2 + "01234567",
            "sglang_server_args": {name: shared.choice(SCALARS) for name in WORDS},
        }
    )


def _beginning(rng: random.Random) -> list[bytes]:
    """Return what comes before and with step 0: evaluation, rollout and training rows."""
    evaluation = {"eval/step": 0, **{f"eval/{word}": rng.random() for word in WORDS[:10]}}
    rollout = {"rollout/step": 0, **{f"rollout/{word}": rng.random() for word in WORDS[:16]}}
    step = {f"train/{word}": rng.random() for word in WORDS[:14]} | {
        "train/ppo_kl": 0.0,
        "train/pg_clipfrac": 0.0,
        "train/train_rollout_logprob_abs_diff": 0.0152,
    }
    rows = [evaluation, rollout, {**step, "train/step": 0}, {**step, "train/step": 1}]
    return [record for row in rows for record in (*_system(rng), history_record(row))]


def _history(rng: random.Random, size: int) -> list[bytes]:
    records: list[bytes] = []
    written, step = 0, 2
    while written < size - 120_000:
        row = {f"train/{word}": rng.random() for word in WORDS[:20]} | {
            "train/step": step,
            "train/ppo_kl": 1e-4,
        }
        new = [*_system(rng), history_record(row)]
        records += new
        written += sum(map(len, new))
        step += 1
    return records


def _system(rng: random.Random) -> list[bytes]:
    from wandb.proto import wandb_internal_pb2

    stats = wandb_internal_pb2.Record(num=5)
    stats.stats.timestamp.seconds = 1767225600
    for gpu in range(8):
        for word in WORDS[:5]:
            stats.stats.item.add(key=f"gpu.{gpu}.{word}", value_json=json.dumps(rng.random()))
    return [stats.SerializeToString(), filler_record(90), filler_record(140)]


def _rng(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same files each time is the point


if __name__ == "__main__":
    main()
