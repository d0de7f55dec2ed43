"""The exact checks, column by column."""

import math

import numpy as np
import pandas as pd
import pytest

from step0_wandb import checks
from step0_wandb.checks import Level, Why
from step0_wandb.verdicts import judge

MEGATRON = {"rule": "exact", "limit": 1e-9, "above": "broken"}
LORA = {"rule": "exact", "limit": 1e-8, "above": "broken"}
FSDP = {"rule": "exact", "limit": 1e-9, "above": "suspect"}
QUANTISED = {"rule": "learned", "limit": 1e-3, "above": "suspect"}
AVERAGED = {"rule": "averaged"}
VACUOUS = {"rule": "vacuous", "limit": 1e-9, "above": "broken"}
VACUOUS_ALWAYS = {"rule": "vacuous", "limit": None}
SKIPPED = {"rule": "skipped"}


def frame(check, value, rule, **more):
    columns = {f"{check}_{name}": part for name, part in rule.items()}
    return pd.DataFrame([{"setup": "a", check: value, **columns, **more}])


def judged(check, value, rule, **more):
    result = checks.exact(frame(check, value, rule, **more), check)
    return checks.OUTCOMES[result.outcome[0]], Level(result.level[0]).name.lower()


@pytest.mark.parametrize(
    ("value", "rule", "outcome", "level"),
    [
        (0.0, MEGATRON, "pass", "fine"),
        (-9e-10, MEGATRON, "pass", "fine"),
        (1e-7, MEGATRON, "fail", "broken"),
        (-1e-7, MEGATRON, "fail", "broken"),
        (5e-9, LORA, "pass", "fine"),
        (2e-8, LORA, "fail", "broken"),
        (6.2e-12, FSDP, "pass", "fine"),
        (1e-7, FSDP, "fail", "suspect"),
        (1e-2, FSDP, "fail", "broken"),
        (3e-4, QUANTISED, "pass", "fine"),
        (2e-3, QUANTISED, "fail", "suspect"),
        (-2e-2, QUANTISED, "fail", "broken"),
        (3.66e-5, AVERAGED, "skipped", "fine"),
        (2e-2, AVERAGED, "warn", "suspect"),
        (0.3, AVERAGED, "warn", "suspect"),
        (0.0, VACUOUS, "vacuous", "fine"),
        (1e-7, VACUOUS, "fail", "broken"),
        (0.3, VACUOUS_ALWAYS, "vacuous", "fine"),
        (0.02, SKIPPED, "skipped", "fine"),
        (math.inf, SKIPPED, "fail", "broken"),
        (-math.inf, MEGATRON, "fail", "broken"),
        (None, MEGATRON, "skipped", "fine"),
    ],
)
def test_ppo_kl_is_judged_by_the_table(value, rule, outcome, level):
    assert judged("ppo_kl", value, rule) == (outcome, level)


@pytest.mark.parametrize(
    ("value", "rule", "outcome", "level"),
    [
        (0.0, MEGATRON, "pass", "fine"),
        (1e-6, MEGATRON | {"limit": 1e-10}, "fail", "broken"),
        (1e-6, QUANTISED | {"limit": 1e-10}, "fail", "suspect"),
        (0.05, QUANTISED | {"limit": 1e-10}, "fail", "broken"),
        (0.04, AVERAGED, "skipped", "fine"),
        (0.05, AVERAGED, "warn", "suspect"),
    ],
)
def test_clip_frac_is_judged_by_the_table(value, rule, outcome, level):
    assert judged("clip_frac", value, rule) == (outcome, level)


def test_a_logged_nan_breaks_a_run_and_a_missing_value_does_not():
    assert judged("ppo_kl", math.nan, MEGATRON, nan_metrics="ppo_kl") == ("fail", "broken")
    assert judged("ppo_kl", math.nan, MEGATRON, nan_metrics="gap") == ("skipped", "fine")
    assert judged("ppo_kl", math.nan, MEGATRON) == ("skipped", "fine")


def test_without_rules_the_strict_limit_is_at_most_suspect():
    runs = pd.DataFrame({"setup": "a", "ppo_kl": [0.0, 1e-8, 0.3]})
    assert checks.exact(runs, "ppo_kl").level.tolist() == [Level.FINE, Level.SUSPECT, Level.BROKEN]


def test_a_frame_without_the_metric_has_nothing_to_say():
    result = checks.exact(pd.DataFrame({"setup": ["a"]}), "ppo_kl")
    assert result.why.tolist() == [Why.NOT_LOGGED]


def noisy(values, setup="a"):
    rule = {f"ppo_kl_{name}": part for name, part in QUANTISED.items()}
    return pd.DataFrame([{"setup": setup, "ppo_kl": value, **rule} for value in values])


def learned(runs, alpha=0.001):
    return checks.learned_limits(runs, np.ones(len(runs), bool), alpha=alpha)


def test_the_limit_stays_as_it_is_until_three_other_healthy_runs_are_there():
    assert np.isnan(learned(noisy([1e-5, -2e-5, 3e-5]))).all()
    assert np.isfinite(learned(noisy([1e-5, -2e-5, 3e-5, 1e-5]))).all()


def test_the_learned_limit_is_the_t_quantile_times_the_root_mean_square_of_the_others():
    # R: qt(0.999, 3) = 10.21453; sqrt(mean(c(3e-5, 4e-5, 5e-5)^2)) = 4.082483e-05
    limit = learned(noisy([1e-5, 3e-5, -4e-5, 5e-5]))
    assert limit[0] == pytest.approx(10.21453 * 4.082483e-05, rel=1e-6)


def test_the_learned_limit_never_exceeds_one_percent_nor_falls_below_the_exact_limit():
    assert learned(noisy([5e-3, -6e-3, 7e-3, 4e-3])).max() == 1e-2
    assert learned(noisy([0.0, 0.0, 0.0, 0.0])).tolist() == [1e-9] * 4


def test_a_fault_among_quantised_runs_does_not_teach_the_limit():
    limit = learned(noisy([1e-5, 2e-5, -1e-5, 3e-5, 8e-3]))
    assert limit.max() < 1e-3
    runs = noisy([1e-5, 2e-5, -1e-5, 3e-5, 8e-3])
    assert checks.exact(runs, "ppo_kl", limit).why.tolist() == [0, 0, 0, 0, Why.OVER_LEARNED]


def test_learning_keeps_setups_apart():
    runs = pd.concat([noisy([1e-6, 2e-6, 1e-6, 2e-6], "a"), noisy([1e-3, 2e-3, 1e-3, 2e-3], "b")])
    limit = learned(runs)
    assert limit[:4].max() < 1e-4 < limit[4:].min()


def test_only_a_sure_fault_of_a_quantised_run_keeps_it_out_of_the_ranges():
    assert checks.exact_failed(noisy([2e-3, 2e-2])).tolist() == [False, True]


def test_an_exact_failure_keeps_a_run_out_of_the_ranges():
    runs = pd.concat([frame("ppo_kl", value, MEGATRON) for value in (0.0, 1e-7, math.inf)])
    assert checks.exact_failed(runs).tolist() == [False, True, True]


@pytest.mark.parametrize("kind", ["skipped", "vacuous"])
@pytest.mark.parametrize("why", ["this log is rounded to 0.001, too coarse for a gap of 0.00300", ""])
def test_a_gap_that_was_logged_but_tells_nothing_is_not_called_missing(kind, why):
    runs = frame("gap", 0.003, {"rule": kind, "why": why}, ppo_kl_rule="skipped", clip_frac_rule="skipped")
    told = judge(runs)
    assert told["verdict"].tolist() == ["unchecked"]
    assert told["reason"].tolist() == [why]
