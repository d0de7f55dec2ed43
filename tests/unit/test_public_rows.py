"""First rows that people have published, each judged alone, as a new user's first run is.

The numbers are as printed there. Of a row without a config the framework's usual one is taken; where a
source is a log in a repository and not an issue, it is told what log it is.
"""

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store.columns import columns_of, frame_of
from step0_wandb.verdicts.judge import judged_runs, weigh
from tests.support.frameworks import PRIME_RL, SLIME, TRL, VERL
from tests.support.other_frameworks import OLD_PPO, PPO, SWIFT, TINKER, TITAN

FINDER = Step0Finder(load_profiles())
EVERY_STEP = {**TRL, "use_vllm": False, "logging_steps": 1}
MEGATRON_ADAPTOR = {**VERL, "data": {**VERL["data"], "max_response_length": 256}}
FINE = {"no-range", "unchecked", "healthy"}

# source, profile, config, first row, verdicts that may be, checks that must tell it
ROWS = [
    # Runs that their authors take for healthy: none may be accused.
    ("siiRL documentation, step:1 of verl's trainer on Qwen2.5-0.5B", "verl", VERL, {"training/global_step": 1, "training/rollout_probs_diff_max": 0.373, "training/rollout_probs_diff_mean": 0.004, "training/rollout_probs_diff_std": 0.009, "actor/entropy_loss": 0.438, "actor/grad_norm": 0.221, "actor/pg_clipfrac": 0.0, "actor/pg_loss": 0.003, "actor/ppo_kl": -0.000, "critic/advantages/mean": -0.002, "critic/score/mean": 0.013}, FINE, ()),
    ("a table of one verl run, the lowest values of its metrics", "verl", VERL, {"training/global_step": 1, "actor/ppo_kl": 0.0, "actor/pg_clipfrac": 0.0, "training/rollout_probs_diff_mean": 0.00342151, "training/rollout_probs_diff_max": 0.15834, "training/rollout_actor_probs_pearson_corr": 0.999586, "rollout_corr/kl": 0.000296678, "rollout_corr/k3_kl": 0.000382576, "rollout_corr/log_ppl_diff": 3.69764e-05, "rollout_corr/log_ppl_abs_diff": 0.00167121}, FINE, ()),
    ("Chi-Shan0707/TinyLoRA-GRPO-Coder issue 4, first dict", "trl", EVERY_STEP, {"train/global_step": 1, "train/loss": -0.0982, "train/grad_norm": 0.12353515625, "train/completions/mean_length": 506.75, "train/completions/clipped_ratio": 0.0, "train/completions/mean_terminated_length": 506.75, "train/reward": 0.5, "train/reward_std": 0.32513731718063354, "train/frac_reward_zero_std": 0.0, "train/entropy": 0.40187661349773407, "train/clip_ratio/region_mean": 0.0}, FINE, ()),
    ("a log of GRPO on GSM8K with TRL, its first dict", "trl", EVERY_STEP, {"train/global_step": 1, "train/reward": 0.15799999982118607, "train/reward_std": 0.21001071110367775, "train/kl": 0.0, "train/clip_ratio/region_mean": 0.0, "train/completions/clipped_ratio": 0.0}, FINE, ()),
    ("a TRL PPO tutorial in Chinese, 'eps': 0", "trl_ppo", PPO, {"train/global_step": 1, "train/objective/kl": -0.24512894451618195, "train/objective/scores": 0.3832157254219055, "train/policy/approxkl_avg": 0.3271065354347229, "train/policy/clipfrac_avg": 0.3841145634651184, "train/loss/policy_avg": -0.06062384694814682, "train/loss/value_avg": 0.32659775018692017, "train/policy/entropy_avg": 1.8676555156707764, "train/val/ratio": 1.127786636352539}, FINE, ()),
    ("TRL PPO, 0.39 and 0.52", "trl_ppo", PPO, {"train/global_step": 1, "train/policy/approxkl_avg": 0.39, "train/policy/clipfrac_avg": 0.52, "train/objective/kl": 0.0}, FINE, ()),
    ("TRL's PPO of 2023, 0.002 and 0.011", "trl_ppo", OLD_PPO, {"_step": 0, "ppo/policy/approxkl": 0.002, "ppo/policy/clipfrac": 0.011, "objective/kl": 0.0}, FINE, ()),
    ("a log of prime-rl, Step 0", "prime_rl", PRIME_RL, {"step": 1, "mismatch_kl/all/mean": 0.0006, "entropy/all/mean": 0.2105, "optim/grad_norm": 0.068}, FINE, ()),
    ("a table of a prime-rl run, step 0", "prime_rl", PRIME_RL, {"step": 1, "mismatch_kl/all/mean": 0.0007, "entropy/all/mean": 0.24}, FINE, ()),
    ("a slime smoke test with another loss, step 0", "slime", SLIME, {"train/step": 0, "train/loss": 0.07911529392004013, "train/pg_loss": 9.313225746154785e-10, "train/entropy_loss": 0.0, "train/pg_clipfrac": 0.0, "train/ppo_kl": 0.0, "train/grad_norm": 6.475110451481636}, FINE, ()),
    ("a slime document, step 0", "slime", SLIME, {"train/step": 0, "train/loss": 9.569339454174042e-07, "train/entropy_loss": 0.265962153673172, "train/pg_clipfrac": 0.0, "train/ppo_kl": 6.183776581070166e-12, "train/train_rollout_logprob_abs_diff": 0.012678711675107479, "train/ois": 1.0, "train/grad_norm": 0.36285679128745674}, FINE, ()),
    ("a table of torchtitan RL without batch invariance, step 1", "torchtitan", TITAN, {"_step": 1, "bit_wise/logprob_diff/max": 0.114651, "bit_wise/logprob_diff/mean": 0.0124}, FINE, ()),
    ("a tinker-cookbook run, 9.2e-4", "tinker", TINKER, {"progress/batch": 0, "optim/kl_sample_train_v2": 9.2e-4, "optim/kl_sample_train_v1": -4e-4}, {"no-range"}, ()),
    # Runs that their authors found to be wrong, or that learn nothing: all must be told.
    ("the same verl run, the highest values", "verl", VERL, {"training/global_step": 1, "actor/ppo_kl": 0.0, "actor/pg_clipfrac": 0.0, "training/rollout_probs_diff_mean": 0.877218, "training/rollout_actor_probs_pearson_corr": -0.000131607, "rollout_corr/k3_kl": 16.3858, "rollout_corr/log_ppl_diff": 17.3865}, {"broken"}, ("bound:probability", "bound:pearson", "bound:k3")),
    ("a report on megatron_adaptor, 2 steps of GRPO on an NPU", "verl", MEGATRON_ADAPTOR, {"training/global_step": 1, "actor/ppo_kl": 0.0, "actor/pg_clipfrac": 0.0, "training/rollout_probs_diff_mean": 0.55, "actor/grad_norm": 0.0, "response_length/clip_ratio": 1.0}, {"broken"}, ("bound:probability", "gradient", "termination")),
    ("modelscope/ms-swift issue 9261, first row", "ms_swift", {**SWIFT, "log_rollout_offpolicy_metrics": False}, {"train/global_step": 1, "train/loss": 0.0, "train/grad_norm": 0.0, "train/completions/mean_length": 4096.0, "train/completions/clipped_ratio": 1.0, "train/reward": 0.0, "train/reward_std": 0.0, "train/frac_reward_zero_std": 1.0, "train/entropy/mean": 0.82074341, "train/clip_ratio/region_mean": 0.0}, {"suspect"}, ("gradient", "termination")),
    ("a log of ms-swift with five turns, step 1/9", "ms_swift", {**SWIFT, "log_rollout_offpolicy_metrics": False}, {"train/global_step": 1, "train/loss": 0.0, "train/grad_norm": 0.0, "train/reward": 0.0, "train/reward_std": 0.0, "train/frac_reward_zero_std": 1.0, "train/completions/clipped_ratio": 0.125, "train/kl": 0.0, "train/clip_ratio/region_mean": 0.0}, {"suspect"}, ("gradient",)),
    ("a log of ms-swift on actions in videos, step 1/560", "ms_swift", {**SWIFT, "log_rollout_offpolicy_metrics": False}, {"train/global_step": 1, "train/reward": 1.0382117, "train/reward_std": 0.19291379, "train/frac_reward_zero_std": 0.0, "train/entropy/mean": 0.0392022, "train/kl": 0.09781231, "train/clip_ratio/region_mean": 0.0, "train/completions/clipped_ratio": 0.0}, {"suspect"}, ("ref_kl",)),
    ("a prime-rl experiment, Step 0", "prime_rl", PRIME_RL, {"step": 1, "mismatch_kl/all/mean": 0.3523, "entropy/all/mean": 1.0338}, {"broken"}, ("bound:k3",)),
    ("a slime smoke test of a hybrid model, step 0", "slime", SLIME, {"train/step": 0, "train/loss": 0.0, "train/pg_loss": 0.0, "train/entropy_loss": 4.846604347229004, "train/ppo_kl": 0.0, "train/grad_norm": 0.0}, {"suspect"}, ("gradient",)),
    ("a distillation with tinker-cookbook whose KLs are exactly 0, step 0", "tinker", TINKER, {"progress/batch": 0, "optim/kl_sample_train_v1": 0.0, "optim/kl_sample_train_v2": 0.0, "optim/entropy": 0.540851891040802}, {"suspect"}, ("gap-zero",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def facts():
    records = [
        RunRecord("team", f"p{at}", f"r{at}", state="finished", config=config, rows=(HistoryRow(row),))
        for at, (_, _, config, row, *_) in enumerate(ROWS)
    ]
    return [(record, FINDER.facts(record)) for record in records]


@pytest.fixture(scope="module")
def judged(facts):
    return [judged_runs(weigh(frame_of([columns_of(*pair)]), None))[0] for pair in facts]


@pytest.mark.parametrize("at", range(len(ROWS)), ids=[row[0] for row in ROWS])
def test_a_public_first_row_is_read_by_its_profile_and_judged_as_it_should_be(facts, judged, at):
    _, profile, _, _, verdicts, checks = ROWS[at]
    assert facts[at][1].step0.profile == profile
    assert judged[at].verdict in verdicts, judged[at].reasons
    told = {check.check for check in judged[at].checks if check.outcome in ("fail", "warn")}
    assert told == set(checks) if verdicts == FINE else told >= set(checks)


def test_the_kl_of_tinker_is_a_gap(facts):
    (tinker,) = (one for _, one in facts if one.step0.gap == 9.2e-4)
    assert tinker.step0.gap_metric == "optim/kl_sample_train_v2"
    assert tinker.plan.gap.kind == "range"
