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

    # Fewer than five setups: ln s0^2 is a weighted mean of theirs and of the default's.
    gaps <- list(c(0.0148, 0.0152, 0.0155), c(0.0109, 0.0111))
    s2 <- sapply(gaps, function(x) var(log(x))); n <- lengths(gaps); d <- n - 1
    e <- log(s2) - digamma(d/2) + log(d/2)
    s02 <- exp(weighted.mean(c(e, log(0.03^2)), c(1/(trigamma(d/2) + trigamma(2)), 1/trigamma(2))))
    post <- (4 * s02 + d * s2) / (4 + d); center <- sapply(gaps, function(x) mean(log(x)))
    exp(center - qt(0.9995, 4 + d) * sqrt(post * (1 + 1/n)))      # and + for the upper limits
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import special

from step0_wandb.ranges import fit_ranges
from step0_wandb.ranges.prior import inverse_trigamma, moment_prior, prior_of, squeeze

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


def test_ranges_show_the_moderated_spread_of_limma():
    ranges = fit_ranges(frame(GAPS))

    assert ranges["sigma"].to_numpy() ** 2 == pytest.approx(VAR_POST, rel=1e-6)
    assert ranges["df"].to_numpy() == pytest.approx(DF_PRIOR + degrees(GAPS), rel=1e-6)


def test_setups_that_differ_no_more_than_chance_share_one_variance():
    variance = np.array([4.1e-4, 3.9e-4, 4.3e-4, 4.0e-4, 3.8e-4, 4.2e-4, 4.0e-4, 4.1e-4, 3.9e-4, 4.0e-4])
    d = np.tile([3.0, 8.0], 5)

    prior = moment_prior(variance, d)

    assert np.isinf(prior.df)
    assert squeeze(variance, d, prior) == pytest.approx(np.full(10, 0.000403), rel=1e-6)
    assert prior_of(variance, d).df == 30


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


def test_few_setups_lean_on_the_default_spread():
    ranges = fit_ranges(frame([(0.0148, 0.0152, 0.0155), (0.0109, 0.0111)]))

    assert ranges["prior_df"].tolist() == [4, 4]
    assert ranges["prior_sigma"].to_numpy() ** 2 == pytest.approx(0.000880052799496821)
    assert ranges["sigma"].to_numpy() ** 2 == pytest.approx([0.000766080394696305, 0.000737101912321752])
    assert ranges["low"].to_numpy() == pytest.approx([0.01253440436258074, 0.00875352196298701])
    assert ranges["high"].to_numpy() == pytest.approx([0.0183451373070873, 0.0138218651317251])


@pytest.mark.parametrize("setups", [5, 7, 9])
def test_from_five_to_nine_setups_d0_is_at_most_their_number(setups):
    equal = np.full(setups, 4e-4)

    assert prior_of(equal, np.full(setups, 3.0)).df == setups


def test_setups_that_differ_wildly_leave_d0_at_three():
    variance = 4e-4 * np.exp(np.linspace(-2.5, 2.5, 40))

    assert moment_prior(variance, np.full(40, 8.0)).df < 3
    assert prior_of(variance, np.full(40, 8.0)).df == 3


def test_single_runs_alone_have_the_default_spread():
    ranges = fit_ranges(pd.DataFrame({"setup": ["a", "b"], "gap": [0.015, 0.02]}))

    assert ranges["sigma"].to_numpy() == pytest.approx([0.03, 0.03])
    assert ranges["df"].tolist() == [4, 4]


def test_gap_metrics_do_not_teach_each_other():
    noisy = frame([(0.010, 0.013, 0.009), (0.02, 0.025, 0.018)]).assign(gap_metric="k3")
    calm = frame(GAPS).assign(gap_metric="abs")
    both = pd.concat([calm, noisy.assign(setup=noisy["setup"] + " k3")])

    ranges = fit_ranges(both)

    alone = fit_ranges(calm)
    pd.testing.assert_frame_equal(ranges[ranges["gap_metric"] == "abs"], alone)
