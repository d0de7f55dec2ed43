"""The range that each run is compared with, its own value left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from step0_wandb.errors import UsageError
from step0_wandb.ranges import fit_ranges, judged_by
from tests.support.fleets import Plan, draw_fleets

CONTRACT = ["n", "center", "low", "high", "seen_low", "seen_high", "sigma", "df", "basis"]
START = pd.Timestamp("2026-01-01", tz="UTC")


@pytest.fixture
def runs():
    """Return a fleet with broken runs in it."""
    plan = Plan(between=(1, 9), setups=30, broken=0.1)
    return draw_fleets(plan, np.random.default_rng(7)).runs


def test_a_member_is_compared_with_the_others_and_the_prior_stays(runs):
    ranges, judged = fit_ranges(runs), judged_by(runs)
    compared = 0
    for setup, of in ranges.iterrows():
        members = runs[(runs["setup"] == setup) & judged["member"]]
        for at in members.index:
            others = np.log(members["gap"].drop(at))
            if others.empty:
                continue
            df = of["prior_df"] + len(others) - 1
            ss = ((others - others.mean()) ** 2).sum()
            sigma = np.sqrt((of["prior_df"] * of["prior_sigma"] ** 2 + ss) / df)
            half = stats.t.ppf(0.9995, df) * sigma * np.sqrt(1 + 1 / len(others))
            limits = np.exp(others.mean() + half * np.array([-1, 1]))
            assert judged.loc[at, ["low", "high"]].astype(float).to_numpy() == pytest.approx(limits, rel=1e-9)
            assert judged.loc[at, ["sigma", "df", "n"]].tolist() == pytest.approx([sigma, df, len(others)])
            seen = members["gap"].drop(at)
            assert judged.loc[at, ["seen_low", "seen_high"]].tolist() == [seen.min(), seen.max()]
            compared += 1
    assert compared > 80


def test_a_run_that_is_no_member_is_compared_with_all_members(runs):
    ranges, judged = fit_ranges(runs), judged_by(runs)

    others = ~judged["member"]
    assert others.sum() > 8
    expected = ranges.loc[runs["setup"][others], CONTRACT].set_axis(runs.index[others])
    pd.testing.assert_frame_equal(judged.loc[others, CONTRACT], expected)


def test_ranges_fitted_from_the_same_runs_change_nothing(runs):
    pd.testing.assert_frame_equal(judged_by(runs, fit_ranges(runs)), judged_by(runs))


def test_the_columns_of_the_contract_are_enough_to_leave_members_out_exactly(runs):
    bare = fit_ranges(runs)[CONTRACT]

    pd.testing.assert_frame_equal(judged_by(runs, bare), judged_by(runs))


def test_one_setup_of_a_fleet_is_judged_with_the_prior_of_the_fleet(runs):
    ranges, whole = fit_ranges(runs), judged_by(runs)
    part = runs["setup"] == ranges["n"].idxmax()

    pd.testing.assert_frame_equal(judged_by(runs[part], ranges), whole[part])


def test_the_alpha_of_the_ranges_goes_before_that_of_the_call(runs):
    ranges = fit_ranges(runs, alpha=0.05)

    pd.testing.assert_frame_equal(judged_by(runs, ranges), judged_by(runs, alpha=0.05))


def test_another_range_is_used_as_it_stands():
    past = fit_ranges(pd.DataFrame({"setup": "a", "gap": [0.0150, 0.0151, 0.0152, 0.0149]}))
    new = pd.DataFrame({"setup": "a", "gap": [0.0152, 0.0300]}, index=[7, 7])

    judged = judged_by(new, past)

    assert judged.index.tolist() == [7, 7]
    for column in CONTRACT:
        assert judged[column].tolist() == [past.loc["a", column]] * 2
    assert judged["position"].tolist() == [0, 1]
    assert not judged["member"].any()
    t = np.log(0.0300 / past.loc["a", "center"]) / (past.loc["a", "sigma"] * np.sqrt(1 + 1 / 4))
    assert judged["p_value"].iloc[1] == pytest.approx(2 * stats.t.sf(t, past.loc["a", "df"]))


def test_a_range_whose_center_differs_in_the_tenth_digit_is_the_same():
    runs = pd.DataFrame({"setup": "a", "gap": [0.0150, 0.0151, 0.0152]})
    ranges = fit_ranges(runs)

    for shift, members in ((1e-10, 3), (1e-8, 0)):
        moved = ranges.assign(center=ranges["center"] * (1 + shift))
        assert judged_by(runs, moved)["member"].sum() == members


def test_a_setup_that_is_not_in_the_ranges_has_none():
    runs = pd.DataFrame(
        {"setup": ["a", "a", "b", "b"], "gap": [0.015, 0.0151, 0.02, 0.0201], "ceiling": 0.03}
    )

    judged = judged_by(runs, fit_ranges(runs).loc[["a"]])

    assert judged["n"].tolist() == [1, 1, 0, 0]
    assert judged["basis"].tolist() == ["pooled", "pooled", "ceiling", "ceiling"]
    assert judged["low"].isna().tolist() == [False, False, True, True]
    assert judged["position"].iloc[2:].isna().all()


def test_ranges_that_are_not_believed_stay_so():
    ranges = fit_ranges(pd.DataFrame({"setup": "a", "gap": [0.046, 0.0461], "ceiling": 0.03}))

    judged = judged_by(pd.DataFrame({"setup": ["a"], "gap": [0.0462]}), ranges)

    assert judged["believed"].tolist() == [False]


@pytest.mark.parametrize(("accepted", "believed"), [(True, True), (False, False), (None, False)])
def test_a_range_above_the_ceiling_of_the_runs_is_believed_only_if_a_person_accepted_it(accepted, believed):
    ranges = pd.DataFrame({"n": 9, "center": 0.046, "low": 0.04, "high": 0.05}, index=["a"])
    run = pd.DataFrame({"setup": ["a"], "gap": [0.0462], "ceiling": [0.03]})

    judged = judged_by(run, ranges.assign(accepted=accepted))

    assert judged["believed"].tolist() == [believed]
    assert judged_by(run.assign(ceiling=0.05), ranges)["believed"].tolist() == [True]


def test_a_range_without_its_spread_has_limits_and_no_probability():
    ranges = pd.DataFrame({"n": 9, "center": 0.015, "low": 0.014, "high": 0.016}, index=["a"])

    judged = judged_by(pd.DataFrame({"setup": ["a", "a"], "gap": [0.0152, 0.03]}), ranges)

    assert judged["position"].tolist() == [0, 1]
    assert judged["basis"].tolist() == ["own", "own"]
    assert judged["p_value"].isna().all()


def test_runs_without_a_setup_have_no_range():
    runs = pd.DataFrame({"setup": [None, "a", np.nan, "a"], "gap": [0.015, 0.0150, 0.02, 0.0151]})

    judged = judged_by(runs)

    assert judged["epoch"].tolist() == [-1, 0, -1, 0]
    assert judged["n"].tolist() == [0, 1, 0, 1]
    assert judged["basis"].tolist() == ["none", "pooled", "none", "pooled"]
    assert judged["position"].isna().tolist() == [True, False, True, False]
    assert judged.dtypes.equals(judged_by(runs.dropna()).dtypes)


def test_the_index_of_the_runs_is_kept_even_where_it_repeats(runs):
    repeated = runs.set_axis(np.zeros(len(runs), dtype=int))

    judged = judged_by(repeated)

    assert judged.index.equals(repeated.index)
    pd.testing.assert_frame_equal(judged.reset_index(drop=True), judged_by(runs.reset_index(drop=True)))


def test_ranges_of_a_moved_setup_judge_its_runs_by_their_epochs():
    y = 0.01 * np.random.default_rng(0).standard_normal(25)
    runs = pd.DataFrame(
        {
            "setup": "a",
            "gap": np.where(np.arange(25) < 20, 0.012, 0.018) * np.exp(y),
            "created_at": START + pd.to_timedelta(np.arange(25), unit="h"),
        }
    )
    for history in (runs, runs.assign(accepted_at=START + pd.Timedelta(hours=30))):
        pd.testing.assert_frame_equal(judged_by(history, fit_ranges(history)), judged_by(history))


def test_a_range_twice_for_one_setup_is_an_error():
    ranges = fit_ranges(pd.DataFrame({"setup": "a", "gap": [0.015]}))

    with pytest.raises(UsageError, match="'a' twice"):
        judged_by(pd.DataFrame({"setup": "a", "gap": [0.015]}), pd.concat([ranges, ranges]))


def test_ranges_without_limits_are_an_error():
    with pytest.raises(UsageError, match="ranges has no column 'low'"):
        judged_by(pd.DataFrame({"setup": "a", "gap": [0.015]}), pd.DataFrame({"n": [1], "center": [0.015]}))
