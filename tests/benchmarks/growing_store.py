"""What one new run costs in a large store: ``python -m tests.benchmarks.growing_store``.

The store is written directly: one run of each of some setups goes the usual way, SQLite copies it with
other names, times and gaps, and a sync judges them all. Then SQLite copies whole setups with their
verdicts, until there are enough. A directory with one new run is synced, and a copy of the store judged
with ``--refit``: ranges and verdicts must be the same. Each step is a process of its own, so that its peak
memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from step0_wandb.profiles import load_profiles
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.sources.base import Reading
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import Store
from tests.support.miles import CONFIG, GAP, miles_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KEYS = {f"option_{number}": number for number in range(300)}
"""Further config keys, as Miles logs them."""
BROKEN, FACTOR = 0.02, 4.0
PROGRAM = "from step0_wandb.cli.app import main; main()"
MEASURED = """
import resource, sys
from step0_wandb.cli.app import main
try:
    main()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    sys.stderr.write(f"\\nused={used.ru_utime + used.ru_stime} {used.ru_maxrss}")
"""


def build(path: Path, runs: int, setups: int) -> None:
    """Write a store of `runs` runs in `setups` setups, none of them judged."""
    finder = Step0Finder(load_profiles())
    with Store.open(path, mode="write") as store:
        some = (record(number) for number in range(setups))
        items = [(Reading(one, ()), finder.facts(one)) for one in some]
        store.sources.save_readings("wandb:team/rl", items, now=NOW)
    with closing(sqlite3.connect(path)) as connection:
        copy(connection, runs // setups)
        connection.commit()
        connection.execute("ANALYZE")


def record(number: int) -> RunRecord:
    """Return the one run of a setup that is written the usual way."""
    model = f"Qwen3-{number // 10}B-variant"
    config = CONFIG | KEYS | {"hf_checkpoint": f"/models/{model}", "rollout_top_p": 0.9 + number % 10 / 100}
    center = 0.013 * float(np.exp(0.3 * np.sin(number)))
    row = {"train/step": 0.0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: center}
    return RunRecord(
        "team",
        "rl",
        f"r{number:06d}",
        name=f"job-{number}",
        url=f"https://wandb.example.com/team/rl/runs/r{number:06d}",
        user=f"user{number % 40}",
        group=None,
        created_at=NOW - timedelta(days=120),
        state="finished",
        config=config | {"load": f"/ckpt/{model}", "ref_load": f"/ckpt/{model}"},
        rows=(HistoryRow(row),),
    )


def copy(connection: sqlite3.Connection, times: int) -> None:
    """Repeat every run of the store, each time with another name, time and gap."""
    rng = np.random.default_rng(1)

    def factor() -> float:
        broken = FACTOR if rng.random() < BROKEN else 1.0
        return float(np.exp(0.02 * rng.standard_normal()) * broken)

    connection.create_function("factor", 0, factor)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
    changed = {
        "id": "NULL",
        "run": "run || '-' || :at",
        "run_id": "run_id || '-' || :at",
        "name": "name || '-' || :at",
        "created_at": "created_at + :at * 3600000000 + id * 1000000",
        "gap": "gap * factor()",
    }
    values = ", ".join(changed.get(name, f'"{name}"') for name in columns)
    (last,) = connection.execute("SELECT max(id) FROM runs").fetchone()
    for at in range(1, times):
        connection.execute(f"INSERT INTO runs SELECT {values} FROM runs WHERE id <= {last}", {"at": at})  # noqa: S608 - our own columns
    connection.execute("INSERT OR IGNORE INTO run_sources SELECT 1, id FROM runs")


def multiply(path: Path, times: int) -> None:
    """Copy every setup of a judged store, with its runs, verdicts, range and fit."""
    with closing(sqlite3.connect(path)) as connection:
        (last,) = connection.execute("SELECT max(id) FROM runs").fetchone()
        for at in range(1, times):
            changed = {
                "runs": {
                    "id": f"id + {last * at}",
                    **{name: f"{name} || '-{at}x'" for name in ("run", "run_id", "name")},
                    "setup": f"setup || ' copy={at}'",
                },
                "verdicts": {"run": f"run + {last * at}"},
                "ranges": {"setup": f"setup || ' copy={at}'"},
                "fits": {"setup": f"setup || ' copy={at}'"},
            }
            for table, values in changed.items():
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                chosen = ", ".join(values.get(name, f'"{name}"') for name in columns)
                own = {"runs": f"id <= {last}", "verdicts": f"run <= {last}"}.get(
                    table, "setup NOT LIKE '% copy=%'"
                )
                connection.execute(f"INSERT INTO {table} SELECT {chosen} FROM {table} WHERE {own}")  # noqa: S608 - our own columns
        note = json.loads(connection.execute("SELECT value FROM meta WHERE key = 'lessons'").fetchone()[0])
        note["runs"] *= times
        connection.execute("UPDATE meta SET value = ? WHERE key = 'lessons'", (json.dumps(note),))
        connection.execute("INSERT OR IGNORE INTO run_sources SELECT 1, id FROM runs")
        connection.commit()
        connection.execute("ANALYZE")
        connection.commit()


def measure(*words: str | Path, cwd: Path) -> tuple[float, float, float, int]:
    """Run a command in a process.

    Returns seconds by the clock, those of the processor (what the clock shows where nothing else runs),
    peak memory in MB, and the bytes it printed.
    """
    environ = os.environ | {"OPENBLAS_NUM_THREADS": "1", "WANDB_MODE": "offline"}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, words)],
        cwd=cwd,
        env=environ,
        capture_output=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    text, _, used = done.stderr.decode().rpartition("used=")
    if done.returncode not in (0, 3):
        raise RuntimeError(text)
    processor, peak = used.split()
    return seconds, float(processor), int(peak) / 1024, len(done.stdout)


def report(what: str, *words: str | Path, cwd: Path) -> None:
    """Print what one command costs."""
    seconds, processor, peak, size = measure(*words, cwd=cwd)
    cells = f"{seconds:8.2f} s{f'({processor:.2f} s)':>12s}{peak:8.0f} MB{size / 1e6:10.2f} MB printed"
    print(f"{what:32s}{cells}", flush=True)


def content(path: Path) -> tuple[list[object], list[object]]:
    """Return the ranges of a store, and its verdicts."""
    with closing(sqlite3.connect(path)) as connection:
        ranges = connection.execute(
            "SELECT setup, n, center, low, high, sigma, df, basis FROM ranges ORDER BY setup"
        ).fetchall()
        verdicts = connection.execute(
            "SELECT runs.run, verdict FROM verdicts JOIN runs ON runs.id = verdicts.run ORDER BY runs.run"
        ).fetchall()
    return ranges, verdicts


def differences(one: Path, other: Path) -> str:
    """Return how far two stores agree."""
    (ranges, verdicts), (others, other_verdicts) = content(one), content(other)
    numbers = np.array([row[1:7] for row in ranges], dtype=float)
    again = np.array([row[1:7] for row in others], dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        far = float(np.nanmax(np.abs(again / numbers - 1))) if numbers.shape == again.shape else np.nan
    changed = sum(a != b for a, b in zip(verdicts, other_verdicts, strict=True))
    return f"ranges differ by {far:.1e} at most (relative), {changed} verdicts of {len(verdicts):,} differ"


def new_run(folder: Path, number: int, runs: Sequence[str]) -> None:
    """Write a directory with one more run of a setup that the store has."""
    one = record(number)
    config = {**one.config}
    miles_run(folder, runs[number % len(runs)], 0.0150, config=config, entity="team", project="rl")


def steps(folder: Path, *, refit: bool) -> Iterator[tuple[str, tuple[str | Path, ...]]]:
    """Yield the commands that are measured."""
    yield "sync without news", ("sync", "new", "-q")
    new_run(folder / "new", 7, ["aaaa0001"])
    yield "sync with one new run", ("sync", "new", "-q")
    if refit:
        shutil.copy(folder / "step0.db", folder / "refit.db")
        yield "sync --refit", ("sync", "new", "-q", "--refit", "--store", "refit.db")
    yield "runs --json", ("runs", "--json")
    yield "report --html", ("report", "--html", "page.html")
    yield "explain", ("explain", "aaaa0001")
    yield "label", ("label", "r000003-5", "healthy", "--why", "looked at it")
    yield "sync after a label", ("sync", "new", "-q")


def main() -> None:
    """Print what each step costs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--setups", type=int, help="default: one for every 100 runs")
    parser.add_argument("--folder", type=Path, default=Path("growing-store"))
    parser.add_argument("--judged", type=int, default=4_000, help="runs that are judged, not copied")
    parser.add_argument("--sync-only", action="store_true", help="leave out what lists or shows all runs")
    parser.add_argument("--no-refit", action="store_true", help="leave out --refit, which takes a while")
    options = parser.parse_args()
    folder = options.folder
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "new").mkdir(parents=True)
    (folder / "step0.toml").write_text("")
    setups = options.setups or max(1, options.runs // 100)
    times = max(1, options.runs // options.judged)
    build(folder / "step0.db", options.runs // times, setups // times)
    miles_run(folder / "new", "aaaa0000", 0.0150)
    report(f"first sync of {options.runs // times:,} runs", "sync", "new", "-q", cwd=folder)
    multiply(folder / "step0.db", times)
    print(f"{options.runs:,} runs in {setups:,} setups, {(folder / 'step0.db').stat().st_size / 1e6:.0f} MB")
    for what, words in steps(folder, refit=not options.no_refit):
        if options.sync_only and not what.startswith("sync "):
            continue
        report(what, *words, cwd=folder)
        if what == "sync --refit":
            print(differences(folder / "step0.db", folder / "refit.db"))
    if not options.sync_only:
        print(f"page {(folder / 'page.html').stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
