"""What ranges accept as input, and what they say of the rest."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from step0_wandb.errors import UsageError
from step0_wandb.ranges import fit_ranges, goodness_of_fit, judged_by

COLUMNS = ["n", "center", "low", "high", "seen_low", "seen_high", "sigma", "df", "basis"]
RUNS = pd.DataFrame({"setup": ["a", "a", "b"], "gap": [0.0150, 0.0151, 0.02]})


@pytest.mark.parametrize("function", [fit_ranges, judged_by, goodness_of_fit])
@pytest.mark.parametrize("missing", ["setup", "gap"])
def test_a_missing_column_is_named(function, missing):
    with pytest.raises(UsageError, match=f"runs has no column '{missing}'"):
        function(RUNS.drop(columns=missing))


def test_something_else_than_a_frame_is_an_error():
    with pytest.raises(UsageError, match="runs is a list"):
        fit_ranges([0.015])


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 5, np.nan])
@pytest.mark.parametrize("function", [fit_ranges, judged_by])
def test_an_alpha_that_is_no_share_is_an_error(function, alpha):
    with pytest.raises(UsageError, match="alpha is"):
        function(RUNS, alpha=alpha)


@pytest.mark.parametrize("ratio", [1, 0, np.inf, np.nan])
@pytest.mark.parametrize("function", [fit_ranges, judged_by, goodness_of_fit])
def test_a_broken_ratio_that_is_no_ratio_is_an_error(function, ratio):
    with pytest.raises(UsageError, match="broken_ratio is"):
        function(RUNS, broken_ratio=ratio)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("gap", ["high", "low", "low"], "'gap' holds something that is not a number"),
        ("ceiling", ["x", "x", "x"], "'ceiling' holds something that is not a number"),
        ("label", ["helthy", None, None], "'label' holds 'helthy'"),
        ("gap_rule", ["range", "any", "range"], "'gap_rule' holds 'any'"),
        ("created_at", ["yesterday", None, None], "'created_at' holds something that is not a time"),
        ("accepted_at", [1.7e9, 1.7e9, 1.7e9], "'accepted_at' holds numbers, not times"),
        ("fit", ["no", None, None], "'fit' holds something that is neither true nor false"),
        ("setup", [["a"], "a", "b"], "'setup' holds something that is not a name"),
    ],
)
def test_a_column_that_holds_what_it_may_not_is_named(column, values, message):
    with pytest.raises(UsageError, match=message):
        fit_ranges(RUNS.assign(**{column: values}))


def test_an_empty_frame_gives_empty_tables_of_the_same_columns():
    empty = pd.DataFrame({"setup": [], "gap": []})

    pd.testing.assert_frame_equal(fit_ranges(empty), fit_ranges(RUNS).iloc[:0], check_index_type=False)
    pd.testing.assert_frame_equal(judged_by(empty), judged_by(RUNS).iloc[:0], check_index_type=False)
    assert goodness_of_fit(empty).empty


def test_the_contracts_columns_come_first_and_setups_are_sorted():
    ranges = fit_ranges(RUNS.iloc[::-1])

    assert ranges.columns[:9].tolist() == COLUMNS
    assert ranges.index.tolist() == ["a", "b"]
    assert ranges.index.name == "setup"


def test_setup_and_gap_are_enough():
    assert fit_ranges(RUNS)["n"].tolist() == [2, 1]
    assert judged_by(RUNS)["n"].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    "convert",
    [
        lambda runs: runs.astype({"setup": "category", "label": "category", "gap_metric": "category"}),
        lambda runs: runs.astype({"gap": object, "fit": object, "label": object}),
        lambda runs: runs.astype({"gap": "Float64", "fit": "boolean", "label": "string"}),
        lambda runs: runs.assign(created_at=runs["created_at"].dt.tz_localize(None)),
        lambda runs: runs.assign(created_at=runs["created_at"].astype(str)),
        lambda runs: runs.assign(created_at=runs["created_at"].dt.as_unit("ns")),
        lambda runs: runs.assign(extra=[[1], {}, None]),
    ],
    ids=["category", "object", "nullable", "naive times", "text times", "nanoseconds", "other columns"],
)
def test_the_type_of_a_column_does_not_matter(convert):
    runs = RUNS.assign(
        label=[None, "healthy", None],
        fit=[True, True, False],
        gap_metric="abs",
        created_at=pd.date_range("2026-01-01", periods=3, tz="UTC"),
    )

    pd.testing.assert_frame_equal(fit_ranges(convert(runs)), fit_ranges(runs))
    pd.testing.assert_frame_equal(judged_by(convert(runs)), judged_by(runs))


def test_missing_values_mean_nothing_is_known():
    known_nothing = RUNS.assign(
        label=None, fit=None, exact_failed=None, gap_rule=None, ceiling=None, created_at=None
    )

    pd.testing.assert_frame_equal(fit_ranges(known_nothing), fit_ranges(RUNS))


def test_what_a_setup_is_shows_in_its_row():
    times = pd.to_datetime(["2026-01-02", "2026-01-01", None], utc=True)
    runs = RUNS.assign(
        profile=["miles", "miles", None], gap_metric=["abs", "abs", None], ceiling=[0.03, 0.03, None]
    )

    ranges = fit_ranges(runs.assign(created_at=times))

    assert ranges["profile"].tolist() == ["miles", None]
    assert ranges["gap_metric"].tolist() == ["abs", None]
    assert ranges.loc["a", "ceiling"] == 0.03
    assert ranges.loc["a", "last_run"] == times[0]
    assert np.isnan(ranges.loc["b", "ceiling"])
    assert ranges.loc["b", "last_run"] is pd.NaT


def test_the_frame_is_left_as_it_was():
    runs = RUNS.assign(label=[None, "healthy", None])
    before = runs.copy(deep=True)

    judged_by(runs, fit_ranges(runs))

    pd.testing.assert_frame_equal(runs, before)


def read_back(frame, **how):
    return pd.read_csv(io.StringIO(frame.to_csv(**how)))


def test_a_frame_that_went_through_csv_is_fitted_and_judged_like_the_first():
    dates = ["2026-01-01", "2026-01-02T03:04:05.123Z", "2026-01-03 00:00:00+02:00"]
    runs = RUNS.assign(created_at=dates, label=[None, "healthy", None])
    ranges = fit_ranges(runs)
    again = read_back(runs, index=False)
    columns = ["n", "center", "low", "high"]
    pd.testing.assert_frame_equal(fit_ranges(again)[columns], ranges[columns])
    judged = judged_by(again, read_back(ranges))
    pd.testing.assert_frame_equal(judged[columns], judged_by(runs, ranges)[columns])


def test_the_setup_may_be_the_index():
    pd.testing.assert_frame_equal(fit_ranges(RUNS.set_index("setup")), fit_ranges(RUNS))


def test_an_alpha_as_text_is_an_error():
    with pytest.raises(UsageError, match=r"alpha is '0.001', not a number"):
        fit_ranges(RUNS, alpha="0.001")
