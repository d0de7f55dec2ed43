"""What members of one range show together: a slow drift, and two levels that one setup hides."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from step0_wandb import fit_ranges
from step0_wandb.ranges.trends import FEWEST, RARE, WORTH_TELLING


def frame(y, setups=None, **columns):
    times = pd.date_range("2026-11-01", periods=len(y), freq="h", tz="UTC")
    setup = "a" if setups is None else setups
    return pd.DataFrame({"setup": setup, "gap": np.exp(y), "created_at": times, **columns})


def noise(seed, *shape):
    return 0.02 * np.random.default_rng(seed).standard_normal(shape)


def test_a_drift_is_told_with_the_rise_of_the_line_through_the_runs():
    y = np.log(0.013) + 0.015 * np.arange(30) + noise(1, 30)
    found = fit_ranges(frame(y)).loc["a"]
    line = stats.linregress(np.arange(30), y)
    assert found["n"] == 30
    assert line.pvalue < RARE
    assert found["drift"] == pytest.approx(np.exp(29 * line.slope))
    assert found["drift_since"] == pd.Timestamp("2026-11-01", tz="UTC")


def test_runs_of_one_moment_share_a_place_in_a_drift_whatever_their_order():
    y = np.log(0.013) + 0.015 * np.arange(30) + noise(1, 30)
    by_day = frame(y).assign(created_at=lambda runs: runs["created_at"].dt.floor("6h"))
    place = stats.rankdata(by_day["created_at"].astype("int64"))
    line = stats.linregress(place, y)
    for seed in range(5):
        found = fit_ranges(by_day.sample(frac=1, random_state=seed)).loc["a"]
        assert found["drift"] == pytest.approx(np.exp(29 * line.slope))


def test_a_drift_is_told_exactly_where_its_line_is_rare_and_rises_enough():
    slopes = np.repeat([0.0, 0.002, 0.005, 0.01, -0.01], 20)
    y = slopes[:, None] * np.arange(14) + noise(2, 100, 14) - 4.3
    found = fit_ranges(frame(y.ravel(), np.repeat(np.arange(100).astype(str), 14)))
    whole = found["n"] == 14
    for setup in found.index[whole]:
        line = stats.linregress(np.arange(14), y[int(setup)])
        told = line.pvalue < RARE and abs(13 * line.slope) >= WORTH_TELLING
        assert np.isfinite(found.loc[setup, "drift"]) == told
    assert whole.sum() > 60
    assert found["drift"].notna().sum() > 10
    assert not found["drift"][found.index.astype(int) < 20].notna().any()


def test_fewer_runs_and_changing_seeds_show_no_drift():
    y = np.log(0.013) + 0.02 * np.arange(20) + noise(3, 20)
    assert np.isnan(fit_ranges(frame(y[: FEWEST - 1])).loc["a", "drift"])
    assert np.isnan(fit_ranges(frame(y, seed=np.repeat(list("abcd"), 5), data="d")).loc["a", "drift"])
    assert np.isnan(fit_ranges(frame(y).drop(columns="created_at")).loc["a", "drift"])


def test_two_levels_that_a_fleet_hides_are_told_where_they_are():
    level = np.random.default_rng(4).permuted(np.tile([0.0, np.log(1.12)], (40, 5)), axis=1)
    y = np.log(0.013) + level + noise(5, 40, 10) / 4
    found = fit_ranges(frame(y.ravel(), np.repeat(np.arange(40).astype(str), 10)))
    assert (found["n"] == 10).all()
    assert (found["lower_n"] == 5).mean() > 0.9
    assert (found["upper_center"] / found["lower_center"]).median() == pytest.approx(1.12, rel=0.01)


def test_one_level_is_not_told_as_two():
    y = np.log(0.013) + noise(6, 400, 12)
    found = fit_ranges(frame(y.ravel(), np.repeat(np.arange(400).astype(str), 12)))
    assert found["lower_n"].gt(0).sum() <= 1
    assert found["drift"].notna().sum() == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_runs_on_one_line_or_all_equal_are_no_reason_for_a_warning(count):
    for y in (np.full(count, -4.0), -4.0 + 0.003 * np.arange(count), -4.0 + 1e-15 * np.arange(count)):
        assert np.isnan(fit_ranges(frame(y)).loc["a", "drift"])
    rising = fit_ranges(frame(-4.0 + 0.01 * np.arange(12))).loc["a", "drift"]
    assert rising == pytest.approx(np.exp(0.11), rel=1e-6)
