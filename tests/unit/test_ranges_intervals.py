"""How wide a range is: quantiles, coverage, probabilities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from step0_wandb.ranges import fit_ranges, judged_by
from tests.support.fleets import Plan, draw_fleets

ALPHAS = (0.1, 0.01, 0.001, 1e-6)


def setup(gaps, name="a"):
    return pd.DataFrame({"setup": name, "gap": gaps})


@pytest.mark.parametrize("alpha", ALPHAS)
def test_limits_are_those_of_the_t_distribution_in_scipy(alpha):
    gaps = np.array([0.0148, 0.0151, 0.0149, 0.0155, 0.0157, 0.0152])

    ranges = fit_ranges(setup(gaps), alpha=alpha).loc["a"]

    y = np.log(gaps)
    d0 = ranges["prior_df"]
    variance = (d0 * ranges["prior_sigma"] ** 2 + 5 * np.var(y, ddof=1)) / (d0 + 5)
    next_run = stats.t(d0 + 5, loc=y.mean(), scale=np.sqrt(variance * (1 + 1 / 6)))
    assert np.log(ranges[["low", "high"]].astype(float)).to_numpy() == pytest.approx(
        next_run.ppf([alpha / 2, 1 - alpha / 2]), rel=1e-9
    )
    assert ranges["center"] == pytest.approx(stats.gmean(gaps))
    assert (ranges["seen_low"], ranges["seen_high"]) == (0.0148, 0.0157)


def test_the_share_of_runs_outside_is_alpha_when_the_fleet_is_what_the_method_assumes():
    # With s0^2 and d0 known, the share outside a t interval is alpha exactly (Smyth 2004). A large
    # fleet makes them known, up to the moderate error that its estimate of d0 leaves.
    fleets = draw_fleets(Plan(between=(2, 12), setups=3000), np.random.default_rng(3))

    for alpha in (0.1, 0.01, 0.001):
        ranges = fit_ranges(fleets.runs, alpha=alpha)
        outside = fleets.outside(ranges["low"], ranges["high"], 1.0)
        assert outside.mean() == pytest.approx(alpha, rel=0.2, abs=4 * outside.sem())


def test_one_setup_of_many_runs_has_the_coverage_that_theory_gives():
    # n normal values with known variance: the next lies outside mean +- q sd sqrt(1 + 1/n) with
    # probability alpha on average; here the average over the mean is integrated.
    n, sd, alpha = 400, 0.02, 0.01
    quantile = stats.t.ppf(1 - alpha / 2, n + 3)
    half = quantile * sd * np.sqrt(1 + 1 / n)

    def outside(mean):
        share = stats.norm.cdf(mean - half, scale=sd) + stats.norm.sf(mean + half, scale=sd)
        return share * stats.norm.pdf(mean, scale=sd / np.sqrt(n))

    theory = integrate.quad(outside, -0.01, 0.01, points=[0], epsabs=1e-10)[0]
    rng = np.random.default_rng(5)
    shares = []
    for _ in range(60):
        y = sd * rng.standard_normal(n)
        ranges = fit_ranges(setup(0.015 * np.exp(y)), alpha=alpha).loc["a"]
        low, high = np.log(ranges["low"] / 0.015), np.log(ranges["high"] / 0.015)
        shares.append(stats.norm.cdf(low, scale=sd) + stats.norm.sf(high, scale=sd))

    assert np.mean(shares) == pytest.approx(theory, abs=4 * stats.sem(shares))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("noise_df", [np.inf, 3.0])
def test_p_is_below_alpha_exactly_where_the_run_lies_outside(alpha, noise_df):
    plan = Plan(between=(1, 20), setups=200, noise_df=noise_df, broken=0.1)
    runs = draw_fleets(plan, np.random.default_rng(1)).runs

    judged = judged_by(runs, alpha=alpha)

    ranged = judged["position"].notna()
    assert ranged.sum() > 1000
    assert (judged["position"] != 0)[ranged].any()
    pd.testing.assert_series_equal(
        judged["p_value"][ranged] < alpha, judged["position"][ranged] != 0, check_names=False
    )


def test_p_is_that_of_the_t_distribution_in_scipy():
    judged = judged_by(setup([0.0148, 0.0151, 0.0149, 0.0155, 0.0157, 0.0152, 0.0461]))

    run = judged.iloc[-1]
    t = np.log(0.0461 / run["center"]) / (run["sigma"] * np.sqrt(1 + 1 / run["n"]))
    assert run["p_value"] == pytest.approx(2 * stats.t.sf(t, run["df"]), rel=1e-6)
    assert run["ratio"] == pytest.approx(0.0461 / run["center"])


def test_bit_equal_retries_say_where_the_center_is_and_nothing_of_the_spread():
    retries = fit_ranges(setup([0.015] * 8)).loc["a"]

    single = fit_ranges(setup([0.015])).loc["a"]
    assert (retries["sigma"], retries["df"]) == (single["sigma"], single["df"])
    assert retries["n"] == 8
    ratio = np.log(retries["high"] / 0.015) / np.log(single["high"] / 0.015)
    assert ratio == pytest.approx(np.sqrt((1 + 1 / 8) / 2))


def test_bit_equal_retries_in_every_tenth_setup_leave_the_others_alone():
    fleets = draw_fleets(Plan(between=(2, 12), setups=100), np.random.default_rng(2))
    setups = fleets.truth.index
    retried = fleets.runs["setup"].isin(setups[::10])
    first = fleets.runs.groupby("setup")["gap"].transform("first")
    runs = fleets.runs.assign(gap=fleets.runs["gap"].where(~retried, first))

    ranges = fit_ranges(runs)

    share = fleets.outside(ranges["low"], ranges["high"], 1.0)
    assert share.mean() < 0.004
    assert fleets.outside(ranges["low"], ranges["high"], 1.5).mean() > 0.995


def test_thousands_of_runs_in_one_setup_give_its_own_spread():
    y = 0.02 * np.random.default_rng(4).standard_normal(5000)

    ranges = fit_ranges(setup(0.015 * np.exp(y))).loc["a"]

    assert ranges["basis"] == "own"
    assert ranges["sigma"] == pytest.approx(0.02, rel=0.05)
    assert np.log(ranges["high"] / ranges["center"]) == pytest.approx(3.29 * 0.02, rel=0.05)


def test_membership_does_not_depend_on_alpha():
    runs = draw_fleets(Plan(between=(1, 20), broken=0.1), np.random.default_rng(6)).runs

    narrow, wide = fit_ranges(runs, alpha=0.2), fit_ranges(runs, alpha=1e-6)

    pd.testing.assert_series_equal(narrow["n"], wide["n"])
    assert (narrow["low"] > wide["low"]).all()
    assert (narrow["high"] < wide["high"]).all()


def test_extreme_gaps_overflow_to_infinity_in_silence():
    ranges = fit_ranges(setup([1.7e308]))

    assert np.isinf(ranges.loc["a", "high"])
    assert ranges.loc["a", "low"] > 0
