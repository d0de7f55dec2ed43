"""A project on a W&B server: requests, bytes and seconds, ours next to what people use today.

Run ``python -m tests.benchmarks.server_sync``. Every line is a program of its own, against the double
in this process, so that start-up is in the seconds and stands on a line of its own as well; the package
is compiled before, as pip leaves it. Peak memory is never less than this process's own at the time. Of
our requests those that read runs stand first, then those that write what a sync leaves in W&B. With
``--large`` it shows 5,000 runs with 600 config keys each: memory, and a sync that is interrupted.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import step0_wandb
from tests.support.server_source import CONFIG, START, miles_rows
from tests.support.wandb_server import WandbServer, client_environment, detached

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEAD = f"{'what':58}{'latency':>9}{'requests':>10}{'MB':>8}{'seconds':>9}{'CPU':>7}{'memory':>9}"
READS = {"Step0Page", "Step0Runs"}
OURS = (sys.executable, "-m", "step0_wandb", "sync", "lab/rl", "--quiet", "--store")
WITH_CONFIG = "import wandb; [run.config for run in wandb.Api().runs('lab/rl', per_page=50, lazy=False)]"
WITH_CONFIG_OF_EACH = "import wandb; [run.config for run in wandb.Api().runs('lab/rl')]"
SCAN_LOOP = "import wandb; [next(iter(run.scan_history()), None) for run in wandb.Api().runs('lab/rl')]"


@dataclass(frozen=True, slots=True)
class Line:
    """What one program cost.

    Attributes
    ----------
    reads, writes : int
        Requests; all that the client's loops send are reads.
    cpu_s : float
        Seconds of its own, without those of the server.
    """

    reads: int
    writes: int
    megabytes: float
    seconds: float
    cpu_s: float
    memory_mb: float

    def show(self, what: str, latency_s: float) -> None:
        """Print it as a line of the table."""
        requests = f"{self.reads:,}" + (f" + {self.writes}" if self.writes else "")
        print(
            f"{what:58}{latency_s * 1000:6.0f} ms{requests:>10}{self.megabytes:8.1f}"
            f"{self.seconds:9.2f}{self.cpu_s:7.2f}{self.memory_mb:6.0f} MB",
            flush=True,
        )


class Bench:
    """The double, a folder, and programs that are run against it."""

    def __init__(self, server: WandbServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.environ = detached(os.environ) | client_environment(server, folder)
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, command: Sequence[str], *, stop_after_requests: int | None = None) -> Line:
        """Run a program to its end, or interrupt it as Ctrl-C does after so many requests."""
        self.server.requests.clear()
        began = time.perf_counter()
        child = subprocess.Popen(command, env=self.environ, stdout=subprocess.DEVNULL)
        while stop_after_requests is not None and len(self.server.requests) < stop_after_requests:
            time.sleep(0.01)
        if stop_after_requests is not None:
            child.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 130):
            raise RuntimeError(f"exit code {child.returncode}: {' '.join(command)}")
        requests = list(self.server.requests)
        reads = sum(not READS.isdisjoint(request.operations) for request in requests) or len(requests)
        size = sum(request.bytes_out for request in requests) / 1e6
        seconds, cpu_s = time.perf_counter() - began, usage.ru_utime + usage.ru_stime
        return Line(reads, len(requests) - reads, size, seconds, cpu_s, usage.ru_maxrss / 1024)


def programs(store: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what the table compares."""
    python = (sys.executable, "-c")
    yield "wandb.Api: list with config, no history", (*python, WITH_CONFIG)
    yield "wandb.Api: list, then .config of each run", (*python, WITH_CONFIG_OF_EACH)
    yield "wandb.Api: list, then the first row of scan_history()", (*python, SCAN_LOOP)
    yield "step0-wandb sync, first: everything read, judged, stored", (*OURS, str(store))
    yield "step0-wandb sync, second: no news", (*OURS, str(store))
    yield "step0-wandb --version: start-up alone", (sys.executable, "-m", "step0_wandb", "--version")


def compare(count: int, latency_s: float) -> None:
    """Print ours next to the client at one latency."""
    with WandbServer() as server, tempfile.TemporaryDirectory() as name:
        for index in range(count):
            created_at = START + timedelta(minutes=index)
            rows = miles_rows(gap=0.015 + index * 1e-6, steps=97)
            server.add_run("lab", "rl", f"r{index}", config=CONFIG, rows=rows, created_at=created_at)
        server.latency_s = latency_s
        bench = Bench(server, Path(name))
        print(f"{count:,} runs of 100 rows\n{HEAD}")
        for what, command in programs(Path(name) / "step0.db"):
            bench.run(command).show(what, latency_s)


def large(count: int, keys: int) -> None:
    """Print what a large project costs at 20 ms, also when its first sync is interrupted."""
    with WandbServer() as server, tempfile.TemporaryDirectory() as name:
        values = {
            f"a_setting_{key}": {"value": key * 0.5 if key % 2 else f"value {key}"} for key in range(keys)
        }
        for index in range(count):
            own = {key: {"value": value} for key, value in {**CONFIG, "seed": index}.items()}
            server.add_run(
                "lab",
                "rl",
                f"r{index}",
                config=json.dumps(values | own),
                rows=miles_rows(gap=0.015 + index * 1e-8, steps=10),
                created_at=START + timedelta(minutes=index),
            )
        server.latency_s = 0.02
        bench = Bench(server, Path(name))
        whole, parts = ((*OURS, str(Path(name) / store)) for store in ("whole.db", "parts.db"))
        print(f"{count:,} runs with {keys} config keys each\n{HEAD}")
        bench.run(whole).show("first sync", 0.02)
        bench.run(whole).show("second sync, no news", 0.02)
        half = count // 200
        bench.run(parts, stop_after_requests=half).show(
            f"first sync, interrupted after {half} requests", 0.02
        )
        bench.run(parts).show("the sync after it", 0.02)
        bench.run(parts).show("and one more, no news", 0.02)
        server.add_run("lab", "rl", "new", config=CONFIG, rows=miles_rows())
        bench.run(whole).show("one new run", 0.02)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--large", action="store_true", help="5,000 runs with 600 config keys")
    options = parser.parse_args()
    compileall.compile_dir(Path(step0_wandb.__file__).parent, quiet=1)
    for latency_s in (0.0, 0.02):
        compare(options.runs, latency_s)
    if options.large:
        large(5000, 600)


if __name__ == "__main__":
    main()
