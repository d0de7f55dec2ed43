"""What an earlier judgment said counts: verdicts do not flap, and late runs outvote nobody."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from step0_wandb.errors import UsageError
from step0_wandb.ranges import fit_ranges, judged_by
from step0_wandb.verdicts.judge import judge, setup_ranges, weigh

ESTABLISHED = [0.0150, 0.0152, 0.0149, 0.0151]


def in_order(gaps):
    created = pd.date_range("2026-01-01", periods=len(gaps), freq="h", tz="UTC")
    return pd.DataFrame({"run": [f"r{i:03d}" for i in range(len(gaps))], "setup": "a", "gap": gaps}).assign(
        created_at=created
    )


def arrive(gaps):
    """Judge the runs one by one as they come, each time with what was said before."""
    said = []
    for count in range(1, len(gaps) + 1):
        runs = in_order(gaps[:count]).assign(verdict=pd.Series([*said, None], dtype=object))
        said = judge(runs)["verdict"].tolist()
        yield said


@pytest.mark.parametrize("factor", [1.25, 1.3, 1.35])
@pytest.mark.parametrize("with_times", [True, False])
def test_two_retries_of_a_mildly_broken_launch_do_not_acquit_each_other(factor, with_times):
    runs = in_order([*ESTABLISHED, 0.0148, 0.0153, 0.0150 * factor, 0.01495 * factor])

    verdicts = judge(runs if with_times else runs.drop(columns="created_at"))["verdict"]

    assert verdicts.tolist() == ["healthy"] * 6 + ["suspect"] * 2


def test_late_low_runs_are_the_suspects_and_never_break_the_runs_before():
    *_, last = arrive([*ESTABLISHED, 0.0068, 0.0069])

    assert last == ["healthy"] * 4 + ["suspect"] * 2


def test_the_order_of_arrival_protects_an_established_level_where_nothing_is_remembered():
    verdicts = judge(in_order([*ESTABLISHED, 0.0068, 0.0069]))["verdict"]

    assert verdicts.tolist() == ["healthy"] * 4 + ["suspect"] * 2


def test_a_single_high_first_run_is_outvoted_because_broken_gaps_are_larger():
    *_, last = arrive([0.022, 0.0150, 0.0151, 0.0149])

    assert last == ["suspect", "healthy", "healthy", "healthy"]


def test_a_remembered_run_may_become_suspect_but_not_broken():
    runs = in_order([0.015, 0.0151, 0.0149, 0.0152, 0.05])

    remembered = judge(runs.assign(verdict=["healthy"] * 5))["verdict"]

    assert judge(runs)["verdict"].iloc[-1] == "broken"
    assert remembered.iloc[-1] == "suspect"


def test_a_label_frees_the_verdict_again():
    runs = in_order([0.015, 0.0151, 0.0149, 0.0152, 0.05]).assign(verdict="healthy")

    labeled = judge(runs.assign(label=["healthy", None, None, None, None]))["verdict"]

    assert labeled.iloc[-1] == "broken"


@pytest.mark.parametrize(
    ("p_value", "before", "expected"),
    [
        (0.0005, "healthy", "healthy"),
        (0.0002, "healthy", "suspect"),
        (0.0005, None, "suspect"),
        (0.002, "suspect", "suspect"),
        (0.002, "broken", "suspect"),
        (0.004, "suspect", "healthy"),
        (0.002, None, "healthy"),
        (0.002, "no-range", "healthy"),
    ],
)
def test_a_verdict_changes_a_third_of_alpha_beyond_the_limit_and_back_at_three_alpha(
    p_value, before, expected
):
    gaps = [0.0150, 0.0152, 0.0149, 0.0151]
    # The gap whose p-value this is: the limit of a range with that alpha.
    gap = fit_ranges(in_order(gaps), alpha=p_value)["high"].iloc[0]
    runs = in_order([*gaps, gap]).assign(verdict=["healthy"] * 4 + [before])
    runs["label"] = [None] * 4 + ["exclude"]

    judged = judged_by(runs).iloc[-1]

    assert judged["p_value"] == pytest.approx(p_value, rel=1e-6)
    assert (judged["position"] > 0) == (expected == "suspect")
    assert judge(runs)["verdict"].iloc[-1] == expected


def test_the_output_of_judge_may_be_fed_back():
    rng = np.random.default_rng(4)
    runs = in_order(0.015 * np.exp(0.02 * rng.standard_normal(12)))

    once = judge(runs)
    twice = judge(once)

    assert twice["verdict"].tolist() == once["verdict"].tolist()


def test_a_word_that_is_not_a_verdict_is_named():
    with pytest.raises(UsageError, match="'verdict' holds 'brokn'"):
        judge(in_order([0.015, 0.0151]).assign(verdict=["brokn", None]))


def test_two_late_low_runs_are_a_question_about_the_setup():
    low = setup_ranges(weigh(in_order([*ESTABLISHED, 0.0068, 0.0069])))[0]

    assert low.note.startswith("two levels: 0.0150 (4 runs) and 0.00685 (2 runs); which is right?")
    assert setup_ranges(weigh(in_order([*ESTABLISHED, 0.0068])))[0].note == ""
    assert setup_ranges(weigh(in_order([*ESTABLISHED, 0.068, 0.069])))[0].note == ""


def test_bit_equal_retries_are_not_a_history_of_their_own():
    assert fit_ranges(in_order([0.015] * 10))["basis"].iloc[0] == "pooled"
    assert fit_ranges(in_order(0.015 * np.linspace(0.99, 1.01, 10)))["basis"].iloc[0] == "own"


def test_the_factor_that_a_setup_finds_is_the_one_that_a_simulation_finds():
    runs = in_order(0.015 * np.exp(0.02 * np.random.default_rng(6).standard_normal(12)))
    setup = setup_ranges(weigh(runs))[0]

    noise = setup.sigma * np.random.default_rng(7).standard_normal(20_000)
    found = setup.center * setup.expects_from * np.exp(noise) > setup.high
    assert found.mean() == pytest.approx(0.95, abs=0.01)


def test_a_gap_metric_that_scatters_more_starts_with_wider_ranges():
    single = pd.DataFrame({"setup": ["a"], "gap": [0.1], "gap_metric": "k3"})

    usual, wide = (fit_ranges(runs).iloc[0] for runs in (single, single.assign(gap_spread=0.06)))

    assert np.log(wide["high"] / wide["center"]) == pytest.approx(
        2 * np.log(usual["high"] / usual["center"]), rel=1e-3
    )


def test_bit_equal_repeats_of_a_seed_count_once():
    # One seed gives the same gap every time; another seed sees other prompts and lies 8 % higher.
    gaps = [0.0070] * 12 + [0.0071, 0.0069, 0.00705] + [0.0076]
    runs = in_order(gaps).assign(seed=[1] * 12 + [2] * 3 + [3])

    ranges = fit_ranges(runs)

    assert ranges["n"].iloc[0] == 5
    assert judge(runs)["verdict"].tolist() == ["healthy"] * 16
    assert judge(runs.drop(columns="seed"))["verdict"].iloc[-1] == "suspect"
