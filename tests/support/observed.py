"""Step-0 rows with every number that a framework's profile knows, healthy and with one fault each.

The names come from the profiles, the healthy values from the public logs and documents that the profiles
quote, and the faults from incidents that were reported in public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.profiles import load_profiles
from step0_wandb.profiles.observables import catalog
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store.columns import columns_of, frame_of
from tests.support import other_frameworks as other

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from step0_wandb.profiles.profile import Profile

FINDER = Step0Finder(load_profiles())
MODEL = "Qwen/Qwen3-4B"
MEGATRON = {
    "hf_checkpoint": MODEL,
    "load": "/m/Qwen3-4B_torch_dist",
    "ref_load": "/m/Qwen3-4B_torch_dist",
    "save": "/out/run",
    "start_rollout_id": 0,
    "train_backend": "megatron",
    "bf16": True,
    "prompt_data": "/data/gsm8k.jsonl",
    "rollout_max_response_len": 8192,
    "advantage_estimator": "grpo",
}
CONFIGS: dict[str, dict[str, Any]] = {
    "miles": MEGATRON | {"use_miles_router": False},
    "slime": MEGATRON | {"rollout_function_path": "slime.rollout.sglang_rollout.generate_rollout"},
    "vime": MEGATRON | {"rollout_function_path": "vime.rollout.vllm_rollout.generate_rollout"},
    "verl": {
        "data": {"train_batch_size": 512, "train_files": "/data/gsm8k.parquet", "max_response_length": 8192},
        "algorithm": {"adv_estimator": "grpo", "rollout_correction": {"bypass_mode": False}},
        "actor_rollout_ref": {
            "model": {"path": MODEL},
            "actor": {"ppo_mini_batch_size": 512, "ppo_epochs": 1, "ppo_micro_batch_size_per_gpu": 8},
            "rollout": {"name": "vllm", "log_prob_micro_batch_size_per_gpu": 8},
        },
    },
    "trl": {
        "_name_or_path": MODEL,
        "use_vllm": True,
        "logging_steps": 1,
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 4,
        "dataset_name": "gsm8k",
        "max_completion_length": 2048,
        "bf16": True,
    },
    "openrlhf": {
        "actor": {"model_name_or_path": MODEL},
        "rollout": {"batch_size": 128, "n_samples_per_prompt": 8},
        "train": {"batch_size": 1024, "max_epochs": 1},
    },
    "nemo_rl": {
        "policy": {"model_name": MODEL, "train_global_batch_size": 512, "generation": {"backend": "vllm"}},
        "grpo": {"num_prompts_per_step": 32, "num_generations_per_prompt": 16},
        "loss_fn": {"force_on_policy_ratio": False},
    },
    "skyrl": {
        "trainer": {
            "policy": {"model": {"path": MODEL}},
            "train_batch_size": 256,
            "policy_mini_batch_size": 256,
            "update_epochs_per_batch": 1,
        },
        "generator": {"inference_engine": {"backend": "vllm"}},
    },
    "prime_rl": {"model": {"name": MODEL}},
    "areal": {
        "actor": {
            "path": MODEL,
            "recompute_logprob": True,
            "use_decoupled_loss": True,
            "ppo_n_minibatches": 1,
        },
        "gconfig": {"max_new_tokens": 8192},
    },
    "unsloth": {**other.UNSLOTH, "vllm_importance_sampling_correction": True, "logging_steps": 1},
    "axolotl": {**other.TRL, "multipack_real_batches": False, "logging_steps": 1},
    "trl_async": other.ASYNC,
    "trl_ppo": {**other.PPO, "num_ppo_epochs": 1},
    "ms_swift": {**other.SWIFT, "logging_steps": 1},
    "rlinf": other.RLINF,
    "open_instruct": {**other.OPEN_INSTRUCT, "num_mini_batches": 1},
    "torchtitan": other.TITAN,
    "tunix": {"model_path": "google/gemma-3-1b", "rl_training_config": {"use_rollout_logps": False}},
    "roll": {**other.ROLL, "init_kl_coef": 0},
    "tinker": other.TINKER,
    "rllm": other.RLLM_VERL,
}
"""A plain config of each framework: one optimizer step a row where it can have one."""

HEALTHY = {
    "ref_kl": 0.0,
    "ref_logprob": -0.41,
    "engine_logprob": -0.41,
    "ratio": 1.0,
    "gradient": 0.21,
    "termination": 0.06,
    "weight_version": 0.0,
    "tokens": 0.0,
    "advantage": 0.0,
    "bound:pearson": 0.9996,
    "bound:ess": 0.97,
    "bound:chi2": 0.002,
    "bound:log-perplexity": 0.001,
    "bound:k3": 0.0006,
    "learned:grad_norm": 0.21,
    "learned:entropy": 0.41,
    "learned:response_length": 900.0,
    "learned:truncation": 0.06,
    "learned:repetition": 0.006,
    "learned:zero_spread": 0.3,
    "learned:reward": 0.34,
    "learned:max_gap": 0.4,
    "learned:pearson": 0.9996,
    "learned:ess": 0.97,
    "learned:log_perplexity": 0.001,
}
"""What healthy runs show; several checks may read one metric, and agree on its value."""
GAPS = {
    "mean-abs": 0.0130,
    "k3": 0.0007,
    "signed-mean": 0.0013,
    "probability": 0.0041,
    "ratio": 0.0150,
    "none": 0.115,
}
ANSWER = 53
"""Tokens of an answer."""
SPREADS = {"learned:grad_norm": 0.20, "learned:response_length": 0.05, "learned:entropy": 0.03}
"""Standard deviation of the logarithm, where it is not the usual 0.03; shares scatter by 0.3 on the logit scale."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes
    ----------
    shows : mapping of str to float
        What the metrics of some checks show, by the name of the check; ``times`` multiplies where a name
        has an ``*`` in front.
    """

    title: str
    shows: Mapping[str, float]


FAULTS = (
    Fault("dropout on: ppo_kl 0.30", {"ppo_kl": 0.30}),
    Fault("dropout on: clip fraction 0.35", {"clip_frac": 0.35}),
    Fault("gap x3", {"*gap": 3.0}),
    Fault("gap 1.33 nat, 0.5 in probability", {"gap": 1.33}),
    Fault("KL to the reference 0.8", {"ref_kl": 0.8}),
    Fault("reference log-probs off by 0.5", {"ref_logprob": -0.91}),
    Fault("engine's mean log-prob off by 0.8", {"engine_logprob": -1.21}),
    Fault("loss is NaN", {"loss": math.nan}),
    Fault("gradient norm is NaN", {"gradient": math.nan}),
    Fault("gradient norm 2,955,012,562", {"gradient": 2_955_012_562.0}),
    Fault("gradient norm 0", {"gradient": 0.0}),
    Fault("LoRA gradients x100", {"*gradient": 100.0}),
    Fault("importance ratio 0.62", {"ratio": 0.62}),
    Fault("effective sample size 0.2", {"bound:ess": 0.2, "ess": 0.2}),
    Fault("pearson 0.5", {"bound:pearson": 0.5}),
    Fault("chi-square 1.7 a token", {"bound:chi2": 1.7}),
    Fault("log-perplexities 7 apart", {"bound:log-perplexity": 7.0}),
    Fault("KL to the engine 2.31", {"bound:k3": 2.31}),
    Fault("no answer ends (truncated 1.0)", {"termination": 1.0}),
    Fault("99 % truncated", {"learned:truncation": 0.992}),
    Fault("garbage: repetition 0.63", {"learned:repetition": 0.63}),
    Fault("no group has a spread of rewards", {"learned:zero_spread": 1.0}),
    Fault("reward near 0", {"learned:reward": 0.002}),
    Fault("entropy x22", {"*learned:entropy": 22.0}),
    Fault("answers 9 times as long", {"*learned:response_length": 9.0}),
    Fault("one token 15.2 nat apart", {"learned:max_gap": 15.2}),
    Fault("two weight versions in the batch", {"weight_version": 0.25}),
    Fault("other tokens came back", {"tokens": 0.1}),
    Fault("mean advantage 0.7", {"advantage": 0.7}),
)


def metrics_of(profile: Profile) -> dict[str, str]:
    """Return the metric that each check of a framework reads first."""
    found = {}
    for entry in profile.observable:
        if entry.name != "finite":
            found.setdefault(entry.name, entry.minus[0] if entry.minus else entry.metrics[0])
        else:
            found["loss"] = entry.metrics[0]
    for name, metrics in (("ppo_kl", profile.metrics.ppo_kl), ("clip_frac", profile.metrics.clip_frac)):
        if metrics:
            found[name] = metrics[0]
    if profile.metrics.gap:
        found["gap"] = profile.metrics.gap[0].metric
    if profile.name == "miles":
        found["ess"] = "train/ess_ratio"
    return found


def healthy_row(profile: Profile, noise: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return a step-0 row with every number that the profile reads.

    Parameters
    ----------
    noise : mapping of str to float, optional
        By check how many standard deviations its number lies from the usual.
    """
    noise, row = noise or {}, {}
    step = profile.step.keys[0]
    row[step] = profile.first_step(CONFIGS[profile.name])
    for entry in profile.observable:
        if entry.name == "finite":
            row |= {name: 0.3 for name in entry.metrics if name not in row}
    for name, metric in metrics_of(profile).items():
        if name in HEALTHY:
            row[metric] = _scattered(name, HEALTHY[name], noise.get(name, 0.0))
        elif name == "ppo_kl":
            row[metric] = profile.metrics.ppo_kl_perfect
        elif name == "clip_frac":
            row[metric] = 0.0
    for entry in profile.observable:
        if entry.minus:
            row[entry.metrics[0]] = row[entry.minus[0]]
    row |= {name: 0.3 for name in profile.metrics.marks if name not in row}
    if profile.metrics.gap:
        gap = profile.metrics.gap[0]
        width = 0.02 * (gap.spread or 0.03) / 0.03
        row[gap.metric] = gap.perfect + GAPS[gap.statistic_bound] * math.exp(width * noise.get("gap", 0.0))
    return row


def _scattered(name: str, value: float, deviations: float) -> float:
    if not name.startswith("learned:"):
        return value
    if catalog()[name].scale == "share":
        odds = value / (1 - value) * math.exp(0.3 * deviations)
        return odds / (1 + odds)
    return value * math.exp(SPREADS.get(name, 0.03) * deviations)


def with_fault(profile: Profile, row: Mapping[str, float], fault: Fault) -> dict[str, float] | None:
    """Return the row with a fault, None where the framework logs nothing that shows it."""
    metrics, changed = metrics_of(profile), dict(row)
    if fault.title == "gap x3" and any(gap.signed or gap.bound == "none" for gap in profile.metrics.gap[:1]):
        return None  # a signed mean near 0 proves nothing, and the largest of all tokens scatters by as much
    plan = profile.plan(CONFIGS[profile.name], None)
    for key, value in fault.shows.items():
        metric = metrics.get(key.lstrip("*"))
        if metric is None or (key in ("ppo_kl", "clip_frac") and getattr(plan, key).kind == "skipped"):
            continue  # the old log-probs are the engine's, so that it shows the gap and no dropout
        # TRL's PPO logs the sum over an answer.
        shown = value * ANSWER if (profile.name, key) == ("trl_ppo", "ref_kl") else value
        changed[metric] = _faulty(profile, metric, row[metric], shown, times=key.startswith("*"))
    return changed if any(not _same(changed[name], row[name]) for name in row) else None


def _faulty(profile: Profile, metric: str, healthy: float, value: float, *, times: bool) -> float:
    gap = next((gap for gap in profile.metrics.gap if gap.metric == metric), None)
    perfect = (
        gap.perfect if gap else profile.metrics.ppo_kl_perfect if metric in profile.metrics.ppo_kl else 0.0
    )
    if times:
        return perfect + (healthy - perfect) * value
    return perfect + (min(value, 0.5) if gap and gap.unit == "probability" else value)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return runs as a sync keeps them."""
    return frame_of(columns_of(record, FINDER.facts(record)) for record in records)


def record(run_id: str, row: Mapping[str, float], config: Mapping[str, Any]) -> RunRecord:
    """Return a finished run with one row."""
    return RunRecord("lab", "rl", run_id, config=config, rows=(HistoryRow(row, 1),), state="finished")
