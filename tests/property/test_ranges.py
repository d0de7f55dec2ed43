"""What must hold for ranges of any history."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from step0_wandb.ranges import fit_ranges, judged_by
from tests.support.fleets import Plan, draw_fleets

GAPS = st.one_of(
    st.floats(1e-4, 1.0),
    st.sampled_from([0.0, -0.01, np.nan, np.inf, -np.inf, 0.0150, 0.0151, 0.0152, 0.0300, 0.0461]),
)
HOURS = st.one_of(st.none(), st.integers(0, 30))
START = pd.Timestamp("2026-01-01", tz="UTC")
SOME = settings(max_examples=settings().max_examples // 2)
"""A whole history is a dear example."""
LIMITS = ["center", "low", "high", "seen_low", "seen_high"]
SCALED = [*LIMITS, "other_center", "lower_center", "upper_center"]


@st.composite
def histories(draw, gaps=GAPS, least=0):
    """Return a frame of runs of a few setups, with whatever people and launches do to them."""
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "setup": st.sampled_from(["a", "b", "c", None]),
                    "gap": gaps,
                    "label": st.sampled_from([None, None, None, "healthy", "broken", "exclude"]),
                    "hour": HOURS,
                    "fit": st.sampled_from([True, True, False]),
                    "accepted": HOURS,
                }
            ),
            min_size=least,
            max_size=40,
        )
    )
    runs = pd.DataFrame(rows, columns=["setup", "gap", "label", "hour", "fit", "accepted"])
    runs["gap"] = runs["gap"].astype(float)
    runs["run"] = [f"team/project/{i:03d}" for i in range(len(runs))]
    for name, hours in (("created_at", runs.pop("hour")), ("accepted_at", runs.pop("accepted"))):
        runs[name] = START + pd.to_timedelta(hours.astype(float), unit="h")
    return runs


@st.composite
def moving_histories(draw):
    """Return a frame of runs whose levels move, so that there are epochs."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    levels = draw(
        st.lists(st.sampled_from([0.010, 0.012, 0.015, 0.018, 0.025, 0.060]), min_size=1, max_size=6)
    )
    sizes = [draw(st.integers(1, 12)) for _ in levels]
    y = np.log(np.repeat(levels, sizes)) + 0.015 * rng.standard_normal(sum(sizes))
    hours = np.arange(y.size) // draw(st.integers(1, 3))
    label = np.where(rng.random(y.size) < draw(st.sampled_from([0.0, 0.05])), "healthy", None)
    return pd.DataFrame(
        {
            "run": [f"team/project/{i:03d}" for i in range(y.size)],
            "setup": "a",
            "gap": np.exp(y),
            "label": label,
            "created_at": START + pd.to_timedelta(hours, unit="h"),
            "accepted_at": START + pd.Timedelta(hours=draw(st.integers(-1, 60))),
        }
    )


@SOME
@given(runs=st.one_of(histories(), moving_histories()), seed=st.integers(0, 100))
def test_the_order_of_the_rows_does_not_matter(runs, seed):
    shuffled = runs.sample(frac=1, random_state=seed)

    pd.testing.assert_frame_equal(fit_ranges(shuffled), fit_ranges(runs), check_exact=True)
    pd.testing.assert_frame_equal(judged_by(shuffled).sort_index(), judged_by(runs), check_exact=True)


@SOME
@given(runs=moving_histories(), factor=st.floats(0.01, 100))
def test_scaling_all_gaps_scales_the_range(runs, factor):
    ranges, scaled = fit_ranges(runs), fit_ranges(runs.assign(gap=runs["gap"] * factor))

    pd.testing.assert_frame_equal(scaled[SCALED], ranges[SCALED] * factor, rtol=1e-6)
    pd.testing.assert_frame_equal(scaled.drop(columns=SCALED), ranges.drop(columns=SCALED), rtol=1e-6)


@SOME
@given(
    seed=st.integers(0, 10**6), factor=st.floats(1.5, 20), place=st.integers(0, 3), others=st.integers(0, 30)
)
def test_a_run_at_half_again_the_level_or_more_does_not_move_a_range_of_three_healthy_runs(
    seed, factor, place, others
):
    rng = np.random.default_rng(seed)
    fleet = draw_fleets(Plan(between=(1, 10), setups=others), rng).runs if others else None
    y = np.log(0.015) + 0.02 * rng.standard_normal(3)
    added = max(y) + np.log(factor)
    gaps = np.exp(np.insert(y, place, added))
    hours = pd.date_range(START, periods=4, freq="h")
    setup = pd.DataFrame({"run": list("wxyz"), "setup": "three", "gap": gaps, "created_at": hours})

    def limits(runs):
        both = runs if fleet is None else pd.concat([fleet, runs])
        return fit_ranges(both).loc["three", ["low", "high"]].astype(float)

    moved = np.abs(limits(setup) / limits(setup.drop(index=place)) - 1)
    assert moved.max() < 0.03


@SOME
@given(runs=histories())
def test_gaps_that_are_no_measurement_never_enter(runs):
    usable = np.isfinite(runs["gap"]) & (runs["gap"] > 0)
    # When a person accepts a setup counts from its first run, measured or not.
    runs = runs.drop(columns="accepted_at")

    ranges, clean = fit_ranges(runs), fit_ranges(runs[usable])

    with_members = ranges.index[ranges["n"] > 0]
    pd.testing.assert_frame_equal(
        ranges.loc[with_members, LIMITS], clean.loc[with_members, LIMITS], check_index_type=False
    )
    assert not judged_by(runs)["member"][~usable].any()


@SOME
@given(runs=histories())
def test_runs_that_someone_called_broken_or_set_aside_never_enter(runs):
    judged = judged_by(runs)

    assert not judged["member"][runs["label"].isin(["broken", "exclude"])].any()
    assert not judged["member"][~runs["fit"] & (runs["label"] != "healthy")].any()


@SOME
@given(runs=histories())
def test_runs_that_someone_called_healthy_always_enter(runs):
    judged = judged_by(runs)
    usable = np.isfinite(runs["gap"]) & (runs["gap"] > 0) & runs["setup"].notna()

    # A run of a proposed move cannot be: its label has accepted the move.
    assert judged["member"][usable & (runs["label"] == "healthy")].all()


@SOME
@given(runs=histories(), alpha=st.sampled_from([0.05, 0.001]))
def test_a_range_is_what_it_says(runs, alpha):
    ranges = fit_ranges(runs, alpha=alpha)

    with_members = ranges[ranges["n"] > 0]
    assert (with_members["low"] < with_members["center"]).all()
    assert (with_members["center"] < with_members["high"]).all()
    assert (with_members["low"] > 0).all()
    assert (with_members["seen_low"] <= with_members["center"] * (1 + 1e-9)).all()
    assert (with_members["seen_high"] >= with_members["center"] * (1 - 1e-9)).all()
    assert ranges.loc[ranges["n"] == 0, LIMITS].isna().all(axis=None)
    usable = np.isfinite(runs["gap"]) & (runs["gap"] > 0)
    may_be = usable & ((runs["label"] == "healthy") | (runs["label"].isna() & runs["fit"]))
    # A setup with a run that may be a member has one.
    assert set(runs["setup"][may_be].dropna()) == set(ranges.index[ranges["n"] > 0])


@SOME
@given(runs=st.one_of(histories(), moving_histories()))
def test_members_are_counted_where_they_are_judged(runs):
    ranges, judged = fit_ranges(runs), judged_by(runs)

    current = judged["epoch"] == runs["setup"].map(ranges["epoch"])
    members = judged["member"][current].groupby(runs["setup"]).sum()
    assert (members.reindex(ranges.index, fill_value=0) == ranges["n"]).all()


@SOME
@given(runs=st.one_of(histories(), moving_histories()))
def test_ranges_of_the_same_runs_judge_as_if_fitted_again(runs):
    pd.testing.assert_frame_equal(judged_by(runs, fit_ranges(runs)), judged_by(runs))


@SOME
@given(parts=st.lists(moving_histories(), min_size=2, max_size=4))
def test_many_setups_together_are_cut_as_each_alone(parts):
    # Each has a gap metric of its own, so that they share no prior.
    parts = [part.assign(setup=f"s{i}", gap_metric=f"m{i}") for i, part in enumerate(parts)]
    together = pd.concat(parts, ignore_index=True)

    pd.testing.assert_frame_equal(fit_ranges(together), pd.concat([fit_ranges(part) for part in parts]))
    alone = pd.concat([judged_by(part) for part in parts], ignore_index=True)
    pd.testing.assert_frame_equal(judged_by(together), alone)


@SOME
@given(runs=moving_histories())
def test_one_epoch_is_what_is_left_without_times(runs):
    timeless = judged_by(runs.drop(columns=["created_at", "accepted_at"]))

    assert timeless["epoch"].eq(0).all()
    assert not timeless["moved"].any()
