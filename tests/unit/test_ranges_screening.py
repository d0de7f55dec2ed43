"""Which runs of a dirty history a range rests on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from step0_wandb.ranges import fit_ranges, judged_by

REFERENCE = (
    *(0.0148, 0.0149, 0.0150, 0.0150, 0.0151, 0.0151, 0.0151, 0.0152, 0.0152),
    *(0.0152, 0.0153, 0.0153, 0.0154, 0.0154, 0.0155, 0.0156, 0.0157),
)
"""Miles' published gaps of Qwen3-0.6B at step 0 span 0.0148 to 0.0157 over 17 runs."""


def runs(gaps, setup="a", **columns):
    return pd.DataFrame({"setup": setup, "gap": gaps, **columns})


def test_the_reference_runs_are_all_inside_and_others_where_a_person_would_put_them():
    judged = judged_by(runs([*REFERENCE, 0.0461, 0.0180, 0.0152]))

    assert len(REFERENCE) == 17
    assert judged["position"].tolist() == [0] * 17 + [1, 1, 0]
    assert judged["ratio"].iloc[17] == pytest.approx(3.03, abs=0.01)
    assert judged["ratio"].iloc[18] < 2
    assert judged["member"].tolist() == [True] * 17 + [False, False, True]
    assert judged["basis"].eq("own").all()


def test_a_run_that_is_alone_in_its_setup_has_no_range_to_be_judged_by():
    together = pd.concat([runs(REFERENCE), runs([0.0109], "1.7B")])

    run = judged_by(together).iloc[-1]

    assert (run["n"], run["basis"]) == (0, "none")
    assert np.isnan(run["low"])
    assert np.isnan(run["position"])
    assert fit_ranges(together).loc["1.7B", "n"] == 1
    assert fit_ranges(together).loc["1.7B", "high"] < 2 * 0.0109


def test_of_two_runs_a_factor_apart_the_lower_one_counts():
    together = runs([0.0109, 0.0412], "1.7B")

    ranges, judged = fit_ranges(together), judged_by(together)

    assert ranges.loc["1.7B", ["n", "basis"]].tolist() == [1, "split"]
    assert judged["position"].iloc[1] == 1
    assert judged["ratio"].iloc[1] == pytest.approx(0.0412 / 0.0109)
    assert judged["basis"].tolist() == ["none", "split"]


def test_two_runs_outside_the_range_of_each_other_leave_the_lower_one():
    # In a fleet this calm x1.25 is far out, though less than the window that the screening starts from.
    calm = pd.concat(
        [runs(0.015 * np.exp(0.005 * np.array([-1, 0, 1, 0.5])), f"calm {i:02d}") for i in range(12)]
    )

    ranges = fit_ranges(pd.concat([calm, runs([0.0125, 0.0100], "pair")]))

    assert ranges.loc["pair", ["n", "center", "basis"]].tolist() == [1, pytest.approx(0.0100), "split"]


def test_three_healthy_runs_outweigh_five_retries_of_one_broken_launch():
    together = runs([0.0149, 0.0151, 0.0150, 0.0500, 0.0501, 0.0499, 0.0502, 0.0500])

    ranges, judged = fit_ranges(together), judged_by(together)

    assert ranges.loc["a", "n"] == 3
    assert ranges.loc["a", ["low", "high"]].between(0.0120, 0.0190).all()
    assert judged["position"].tolist() == [0] * 3 + [1] * 5
    assert (judged["ratio"].iloc[3:] > 3).all()


def test_three_runs_of_a_new_setup_all_broken_alike_are_not_believed():
    together = runs([0.0461, 0.0462, 0.0460], ceiling=0.03)

    assert not fit_ranges(together).loc["a", "believed"]
    assert not judged_by(together)["believed"].any()


@pytest.mark.parametrize(
    "word",
    [
        {"label": ["healthy", None, None]},
        {
            "created_at": pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"], utc=True),
            "accepted_at": pd.Timestamp("2026-01-02", tz="UTC"),
        },
        {"accepted_at": pd.Timestamp("2026-01-02", tz="UTC")},
    ],
    ids=["label", "accept", "accept without times"],
)
def test_a_persons_word_makes_a_setup_above_its_ceiling_believed(word):
    ranges = fit_ranges(runs([0.0461, 0.0462, 0.0460], ceiling=0.03, **word)).loc["a"]

    assert ranges["believed"]
    assert ranges["accepted"]


def test_an_acceptance_older_than_the_first_run_accepts_nothing():
    created = pd.to_datetime(["2026-01-02", "2026-01-03"], utc=True)
    old = pd.Timestamp("2026-01-01", tz="UTC")

    ranges = fit_ranges(runs([0.0461, 0.0462], ceiling=0.03, created_at=created, accepted_at=old)).loc["a"]

    assert not ranges["believed"]
    assert not ranges["accepted"]


@pytest.mark.parametrize("word", ["broken", "exclude"])
def test_runs_labeled_broken_or_excluded_are_never_members(word):
    together = runs([0.0150, 0.0151, 0.0152], label=[None, None, word])

    assert fit_ranges(together).loc["a", "n"] == 2
    assert judged_by(together)["member"].tolist() == [True, True, False]


@pytest.mark.parametrize("column", [{"exact_failed": [False, False, True]}, {"fit": [True, True, False]}])
def test_runs_that_fail_an_exact_check_or_were_resumed_are_no_members(column):
    assert fit_ranges(runs([0.0150, 0.0151, 0.0152], **column)).loc["a", "n"] == 2


def test_a_label_lets_a_run_in_that_fails_an_exact_check():
    together = runs(
        [0.0150, 0.0151, 0.0152], exact_failed=[False, False, True], label=[None, None, "healthy"]
    )

    assert fit_ranges(together).loc["a", "n"] == 3


def test_a_run_labeled_healthy_is_a_member_however_far_out():
    together = runs([*REFERENCE, 0.0461], label=[None] * 17 + ["healthy"])

    assert fit_ranges(together).loc["a", ["n", "seen_high"]].tolist() == [18, 0.0461]
    assert judged_by(together)["member"].all()


def test_a_label_seeds_the_range_against_retries_of_a_broken_launch():
    together = runs([0.0150, 0.0500, 0.0501, 0.0502], label=["healthy", None, None, None])

    ranges, judged = fit_ranges(together), judged_by(together)

    assert ranges.loc["a", ["n", "center", "basis"]].tolist() == [1, pytest.approx(0.0150), "pooled"]
    assert judged["position"].iloc[1:].tolist() == [1, 1, 1]


def test_runs_labeled_healthy_far_apart_are_all_members_and_make_the_range_wide():
    together = runs([0.010, 0.030], label=["healthy", "healthy"])

    ranges = fit_ranges(together).loc["a"]

    assert ranges["n"] == 2
    assert ranges["low"] < 0.010
    assert ranges["high"] > 0.030


@pytest.mark.parametrize("gap", [np.nan, np.inf, -np.inf, 0.0, -0.015])
def test_a_gap_that_is_no_measurement_is_never_a_member(gap):
    together = runs([0.0150, gap, 0.0152], label=[None, "healthy", None])

    ranges, judged = fit_ranges(together), judged_by(together)

    assert ranges.loc["a", ["n", "seen_low", "seen_high"]].tolist() == [2, 0.0150, 0.0152]
    assert judged["member"].tolist() == [True, False, True]


def test_gaps_that_are_no_measurement_lie_where_their_value_does():
    judged = judged_by(runs([0.0150, 0.0152, 0.0, -0.015, np.inf, np.nan]))

    assert judged["position"].iloc[2:5].tolist() == [-1, -1, 1]
    assert judged["p_value"].iloc[2:5].tolist() == [0, 0, 0]
    assert np.isnan(judged["position"].iloc[5])
    assert np.isnan(judged["p_value"].iloc[5])


@pytest.mark.parametrize("rule", ["vacuous", "skipped"])
def test_gaps_that_prove_nothing_enter_no_range(rule):
    assert fit_ranges(runs([0.0150, 0.0151], gap_rule=["range", rule])).loc["a", "n"] == 1


@pytest.mark.parametrize(("ceiling", "basis"), [(np.nan, "none"), (0.03, "ceiling")])
def test_a_setup_without_a_usable_gap_has_a_row_without_limits(ceiling, basis):
    ranges = fit_ranges(runs([np.nan, 0.0, -1.0], ceiling=ceiling)).loc["a"]

    assert ranges[["n", "basis"]].tolist() == [0, basis]
    assert ranges[["center", "low", "high", "seen_low", "seen_high", "sigma", "df"]].isna().all()
    assert ranges["believed"]


def test_true_on_policy_setups_have_zero_for_a_range():
    together = runs([0.0, 0.0, 1e-9, np.nan], gap_rule="zero")

    ranges, judged = fit_ranges(together).loc["a"], judged_by(together)

    assert ranges[["n", "center", "low", "high", "seen_low", "seen_high", "basis"]].tolist() == [
        2,
        0,
        0,
        0,
        0,
        0,
        "exact",
    ]
    assert judged["position"].iloc[:3].tolist() == [0, 0, 1]
    assert judged["p_value"].iloc[:3].tolist() == [1, 1, 0]
    assert judged["n"].iloc[:3].tolist() == [1, 1, 2]
    assert judged["basis"].eq("exact").all()


@pytest.mark.parametrize(("n", "basis"), [(1, "pooled"), (5, "pooled"), (6, "own")])
def test_from_six_members_on_a_range_rests_on_its_own_runs(n, basis):
    gaps = 0.015 * np.exp(0.02 * np.linspace(-1, 1, n))

    assert fit_ranges(runs(gaps)).loc["a", "basis"] == basis


def test_a_history_without_any_window_of_a_third_starts_from_the_lowest_run():
    ranges = fit_ranges(runs([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64])).loc["a"]

    assert ranges[["n", "basis"]].tolist() == [1, "split"]
    assert ranges["center"] == pytest.approx(0.01)
