"""Five machines that sync one project at the same moment, ten times; prints what was lost or sent twice.

Run from the root: ``python -m tests.benchmarks.several_machines --machines 5 --rounds 10``.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.support.machines import Machines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, Machines(Path(name), asked.machines) as machines:
        for number in range(asked.rounds):
            machines.say(number)
            machines.sync_at_once()
            print(f"round {number}: {time.monotonic() - began:.0f} s, {dict(machines.codes)}", flush=True)
        machines.settle()
        faults = machines.faults()
        print(
            f"{len(machines.labels)} labels, {len(machines.mutes)} mutes, {len(machines.broken)} broken runs"
        )
        print("\n".join(faults) or "every label and mute kept, each alert and post once, one report")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
