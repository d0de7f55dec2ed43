"""Several policies in one run: found by the prefix of the step key, each with its own step 0."""

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.step0.policies import policy_config, prefixes, split_policies

FINDER = Step0Finder(load_profiles())
GAP = "train/train_rollout_logprob_abs_diff"
CONFIG = {"hf_checkpoint": "/models/Qwen3-0.6B", "rollout_top_p": 1.0}


def train(policy, step, *, gap, ppo_kl=0.0):
    start = f"{policy}/" if policy else ""
    return {
        f"{start}train/step": step,
        f"{start}train/ppo_kl": ppo_kl,
        f"{start}train/pg_clipfrac": 0.0,
        f"{start}{GAP}": gap,
        "_step": 7.0,
    }


def rollout(policy, *, length):
    return {f"{policy}/rollout/step": 0.0, f"{policy}/rollout/response_len/mean": length}


TWO = [
    rollout("solver", length=900.0),
    rollout("judge", length=100.0),
    train("solver", 0.0, gap=0.0151),
    train("judge", 0.0, gap=0.046),
    train("solver", 1.0, gap=0.016),
    train("judge", 1.0, gap=0.047),
]


def record(rows, config=CONFIG, **more):
    made = tuple(HistoryRow(values, at) for at, values in enumerate(rows))
    return RunRecord("team", "rl", "two", config=config, rows=made, state="finished", **more)


def test_each_policy_is_a_record_of_its_own_with_plain_names():
    judge, solver = split_policies(record(TWO), FINDER)
    assert (judge.key, solver.key) == ("team/rl/two#judge", "team/rl/two#solver")
    assert [FINDER.facts(one).step0.gap for one in (judge, solver)] == [0.046, 0.0151]
    assert {FINDER.facts(one).setup for one in (judge, solver)} == {"miles · Qwen3-0.6B"}
    assert FINDER.facts(solver).step0.row["rollout/response_len/mean"] == 900.0


def test_a_record_of_one_policy_is_not_split_again():
    for part in split_policies(record(TWO), FINDER):
        assert split_policies(part, FINDER) == (part,)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"loss": 1.0}],
        [train("", 0.0, gap=0.015)],
        [train("", 0.0, gap=0.015), {"eval/train/step": 0.0, "eval/train/acc": 0.5}],
        [{"eval/step": 0.0, "eval/acc": 1.0}],
    ],
)
def test_a_run_without_prefixes_stays_one_record(rows):
    run = record(rows)
    assert split_policies(run, FINDER) == (run,)


def test_a_run_whose_policies_both_have_step_0_and_one_has_gone_on_is_decided():
    rows = record(TWO).rows
    decided = [FINDER.decided(rows[:end], CONFIG) for end in range(len(rows) + 1)]
    assert decided == [False, False, False, False, False, True, True]


def test_pruning_keeps_step_0_of_every_policy():
    rows = record([*TWO, *(train("solver", float(at), gap=0.02) for at in range(2, 200))]).rows
    kept = FINDER.prune(rows, CONFIG)
    assert len(kept) < 8
    whole, pruned = (
        split_policies(record(TWO), FINDER),
        split_policies(record([row.values for row in kept]), FINDER),
    )
    assert [FINDER.facts(one).step0.gap for one in whole] == [FINDER.facts(one).step0.gap for one in pruned]


@pytest.mark.parametrize("values", TWO)
def test_rows_of_a_policy_are_wanted(values):
    assert FINDER.wants(values)
    assert FINDER.has_metrics([HistoryRow(values)]) == any(name.endswith("ppo_kl") for name in values)


def test_the_step_key_tells_the_prefix():
    assert prefixes(["a/train/step", "b/train/ppo_kl", "train/step", "/train/step"], {"train/step"}) == {"a"}


@pytest.mark.parametrize(
    "own",
    [
        {"policies": {"solver": {"hf_checkpoint": "/models/Qwen3-4B"}}},
        {"policies": [{"name": "solver", "hf_checkpoint": "/models/Qwen3-4B"}, {"name": "judge"}]},
        {"solver": {"hf_checkpoint": "/models/Qwen3-4B"}},
        {"solver": "NS(hf_checkpoint='/models/Qwen3-4B')"},
        {
            "raw_megatron": "trainers=[{'trainer_id': 'solver', 'overrides': {'hf_checkpoint': '/models/Qwen3-4B'}}]"
        },
    ],
)
def test_a_policy_has_its_own_model_where_the_config_names_one(own):
    config = CONFIG | own
    assert policy_config(config, "solver")["hf_checkpoint"] == "/models/Qwen3-4B"
    assert policy_config(config, "judge")["hf_checkpoint"] == "/models/Qwen3-0.6B"
    labels = {one.policy: FINDER.facts(one).setup for one in split_policies(record(TWO, config), FINDER)}
    assert labels == {"solver": "miles · Qwen3-4B", "judge": "miles · Qwen3-0.6B"}
