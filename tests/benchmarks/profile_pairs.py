"""Print which profile claims the runs of which framework: ``python -m tests.benchmarks.profile_pairs``.

A number says how many metric names of a run a profile knows, `!` that the run is given to it. It exits with 1 if
a run is given to another profile than its own; `tests/unit/test_frameworks.py` asserts the same.
"""

import sys

from step0_wandb.profiles import load_profiles
from tests.support.frameworks import CASES
from tests.support.other_frameworks import OTHERS


def main() -> int:
    """Print the table; return the exit code."""
    profiles, wrong = load_profiles(), 0
    columns = sorted(profiles.by_name)
    width = max(len(case.name) for case in (*CASES, *OTHERS))
    print(" " * width, *(name[:7].rjust(7) for name in columns), sep="  ")
    for case in (*CASES, *OTHERS):
        names = {name for row in case.rows for name in row}
        chosen = profiles.pick(names, case.config)
        counts = {name: len(profiles.by_name[name].metrics.names & names) for name in columns}
        cells = [
            f"{count or '.'}{'!' if chosen and chosen.name == name else ' '}"
            for name, count in counts.items()
        ]
        print(case.name.ljust(width), *(cell.rjust(7) for cell in cells), sep="  ")
        wrong += chosen is None or chosen.name != case.profile
    print(
        f"{len(CASES) + len(OTHERS)} runs, {len(columns)} profiles, {wrong} given to another profile than their own"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
