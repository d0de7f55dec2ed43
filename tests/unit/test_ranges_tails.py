"""Tails heavier than the normal's, and whether the fit is good."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from step0_wandb.ranges import fit_ranges, goodness_of_fit
from step0_wandb.ranges.fitness import anderson_darling
from tests.support.fleets import Plan, draw_fleets


def fleet(seed, fleets=1, **plan):
    return draw_fleets(Plan(between=(1, 20), **plan), np.random.default_rng(seed), fleets)


def shares(fleets, ranges):
    outside = fleets.outside(ranges["low"], ranges["high"], 1.0)
    return outside.groupby(fleets.truth["fleet"]).mean()


def test_normal_fleets_keep_the_quantiles_of_the_t_distribution():
    fleets = fleet(1, fleets=40)

    ranges = fit_ranges(fleets.runs)

    widened = np.isfinite(ranges.groupby("gap_metric")["tail_df"].first())
    assert widened.mean() <= 0.2
    plain = ranges[np.isinf(ranges["tail_df"])]
    quantile = np.log(plain["high"] / plain["center"]) / (plain["sigma"] * np.sqrt(1 + 1 / plain["n"]))
    assert quantile.to_numpy() == pytest.approx(stats.t.ppf(0.9995, plain["df"]), rel=1e-9)


def test_few_residuals_do_not_widen_ranges():
    fleets = draw_fleets(Plan(between=(2, 4), setups=10), np.random.default_rng(2), 60)

    ranges = fit_ranges(fleets.runs)

    widened = np.isfinite(ranges.groupby("gap_metric")["tail_df"].first())
    assert widened.mean() < 0.05


@pytest.mark.parametrize("noise_df", [3, 5])
def test_heavy_tails_are_found_and_bring_alpha_near_what_it_says(noise_df):
    fleets = fleet(3, fleets=6, noise_df=noise_df, setups=400)

    ranges = fit_ranges(fleets.runs)

    tail = ranges.groupby("gap_metric")["tail_df"].first()
    assert (tail < 12).all()
    assert shares(fleets, ranges).mean() < 0.004
    plain = stats.t.ppf(0.9995, ranges["df"]) * ranges["sigma"] * np.sqrt(1 + 1 / ranges["n"])
    low, high = ranges["center"] * np.exp(-plain), ranges["center"] * np.exp(plain)
    assert fleets.outside(low, high, 1.0).mean() > 0.006


def test_the_tail_is_the_same_whatever_the_number_of_runs_beyond_a_sample():
    small, large = fleet(4, setups=400, noise_df=4), fleet(4, setups=2000, noise_df=4)

    few, many = (fit_ranges(fleets.runs)["tail_df"].iloc[0] for fleets in (small, large))

    assert few == pytest.approx(many, rel=0.6)
    assert fit_ranges(large.runs)["tail_df"].iloc[0] == many


def test_anderson_darling_is_that_of_scipy():
    u = np.random.default_rng(5).beta(0.9, 1.1, 50)

    witness = stats.goodness_of_fit(
        stats.uniform, u, known_params={"loc": 0, "scale": 1}, statistic="ad", n_mc_samples=1, rng=0
    )

    assert anderson_darling(u) == pytest.approx(witness.statistic)
    assert np.isnan(anderson_darling(np.zeros(0)))
    assert np.isfinite(anderson_darling(np.array([0.0, 1.0])))


def test_a_normal_fleet_fits_and_its_p_values_are_even():
    p = [goodness_of_fit(fleet(seed, setups=20).runs)["p_value"].iloc[0] for seed in range(30)]

    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_noise_that_is_not_normal_shows_in_the_test():
    p = [goodness_of_fit(fleet(seed, noise_df=3).runs)["p_value"].iloc[0] for seed in range(5)]

    assert np.median(p) < 0.05


def test_the_table_says_what_is_left_of_the_misfit_once_a_gap_metric():
    calm = fleet(6).runs
    noisy = fleet(7, noise_df=4, broken=0.1).runs
    runs = pd.concat(
        [calm.assign(gap_metric="calm"), noisy.assign(gap_metric="noisy", setup="n" + noisy["setup"])]
    )

    table = goodness_of_fit(runs)

    assert table.index.tolist() == ["calm", "noisy"]
    assert table.index.name == "gap_metric"
    assert table["beyond_5pct"].between(0.03, 0.07).all()
    assert table["beyond_1pct"].between(0.002, 0.02).all()
    assert table["screened"].to_numpy() == pytest.approx([0, noisy["broken"].mean()], abs=0.03)
    assert table.loc["calm", "prior_sigma"] == pytest.approx(0.02, rel=0.2)
    single = calm["setup"].map(calm["setup"].value_counts()) == 1
    assert table.loc["calm", "n"] == pytest.approx((~single).sum(), abs=5)


def test_runs_that_cannot_be_compared_have_no_test():
    table = goodness_of_fit(pd.DataFrame({"setup": ["a", "b"], "gap": [0.015, 0.02]}))

    assert table["n"].tolist() == [0]
    assert table[["statistic", "p_value", "beyond_5pct"]].isna().all(axis=None)


def test_one_setup_of_many_runs_is_tested_in_part():
    y = 0.02 * np.random.default_rng(8).standard_normal(6000)

    table = goodness_of_fit(pd.DataFrame({"setup": "a", "gap": np.exp(y)}))

    assert table["n"].iloc[0] > 5900
    assert table["p_value"].iloc[0] > 0.01
