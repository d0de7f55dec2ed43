"""The exact checks, column by column."""

import math
import re

import pandas as pd
import pytest

from step0_wandb.checks.exact import EXACT_CHECKS, exact_failed
from step0_wandb.checks.outcomes import OUTCOMES, Level, Why
from step0_wandb.ranges import fit_ranges
from step0_wandb.verdicts.judge import judge

MEGATRON = {"rule": "exact", "limit": 1e-9, "above": "broken"}
LORA = {"rule": "exact", "limit": 1e-8, "above": "broken"}
FSDP = {"rule": "exact", "limit": 1e-9, "above": "suspect"}
QUANTISED = {"rule": "learned", "limit": 1e-3, "above": "suspect"}
AVERAGED = {"rule": "averaged"}
VACUOUS = {"rule": "vacuous", "limit": 1e-9, "above": "broken"}
VACUOUS_ALWAYS = {"rule": "vacuous", "limit": None}
SKIPPED = {"rule": "skipped"}

RULES = {check.name: check for check in EXACT_CHECKS}


def frame(check, value, rule, **more):
    columns = {f"{check}_{name}": part for name, part in rule.items()}
    return pd.DataFrame([{"setup": "a", check: value, **columns, **more}])


def judged(check, value, rule, **more):
    result = RULES[check].outcomes(frame(check, value, rule, **more))
    return OUTCOMES[result.outcome[0]], Level(result.level[0]).name.lower()


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
        (1e-7, VACUOUS_ALWAYS, "vacuous", "fine"),
        (0.3, VACUOUS_ALWAYS, "warn", "suspect"),
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
    assert RULES["ppo_kl"].outcomes(runs).level.tolist() == [Level.FINE, Level.SUSPECT, Level.BROKEN]


def test_a_frame_without_the_metric_has_nothing_to_say():
    result = RULES["ppo_kl"].outcomes(pd.DataFrame({"setup": ["a"]}))
    assert result.why.tolist() == [Why.NOT_LOGGED]


def noisy(values, setup="a"):
    rule = {f"ppo_kl_{name}": part for name, part in QUANTISED.items()}
    return pd.DataFrame([{"setup": setup, "ppo_kl": value, **rule} for value in values])


def test_only_a_sure_fault_of_a_quantized_run_keeps_it_out_of_the_ranges():
    assert exact_failed(noisy([2e-3, 2e-2])).tolist() == [False, True]


def test_an_exact_failure_keeps_a_run_out_of_the_ranges():
    runs = pd.concat([frame("ppo_kl", value, MEGATRON) for value in (0.0, 1e-7, math.inf)])
    assert exact_failed(runs).tolist() == [False, True, True]


@pytest.mark.parametrize("kind", ["skipped", "vacuous"])
@pytest.mark.parametrize("why", ["this log is rounded to 0.001, too coarse for a gap of 0.00300", ""])
def test_a_gap_that_was_logged_but_tells_nothing_is_not_called_missing(kind, why):
    runs = frame("gap", 0.003, {"rule": kind, "why": why}, ppo_kl_rule="skipped", clip_frac_rule="skipped")
    told = judge(runs)
    assert told["verdict"].tolist() == ["unchecked"]
    assert told["reason"].tolist() == [why]


def test_figures_that_a_sentence_sets_apart_have_the_digits_to_do_so():
    runs = pd.DataFrame({"setup": "a", "gap": [0.0150, 0.0152, 0.0149, 0.0151, 0.0153], "ceiling": 0.03})
    ranges = fit_ranges(runs)
    low = ranges["low"].iloc[0]
    judged = judge(
        pd.DataFrame({"setup": ["a", "b"], "gap": [low * 0.9999, 0.03001], "ceiling": 0.03}), ranges
    )
    below, over = judged["reason"]
    gap, edge = re.search(r"gap (\S+) is .* \(range (\S+) to", below).groups()
    assert float(gap) < float(edge)
    assert over.startswith("gap 0.03001 is just above the 0.03 that")
