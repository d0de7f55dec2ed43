"""Runs of more frameworks; metric names, config keys and healthy values as their sources and public reports say.

Where a public run is known its numbers are used: torchtitan's largest difference of 0.115, tinker's 9.2e-4,
TRL PPO's approximate KL of 0.39 and clip fraction of 0.52 in healthy averaged rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.frameworks import STEP, TRL, VERL, Case, changed, trl_rows

if TYPE_CHECKING:
    from tests.support.frameworks import Row

K3 = "train/rollout_correction/k3_kl"
K3_MEGATRON = "train/rollout_correction_k3_kl"
SWIFT = {**TRL, "model": "Qwen/Qwen2.5-7B-Instruct", "logging_steps": 5, "logging_first_step": True, "rollout_importance_sampling_mode": None, "log_rollout_offpolicy_metrics": True, "vllm_importance_sampling_correction": None, "rlhf_type": "grpo"}  # fmt: skip
SWIFT_ROWS: list[Row] = [
    {"train/global_step": step, "train/reward_std": 0.2, "train/clip_ratio/region_mean": 0.0, "train/kl": 0.0, "train/entropy/mean": 0.4, "train/completions/clipped_ratio": 0.05, K3: 8e-4, "train/rollout_correction/log_ppl_abs_diff": 0.004, "train/rollout_correction/ess": 0.99}
    for step in (1, 5)
]  # fmt: skip
MEGATRON_SWIFT_ROWS: list[Row] = [
    {STEP: step, "train/reward_std": 0.2, "train/clip_ratio_region_mean": 0.0, "train/entropy_mean": 0.4, K3_MEGATRON: 8e-4}
    for step in (1, 5)
]  # fmt: skip

RLINF = {
    "runner": {"task_type": "reasoning", "resume_dir": None},
    "algorithm": {"n_minibatches": 4, "recompute_logprobs": True, "kl_beta": 0.0, "sampling_params": {"temperature": 1.0, "top_k": 1000000, "top_p": 1.0, "max_new_tokens": 1024}},
    "rollout": {"model": {"model_path": "/models/Qwen2.5-1.5B", "precision": "bf16"}, "rollout_backend": "sglang", "return_logprobs": True},
    "actor": {"training_backend": "megatron", "model": {"precision": "bf16"}},
    "data": {"train_data_paths": ["/data/math.jsonl"]},
}  # fmt: skip
ACTOR = "actor/training/actor"
RLINF_GAP = f"{ACTOR}/rollout_train_kl"


def rlinf_rows(kl: float, clip: float, **more: float) -> list[Row]:
    """Return two optimizer steps; time and rollout are logged before them with the step of the first."""
    row: Row = {f"{ACTOR}/approx_kl": kl, f"{ACTOR}/clip_fraction": clip, f"{ACTOR}/ratio": 1.0, f"{ACTOR}/policy_loss": 0.01, f"{ACTOR}/grad_norm": 0.2, **more}  # fmt: skip
    return [
        {STEP: 0, "time/rollout": 20.0},
        {STEP: 0, "rollout/rewards": 0.4},
        {STEP: 0, **row},
        {STEP: 1, **row},
    ]


# RLinf pull request 1534: 0.064 nat is the gap that it measured, and 0 what approx_kl reads once recomputed.
EMBODIED_GAP = "train/actor/rollout_train_logprob_gap"
EMBODIED_ROWS: list[Row] = [
    {STEP: step, EMBODIED_GAP: 0.064, "train/actor/approx_kl": 0.0, "train/actor/clip_fraction": 0.0, "train/actor/ratio": 1.0, "train/actor/grad_norm": 0.2}
    for step in (0, 1)
]  # fmt: skip


OPEN_INSTRUCT = {"model_name_or_path": "Qwen/Qwen2.5-7B", "temperature": 1.0, "num_mini_batches": 1, "beta": 0.05, "use_vllm_logprobs": False, "load_ref_policy": True, "num_samples_per_prompt_rollout": 16, "model_dtype": "bfloat16", "deepspeed_stage": 2, "vllm_num_engines": 8, "async_steps": 1, "response_length": 2048}  # fmt: skip
LOCAL = "debug/vllm_vs_local_logprob_diff_mean"


def open_instruct_rows(clip: float) -> list[Row]:
    """Return two training steps; the KL is to the reference."""
    row: Row = {LOCAL: 0.0118, "debug/vllm_vs_local_logprob_diff_max": 0.9, "debug/vllm_local_reverse_kl": 1e-4, "policy/clipfrac_avg": clip, "val/ratio": 1.0, "val/ratio_var": 0.0, "objective/kl2_avg": 0.0, "objective/kl3_avg": 0.0, "loss/kl_avg": 0.0, "loss/policy_avg": 0.01, "scores": 0.3}  # fmt: skip
    return [{STEP: step, "training_step": step, "episode": 512 * step, **row} for step in (1, 2)]


TITAN = {
    "hf_assets_path": "/models/Qwen3-0.6B",
    "trainer": {"debug": {"batch_invariant": False}, "training": {"mixed_precision_param": "bfloat16"}},
    "generator": {"debug": {"batch_invariant": False}, "model_dtype": "bfloat16", "sampling": {"temperature": 1.0, "top_p": 1.0}},
    "async_loop": {"target_offpolicy_steps": 3},
}  # fmt: skip
LARGEST = "bit_wise/logprob_diff/max"


def titan_rows(largest: float, mean: float) -> list[Row]:
    """Return validation before training, then two training steps."""
    row: Row = {LARGEST: largest, "bit_wise/logprob_diff/mean": mean, "bit_wise/ratio_tokens_different/mean": 0.86 if largest else 0.0, "loss/mean": 0.01, "loss/ratio_mean": 1.0, "loss/ratio_clipped_frac": 0.0, "trainer/entropy/mean": 0.4, "trainer/grad_norm/mean": 0.3}  # fmt: skip
    return [{STEP: 0, "validation/reward/_mean": 0.2}, {STEP: 1, **row}, {STEP: 2, **row}]


TUNIX_GAP = "sampler_trainer/train/logp_diff_mean"
TUNIX_ROWS: list[Row] = [
    {STEP: 0, TUNIX_GAP: 0.0102, "sampler_trainer/train/logp_diff_max": 0.4, "sampler_trainer/train/probs_pearson_corr": 0.9995},
    {STEP: 1, "actor/train/ppo_kl": 3e-4, "actor/train/pg_clipfrac": 1e-3, "actor/train/kl": 0.0, "actor/train/loss": 0.1, TUNIX_GAP: 0.0103},
]  # fmt: skip

ROLL = {
    "pretrain": "Qwen/Qwen2.5-7B",
    "rollout_batch_size": 64,
    "ppo_epochs": 1,
    "init_kl_coef": 0.2,
    "async_generation_ratio": 0,
    "enable_old_logprobs_recompute": False,
    "num_gpus_per_node": 8,
    "actor_train": {"model_args": {"model_name_or_path": "Qwen/Qwen2.5-7B", "dtype": "bf16", "lora_rank": None}, "strategy_args": {"strategy_name": "megatron_train"}, "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 32}},
    "actor_infer": {"model_args": {"model_name_or_path": "Qwen/Qwen2.5-7B"}, "strategy_args": {"strategy_name": "vllm"}, "generating_args": {"temperature": 0.95, "top_p": 0.7, "top_k": 50, "logprobs": 1}},
}  # fmt: skip
ROLL_ROWS: list[Row] = [
    {STEP: step, "system/step": step, "actor/policykl": 2e-4, "actor/approxkl": 1e-4, "actor/ppo_ratio_clipfrac": 1e-3, "actor/clipfrac": 1e-3, "actor/train_infer_diff_token_mean": -1.2e-4, "actor/train_infer_ratio_token_mean": 1.0003, "actor/kl_loss": 1e-4, "actor/pg_loss": 0.01, "critic/score/mean": 0.3}
    for step in (0, 1)
]  # fmt: skip

V2 = "optim/kl_sample_train_v2"
TINKER = {"model_name": "Qwen/Qwen3-8B", "lora_rank": 32, "temperature": 1.0, "loss_fn": "importance_sampling", "num_substeps": 1, "load_checkpoint_path": None, "async_config": None, "dataset_builder": {"batch_size": 128}}  # fmt: skip


def tinker_rows(place: str) -> list[Row]:
    """Return two batches; `place` is in front of the names of the KL."""
    row: Row = {f"{place}/kl_sample_train_v1": -4e-4, f"{place}/kl_sample_train_v2": 9.2e-4, "optim/entropy": 0.4, "env/all/reward/total": 0.3}  # fmt: skip
    return [{STEP: step, "progress/batch": step, **row} for step in (0, 1)]


RLLM = {"rllm": {"trainer": {"logger": ["wandb"]}}, "model": {"name": "Qwen/Qwen3-8B"}}
RLLM_VERL = {**changed(VERL), "rllm": {"trainer": {"logger": ["wandb"]}}}
OFFPOLICY = "offpolicy/logprob_abs_diff/mean"
OFFPOLICY_ROW: Row = {OFFPOLICY: 0.0131, "offpolicy/kl": 3e-4, "offpolicy/k3_kl": 8e-4, "offpolicy/chi2_token": 1.7e-3, "offpolicy/prob_pearson_corr": 0.9996}  # fmt: skip
FIREWORKS_ROWS: list[Row] = [{STEP: step, "progress/batch": step, **OFFPOLICY_ROW} for step in (1, 2)]
RLLM_VERL_ROWS: list[Row] = [
    {STEP: step, "training/global_step": step, "actor/ppo_kl": 1.5e-4, "actor/pg_clipfrac": 1.2e-3, "actor/entropy": 0.3, **OFFPOLICY_ROW}
    for step in (1, 2)
]  # fmt: skip

UNSLOTH = {**TRL, "unsloth_num_chunks": -1, "unsloth_grpo_mini_batch": None, "_name_or_path": "unsloth/Qwen2.5-1.5B-Instruct"}  # fmt: skip
LOGP = "train/sampling/sampling_logp_difference/mean"
RATIO = "train/ratio"
ASYNC = {"_name_or_path": "Qwen/Qwen2.5-1.5B-Instruct", "vllm_server_base_url": "http://localhost:8000", "max_staleness": 4, "weight_sync_steps": 1, "logging_steps": 1, "num_generations": 8, "temperature": 1.0, "bf16": True, "epsilon": 0.2}  # fmt: skip
ASYNC_ROWS: list[Row] = [
    {"train/global_step": step, RATIO: 0.9998, "train/kl": 8e-4, "train/entropy": 0.4, "train/clip_ratio/region_mean": 2e-3, "train/reward": 0.2, "train/reward_std": 0.3, "train/loss": 0.01, "train/grad_norm": 0.2}
    for step in (1, 2)
]  # fmt: skip
PPO = {"num_ppo_epochs": 4, "num_mini_batches": 1, "kl_coef": 0.05, "sft_model_path": "EleutherAI/pythia-1b", "temperature": 0.7}  # fmt: skip
PPO_ROWS: list[Row] = [
    {"train/global_step": step, "train/policy/approxkl_avg": 0.39, "train/policy/clipfrac_avg": 0.52, "train/objective/kl": 0.0, "train/val/ratio": 1.2, "train/loss/policy_avg": 0.01}
    for step in (1, 2)
]  # fmt: skip
OLD_PPO = {"trl_ppo_trainer_config": {"model_name": "lvwerra/gpt2-imdb", "ppo_epochs": 4, "batch_size": 128}}
OLD_PPO_ROWS: list[Row] = [
    {"ppo/policy/approxkl": 0.002, "ppo/policy/policykl": 0.001, "ppo/policy/clipfrac": 0.011, "objective/kl": 0.0, "ppo/loss/total": 0.2}
    for _ in range(2)
]  # fmt: skip
OMNI_GAP = "rollout_corr/logprob_abs_diff_mean"
OMNI_ROWS: list[Row] = [
    {STEP: step, "training/global_step": step, "actor/ppo_kl": 1e-4, "actor/pg_clipfrac": 1e-3, OMNI_GAP: 0.0123}
    for step in (1, 2)
]  # fmt: skip
LIGHTNING_ROWS: list[Row] = [
    {STEP: step, "training/global_step": step, "actor/ppo_kl": 1e-4, "actor/pg_clipfrac": 1e-3, "rollout_corr/k3_kl": 7.7e-4, "training/reward": 0.4}
    for step in (1, 2)
]  # fmt: skip

UNCHECKED = ("unchecked",)
OTHERS = (
    Case("unsloth", "unsloth", {**UNSLOTH, "vllm_importance_sampling_correction": True}, trl_rows(10), "skipped", "averaged", "range", "unsloth · Qwen2.5-1.5B-Instruct", {LOGP: 0.9}, spread=LOGP),
    Case("unsloth default", "unsloth", {**UNSLOTH, "vllm_importance_sampling_correction": False}, trl_rows(10, vllm=False), "skipped", "vacuous", "skipped", "unsloth · Qwen2.5-1.5B-Instruct", {"train/clip_ratio/region_mean": float("nan")}, healthy=UNCHECKED),
    Case("axolotl", "axolotl", {**TRL, "multipack_real_batches": False, "relora_prune_ratio": 0.9}, trl_rows(10), "skipped", "averaged", "range", "axolotl · Qwen2.5-1.5B-Instruct", {LOGP: 0.9}, spread=LOGP),
    Case("trl_async", "trl_async", ASYNC, ASYNC_ROWS, "skipped", "skipped", "range", "trl_async · Qwen2.5-1.5B-Instruct · logging_steps=1", {RATIO: 0.3, "train/kl": 2.31}, spread="train/kl"),
    Case("trl_ppo", "trl_ppo", PPO, PPO_ROWS, "skipped", "skipped", "skipped", "trl_ppo · pythia-1b · temperature=0.7", {"train/objective/kl": float("nan")}, healthy=UNCHECKED),
    Case("trl_ppo one step", "trl_ppo", {**PPO, "num_ppo_epochs": 1}, [{**row, "train/policy/approxkl_avg": 2e-6, "train/policy/clipfrac_avg": 0.0} for row in PPO_ROWS], "learned", "averaged", "skipped", "trl_ppo · pythia-1b · temperature=0.7", {"train/policy/approxkl_avg": 0.2}, healthy=("no-range", "healthy")),
    Case("trl_ppo old", "trl_ppo", OLD_PPO, OLD_PPO_ROWS, "skipped", "skipped", "skipped", "trl_ppo · gpt2-imdb", {"ppo/loss/total": float("nan")}, healthy=UNCHECKED),
    Case("ms_swift", "ms_swift", SWIFT, SWIFT_ROWS, "skipped", "vacuous", "range", "ms_swift · Qwen2.5-7B-Instruct · logging_steps=5", {K3: 0.6}, spread=K3),
    Case("ms_swift without gap", "ms_swift", {**SWIFT, "log_rollout_offpolicy_metrics": False}, [{name: value for name, value in row.items() if "rollout_correction" not in name} for row in SWIFT_ROWS], "skipped", "vacuous", "skipped", "ms_swift · Qwen2.5-7B-Instruct · logging_steps=5", {"train/kl": float("nan")}, healthy=UNCHECKED),
    Case("ms_swift megatron", "ms_swift", {"model": "Qwen/Qwen3-8B", "train_iters": 100, "micro_batch_size": 1, "log_rollout_offpolicy_metrics": True, "temperature": 1.0, "bf16": True, "logging_steps": 5}, MEGATRON_SWIFT_ROWS, "skipped", "averaged", "range", "ms_swift · Qwen3-8B · backend=megatron logging_steps=5 · train/rollout_correction_k3_kl", {K3_MEGATRON: 0.6}, spread=K3_MEGATRON),
    Case("rlinf", "rlinf", RLINF, rlinf_rows(2e-5, 0.0, **{RLINF_GAP: 0.012}), "learned", "averaged", "range", "rlinf · Qwen2.5-1.5B", {RLINF_GAP: 0.2}, spread=RLINF_GAP, written=True),
    Case("rlinf engine log-probs", "rlinf", changed(RLINF, algorithm__recompute_logprobs=False), rlinf_rows(0.0074, 0.046), "skipped", "skipped", "skipped", "rlinf · Qwen2.5-1.5B", {f"{ACTOR}/approx_kl": 0.7}, healthy=UNCHECKED),
    Case("rlinf embodied", "rlinf", changed(RLINF, runner__task_type="embodied"), EMBODIED_ROWS, "averaged", "averaged", "range", f"rlinf · Qwen2.5-1.5B · {EMBODIED_GAP}", {EMBODIED_GAP: 0.9}, spread=EMBODIED_GAP),
    Case("open_instruct", "open_instruct", OPEN_INSTRUCT, open_instruct_rows(0.0), "skipped", "vacuous", "range", "open_instruct · Qwen2.5-7B", {LOCAL: 0.3}, spread=LOCAL, written=True),
    Case("open_instruct mini-batches", "open_instruct", {**OPEN_INSTRUCT, "num_mini_batches": 4}, open_instruct_rows(0.002), "skipped", "averaged", "range", "open_instruct · Qwen2.5-7B", {LOCAL: 0.3}, spread=LOCAL),
    Case("torchtitan", "torchtitan", TITAN, titan_rows(0.115, 0.0124), "skipped", "skipped", "range", "torchtitan · Qwen3-0.6B", {LARGEST: 14.0, "bit_wise/logprob_diff/mean": -0.8}, spread=LARGEST),
    Case("torchtitan exact", "torchtitan", changed(TITAN, trainer__debug__batch_invariant=True, generator__debug__batch_invariant=True, async_loop__target_offpolicy_steps=0), titan_rows(0.0, 0.0), "skipped", "skipped", "zero", "torchtitan · Qwen3-0.6B · exact_zero=yes offpolicy=0", {LARGEST: 1e-4}),
    Case("tunix", "tunix", {"model_path": "google/gemma-3-1b"}, TUNIX_ROWS, "skipped", "skipped", "range", "tunix · gemma-3-1b", {TUNIX_GAP: 0.7}, spread=TUNIX_GAP, healthy=("no-range", "healthy")),
    Case("tunix forced ratio", "tunix", {"model_path": "google/gemma-3-1b", "force_on_policy_ratio": True}, [{**row, **({"actor/train/ppo_kl": 0.0, "actor/train/pg_clipfrac": 0.0} if row[STEP] else {})} for row in TUNIX_ROWS], "vacuous", "vacuous", "range", "tunix · gemma-3-1b", {"actor/train/ppo_kl": 0.3}, spread=TUNIX_GAP),
    Case("roll", "roll", ROLL, ROLL_ROWS, "averaged", "averaged", "vacuous", "roll · Qwen2.5-7B · temperature=0.95 top_p=0.7 top_k=50", {"actor/train_infer_ratio_token_mean": 2.4}, healthy=UNCHECKED),
    Case("roll one step", "roll", {**ROLL, "init_kl_coef": 0}, [{**row, "actor/policykl": 0.0, "actor/ppo_ratio_clipfrac": 0.0} for row in ROLL_ROWS], "vacuous", "vacuous", "vacuous", "roll · Qwen2.5-7B · temperature=0.95 top_p=0.7 top_k=50", {"actor/train_infer_diff_token_mean": -0.15}, healthy=UNCHECKED),
    Case("tinker", "tinker", TINKER, tinker_rows("optim"), "skipped", "skipped", "range", "tinker · Qwen3-8B", {V2: 0.6}, spread=V2),
    Case("rllm tinker", "rllm", RLLM, tinker_rows("train"), "averaged", "averaged", "range", "rllm · Qwen3-8B · train/kl_sample_train_v2", {"train/kl_sample_train_v2": 0.6}, spread="train/kl_sample_train_v2"),
    Case("rllm fireworks", "rllm", RLLM, FIREWORKS_ROWS, "averaged", "averaged", "range", "rllm · Qwen3-8B", {OFFPOLICY: 0.6}, spread=OFFPOLICY),
    Case("rllm verl", "rllm", RLLM_VERL, RLLM_VERL_ROWS, "averaged", "averaged", "range", "rllm · Qwen2.5-7B-Instruct", {OFFPOLICY: 0.6}, spread=OFFPOLICY),
    Case("verl-omni", "verl", VERL, OMNI_ROWS, "averaged", "averaged", "range", f"verl · Qwen2.5-7B-Instruct · {OMNI_GAP}", {OMNI_GAP: 0.6}, spread=OMNI_GAP),
    Case("agent-lightning", "verl", {**VERL, "agentlightning": {"port": 9999}}, LIGHTNING_ROWS, "averaged", "averaged", "range", "verl · Qwen2.5-7B-Instruct · rollout_corr/k3_kl", {"rollout_corr/k3_kl": 0.6}, spread="rollout_corr/k3_kl"),
)  # fmt: skip
