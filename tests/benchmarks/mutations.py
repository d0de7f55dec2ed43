"""Thousands of damaged inputs of one kind: what came of them, how long the slowest took, and the memory.

Run from the root, for example ``python -m tests.benchmarks.mutations files --count 50000 --seed 1``; kinds
are ``files``, ``logs``, ``states``, ``stores`` and ``pages``. It prints a row of a table, then each finding
with its seed, and exits with 1 if there is one: an exception that no command expects, something lost in
silence, or more than 10 s or 500 MB.
"""

import argparse
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.property import damage

MOST_S, MOST_MB = 10.0, 500.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=damage.KINDS)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    outcomes, findings, slowest = Counter(), [], (0.0, 0)
    with tempfile.TemporaryDirectory() as folder:
        attack = damage.KINDS[asked.kind](Path(folder))
        for seed in range(asked.seed, asked.seed + asked.count):
            began = time.process_time()
            try:
                outcomes[attack(random.Random(seed))] += 1  # noqa: S311 - the same damage each time
            except Exception:  # noqa: BLE001 - that is what is looked for
                last = traceback.format_exc().splitlines()
                findings.append(f"seed {seed}: {last[-1][:300]} ({last[-3].strip()})")
            slowest = max(slowest, (time.process_time() - began, seed))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(outcomes.items()))
    print("| kind | inputs | outcomes | slowest (CPU) | most memory | findings |\n|---|---|---|---|---|---|")
    print(
        f"| {asked.kind} | {asked.count:,} from seed {asked.seed} | {told} | {slowest[0]:.2f} s (seed "
        f"{slowest[1]}) | {megabytes:.0f} MB | {len(findings)} |"
    )
    print("\n".join(findings[:50]))
    return bool(findings) or slowest[0] > MOST_S or megabytes > MOST_MB


if __name__ == "__main__":
    sys.exit(main())
