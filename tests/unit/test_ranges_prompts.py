"""Runs on other prompts scatter more than repeats of one row: a change of seed is neither a fault nor a move."""

import numpy as np
import pandas as pd
import pytest

from step0_wandb import fit_ranges, judge
from step0_wandb.ranges.prompts import ASSUMED_DF, OF_ONE_PROMPT, sharing, sharing_so_far, weigh_sharing

PROMPTS = 40
BETWEEN = OF_ONE_PROMPT / np.sqrt(PROMPTS)


def frame(y, seeds, **columns):
    times = pd.date_range("2026-11-01", periods=len(y), freq="h", tz="UTC")
    return pd.DataFrame(
        {"setup": "a", "gap": np.exp(y), "seed": seeds, "data": "gsm8k", "created_at": times, **columns}
    )


def as_they_came(runs):
    """Return the verdict of each run when it came, each judged with those before it."""
    came, now = [], []
    for at in range(len(runs)):
        said = np.array([*now, None], dtype=object)
        now = judge(runs.iloc[: at + 1].assign(verdict=said))["verdict"].tolist()
        came.append(now[-1])
    return came


def three_seeds(order, apart=2 * BETWEEN):
    """Return eight runs of each seed, one after the other; a seed lies `apart` from the one before it."""
    noise = 0.012 * np.random.default_rng(8).standard_normal((3, 8))
    level = {"1": 0.0, "2": -apart / 2, "3": apart / 2}
    y = np.log(0.0075) + np.concatenate([noise[at] + level[seed] for at, seed in enumerate(order)])
    return frame(y, np.repeat(list(order), 8), prompts=PROMPTS)


@pytest.mark.parametrize("order", ["123", "321", "213"])
def test_no_order_of_three_seeds_flags_a_run(order):
    runs = three_seeds(order)
    assert set(as_they_came(runs)) <= {"healthy", "no-range"}
    assert np.isnan(fit_ranges(runs).loc["a", "moved"])


def test_a_step_that_another_seed_explains_is_told_on_the_same_prompts():
    runs = three_seeds("32", apart=3 * BETWEEN)
    assert set(as_they_came(runs)) == {"no-range", "healthy"}
    assert "suspect" in as_they_came(runs.assign(seed="1"))


def test_a_fault_is_found_on_other_prompts_too():
    runs = three_seeds("12").iloc[:9].copy()
    runs.loc[8, "gap"] *= 1.5
    assert judge(runs)["verdict"].tolist() == ["healthy"] * 8 + ["suspect"]


def test_a_setup_with_one_prompt_set_is_judged_as_one_whose_seed_is_unknown():
    runs = three_seeds("111")
    known, unknown = fit_ranges(runs), fit_ranges(runs.drop(columns=["seed", "prompts"]))
    pd.testing.assert_frame_equal(known, unknown)


def test_more_prompts_leave_less_to_assume():
    runs = three_seeds("12").iloc[:9]
    width = [
        np.log(found["high"] / found["low"]).iloc[-1]
        for found in (judge(runs.assign(prompts=prompts)) for prompts in (16, 64, 1024))
    ]
    assert width == sorted(width, reverse=True)
    one_set = judge(runs.assign(seed="1"))
    assert width[-1] == pytest.approx(np.log(one_set["high"] / one_set["low"]).iloc[-1], rel=0.05)


def test_the_distance_to_the_mean_has_the_variance_of_a_random_effect():
    """Var(b_k - sum(w_j b_j)) of independent effects with variance 1, as a quadratic form."""
    counts = np.array([5, 2, 1])
    for own in range(4):
        w = np.append(counts, 0) / counts.sum()
        contrast = np.eye(4)[own] - w
        found = weigh_sharing(
            *(np.array([float(x)]) for x in (1, 8, 3, (counts**2).sum(), [*counts, 0][own]))
        )
        assert found.times[0] == pytest.approx(contrast @ contrast)


def test_what_a_row_shares_leaves_the_row_itself_out():
    sets, cell = np.array([0, 0, 0, 1, 2]), np.zeros(5, dtype=np.int64)
    found = sharing(sets, np.ones(5), np.ones(5, dtype=bool), cell)
    for at in range(5):
        others = np.delete(sets, at)
        w = np.bincount(others, minlength=3) / 4
        assert found.times[at] == pytest.approx(((np.eye(3)[sets[at]] - w) ** 2).sum())
        assert found.shown[at] == pytest.approx(
            1 - (1 - (len(set(others)) - 1) / 3) * ASSUMED_DF / (ASSUMED_DF + len(set(others)) - 1)
        )


def test_in_time_order_a_row_is_compared_with_those_before_it():
    rng = np.random.default_rng(3)
    setup = np.repeat([0, 1], 12)
    sets = rng.integers(0, 4, 24) + 4 * setup
    counts = rng.random(24) < 0.8
    found = sharing_so_far(sets, np.ones(24), counts, setup)
    for at in range(24):
        before = np.flatnonzero((np.arange(24) < at) & (setup == setup[at]) & counts)
        if before.size:
            w = np.bincount(sets[before], minlength=8) / before.size
            assert found.times[at] == pytest.approx(((np.eye(8)[sets[at]] - w) ** 2).sum())
        else:
            assert found.variance[at] == 0
