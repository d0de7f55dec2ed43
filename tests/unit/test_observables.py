"""Every number of the step-0 row that must hold: what passes, what is suspect, what is broken."""

import math

import numpy as np
import pandas as pd
import pytest

from step0_wandb.checks.observables import ObservableCheck
from step0_wandb.checks.outcomes import OUTCOMES, Level
from step0_wandb.errors import UsageError
from step0_wandb.profiles import load_profile, load_profiles
from step0_wandb.profiles.observables import catalog
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store.columns import columns_of, frame_of
from step0_wandb.verdicts.judge import judge, weigh

MILES_CONFIG = {
    "hf_checkpoint": "/models/Qwen3-0.6B",
    "load": "/models/Qwen3-0.6B_torch_dist",
    "ref_load": "/models/Qwen3-0.6B_torch_dist",
    "save": "/out/run",
    "start_rollout_id": 0,
    "train_backend": "megatron",
    "prompt_data": "/data/gsm8k.jsonl",
    "rollout_max_response_len": 8192,
}
MILES_ROW = {
    "train/step": 0.0,
    "train/ppo_kl": 0.0,
    "train/pg_clipfrac": 0.0,
    "train/train_rollout_logprob_abs_diff": 0.0150,
    "train/kl_loss": 0.0,
    "train/loss": 0.0,
    "train/grad_norm": 0.27,
    "train/ess_ratio": 1.0,
    "rollout/log_probs": -0.4127,
    "rollout/ref_log_probs": -0.4127,
    "rollout/rollout_log_probs": -0.4124,
    "rollout/entropy": 0.41,
    "rollout/raw_reward": 0.34,
    "rollout/response_len/mean": 900.0,
    "rollout/truncated_ratio": 0.06,
    "rollout/repetition_frac": 0.01,
    "rollout/zero_std/all_zero_percentage": 0.3,
    "rollout/advantages": -4.6e-9,
}
FINDER = Step0Finder(load_profiles())


def run(run_id, row=None, config=None):
    rows = (HistoryRow(MILES_ROW | (row or {}), 0),)
    return RunRecord("lab", "rl", run_id, config=MILES_CONFIG | (config or {}), rows=rows, state="finished")


def frame(*records):
    return frame_of(columns_of(record, FINDER.facts(record)) for record in records)


def failed(runs, at=-1):
    """Return the checks that one run fails, with the level of each."""
    result = weigh(runs)
    at %= len(runs)
    return {
        name: Level(outcomes.level[at]).name.lower()
        for name, outcomes in result.outcomes.items()
        if outcomes.level[at]
    }


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({}, {}),
        ({"train/loss": math.nan}, {"finite": "broken"}),
        ({"train/loss": math.inf, "train/grad_norm": math.nan}, {"finite": "broken"}),
        ({"train/kl_loss": 2e-8}, {"ref_kl": "suspect"}),
        ({"train/kl_loss": -7e-12}, {}),
        ({"train/kl_loss": 0.8}, {"ref_kl": "broken"}),
        ({"rollout/ref_log_probs": -0.9127}, {"ref_logprob": "broken"}),
        ({"rollout/rollout_log_probs": -0.39}, {}),
        ({"rollout/rollout_log_probs": -0.36}, {"engine_logprob": "suspect"}),
        ({"rollout/rollout_log_probs": -1.2}, {"engine_logprob": "broken"}),
        ({"train/ess_ratio": 0.98}, {"ratio": "suspect"}),
        ({"train/ess_ratio": 0.2}, {"ratio": "broken"}),
        ({"train/grad_norm": 0.0}, {"gradient": "suspect"}),
        ({"train/grad_norm": 2e4}, {"gradient": "suspect"}),
        ({"train/grad_norm": 2_955_012_562.8}, {"gradient": "broken"}),
        ({"rollout/truncated_ratio": 1.0}, {"termination": "suspect"}),
        ({"rollout/weight_version/mixed_version_ratio": 0.25}, {"weight_version": "suspect"}),
        ({"rollout/tito_session_mismatch_rate/v2/special_token_count": 0.1}, {"tokens": "suspect"}),
        ({"rollout/advantages": 0.02}, {"advantage": "suspect"}),
        ({"train/train_rollout_logprob_abs_diff": 0.81}, {"gap": "broken", "bound:mean-abs": "broken"}),
    ],
)
def test_each_number_of_a_miles_row_is_held_to_its_limit(row, found):
    assert failed(frame(run("a", row))) == found


@pytest.mark.parametrize(
    ("row", "config"),
    [
        ({"train/kl_loss": 0.8}, {"load": "/out/run"}),  # resumed
        ({"train/kl_loss": 0.8}, {"ref_load": "/models/Qwen3-8B_torch_dist"}),  # another reference on purpose
        ({"rollout/rollout_log_probs": -1.2}, {"use_rollout_logprobs": True}),
        ({"rollout/truncated_ratio": 1.0}, {"rollout_max_response_len": 32}),
        ({"rollout/weight_version/mixed_version_ratio": 0.25}, {"fully_async": True}),
        ({"rollout/advantages": 0.02}, {"advantage_estimator": "ppo"}),
        ({"train/kl_loss": 2e-3}, {"use_rollout_routing_replay": True}),
        ({"train/kl_loss": 2e-3}, {"train_backend": "fsdp"}),
    ],
)
def test_a_number_that_need_not_hold_here_accuses_nobody(row, config):
    assert not failed(frame(run("a", row, config)))


def test_a_run_that_fails_an_observable_teaches_no_range():
    healthy = [run(f"h{at}", {"train/train_rollout_logprob_abs_diff": 0.0150 + at * 1e-4}) for at in range(4)]
    odd = run("odd", {"train/grad_norm": 3e9, "train/train_rollout_logprob_abs_diff": 0.0152})
    verdicts = judge(frame(*healthy, odd)).set_index("run")["verdict"]
    assert verdicts["lab/rl/odd"] == "broken"
    assert weigh(frame(*healthy, odd)).ranges["n"].tolist() == [4]


@pytest.mark.parametrize(
    ("metric", "value", "check"),
    [
        ("rollout/entropy", 8.9, "learned:entropy"),
        ("rollout/entropy", 0.12, "learned:entropy"),
        ("train/grad_norm", 2.7, "learned:grad_norm"),
        ("rollout/response_len/mean", 8160.0, "learned:response_length"),
        ("rollout/truncated_ratio", 0.6, "learned:truncation"),
        ("rollout/repetition_frac", 0.63, "learned:repetition"),
        ("rollout/raw_reward", 0.05, "learned:reward"),
    ],
)
def test_a_number_far_from_those_of_the_healthy_runs_makes_a_run_suspect(metric, value, check):
    noise = np.random.default_rng(7)
    healthy = [
        run(
            f"h{at}",
            {name: MILES_ROW[name] * math.exp(noise.normal(0, 0.03)) for name in (metric, "rollout/entropy")},
        )
        for at in range(5)
    ]
    runs = frame(*healthy, run("odd", {metric: value}))
    assert failed(runs) == {check: "suspect"}
    assert weigh(runs).ranges["n"].tolist() == [6]  # by a learned number alone a run still counts


def test_rewards_on_other_prompts_are_not_compared():
    healthy = [run(f"h{at}", {"rollout/raw_reward": 0.34 + at * 0.01}) for at in range(5)]
    other = run("other", {"rollout/raw_reward": 0.03}, {"prompt_data": "/data/aime.jsonl"})
    assert not failed(frame(*healthy, other))


def test_fewer_than_three_healthy_runs_teach_no_observable():
    two = [run(f"h{at}") for at in range(2)]
    assert not failed(frame(*two, run("odd", {"rollout/entropy": 8.9})))


def test_a_rule_for_one_run_leaves_the_others_alone():
    runs = frame(
        run("a", {"train/kl_loss": 0.8}), run("b"), run("c", {"train/kl_loss": 0.8}, {"load": "/out/run"})
    )
    outcomes = ObservableCheck("ref_kl").outcomes(runs)
    assert [OUTCOMES[at] for at in outcomes.outcome] == ["fail", "pass", "skipped"]
    assert outcomes.limit[:2].tolist() == [1e-8, 1e-8]


def test_a_frame_without_observables_is_judged_as_before():
    runs = pd.DataFrame({"setup": "a", "gap": [0.0150, 0.0152, 0.0149, 0.0461]})
    assert judge(runs)["verdict"].tolist() == ["healthy", "healthy", "healthy", "broken"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('name = "enthropy"\nmetrics = ["a"]', "enthropy is not a known observable"),
        ('name = "ref_kl"\nmetrics = []', "observable.0.metrics"),
        (
            'name = "ref_logprob"\nmetrics = ["a"]',
            "a difference, and nothing else, has a second number in minus",
        ),
        ('name = "mine"\nmetrics = ["a"]\n[observable.definition]\ntitle = "mine"', "needs limits"),
    ],
)
def test_a_wrong_observable_is_an_error_with_its_place(tmp_path, table, message):
    file = tmp_path / "mine.toml"
    file.write_text(PROFILE + f"[[observable]]\n{table}\n")
    with pytest.raises(UsageError) as error:
        load_profile(file)
    assert message in str(error.value)
    assert "mine.toml" in str(error.value)


def test_a_profile_of_ones_own_may_have_an_observable_of_its_own(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        PROFILE
        + '[[observable]]\nname = "spikes"\nmetrics = ["a/spikes"]\n'
        + '[observable.definition]\ntitle = "share of spikes"\nmeans = "look at the data"\nlimits = [{ high = 0.1 }]\n'
    )
    finder = Step0Finder(load_profiles([file]))
    row = {"a/step": 0.0, "a/kl": 0.0, "a/spikes": 0.4}
    record = RunRecord(
        "lab", "rl", "x", config={"model_path": "m"}, rows=(HistoryRow(row, 0),), state="finished"
    )
    runs = frame_of([columns_of(record, finder.facts(record))])
    assert failed(runs) == {"spikes": "suspect"}
    assert (
        "share of spikes is 0.400 (a/spikes), where at most 0.100 is expected: look at the data"
        in (judge(runs)["reason"].iloc[0])
    )


def test_every_observable_of_a_shipped_profile_says_what_it_means():
    used = {entry.name for profile in load_profiles().by_name.values() for entry in profile.observable}
    assert used <= set(catalog())
    assert all(definition.means for definition in catalog().values())


PROFILE = """\
name = "mine"
title = "Mine"
[metrics]
ppo_kl = ["a/kl"]
[step]
keys = ["a/step"]
first = "0"
[[setup]]
label = "model"
value = "model(model_path)"
[[exact]]
kind = "exact"
limit = 1e-9
"""


def test_copies_of_one_run_are_not_several_runs_to_compare_with():
    copies = [run(f"copy{at}", {"train/grad_norm": 107.0}) for at in range(4)]
    other = run("other", {"train/grad_norm": 1.44, "train/train_rollout_logprob_abs_diff": 0.0149})
    assert not failed(frame(*copies, other))
