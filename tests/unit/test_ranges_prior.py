"""What the setups teach each other about spread, against numbers that R gave.

R 4.2, limma 3.54.1 (`squeezeVar` without `robust`: the moment estimator)::

    library(limma); options(digits = 15)
    gaps <- list(c(0.01652, 0.01647, 0.01654, 0.01728), ...)      # GAPS below
    out <- squeezeVar(sapply(gaps, function(x) var(log(x))), lengths(gaps) - 1)
    out$df.prior; out$var.prior; out$var.post
    squeezeVar(c(4.1e-4, 3.9e-4, 4.3e-4, 4.0e-4, 3.8e-4, 4.2e-4, 4.0e-4, 4.1e-4, 3.9e-4, 4.0e-4),
               rep(c(3, 8), 5))                                   # df.prior Inf, var.prior 0.000403
    squeezeVar(c(4.1e-4, 1.2e-4, 9.3e-4, 0, 3.8e-4, 1.5e-3, 2.2e-4, 7.7e-4, 3.1e-4, 5.6e-4, 2.9e-4,
                 6.4e-4), 1:12)                                   # warns of a zero variance
    limma:::trigammaInverse(c(0.01, 0.3, 1, 5, 80))

What is integrated over s0 and d0 is checked against a Monte Carlo of the same model with scipy.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special, stats

from step0_wandb.ranges import fit_ranges
from step0_wandb.ranges.prior import Prior, inverse_trigamma, moment_prior, prior_of, squeeze

GAPS = (
    (0.01652, 0.01647, 0.01654, 0.01728),
    (0.00972, 0.01023, 0.01127),
    (0.0106, 0.01133, 0.01043, 0.01054, 0.01003),
    (0.0106, 0.01092),
    (0.01277, 0.01312, 0.01287, 0.01251, 0.01312, 0.01308),
    (0.01143, 0.01155, 0.01134),
    (0.01419, 0.01461, 0.0145),
    (0.01345, 0.01324, 0.01342, 0.01374, 0.01331, 0.01304, 0.014),
    (0.01299, 0.01242, 0.0132, 0.01358),
    (0.01207, 0.012, 0.01212),
    (0.0106, 0.01049, 0.01029, 0.01006, 0.01041, 0.01074, 0.01039, 0.01009),
    (0.01231, 0.01184),
)
DF_PRIOR, VAR_PRIOR = 6.33463273392511, 0.000687146316016595
VAR_POST = (
    0.000634290278808373,
    0.001877287093522249,
    0.001172275055036567,
    0.000653763056214815,
    0.000543801918329060,
    0.000542584102914153,
    0.000577247304465500,
    0.000627018439441437,
    0.000914417568628374,
    0.000528253133198276,
    0.000595040827385248,
    0.000696766480392599,
)


def variances(gaps):
    return np.array([np.var(np.log(values), ddof=1) for values in gaps])


def degrees(gaps):
    return np.array([len(values) - 1.0 for values in gaps])


def frame(gaps):
    return pd.DataFrame(
        [(f"setup {i:02d}", gap) for i, values in enumerate(gaps) for gap in values]
    ).set_axis(["setup", "gap"], axis=1)


def test_prior_and_moderated_variances_are_those_of_limma():
    prior = moment_prior(variances(GAPS), degrees(GAPS))

    assert prior.df == pytest.approx(DF_PRIOR, rel=1e-6)
    assert prior.variance == pytest.approx(VAR_PRIOR, rel=1e-6)
    assert squeeze(variances(GAPS), degrees(GAPS), prior) == pytest.approx(VAR_POST, rel=1e-6)


def test_ranges_moderate_the_spread_as_limma_does_with_the_prior_that_they_state():
    ranges = fit_ranges(frame(GAPS))

    d0, s0 = ranges["prior_df"].iloc[0], ranges["prior_sigma"].iloc[0]
    moderated = squeeze(variances(GAPS), degrees(GAPS), Prior(d0, s0**2))
    assert ranges["sigma"].to_numpy() ** 2 == pytest.approx(moderated, rel=1e-6)
    assert ranges["df"].to_numpy() == pytest.approx(d0 + degrees(GAPS), rel=1e-6)


def integral_by_monte_carlo(variance, d, default, rng, draws=200_000):
    """Return the distances that a next single run exceeds with the probabilities 0.0005 and 0.25."""
    grid = np.array([2, 2.5, 3, 4, 5, 6, 8, 10, 14, 20, 30])
    weight = np.exp(-((np.log(grid / 6) / 0.4) ** 2) / 2)
    s0 = np.exp(rng.normal(np.log(default), 0.25, draws))
    d0 = rng.choice(grid, draws, p=weight / weight.sum())
    fit = np.zeros(draws)
    for v, df in zip(variance, d, strict=True):
        fit += stats.f.logpdf(v / s0**2, df, d0) - 2 * np.log(s0)
    likely = rng.choice(draws, draws, p=np.exp(fit - fit.max()) / np.exp(fit - fit.max()).sum())
    return [
        optimize.brentq(lambda x, p=p: stats.t.sf(x / s0[likely], d0[likely]).mean() - p, 1e-3, 3)
        for p in (0.0005, 0.25)
    ]


@pytest.mark.parametrize(
    "gaps",
    [(), GAPS[:1], GAPS[:5], ((0.010, 0.013, 0.009), (0.02, 0.025, 0.018), (0.01, 0.0101))],
    ids=["none", "one", "five", "unlike"],
)
def test_the_prior_is_that_of_the_integrated_model(gaps):
    variance, d = variances(gaps), degrees(gaps)

    prior = prior_of(variance, d)

    expected = integral_by_monte_carlo(variance, d, 0.03, np.random.default_rng(11))
    found = stats.t.isf([0.0005, 0.25], prior.df) * np.sqrt(prior.variance)
    assert found == pytest.approx(expected, rel=0.03)


def test_setups_that_differ_no_more_than_chance_share_one_variance():
    variance = np.array([4.1e-4, 3.9e-4, 4.3e-4, 4.0e-4, 3.8e-4, 4.2e-4, 4.0e-4, 4.1e-4, 3.9e-4, 4.0e-4])
    d = np.tile([3.0, 8.0], 5)

    prior = moment_prior(variance, d)

    assert np.isinf(prior.df)
    assert squeeze(variance, d, prior) == pytest.approx(np.full(10, 0.000403), rel=1e-6)


def test_a_variance_of_zero_counts_as_limma_counts_it():
    variance = np.array(
        [4.1e-4, 1.2e-4, 9.3e-4, 0, 3.8e-4, 1.5e-3, 2.2e-4, 7.7e-4, 3.1e-4, 5.6e-4, 2.9e-4, 6.4e-4]
    )

    prior = moment_prior(variance, np.arange(1.0, 13))

    assert prior.df == pytest.approx(0.637651137485292, rel=1e-6)
    assert prior.variance == pytest.approx(2.67762257659513e-05, rel=1e-6)


def test_one_zero_variance_does_not_open_the_ranges_of_the_others():
    variance, d = np.append(variances(GAPS), 0.0), np.append(degrees(GAPS), 4.0)

    assert prior_of(variance, d) == prior_of(variances(GAPS), degrees(GAPS))


def test_a_setup_far_noisier_than_the_others_does_not_teach_them():
    variance, d = np.append(variances(GAPS), 1.7), np.append(degrees(GAPS), 6.0)

    assert prior_of(variance, d) == prior_of(variances(GAPS), degrees(GAPS))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (0.01, 100.499166681943194),
        (0.3, 3.808719012051167),
        (1.0, 1.426255120215079),
        (5.0, 0.496168734704107),
        (80.0, 0.112801765219843),
    ],
)
def test_the_inverse_of_trigamma_is_limmas(x, y):
    assert inverse_trigamma(x) == pytest.approx(y, rel=1e-6)
    assert special.polygamma(1, inverse_trigamma(x)) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize("setups", [1, 2, 4, 5, 6, 10, 20])
def test_one_setup_more_changes_the_prior_by_little(setups):
    # Moments of five variances made ranges of two runs leave 1 % of healthy runs outside.
    chi2 = np.random.default_rng(2).chisquare(1.0, 21)
    fewer, more = (prior_of(4e-4 * chi2[:count], np.ones(count)) for count in (setups, setups + 1))

    assert more.df == pytest.approx(fewer.df, rel=0.25)
    assert more.variance == pytest.approx(fewer.variance, rel=0.35)


def test_setups_that_differ_wildly_leave_d0_at_two():
    variance = 4e-4 * np.exp(np.linspace(-2.5, 2.5, 40))

    assert moment_prior(variance, np.full(40, 8.0)).df < 3
    assert prior_of(variance, np.full(40, 8.0)).df == pytest.approx(2.1, abs=0.15)


def test_single_runs_alone_have_the_default_spread():
    ranges = fit_ranges(pd.DataFrame({"setup": ["a", "b"], "gap": [0.015, 0.02]}))

    half = np.log(ranges["high"] / ranges["center"])
    assert half.tolist() == pytest.approx([stats.t.isf(0.0005, 4) * 0.03 * np.sqrt(2)] * 2, rel=0.05)


def test_gap_metrics_do_not_teach_each_other():
    noisy = frame([(0.010, 0.013, 0.009), (0.02, 0.025, 0.018)]).assign(gap_metric="k3")
    calm = frame(GAPS).assign(gap_metric="abs")
    both = pd.concat([calm, noisy.assign(setup=noisy["setup"] + " k3")])

    ranges = fit_ranges(both)

    alone = fit_ranges(calm)
    pd.testing.assert_frame_equal(ranges[ranges["gap_metric"] == "abs"], alone)
