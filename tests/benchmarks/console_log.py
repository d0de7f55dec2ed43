"""A long console log, read next to ``grep``: ``python -m tests.benchmarks.console_log [MEGABYTES]``.

The log has no training step, so that all of it must be searched; the best of five is printed.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from step0_wandb.errors import NoStep0Error
from step0_wandb.profiles import load_profiles
from step0_wandb.sources.console.log import read_console
from step0_wandb.step0.finder import Step0Finder

ROUNDS = 5
LINES = 20_000


def write_log(path, megabytes):
    """Write what the engines and the rollout manager of a Miles job print."""
    noise = random.Random(7)  # noqa: S311 - it only has to look like a log
    lines = []
    for at in range(LINES):
        kind = at % 10
        if kind < 4:
            lines.append(
                f"(RolloutManager pid=4159) [2026-02-01 01:23:40] rollout.py:720 - perf {at}: {{'rollout/response_len/mean': {noise.random() * 1000}, 'perf/rollout_time': {noise.random() * 50}}}"
            )
        elif kind < 8:
            lines.append(
                f'\x1b[36m(SGLangEngine pid={at})\x1b[0m INFO: 10.0.0.1:{at} - "POST /generate HTTP/1.1" 200 OK'
            )
        else:
            lines.append(
                f"[2026-02-01 01:23:40 TP0] Prefill batch, #new-token: {at}, #cached-token: {'x' * noise.randint(0, 200)}"
            )
    block = "\n".join([*lines, ""]).encode()
    with path.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(block) + 1):
            file.write(block)


def best(work):
    """Return the shortest of several times, in seconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main(megabytes):
    """Print the table."""
    finder = Step0Finder(load_profiles())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "train.log"
        write_log(path, megabytes)
        size = path.stat().st_size / 1e9

        def ours():
            try:
                read_console(path, finder)
            except NoStep0Error:
                return
            raise AssertionError("the log has no step 0")

        def grep():
            subprocess.run(["grep", "-c", "ppo_kl", str(path)], stdout=subprocess.DEVNULL, check=False)

        found, reference = best(ours), best(grep)
    print("| | s | GB/s |\n|---|---|---|")
    print(f"| step0-wandb | {found:.2f} | {size / found:.2f} |")
    print(f"| grep | {reference:.2f} | {size / reference:.2f} |")
    print(f"| ratio | {found / reference:.2f} | |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
