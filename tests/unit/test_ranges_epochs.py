"""A setup that moves to another level."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from step0_wandb.ranges import fit_ranges, judged_by

START = pd.Timestamp("2026-01-01", tz="UTC")


def history(*levels, seed=0, **columns):
    """Return runs an hour apart: `levels` are pairs of a gap and a number of runs, 1 % of noise."""
    gaps = np.concatenate([np.full(n, gap) for gap, n in levels])
    gaps *= np.exp(0.01 * np.random.default_rng(seed).standard_normal(gaps.size))
    return pd.DataFrame(
        {
            "run": [f"team/project/{i:04d}" for i in range(gaps.size)],
            "setup": "a",
            "gap": gaps,
            "created_at": START + pd.to_timedelta(np.arange(gaps.size), unit="h"),
            **columns,
        }
    )


def accepted(runs, hour):
    return runs.assign(accepted_at=START + pd.Timedelta(hours=hour))


@pytest.mark.parametrize("new", [1, 2])
def test_fewer_than_three_runs_at_a_new_level_are_outside_and_nothing_more(new):
    runs = history((0.012, 20), (0.018, new))

    judged = judged_by(runs)

    assert judged["position"].tolist() == [0] * 20 + [1] * new
    assert not judged["moved"].any()
    assert np.isnan(fit_ranges(runs).loc["a", "moved"])


@pytest.mark.parametrize("new", [3, 10, 60])
def test_from_the_third_run_on_a_move_upwards_is_proposed(new):
    runs = history((0.012, 20), (0.018, new))

    ranges, judged = fit_ranges(runs).loc["a"], judged_by(runs)

    assert ranges["moved"] == pytest.approx(1.5, rel=0.02)
    assert ranges["moved_since"] == START + pd.Timedelta(hours=20)
    assert ranges[["moved_n", "n", "epoch"]].tolist() == [new, 20, 0]
    assert ranges["center"] == pytest.approx(0.012, rel=0.01)
    assert judged["position"].tolist() == [0] * 20 + [1] * new
    assert judged["moved"].tolist() == [False] * 20 + [True] * new
    assert judged["epoch"].tolist() == [0] * 20 + [1] * new
    assert judged["moved_ratio"].iloc[20:].to_numpy() == pytest.approx(1.5, rel=0.02)
    assert judged["moved_n"].tolist() == [0] * 20 + [new] * new


@pytest.mark.parametrize("how", ["accept", "label", "late label"])
def test_an_accepted_move_has_its_own_range_and_the_old_runs_keep_theirs(how):
    runs = history((0.012, 20), (0.018, 5))
    labels = {"label": 21, "late label": 24}
    if how == "accept":
        runs = accepted(runs, hour=20)
    else:
        runs["label"] = np.where(runs.index == labels[how], "healthy", None)

    ranges, judged = fit_ranges(runs).loc["a"], judged_by(runs)

    assert ranges[["n", "epoch", "accepted", "believed"]].tolist() == [5, 1, True, True]
    assert ranges["center"] == pytest.approx(0.018, rel=0.01)
    assert np.isnan(ranges["moved"])
    assert judged["position"].eq(0).all()
    assert not judged["moved"].any()
    assert judged["center"].iloc[:20].between(0.0115, 0.0125).all()
    assert judged["center"].iloc[20:].between(0.0175, 0.0185).all()
    assert judged["n"].tolist() == [19] * 20 + [4] * 5


def test_an_acceptance_before_the_move_does_not_accept_it():
    ranges = fit_ranges(accepted(history((0.012, 20), (0.018, 5)), hour=19)).loc["a"]

    assert ranges["moved"] == pytest.approx(1.5, rel=0.02)
    assert ranges[["n", "epoch", "accepted"]].tolist() == [20, 0, True]


def test_a_fall_is_adopted_from_the_third_run_on():
    before, after = history((0.018, 20), (0.012, 2)), history((0.018, 20), (0.012, 3))

    assert fit_ranges(before).loc["a", "n"] == 20
    assert judged_by(before)["position"].iloc[20:].tolist() == [-1, -1]
    ranges = fit_ranges(after).loc["a"]
    assert ranges[["n", "epoch", "accepted"]].tolist() == [3, 1, False]
    assert ranges["improved"] == pytest.approx(1 / 1.5, rel=0.02)
    assert ranges["improved_since"] == START + pd.Timedelta(hours=20)
    assert judged_by(after)["position"].eq(0).all()


def test_a_fall_to_a_third_of_an_established_level_is_adopted_too():
    ranges = fit_ranges(history((0.030, 20), (0.010, 3))).loc["a"]

    assert ranges["improved"] == pytest.approx(1 / 3, rel=0.02)


def test_a_few_broken_runs_at_the_start_are_no_level_that_improves():
    runs = history((0.050, 5), (0.015, 3))

    ranges, judged = fit_ranges(runs).loc["a"], judged_by(runs)

    assert ranges[["n", "epoch"]].tolist() == [3, 0]
    assert judged["position"].tolist() == [1] * 5 + [0] * 3


def test_broken_runs_make_no_epoch():
    runs = history((0.012, 20), (0.036, 6))

    assert np.isnan(fit_ranges(runs).loc["a", "moved"])
    assert judged_by(runs)["epoch"].eq(0).all()


def test_runs_labeled_healthy_make_an_epoch_wherever_they_lie():
    runs = history((0.012, 20), (0.036, 3))
    runs["label"] = np.where(runs.index >= 20, "healthy", None)

    ranges, judged = fit_ranges(runs).loc["a"], judged_by(runs)

    assert ranges[["n", "epoch", "accepted"]].tolist() == [3, 1, True]
    assert judged["position"].eq(0).all()


def test_broken_runs_in_between_do_not_hide_a_move():
    runs = history((0.012, 20), (0.018, 1), (0.100, 1), (0.018, 1), (0.200, 2), (0.018, 1))

    ranges, judged = fit_ranges(runs).loc["a"], judged_by(runs)

    assert ranges[["moved_n", "n"]].tolist() == [3, 20]
    assert judged["moved"].tolist() == [False] * 20 + [True, False, True, False, False, True]


def test_a_healthy_run_in_between_ends_the_row():
    runs = history((0.012, 20), (0.018, 2), (0.012, 1), (0.018, 2))

    assert np.isnan(fit_ranges(runs).loc["a", "moved"])


def test_runs_on_both_sides_are_no_move():
    runs = history((0.012, 20), (0.018, 2), (0.008, 1), (0.018, 2), (0.008, 1))

    assert np.isnan(fit_ranges(runs).loc["a", "moved"])
    assert judged_by(runs)["epoch"].eq(0).all()


def test_three_runs_that_do_not_agree_with_each_other_are_no_move():
    runs = history((0.012, 20), (0.0145, 1), (0.0180, 1), (0.0225, 1))

    assert np.isnan(fit_ranges(runs).loc["a", "moved"])


def test_runs_at_the_old_level_stay_healthy_while_a_move_waits():
    runs = history((0.012, 20), (0.018, 4), (0.012, 2), (0.018, 2))

    ranges, judged = fit_ranges(runs).loc["a"], judged_by(runs)

    assert judged["position"].tolist() == [0] * 20 + [1] * 4 + [0] * 2 + [1] * 2
    assert judged["moved"].tolist() == [False] * 20 + [True] * 4 + [False] * 2 + [True] * 2
    assert ranges[["n", "moved_n"]].tolist() == [22, 6]


def test_a_proposal_lapses_once_three_runs_are_back_at_the_old_level():
    waiting, over = history((0.012, 20), (0.018, 4), (0.012, 2)), history((0.012, 20), (0.018, 4), (0.012, 3))

    assert fit_ranges(waiting).loc["a", "moved"] == pytest.approx(1.5, rel=0.02)
    assert np.isnan(fit_ranges(over).loc["a", "moved"])
    assert judged_by(over)["moved"].sum() == 4


def test_an_accepted_level_covers_the_lower_ones_that_follow():
    runs = accepted(history((0.050, 20), (0.040, 5), ceiling=0.03), hour=10)

    ranges = fit_ranges(runs).loc["a"]

    assert ranges[["epoch", "n", "accepted", "believed"]].tolist() == [1, 5, True, True]


def test_each_epoch_is_believed_or_not_by_its_own_level():
    runs = accepted(history((0.025, 20), (0.040, 5), ceiling=0.03), hour=19)

    judged = judged_by(runs.assign(label=None))

    assert judged["believed"].all()
    accepted_move = judged_by(accepted(runs, hour=30))
    assert accepted_move["believed"].all()
    assert accepted_move["position"].eq(0).all()


def test_a_second_move_follows_the_first():
    runs = accepted(history((0.012, 10), (0.018, 10), (0.026, 4)), hour=15)

    ranges, judged = fit_ranges(runs).loc["a"], judged_by(runs)

    assert ranges[["epoch", "n", "moved_n"]].tolist() == [1, 10, 4]
    assert ranges["moved"] == pytest.approx(0.026 / 0.018, rel=0.02)
    assert judged["position"].tolist() == [0] * 20 + [1] * 4


def test_without_times_there_is_one_epoch():
    runs = history((0.018, 20), (0.012, 5))

    for timeless in (runs.drop(columns="created_at"), runs.assign(created_at=pd.NaT)):
        assert judged_by(timeless)["epoch"].eq(0).all()


def test_runs_created_at_one_moment_are_in_the_order_of_their_keys():
    runs = history((0.012, 20), (0.018, 3)).assign(created_at=START)

    assert fit_ranges(runs).loc["a", "moved_n"] == 3
    backwards = runs.assign(run=runs["run"].to_numpy()[::-1])
    assert fit_ranges(backwards).loc["a", "improved"] == pytest.approx(1 / 1.5, rel=0.02)


def test_a_run_without_a_time_counts_as_the_newest():
    runs = accepted(history((0.012, 20), (0.018, 5)), hour=20)
    runs.loc[24, ["created_at"]] = pd.NaT

    judged = judged_by(runs)

    assert judged["epoch"].iloc[24] == 1
    assert judged["position"].iloc[24] == 0


def test_runs_that_are_no_members_belong_to_the_epoch_of_their_time():
    runs = history((0.018, 20), (0.012, 5))
    runs["label"] = np.where(runs.index.isin([3, 22]), "exclude", None)

    judged = judged_by(runs)

    assert judged["epoch"].iloc[[3, 22]].tolist() == [0, 1]
    assert judged["position"].eq(0).all()


def test_a_higher_broken_ratio_lets_higher_levels_be_epochs():
    runs = history((0.012, 20), (0.030, 3))

    assert np.isnan(fit_ranges(runs).loc["a", "moved"])
    assert fit_ranges(runs, broken_ratio=3.0).loc["a", "moved"] == pytest.approx(2.5, rel=0.02)


def test_exactly_the_broken_ratio_is_broken():
    runs = history((0.012, 20), (0.012, 3))
    runs["gap"] = [0.012] * 20 + [0.024] * 3

    assert np.isnan(fit_ranges(runs).loc["a", "moved"])


def test_healthy_noise_makes_no_epochs():
    moves = [fit_ranges(history((0.012, 200), seed=seed)).loc["a", "epoch"] for seed in range(30)]

    assert set(moves) == {0}


def test_the_prior_is_not_fooled_by_moves():
    # Every setup moved; taken as one level each, their spreads would be ten times as large.
    runs = pd.concat([history((0.018, 10), (0.012, 10), seed=i).assign(setup=f"s{i:02d}") for i in range(20)])

    ranges = fit_ranges(runs)

    assert ranges["epoch"].eq(1).all()
    assert ranges["prior_sigma"].iloc[0] == pytest.approx(0.01, rel=0.15)
