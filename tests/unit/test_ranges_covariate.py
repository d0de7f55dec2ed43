"""The entropy of the row explains part of the gap, and only as far as the runs show that."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from step0_wandb.ranges import fit_ranges, judged_by
from step0_wandb.verdicts.judge import judge

SETUPS, N = 100, 3


def fleet(rng, *, slope=0.6, noise=0.047, entropy_sd=0.097):
    setup = np.repeat(np.arange(SETUPS), N)
    x = rng.normal(-1, 0.5, SETUPS)[setup] + entropy_sd * rng.standard_normal(setup.size)
    y = -4.3 + slope * (x + 1) + noise * rng.standard_normal(setup.size)
    return pd.DataFrame(
        {"setup": [f"s{i:03d}" for i in setup], "gap": np.exp(y), "entropy": np.exp(x), "gap_metric": "abs"}
    )


def found(runs, factor):
    """Return the share of runs flagged if each setup's last one is multiplied and left out of the fit."""
    last = np.arange(len(runs)) % N == N - 1
    runs = runs.assign(gap=np.where(last, runs["gap"] * factor, runs["gap"]))
    runs["label"] = np.where(last, "exclude", None)
    return (judged_by(runs)["position"][last] != 0).mean()


def test_the_slope_is_that_of_a_regression_within_setups():
    runs = fleet(np.random.default_rng(1))

    ranges = fit_ranges(runs)

    within = np.log(runs[["gap", "entropy"]]) - np.log(runs[["gap", "entropy"]]).groupby(
        runs["setup"]
    ).transform("mean")
    witness = stats.linregress(within["entropy"], within["gap"])
    assert ranges["entropy_slope"].iloc[0] == pytest.approx(witness.slope, abs=3 * witness.stderr)


def test_half_as_many_faults_are_missed_where_the_entropy_explains_most_of_the_scatter():
    runs = fleet(np.random.default_rng(2))

    assert found(runs, 1.5) >= 0.95
    assert found(runs.drop(columns="entropy"), 1.5) <= 0.6
    assert found(runs, 1.0) <= 0.01


def test_an_entropy_that_explains_nothing_changes_nothing():
    rng = np.random.default_rng(3)
    runs = fleet(rng).assign(entropy=np.exp(rng.normal(-1, 0.2, SETUPS * N)))

    pd.testing.assert_frame_equal(
        judged_by(runs).drop(columns="entropy_factor"),
        judged_by(runs.drop(columns="entropy")).drop(columns="entropy_factor"),
    )


def test_a_run_of_unusual_entropy_is_judged_without_it():
    runs = fleet(np.random.default_rng(4))
    runs.loc[0, "entropy"] *= 4

    assert judged_by(runs)["entropy_factor"].iloc[0] == 1


def test_the_reason_says_what_was_expected_at_this_entropy():
    runs = fleet(np.random.default_rng(5))
    runs.loc[0, "gap"] *= 1.7

    assert "expected" in judge(runs)["reason"].iloc[0]
    assert f"at entropy {runs['entropy'].iloc[0]:.3g}" in judge(runs)["reason"].iloc[0]
