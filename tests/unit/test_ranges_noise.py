"""Noise of ppo_kl: learned for each setup where a trainer cannot reach 0, one-sided and never loose."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from step0_wandb.ranges import fit_ranges, judged_by
from step0_wandb.verdicts.judge import judge

FAULT = [1e-5, 2e-5, -1e-5, 3e-5, 8e-3]


def noisy(values, setup="a", gap=0.015, **columns):
    """Return runs of a quantized trainer; other learned limits are not its business."""
    rule = {"ppo_kl_rule": "learned", "ppo_kl_limit": 1e-3, "ppo_kl_above": "suspect"}
    return pd.DataFrame({"setup": setup, "gap": gap, "ppo_kl": values, **rule, **columns})


def learned(runs, **how):
    return judged_by(runs, **how)["ppo_kl_noise"].to_numpy()


def test_nothing_is_learned_until_three_other_healthy_runs_are_there():
    three, four = noisy([1e-5, -2e-5, 3e-5]), noisy([1e-5, -2e-5, 3e-5, 1e-5])
    assert np.isnan(learned(three)).all()
    assert np.isfinite(learned(four)).all()
    assert np.isnan(fit_ranges(three.iloc[:2]).loc["a", "ppo_kl_noise"])


def test_the_limit_is_the_t_quantile_times_the_root_mean_square_of_the_others():
    # R: qt(0.999, 3) = 10.21453; sqrt(mean(c(3e-5, 4e-5, 5e-5)^2)) = 4.082483e-05
    assert learned(noisy([1e-5, 3e-5, -4e-5, 5e-5]))[0] == pytest.approx(10.21453 * 4.082483e-05, rel=1e-6)
    assert fit_ranges(noisy([3e-5, -4e-5, 5e-5])).loc["a", "ppo_kl_noise"] == pytest.approx(
        10.21453 * 4.082483e-05, rel=1e-6
    )


def test_the_limit_follows_alpha():
    # In R, qt(0.95, 3) is 2.353363.
    runs = noisy([1e-5, 3e-5, -4e-5, 5e-5])
    assert learned(runs, alpha=0.05)[0] == pytest.approx(2.353363 * 4.082483e-05, rel=1e-6)
    assert learned(runs, ranges=fit_ranges(runs, alpha=0.05))[0] == learned(runs, alpha=0.05)[0]


def test_the_limit_never_exceeds_one_percent_nor_falls_below_the_exact_limit():
    assert learned(noisy([5e-3, -6e-3, 7e-3, 4e-3])).max() == 1e-2
    assert learned(noisy([0.0, 0.0, 0.0, 0.0])).tolist() == [1e-9] * 4


def test_a_fault_among_quantized_runs_does_not_teach_the_limit():
    assert learned(noisy(FAULT)).max() < 1e-3
    verdicts = judge(noisy(FAULT))
    assert verdicts["verdict"].tolist() == ["healthy"] * 4 + ["suspect"]
    assert "that this setup's healthy runs allow" in verdicts["reason"].iloc[-1]


def test_setups_are_kept_apart():
    quiet, loud = noisy([1e-6, 2e-6, 1e-6, 2e-6], "a"), noisy([1e-3, 2e-3, 1e-3, 2e-3], "b")
    runs = pd.concat([loud, quiet], ignore_index=True)
    assert learned(runs)[4:].max() < 1e-4 < learned(runs)[:4].min()
    assert fit_ranges(runs)["ppo_kl_noise"].is_monotonic_increasing


@pytest.mark.parametrize(
    "columns",
    [
        {"gap": [0.015, 0.0151, 0.0152, 0.0151, 0.06]},
        {"label": [None, None, None, None, "broken"]},
        {"setup": ["a", "a", "a", "a", None]},
        {"ppo_kl_rule": ["learned"] * 4 + ["exact"]},
    ],
)
def test_only_healthy_runs_of_the_setup_teach(columns):
    runs = noisy([1e-5, 3e-5, -4e-5, 5e-5, 1e-4]).assign(**columns)
    assert learned(runs)[:4] == pytest.approx(learned(runs.iloc[:4]))


def test_true_on_policy_runs_teach_where_their_gap_is_exactly_zero():
    runs = noisy([1e-5, 3e-5, -4e-5, 5e-5, 1e-4], gap=[0, 0, 0, 0, 0.01], gap_rule="zero")
    assert learned(runs)[:4] == pytest.approx(learned(noisy([1e-5, 3e-5, -4e-5, 5e-5])))


def test_a_run_is_judged_by_the_noise_of_the_ranges_that_are_given():
    past = fit_ranges(noisy([1e-5, 2e-5, -1e-5, 3e-5]))
    run = noisy([8e-4])
    assert learned(run, ranges=past).tolist() == [past.loc["a", "ppo_kl_noise"]]
    assert judge(run)["verdict"].tolist() == ["no-range"]
    assert judge(run, past)["verdict"].tolist() == ["suspect"]
    assert judge(run, past.drop(columns="ppo_kl_noise"))["verdict"].tolist() == ["healthy"]


def test_members_of_the_ranges_that_are_given_do_not_vouch_for_themselves():
    runs = noisy([1e-5, 3e-5, -4e-5, 5e-5])
    assert learned(runs, ranges=fit_ranges(runs)).tolist() == learned(runs).tolist()
