"""How often a range is left by the next run: healthy, or with its gap multiplied.

Run ``python -m tests.benchmarks.calibration``. Every line of the table is measured on simulated
fleets (`tests.support.fleets`), for this package and for what people use today. The probability of
leaving a range is computed from the truth that the fleet was drawn from, so that a share around
0.001 is known from a hundred fleets to a few percent; the standard error is that between fleets.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from step0_wandb.ranges import fit_ranges
from tests.support.fleets import BROKEN, CENTER_LOG_SD, MEDIAN_GAP, Plan, draw_fleets

if TYPE_CHECKING:
    from tests.support.fleets import Fleets

FACTORS = (1.0, 1.25, 1.5, 2.0, 3.0)
ALPHA = 0.001
WINDOW = 30
"""Default window of W&B's z-score automation."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: fleets to draw, and what is asked of the shares at `FACTORS`.

    Attributes
    ----------
    asked : tuple of float
        Upper limit of the first share, lower limits of the others; NaN: nothing is asked.
    more : int
        Small fleets are drawn this many times as often, so that all lines are equally sure.
    """

    name: str
    plan: Plan
    asked: tuple[float, ...]
    more: int = 1


HALF = Plan(sizes=(1, 10))
LINES = (
    Line("half of the setups n = 1, half n = 10", HALF, (0.002, 0.95, 0.998, 0.9995, 0.9995)),
    Line("every setup n = 1", Plan(sizes=(1,)), (0.002, np.nan, 0.85, 0.999, 0.9995)),
    Line("n = 3", Plan(sizes=(3,)), (0.003, 0.97, 0.998, 0.9995, 0.9995)),
    Line("n = 5 to 20", Plan(between=(5, 20)), (0.002, 0.99, 0.999, 0.9995, 0.9995)),
    Line("log sd 4 %, n = 3 to 20", Plan(between=(3, 20), log_sd=0.04), (0.002, np.nan, 0.98, 0.999, 0.9995)),
    Line(
        "Student-t5 noise, n = 1 to 20",
        Plan(between=(1, 20), noise_df=5),
        (0.003, 0.95, 0.997, 0.9995, 0.9995),
    ),
    Line("10 % broken, n = 3 to 20", Plan(between=(3, 20), broken=0.1), (0.003, 0.97, 0.995, 0.998, 0.999)),
    Line("20 % broken, n = 4 to 20", Plan(between=(4, 20), broken=0.2), (0.006, 0.93, 0.98, 0.99, 0.99)),
    Line(
        "3 setups, n = 17, 1, 1", Plan(sizes=(17, 1, 1), setups=3), (0.002, np.nan, 0.95, 0.999, 0.9995), 20
    ),
    Line("one setup alone, n = 2", Plan(sizes=(2,), setups=1), (0.002, np.nan, 0.93, 0.99, 0.9995), 60),
    *(
        Line(
            f"{count} setups, n = 2",
            Plan(sizes=(2,), setups=count),
            (0.003, np.nan, 0.98, np.nan, np.nan),
            max(1, 60 // count),
        )
        for count in (1, 2, 5, 8, 15, 30)
    ),
    *(
        Line(
            f"log sd 0.5 to 15 %, n = {n}",
            Plan(sizes=(n,), log_sd_between=(0.005, 0.15)),
            (0.006, np.nan, found, at_2, np.nan),
        )
        for n, found, at_2 in ((2, 0.55, 0.75), (3, 0.65, np.nan), (5, 0.75, np.nan), (10, np.nan, np.nan))
    ),
    # Wished for: 0.003. A tail that widens both sides alike does not reach it at a skewness of 1.
    Line("skewed noise, n = 3 to 20", Plan(between=(3, 20), skewed=True), (0.007, 0.97, 0.995, 0.998, 0.999)),
    Line("log sd 7.5 %, n = 2 to 20", Plan(between=(2, 20), log_sd=0.075), (0.003, *[np.nan] * 4)),
    Line("log sd 15 %, n = 2 to 20", Plan(between=(2, 20), log_sd=0.15), (0.003, *[np.nan] * 4)),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the next gap, indexed by setup; NaN for none."""

    low: pd.Series
    high: pd.Series


def ours(fleets: Fleets) -> Limits:
    """Return the limits of this package."""
    ranges = fit_ranges(fleets.runs.drop(columns="broken"), alpha=ALPHA)
    return Limits(ranges["low"], ranges["high"])


def mean_3sd(fleets: Fleets) -> Limits:
    """Return mean +- 3 standard deviations of each setup's gaps: the z-score rule."""
    gaps = fleets.runs.groupby("setup")["gap"]
    return Limits(gaps.mean() - 3 * gaps.std(), gaps.mean() + 3 * gaps.std())


def own_t(fleets: Fleets) -> Limits:
    """Return each setup's own t prediction interval of ln(gap)."""
    logs = np.log(fleets.runs["gap"]).groupby(fleets.runs["setup"])
    n = logs.count()
    half = stats.t.ppf(1 - ALPHA / 2, (n - 1).where(n > 1)) * logs.std() * np.sqrt(1 + 1 / n)
    with np.errstate(over="ignore"):  # two runs of a wide setup: the limit is beyond what a float holds
        return Limits(np.exp(logs.mean() - half), np.exp(logs.mean() + half))


def miles_band(fleets: Fleets) -> Limits:
    """Return the band of Miles' CI history gate: up 50 %, down 80 %, at least 0.02 either way."""
    mean = fleets.runs.groupby("setup")["gap"].mean()
    return Limits(mean - np.maximum(0.8 * mean, 0.02), mean + np.maximum(0.5 * mean, 0.02))


def automation(fleets: Fleets) -> Limits:
    """Return what W&B's z-score automation knows: |z| <= 3 over the project's last 30 values."""
    newest = fleets.runs.sort_values("created_at").groupby("gap_metric")["gap"]
    window = fleets.runs.loc[newest.tail(WINDOW).index].groupby("gap_metric")["gap"].agg(["mean", "std"])
    metric = fleets.runs.groupby("setup")["gap_metric"].first()
    mean, sd = window["mean"].reindex(metric).to_numpy(), window["std"].reindex(metric).to_numpy()
    return Limits(pd.Series(mean - 3 * sd, metric.index), pd.Series(mean + 3 * sd, metric.index))


METHODS = {
    "this package": ours,
    "mean ± 3 sd of the setup": mean_3sd,
    "own t interval": own_t,
    "Miles' band: +max(50 %, 0.02)": miles_band,
    "W&B automation: z > 3 of the last 30": automation,
}


def shares(line: Line, rng: np.random.Generator, fleets: int) -> dict[str, np.ndarray]:
    """Return for each method the share of next runs outside, shape (fleets, factors)."""
    drawn = draw_fleets(line.plan, rng, fleets * line.more)
    result = {}
    for name, method in METHODS.items():
        limits = method(drawn)
        outside = pd.DataFrame({x: drawn.outside(limits.low, limits.high, x) for x in FACTORS})
        result[name] = outside.groupby(drawn.truth["fleet"]).mean().to_numpy()
    return result


def kept(line: Line, share: np.ndarray) -> np.ndarray:
    """Whether each share keeps what is asked, within three standard errors of the simulation."""
    asked = np.array(line.asked)
    mean, error = share.mean(axis=0), share.std(axis=0, ddof=1) / np.sqrt(len(share))
    sign = np.where(np.arange(len(FACTORS)) == 0, 1, -1)
    return np.isnan(asked) | (sign * (mean - asked) <= 3 * error)


def print_line(line: Line, results: dict[str, np.ndarray]) -> bool:
    """Print one line for each method; return whether ours keeps what is asked."""
    good = kept(line, results["this package"])
    asked = [f"{'<=' if i == 0 else '>='} {a:g}" if np.isfinite(a) else "" for i, a in enumerate(line.asked)]
    print(f"\n{line.name:38s}" + "".join(f"{text:>18s}" for text in asked))
    for name, share in results.items():
        mean, error = share.mean(axis=0), share.std(axis=0, ddof=1) / np.sqrt(len(share))
        mark = [" " if name != "this package" or ok else "!" for ok in good]
        cells = (f"{m:9.5f} ±{e:6.5f}{k}" for m, e, k in zip(mean, error, mark, strict=True))
        print(f"  {name:36s}" + "".join(f"{cell:>18s}" for cell in cells))
    return bool(good.all())


def main(arguments: list[str] | None = None) -> int:
    """Print the table; exit 1 where a line is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other fleets (default 1)")
    parser.add_argument("--fleets", type=int, default=150, help="fleets a line (default 150)")
    parser.add_argument("--processes", type=int, default=2, help="lines measured at once (default 2)")
    options = parser.parse_args(arguments)
    print(
        f"alpha {ALPHA}, seed {options.seed}, {options.fleets} fleets a line (small ones more), 100 setups each unless said;\n"
        f"centers lognormal about {MEDIAN_GAP} (log sd {CENTER_LOG_SD}); log sd 2 % unless said, 8 degrees of freedom between\n"
        f"setups; broken runs x{BROKEN[0]:g} to x{BROKEN[1]:g}; share of next runs outside ± standard error, by the factor on their gap"
    )
    print(f"\n{'':38s}" + "".join(f"{f'x{factor:g}':>18s}" for factor in FACTORS))
    began = time.perf_counter()
    with ProcessPoolExecutor(options.processes) as pool:
        rngs = np.random.default_rng(options.seed).spawn(len(LINES))
        waiting = [
            pool.submit(shares, line, rng, options.fleets) for line, rng in zip(LINES, rngs, strict=True)
        ]
        good = [print_line(line, future.result()) for line, future in zip(LINES, waiting, strict=True)]
    print(
        f"\n{sum(good)} of {len(LINES)} lines kept within three standard errors; {time.perf_counter() - began:.0f} s"
    )
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
