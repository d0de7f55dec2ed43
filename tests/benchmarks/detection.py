"""What step 0 shows of each fault in each framework, and how often a healthy run is flagged.

Run ``python -m tests.benchmarks.detection``; ``--markdown`` prints the matrix as a table for a README. It exits
with 1 where a fault is missed that the framework logs, where one of the healthy variants is flagged, or where a
share of the simulated fleets is out of bounds.

The healthy variants scatter within two standard deviations, so that they show what is wrong with a rule; how
often chance alone flags a run is what the fleets are for.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from step0_wandb.records import OBSERVED
from step0_wandb.verdicts.judge import weigh
from tests.support.observed import (
    CONFIGS,
    FAULTS,
    FINDER,
    HEALTHY,
    SPREADS,
    frame,
    healthy_row,
    metrics_of,
    record,
    with_fault,
)
from tests.support.variants import variants_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator
    from numpy.typing import NDArray

    from step0_wandb.profiles.profile import Profile
    from step0_wandb.verdicts.judge import Judgment
    from tests.support.variants import Variant

PEERS = 6
"""Healthy runs that each fault is found among."""
HEALTHY_RUNS = 200
SIZES = (3, 5, 10, 20)
"""Healthy runs before the one that is looked at, in the fleets."""
MOST_FLAGGED = 0.0025
LEAST_FOUND = 0.99
ODD = {
    "gradient norm x10": ("learned:grad_norm", lambda value: value * 10),
    "entropy x3": ("learned:entropy", lambda value: value * 3),
    "truncation 0.06 -> 0.6": ("learned:truncation", lambda value: np.full_like(value, 0.6)),
}


def profiles() -> list[Profile]:
    """Return the profiles that have a config here."""
    return [profile for name, profile in FINDER.profiles.by_name.items() if name in CONFIGS]


def noise(random: Generator) -> dict[str, float]:
    """Return how many standard deviations each number of a healthy run is off, two at most.

    Entropy, length and gap move together, as in life.
    """
    common = random.normal()
    off = {name: random.normal() for name in (*HEALTHY, "gap")}
    for name in ("learned:entropy", "learned:response_length", "gap"):
        off[name] = 0.8 * common + 0.6 * off[name]
    return {name: float(np.clip(value, -2, 2)) for name, value in off.items()}


def flagged(result: Judgment, at: int) -> tuple[str, ...]:
    """Return the checks that flag a run, the gravest first."""
    found = {name: int(outcomes.level[at]) for name, outcomes in result.outcomes.items()}
    return tuple(sorted((name for name in found if found[name]), key=lambda name: -found[name]))


def caught(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """Yield fault, verdict and the check that caught it, of those whose metric the framework logs."""
    random = np.random.default_rng(13)
    config = CONFIGS[profile.name]
    rows = [healthy_row(profile, noise(random)) for _ in range(PEERS + 1)]
    peers = [record(f"healthy{at}", row, config) for at, row in enumerate(rows[:PEERS])]
    for fault in FAULTS:
        row = with_fault(profile, rows[PEERS], fault)
        if row is not None:
            result = weigh(frame([*peers, record("odd", row, config)]))
            checks = flagged(result, PEERS)
            yield fault.title, str(result.verdict[PEERS]), checks[0] if checks else ""


def false_alarms(profile: Profile) -> Counter[tuple[str, tuple[str, ...]]]:
    """Return what flags healthy runs of every legal kind, by variant."""
    random = np.random.default_rng(17)
    variants = variants_of(profile)
    kinds = [variants[at % len(variants)] for at in range(HEALTHY_RUNS)]
    runs = [record(f"run{at}", *_varied(profile, kind, random)) for at, kind in enumerate(kinds)]
    result = weigh(frame(runs))
    assert set(result.runs["profile"]) == {profile.name}
    return Counter(
        (kind.title, flagged(result, at))
        for at, kind in enumerate(kinds)
        if result.verdict[at] in ("suspect", "broken")
    )


def _varied(profile: Profile, kind: Variant, random: Generator) -> tuple[dict[str, float], dict[str, Any]]:
    row, metrics = healthy_row(profile, noise(random)), metrics_of(profile)
    for name, value in kind.row.items():
        if metric := metrics.get(name.lstrip("*"), name if "/" in name else None):
            row[metric] = row[metric] * value if name.startswith("*") else value
    return {name: value for name, value in row.items() if name not in kind.without}, kind.config


def fleet(setups: int, size: int, random: Generator) -> pd.DataFrame:
    """Return setups of so many Miles runs each, with realistic, correlated spreads."""
    one = frame([record("run", healthy_row(FINDER.profiles.by_name["miles"]), CONFIGS["miles"])])
    runs = one.loc[np.zeros(setups * size, int)].reset_index(drop=True)
    setup, common = np.repeat(np.arange(setups), size), random.normal(size=len(runs))

    def off(name: str) -> NDArray[np.float64]:
        own: NDArray[np.float64] = random.normal(size=len(runs))
        shared = name in ("learned:entropy", "learned:response_length", "gap")
        return 0.8 * common + 0.6 * own if shared else own

    def level(spread: float) -> NDArray[np.float64]:
        return np.exp(random.normal(0, spread, setups))[setup]

    columns: dict[str, Any] = {"run": [f"lab/rl/{at}" for at in range(len(runs))], "setup": setup.astype(str)}
    columns["gap"] = 0.0130 * level(0.15) * np.exp(0.02 * off("gap"))
    for rule in one["observables"][0]:
        if rule.kind == "learned":
            usual, name = HEALTHY[rule.name], OBSERVED + rule.name
            if rule.scale == "share":
                odds = usual / (1 - usual) * level(0.3) * np.exp(0.3 * off(rule.name))
                columns[name] = odds / (1 + odds)
            else:
                columns[name] = usual * level(0.3) * np.exp(SPREADS.get(rule.name, 0.03) * off(rule.name))
    return runs.assign(**columns)


def share_flagged(size: int, setups: int) -> float:
    """Return the share of healthy runs that anything flags, each looked at with `size` others."""
    result = weigh(fleet(setups, size + 1, np.random.default_rng(size)))
    return float(np.isin(result.verdict, ("suspect", "broken")).mean())


def share_found(odd: str, size: int, setups: int) -> float:
    """Return the share of odd runs that are flagged, one with `size` healthy runs in each setup."""
    check, change = ODD[odd]
    runs = fleet(setups, size + 1, np.random.default_rng(23))
    last = np.arange(len(runs)) % (size + 1) == size
    column = OBSERVED + check
    runs.loc[last, column] = change(runs.loc[last, column].to_numpy())
    outcomes = weigh(runs).outcomes[check]
    return float((outcomes.level[last] > 0).mean())


def print_matrix(found: dict[str, dict[str, tuple[str, str]]], *, markdown: bool) -> bool:
    """Print fault by framework; return whether nothing that is logged was missed."""
    titles = [fault.title for fault in FAULTS]
    cells = {title: [_cell(found[name].get(title), markdown=markdown) for name in found] for title in titles}
    header = ["fault", *found]
    if markdown:
        print("| " + " | ".join(header) + " |", "|" + "---|" * len(header), sep="\n")
        for title in titles:
            print("| " + " | ".join([title, *cells[title]]) + " |")
    else:
        table = pd.DataFrame(cells, index=list(found)).T
        with pd.option_context("display.width", 400, "display.max_columns", None):
            print(table)
    missed = [
        (name, title)
        for name in found
        for title, (verdict, _) in found[name].items()
        if not _is_caught(verdict)
    ]
    for name, title in missed:
        print(f"MISSED: {title} in {name}")
    return not missed


def _is_caught(verdict: str) -> bool:
    return verdict in ("suspect", "broken")


def _cell(what: tuple[str, str] | None, *, markdown: bool) -> str:
    if what is None:
        return "·"
    verdict, check = what
    return verdict if markdown else f"{verdict[0].upper() if _is_caught(verdict) else '?'} {check}"


def main(arguments: list[str] | None = None) -> int:
    """Print the matrix, the healthy variety and the fleets; return 1 where something is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--setups", type=int, default=4000, help="setups of each simulated fleet")
    options = parser.parse_args(arguments)
    found = {p.name: {title: (verdict, check) for title, verdict, check in caught(p)} for p in profiles()}
    good = print_matrix(found, markdown=options.markdown)
    print(f"\nflagged of {HEALTHY_RUNS} healthy runs of every legal kind:")
    for profile in profiles():
        alarms = false_alarms(profile)
        kinds = len(variants_of(profile))
        print(f"  {profile.name:9} {alarms.total()} ({kinds} kinds)", *(f"\n    {what}" for what in alarms))
        good &= not alarms
    print(f"\nsimulated fleets, {options.setups} setups each:")
    for size in SIZES:
        share = share_flagged(size, options.setups)
        print(f"  n = {size:2}  healthy runs flagged by anything {share:.5f} (asked <= {MOST_FLAGGED})")
        good &= share <= MOST_FLAGGED
    for odd in ODD:
        share = share_found(odd, 5, options.setups)
        print(f"  n =  5  {odd:23} found {share:.4f} (asked >= {LEAST_FOUND})")
        good &= share >= LEAST_FOUND
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
