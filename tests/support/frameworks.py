"""Runs as each framework writes them: its default config, its metric names, its order of rows.

`write_runs` writes them with the installed W&B client, offline, in a process of its own. Names, defaults
and healthy values were read from the frameworks' sources and documents; a `Case` says what their default
config lets be asserted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from step0_wandb.records import HistoryRow, RunRecord

Row = dict[str, float]
STEP = "_step"
"""In a row: the ``step`` that the framework hands to ``wandb.log``."""


@dataclass(frozen=True)
class Case:
    """One framework with one config, what it writes, and what may be said of it.

    Attributes
    ----------
    rows : list of Row
        A healthy history, in the order of writing.
    gap : str or None
        The metric whose value a broken run has several times as large.
    ppo_kl, clip_frac, gap_rule : str
        The kinds of the rules that must apply.
    broken : mapping of str to float
        What the step-0 row of a broken run has instead.
    written : bool
        Whether the real client writes it too, in the tests of the whole way.
    """

    name: str
    profile: str
    config: dict[str, Any]
    rows: list[Row]
    ppo_kl: str
    clip_frac: str
    gap_rule: str
    setup: str
    broken: dict[str, float]
    verdict: str = "broken"
    healthy: tuple[str, ...] = ("healthy",)
    spread: str | None = None
    namespaces: bool = False
    written: bool = False


# --- Miles, slime, vime ----------------------------------------------------------------------------

MEGATRON = {
    "train_backend": "megatron",
    "bf16": True,
    "fp16": False,
    "fp8": None,
    "fp8_recipe": "delayed",
    "fp4": None,
    "multi_latent_attention": False,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "rollout_batch_size": 32,
    "n_samples_per_prompt": 8,
    "num_steps_per_rollout": None,
    "loss_type": "policy_loss",
    "advantage_estimator": "grpo",
    "kl_coef": 0.0,
    "use_kl_loss": True,
    "use_tis": False,
    "get_mismatch_metrics": False,
    "use_rollout_logprobs": False,
    "keep_old_actor": False,
    "use_critic": False,
    "use_opd": False,
    "use_routing_replay": False,
    "use_rollout_routing_replay": False,
    "hf_checkpoint": "/models/Qwen3-0.6B",
    "load": "/models/Qwen3-0.6B_torch_dist",
    "ref_load": "/models/Qwen3-0.6B_torch_dist",
    "save": "/out/run",
    "start_rollout_id": 0,
    "actor_num_nodes": 1,
    "actor_num_gpus_per_node": 8,
    "colocate": True,
    "rollout_num_gpus": 8,
}
SGLANG = {"sglang_quantization": None, "sglang_kv_cache_dtype": "auto"}
MILES = {
    **MEGATRON,
    **SGLANG,
    "global_batch_size": 256,
    "lora_rank": 0,
    "true_on_policy_mode": False,
    "skip_actor_forward_only": False,
    "use_miles_router": False,
    "rollout_function_path": "miles.rollout.sglang_rollout.generate_rollout",
}
SLIME = {
    **MEGATRON,
    **SGLANG,
    "global_batch_size": 128,
    "rollout_function_path": "slime.rollout.sglang_rollout.generate_rollout",
}
VIME = {
    **MEGATRON,
    "global_batch_size": 128,
    "vllm_quantization": None,
    "vllm_kv_cache_dtype": "auto",
    "rollout_function_path": "vime.rollout.vllm_rollout.generate_rollout",
}
GAP = "train/train_rollout_logprob_abs_diff"


def megatron_rows(kl: float = 0.0, clip: float = 0.0, gap: float = 0.0151) -> list[Row]:
    """Return the rows around step 0 of Miles and its family: evaluation, rollout, critic, training, timing."""
    return [
        {"eval/gsm8k": 0.42, "eval/step": 0},
        {"rollout/response_len/mean": 920.9, "perf/rollout_time": 19.4, "rollout/step": 0},
        {"rollout/log_probs": -0.547, "rollout/rollout_log_probs": -0.546, "rollout/step": 0},
        {"train/critic-value_loss": 0.1, "train/critic-grad_norm": 1.0, "train/step": 0},
        {"train/loss": 0.03, "train/ppo_kl": kl, "train/pg_clipfrac": clip, GAP: gap, "train/step": 0},
        {
            "train/loss": -0.03,
            "train/ppo_kl": 8.8e-4,
            "train/pg_clipfrac": 3.5e-4,
            GAP: 0.0153,
            "train/step": 1,
        },
        {"perf/train_time": 93.7, "rollout/step": 0},
    ]


def megatron(name: str, profile: str, config: dict[str, Any], **more: Any) -> Case:
    """Return a case of Miles' family, exact in everything if nothing else is said."""
    kinds = {"ppo_kl": "exact", "clip_frac": "exact", "gap_rule": "range"}
    rows = more.pop("rows", megatron_rows())
    broken = more.pop("broken", {GAP: 0.2})
    setup = f"{profile} · Qwen3-0.6B" + more.pop("label", "")
    return Case(name, profile, config, rows, setup=setup, broken=broken, spread=GAP, **{**kinds, **more})


# --- nested configs --------------------------------------------------------------------------------

VERL: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen2.5-7B-Instruct", "lora_rank": 0},
        "actor": {
            "strategy": "fsdp",
            "ppo_mini_batch_size": 256,
            "ppo_epochs": 1,
            "shuffle": False,
            "use_dynamic_bsz": False,
            "ppo_micro_batch_size_per_gpu": 8,
            "ppo_max_token_len_per_gpu": 16384,
            "policy_loss": {"loss_mode": "vanilla"},
        },
        "rollout": {
            "name": "vllm",
            "temperature": 1.0,
            "top_p": 1,
            "top_k": -1,
            "dtype": "bfloat16",
            "quantization": None,
            "full_determinism": False,
            "calculate_log_probs": True,
            "log_prob_micro_batch_size_per_gpu": 8,
            "log_prob_use_dynamic_bsz": False,
            "log_prob_max_token_len_per_gpu": 16384,
        },
    },
    "data": {"train_batch_size": 1024},
    "algorithm": {"rollout_correction": {"bypass_mode": False}},
    "trainer": {"critic_warmup": 0, "resume_mode": "auto", "nnodes": 1, "n_gpus_per_node": 8, "v1": {"trainer_mode": "sync"}},
}  # fmt: skip
PROBS = "training/rollout_probs_diff_mean"


def verl_rows(kl: float, clip: float) -> list[Row]:
    """Return validation before training, then two training steps."""
    row: Row = {"actor/ppo_kl": kl, "actor/pg_clipfrac": clip, PROBS: 0.0040, "actor/entropy": 0.32}
    return [
        {STEP: 0, "val-core/openai/gsm8k/acc/mean@1": 0.5},
        {STEP: 1, "training/global_step": 1, **row},
        {STEP: 2, "training/global_step": 2, **row},
    ]


TRL: dict[str, Any] = {
    "_name_or_path": "Qwen/Qwen2.5-1.5B-Instruct",
    "attention_dropout": 0.0,
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_model_impl": "vllm",
    "vllm_importance_sampling_correction": True,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "num_iterations": 1,
    "steps_per_generation": 4,
    "gradient_accumulation_steps": 4,
    "per_device_train_batch_size": 8,
    "generation_batch_size": 256,
    "logging_steps": 10,
    "logging_first_step": False,
    "bf16": True,
    "fp16": False,
    "deepspeed": None,
    "fsdp": [],
    "loss_type": "dapo",
    "beta": 0.0,
}
LOGP = "train/sampling/sampling_logp_difference/mean"


def trl_rows(first: int, *, vllm: bool = True, kl: float | None = None) -> list[Row]:
    """Return two rows of a GRPO trainer; ``train/kl`` is against the reference model."""
    rows: list[Row] = []
    for step in (first, 2 * first):
        row: Row = {"train/global_step": step, "train/loss": 0.01, "train/reward_std": 0.2}
        row |= {"train/clip_ratio/region_mean": 5.8e-4 if vllm else 0.0, "train/clip_ratio/low_mean": 0.0}
        row |= {LOGP: 0.0120, "train/sampling/importance_sampling_ratio/mean": 0.99} if vllm else {}
        row |= {} if kl is None else {"train/kl": kl}
        rows.append(row)
    return rows


OPENRLHF: dict[str, Any] = {
    "actor": {"model_name_or_path": "meta-llama/Llama-3.1-8B", "num_nodes": 1, "num_gpus_per_node": 8},
    "critic": {"freezing_steps": -1},
    "rollout": {"batch_size": 1024, "n_samples_per_prompt": 1, "micro_batch_size": 1, "temperature": 1.0, "top_p": 1.0},
    "train": {"batch_size": 128, "micro_batch_size": 1, "max_epochs": 1, "async_enable": False, "partial_rollout_enable": False, "colocate_all": True, "dynamic_batch_enable": False},
    "ds": {"param_dtype": "bf16", "load_in_4bit": False, "lora": {"rank": 0, "dropout": 0}},
    "algo": {"advantage": {"is_correction_enable": False}},
    "vllm": {"num_engines": 8, "tensor_parallel_size": 1},
    "use_ms": False,
}  # fmt: skip


def openrlhf_rows(kl: float, clip: float, signed: float | None = None) -> list[Row]:
    """Return two rows of a PPO trainer; ``train/kl`` is against the reference model."""
    row: Row = {"train/ppo_kl": kl, "train/ppo_clip_ratio": clip, "train/kl": 2e-4, "train/policy_loss": 0.1}
    row |= {} if signed is None else {"train/vllm_kl": signed}
    return [{**row, "train/global_step": 1}, {**row, "train/global_step": 2}]


NEMO_RL: dict[str, Any] = {
    "policy": {
        "model_name": "Qwen/Qwen2.5-1.5B",
        "precision": "bfloat16",
        "train_global_batch_size": 512,
        "dtensor_cfg": {"enabled": True, "lora_cfg": {"enabled": False}},
        "megatron_cfg": {"enabled": False, "peft": {"enabled": False}, "fp8_cfg": {"enabled": False}},
        "generation": {
            "backend": "vllm",
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": None,
            "vllm_cfg": {"precision": "bfloat16", "kv_cache_dtype": "auto"},
        },
    },
    "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16, "async_grpo": {"enabled": False}},
    "loss_fn": {"force_on_policy_ratio": False, "disable_ppo_ratio": False},
    "cluster": {"num_nodes": 1, "gpus_per_node": 8},
}
MULT = "train/token_mult_prob_error"


def nemo_rows(ratio: float) -> list[Row]:
    """Return set-up and validation at 0, then two training steps, each logged in several calls."""
    rows: list[Row] = [{STEP: 0, "timing/setup/total": 60.0}, {STEP: 0, "validation/accuracy": 0.1}]
    for step in (1, 2):
        rows.append({STEP: step, "train/probs_ratio": ratio, MULT: 1.0150, "train/gen_kl_error": 3e-4})
        rows.append({STEP: step, "performance/tokens_per_sec": 1000.0})
    return rows


SKYRL: dict[str, Any] = {
    "trainer": {
        "policy": {"model": {"path": "Qwen/Qwen2.5-1.5B-Instruct", "lora": {"rank": 0, "dropout": 0.0}}},
        "strategy": "fsdp",
        "bf16": True,
        "train_batch_size": 1024,
        "policy_mini_batch_size": 256,
        "update_epochs_per_batch": 1,
        "recompute_old_logprobs_per_minibatch": True,
        "algorithm": {"policy_loss_type": "regular"},
        "fully_async": {"enabled": False},
        "placement": {"colocate_all": True, "policy_num_nodes": 1, "policy_num_gpus_per_node": 4},
    },
    "generator": {
        "sampling_params": {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "logprobs": 1},
        "inference_engine": {"backend": "vllm", "model_dtype": "bfloat16", "num_engines": 4},
    },
}
DIFF = "policy/rollout_train_logprobs_abs_diff_mean"


def skyrl_rows(clip: float) -> list[Row]:
    """Return evaluation at 0, then two training steps; ``policy/policy_kl`` is against the reference."""
    row: Row = {
        "policy/loss_metrics/clip_ratio": clip,
        DIFF: 0.0145,
        "policy/policy_kl": 1e-3,
        "reward/avg_raw_reward": 0.3,
    }
    return [{STEP: 0, "eval/all/avg_score": 0.5}] + [
        {STEP: step, "trainer/global_step": step, "trainer/epoch": 0, **row} for step in (1, 2)
    ]


PRIME_RL: dict[str, Any] = {
    "model": {"name": "Qwen/Qwen3-0.6B", "lora": None},
    "train": {"sampling": {"temperature": 1.0}},
    "max_off_policy_steps": 8,
    "batch_size": 64,
}
KL = "mismatch_kl/all/mean"


def prime_rows() -> list[Row]:
    """Return several rows a step, as the orchestrator and the trainer write them."""
    rows: list[Row] = []
    for step in (1, 2):
        rows.append({"step": step, "reward/all/mean": 0.3, "off_policy/max": 0})
        rows.append({"step": step, "perf/throughput": 1000.0})
        rows.append(
            {
                "step": step,
                KL: 7.0e-4,
                "mismatch_kl/all/max": 0.5,
                "is_masked/mean": 2e-4,
                "entropy/all/mean": 0.3,
            }
        )
    return rows


AREAL: dict[str, Any] = {
    "actor": {
        "path": "Qwen/Qwen2.5-1.5B-Instruct",
        "dtype": "bfloat16",
        "backend": "fsdp:d4",
        "use_lora": False,
        "ppo_n_minibatches": 4,
        "recompute_logprob": False,
        "use_decoupled_loss": False,
        "rejection_sampling": None,
        "prox_logp_method": "recompute",
        "megatron": {"use_deterministic_algorithms": False},
    },
    "gconfig": {"temperature": 1.0, "top_p": 1.0, "top_k": 100000000},
    "rollout": {"backend": "sglang:d4", "max_head_offpolicyness": 0, "return_routed_experts": False},
    "sglang": {"dtype": "bfloat16", "kv_cache_dtype": "auto"},
    "vllm": {"dtype": "bfloat16"},
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
}
ACTOR = "ppo_actor/update"
AREAL_GAP = f"{ACTOR}/logp_abs_diff/avg"


def areal_rows(kl: float, clip: float, **more: float) -> list[Row]:
    """Return two training steps; there is no step key, and ``approx_kl`` is new minus proximal."""
    row: Row = {
        f"{ACTOR}/approx_kl/avg": kl,
        f"{ACTOR}/clip_ratio/avg": clip,
        "ppo_actor/task_reward/avg": 0.4,
        **more,
    }
    return [{STEP: step, **row} for step in (0, 1)]


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a nested config with values replaced; ``__`` stands for a dot."""
    copy = json.loads(json.dumps(config))
    for path, value in changes.items():
        *tables, key = path.split("__")
        table = copy
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value
    return copy


# --- framework, config, and what is asserted ---------------------------------------------------------

CASES = (
    megatron("miles", "miles", MILES, written=True),
    megatron("miles kl", "miles", MILES, broken={"train/ppo_kl": 0.3009, "train/pg_clipfrac": 0.0471}),
    megatron("miles fsdp", "miles", {**MILES, "train_backend": "fsdp"}, label=" · backend=fsdp", rows=megatron_rows(kl=6.2e-12)),
    megatron("miles lora", "miles", {**MILES, "lora_rank": 16}, label=" · lora=yes", rows=megatron_rows(kl=3e-9)),
    megatron("miles fp8", "miles", {**MILES, "fp8": "e4m3", "fp8_recipe": "blockwise"}, label=" · trainer=fp8", ppo_kl="learned", clip_frac="learned", rows=megatron_rows(kl=2.99e-4, gap=0.0255)),
    megatron("miles mla", "miles", {**MILES, "multi_latent_attention": True}, ppo_kl="learned", clip_frac="learned", rows=megatron_rows(kl=-5.85e-5)),
    megatron("miles true on-policy", "miles", {**MILES, "true_on_policy_mode": True}, label=" · true_on_policy=yes", gap_rule="zero", rows=megatron_rows(gap=0.0), broken={GAP: 1e-6}),
    megatron("miles engine log-probs", "miles", {**MILES, "use_rollout_logprobs": True}, ppo_kl="skipped", clip_frac="skipped", rows=megatron_rows(kl=-3e-4, clip=1e-3, gap=0.0), healthy=("unchecked",), broken={"train/ppo_kl": float("nan")}),
    megatron("slime", "slime", SLIME),
    megatron("slime one step", "slime", {**SLIME, "global_batch_size": 256}, ppo_kl="vacuous", clip_frac="vacuous"),
    megatron("vime", "vime", VIME),
    Case("verl", "verl", VERL, verl_rows(1.5e-4, 1.27e-3), "averaged", "averaged", "range", "verl · Qwen2.5-7B-Instruct", {PROBS: 0.05}, spread=PROBS, written=True),
    Case("verl kl", "verl", VERL, verl_rows(1.5e-4, 1.27e-3), "averaged", "averaged", "range", "verl · Qwen2.5-7B-Instruct", {"actor/ppo_kl": 0.3}, verdict="suspect", spread=PROBS),
    Case("verl on-policy", "verl", changed(VERL, data__train_batch_size=256), verl_rows(0.0, 0.0), "exact", "exact", "range", "verl · Qwen2.5-7B-Instruct", {"actor/ppo_kl": 1e-4}, verdict="suspect", spread=PROBS),
    Case("verl other micro-batches", "verl", changed(VERL, data__train_batch_size=256, actor_rollout_ref__rollout__log_prob_micro_batch_size_per_gpu=32), verl_rows(2e-5, 1e-4), "learned", "averaged", "range", "verl · Qwen2.5-7B-Instruct", {"actor/ppo_kl": 0.02}, spread=PROBS),
    Case("trl", "trl", TRL, trl_rows(10), "skipped", "averaged", "range", "trl · Qwen2.5-1.5B-Instruct", {LOGP: 0.2}, spread=LOGP),
    Case("trl every step", "trl", {**TRL, "logging_steps": 1.0}, trl_rows(1, kl=8e-4), "skipped", "averaged", "range", "trl · Qwen2.5-1.5B-Instruct · logging_steps=1", {LOGP: 0.2}, spread=LOGP),
    Case("trl without vllm", "trl", {**TRL, "use_vllm": False}, trl_rows(10, vllm=False), "skipped", "vacuous", "skipped", "trl · Qwen2.5-1.5B-Instruct", {"train/clip_ratio/region_mean": float("nan")}, healthy=("unchecked",)),
    Case("openrlhf", "openrlhf", OPENRLHF, openrlhf_rows(2e-3, 4e-3), "averaged", "averaged", "skipped", "openrlhf · Llama-3.1-8B", {"train/ppo_kl": 0.3}, verdict="suspect", healthy=("unchecked",), namespaces=True, written=True),
    Case("openrlhf on-policy", "openrlhf", changed(OPENRLHF, rollout__batch_size=128, algo__advantage__is_correction_enable=True), openrlhf_rows(0.0, 0.0, -3e-4), "exact", "exact", "vacuous", "openrlhf · Llama-3.1-8B", {"train/ppo_kl": 1e-4}, verdict="suspect", healthy=("no-range", "healthy"), namespaces=True),
    Case("nemo_rl", "nemo_rl", NEMO_RL, nemo_rows(1.0001), "exact", "skipped", "range", "nemo_rl · Qwen2.5-1.5B", {MULT: 1.2}, spread=MULT),
    Case("nemo_rl ratio", "nemo_rl", NEMO_RL, nemo_rows(1.0001), "exact", "skipped", "range", "nemo_rl · Qwen2.5-1.5B", {"train/probs_ratio": 1.03}, verdict="suspect", spread=MULT),
    Case("nemo_rl off-policy", "nemo_rl", changed(NEMO_RL, policy__train_global_batch_size=128), nemo_rows(1.002), "averaged", "skipped", "range", "nemo_rl · Qwen2.5-1.5B", {MULT: 1.2}, spread=MULT),
    Case("skyrl", "skyrl", SKYRL, skyrl_rows(2e-3), "skipped", "averaged", "range", "skyrl · Qwen2.5-1.5B-Instruct", {DIFF: 1.33}, spread=DIFF),
    Case("skyrl on-policy", "skyrl", changed(SKYRL, trainer__train_batch_size=256), skyrl_rows(0.0), "skipped", "exact", "range", "skyrl · Qwen2.5-1.5B-Instruct", {"policy/loss_metrics/clip_ratio": 1e-3}, verdict="suspect", spread=DIFF),
    Case("prime_rl", "prime_rl", PRIME_RL, prime_rows(), "skipped", "skipped", "range", "prime_rl · Qwen3-0.6B", {KL: 0.03}, spread=KL, written=True),
    Case("areal", "areal", AREAL, areal_rows(-4e-4, 2e-3, **{AREAL_GAP: 0.0123}), "skipped", "skipped", "range", "areal · Qwen2.5-1.5B-Instruct", {AREAL_GAP: 0.2}, spread=AREAL_GAP),
    Case("areal decoupled", "areal", changed(AREAL, actor__use_decoupled_loss=True, actor__ppo_n_minibatches=1), areal_rows(0.0, 0.0, **{AREAL_GAP: 0.0123}), "exact", "exact", "range", "areal · Qwen2.5-1.5B-Instruct", {f"{ACTOR}/approx_kl/avg": 0.3}, spread=AREAL_GAP),
    Case("areal reused", "areal", changed(AREAL, actor__use_decoupled_loss=True, actor__prox_logp_method="reuse_train_logp"), areal_rows(0.0, 0.0, **{AREAL_GAP: 0.0123}), "vacuous", "vacuous", "range", "areal · Qwen2.5-1.5B-Instruct", {f"{ACTOR}/approx_kl/avg": 0.3}, spread=AREAL_GAP),
    Case("areal recomputed", "areal", changed(AREAL, actor__recompute_logprob=True, actor__ppo_n_minibatches=1), areal_rows(0.0, 0.0, **{AREAL_GAP: 0.0}), "exact", "exact", "vacuous", "areal · Qwen2.5-1.5B-Instruct", {f"{ACTOR}/approx_kl/avg": 0.3}, healthy=("no-range", "healthy")),
    Case("areal of May", "areal", AREAL, areal_rows(-4e-4, 2e-3), "skipped", "skipped", "skipped", "areal · Qwen2.5-1.5B-Instruct", {f"{ACTOR}/approx_kl/avg": float("nan")}, healthy=("unchecked",)),
)  # fmt: skip
UNKNOWN = Case(
    "unknown",
    "inhouse",
    {"weights": "/models/Tiny-1B", "sampler": {"temperature": 0.8}},
    [{"opt_step": step, "policy/kl": 0.0, "policy/engine_gap": 0.0210} for step in (0, 1)],
    "exact",
    "skipped",
    "range",
    "inhouse · Tiny-1B · temperature=0.8",
    {"policy/engine_gap": 0.2},
    spread="policy/engine_gap",
)
"""A framework that only a user's own profile knows."""
HEALTHY_RUNS = 2


def rows_of(case: Case, number: int) -> list[Row]:
    """Return the rows of one run of a case: number 0 is the broken one, the others differ by their noise."""
    profile_rows = json.loads(json.dumps(case.rows))
    for row in profile_rows:
        if number and case.spread in row:
            perfect = 1.0 if case.spread == MULT else 0.0
            row[case.spread] = perfect + (row[case.spread] - perfect) * (0.98 + 0.02 * number)
    if not number:
        first = next(row for row in profile_rows if not case.broken.keys().isdisjoint(row))
        first.update(case.broken)
    return profile_rows


def name_of(case: Case, number: int) -> str:
    """Return the run id of one run of a case."""
    return f"{case.name.replace(' ', '-')}-{number}"


def record_of(case: Case, number: int) -> RunRecord:
    """Return one run of a case as a source gives it; rows of one step that the framework named are one."""
    name = name_of(case, number)
    merged: list[dict[str, float]] = []
    for row in rows_of(case, number):
        step = row.get(STEP, len(merged))
        if merged and merged[-1][STEP] == step:
            merged[-1].update(row)
        else:
            merged.append({**row, STEP: step})
    return RunRecord(
        entity="team",
        project=case.name.replace(" ", "-"),
        run_id=name,
        name=name,
        state="finished",
        created_at=datetime(2026, 10, 1, number, tzinfo=UTC),
        config=case.config,
        rows=tuple(HistoryRow(row, order) for order, row in enumerate(merged)),
    )


def write_runs(directory: Path, *, every: bool = False) -> None:
    """Write runs below `directory` with the installed client, offline: of the cases that are `Case.written`, or of all."""
    home = directory / ".home"
    home.mkdir(parents=True)
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TMPDIR") if name in os.environ}
    places = {f"WANDB_{name}_DIR": str(home) for name in ("CACHE", "CONFIG", "DATA")}
    quiet = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_GIT": "true"}
    subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.support.frameworks",
            str(directory),
            *["every"] * every,
        ],
        check=True,
        capture_output=True,
        cwd=Path(__file__).parents[2],
        env={**kept, "HOME": str(home), "WANDB_MODE": "offline", **places, **quiet},
    )


def _main(directory: str, which: str = "") -> None:
    import wandb

    from tests.support.other_frameworks import OTHERS

    settings = wandb.Settings(console="off", x_disable_stats=True)
    for case in (*(case for case in (*CASES, *OTHERS) if case.written or which == "every"), UNKNOWN):
        for number in range(HEALTHY_RUNS + 1):
            config = (
                {key: _namespace(value) for key, value in case.config.items()}
                if case.namespaces
                else case.config
            )
            name = name_of(case, number)
            run = wandb.init(
                mode="offline", settings=settings, dir=directory, entity="team", project=case.name.replace(" ", "-"),
                id=name, name=name, config=config,
            )  # fmt: skip
            for row in rows_of(case, number):
                step = row.pop(STEP, None)
                run.log(row, step=None if step is None else int(step))
            run.finish()


def _namespace(value: Any) -> Any:
    """Return nested tables as OpenRLHF hands them to W&B."""
    if isinstance(value, dict):
        return SimpleNamespace(**{key: _namespace(inner) for key, inner in value.items()})
    return value


if __name__ == "__main__":
    _main(*sys.argv[1:])
