"""What healthy runs of each framework may legally look like: the config, and what it does to the row."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.observed import CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.profiles.profile import Profile

Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class Variant:
    """One legal way to run.

    Attributes
    ----------
    config : mapping
        The whole config.
    row : mapping of str to float
        What it changes of a healthy row, by check; ``*`` in front multiplies.
    without : frozenset of str
        Metrics that are not logged then.
    """

    title: str
    config: Mapping[str, Any]
    row: Mapping[str, float] = field(default_factory=dict)
    without: frozenset[str] = frozenset()


def _changed(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain config of a framework with dotted keys changed."""
    config = copy.deepcopy(CONFIGS[name])
    engine = "vllm" if name == "vime" else "sglang"
    for key, value in changes.items():
        *path, last = key.replace("ENGINE", engine).split(".")
        place = config
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return config


def _model(name: str) -> dict[str, str]:
    """Return the three places where a Megatron config names its model."""
    return {
        "hf_checkpoint": f"/m/{name}",
        "load": f"/m/{name}_torch_dist",
        "ref_load": f"/m/{name}_torch_dist",
    }


_MEGATRON: list[tuple[str, dict[str, Any], Row, tuple[str, ...]]] = [
    ("plain", {}, {"ref_kl": -7.4e-12, "advantage": -4.7e-9}, ()),
    (
        "MoE with replayed routing",
        {
            **_model("Qwen3-30B-A3B"),
            "use_rollout_routing_replay": True,
        },
        {"ref_kl": 4.7e-3, "ref_logprob": -0.4125, "*gap": 1.7},
        (),
    ),
    (
        "FP8 trainer",
        {"fp8": "e4m3"},
        {"ppo_kl": 5.9e-5, "ref_kl": 2e-4, "ref_logprob": -0.4101, "*gap": 1.8},
        (),
    ),
    (
        "MLA",
        {"multi_latent_attention": True, **_model("GLM-5.3-Flash")},
        {"ppo_kl": -3e-6, "ref_kl": 1e-4, "*gap": 1.5},
        (),
    ),
    ("FP8 engine", {"ENGINE_quantization": "fp8"}, {"*gap": 1.9}, ()),
    ("asynchronous", {"fully_async": True}, {"weight_version": 0.2}, ()),
    (
        "old log-probs of the engine",
        {"use_rollout_logprobs": True},
        {"ppo_kl": 0.0121, "clip_frac": 0.02},
        (),
    ),
    ("resumed", {"load": "/out/run", "start_rollout_id": None}, {"ref_kl": 0.02, "ref_logprob": -0.44}, ()),
    ("no reference", {"use_kl_loss": False}, {}, ("train/kl_loss", "rollout/ref_log_probs")),
    (
        "another reference on purpose",
        {"ref_load": "/m/Qwen3-32B_torch_dist"},
        {"ref_kl": 0.4, "ref_logprob": -0.9},
        (),
    ),
    ("GSPO", {"advantage_estimator": "gspo", "eps_clip": 4e-4}, {}, ()),
    ("GAE", {"advantage_estimator": "ppo"}, {"advantage": 0.13}, ()),
    ("reused log-probs", {"skip_actor_forward_only": True}, {}, ("rollout/log_probs",)),
    ("FSDP", {"train_backend": "fsdp"}, {"ref_kl": 1e-3, "ref_logprob": -0.4102}, ()),
    (
        "answers of one word",
        {"rollout_max_response_len": 16},
        {"termination": 1.0, "learned:truncation": 1.0},
        (),
    ),
    ("top-p and top-k", {"rollout_top_p": 0.95, "rollout_top_k": 64}, {"*gap": 0.9}, ()),
    (
        "every group is right",
        {"prompt_data": "/data/easy.jsonl"},
        {"learned:zero_spread": 1.0, "learned:reward": 1.0},
        (),
    ),
]
_LORA = ("LoRA", {"lora_rank": 32}, {"ppo_kl": 3e-9, "*gap": 1.1}, ())
_TRUE = ("true on-policy", {"true_on_policy_mode": True}, {"gap": 0.0}, ())
_KINDS: dict[str, list[tuple[str, dict[str, Any], Row, tuple[str, ...]]]] = {
    "miles": [*_MEGATRON, _LORA, _TRUE],
    "slime": _MEGATRON,
    "vime": _MEGATRON,
    "verl": [
        ("plain", {}, {"advantage": -8e-4}, ()),
        (
            "averaged rows",
            {"actor_rollout_ref.actor.ppo_mini_batch_size": 128},
            {"ppo_kl": 1.5e-4, "clip_frac": 1.27e-3},
            (),
        ),
        (
            "GSPO",
            {
                "actor_rollout_ref.actor.ppo_mini_batch_size": 128,
                "actor_rollout_ref.actor.policy_loss.loss_mode": "gspo",
            },
            {"ppo_kl": 1e-5, "clip_frac": 0.37},
            (),
        ),
        (
            "bypass",
            {"algorithm.rollout_correction.bypass_mode": True},
            {"ppo_kl": 0.0121, "clip_frac": 0.02},
            ("training/rollout_probs_diff_mean", "rollout_corr/k3_kl"),
        ),
        ("asynchronous", {"async_training.staleness_threshold": 1}, {"ppo_kl": 1e-3, "clip_frac": 0.01}, ()),
        ("LoRA", {"actor_rollout_ref.model.lora_rank": 64}, {"*gap": 1.5}, ()),
        (
            "other micro-batches",
            {"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 32},
            {"ppo_kl": 3.7e-5},
            (),
        ),
        ("FP8 engine", {"actor_rollout_ref.rollout.quantization": "fp8"}, {"*gap": 1.9}, ()),
        (
            "MoE with replayed routing",
            {"actor_rollout_ref.rollout.enable_rollout_routing_replay": True},
            {"ref_kl": 4e-3},
            (),
        ),
        (
            "resumed",
            {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/ckpt/global_step_200"},
            {"ref_kl": 0.02},
            (),
        ),
        ("no reference", {}, {}, ("actor/kl_loss",)),
        ("GAE", {"algorithm.adv_estimator": "gae"}, {"advantage": 0.8}, ()),
        ("long answers fail", {}, {"advantage": -0.1}, ()),
        (
            "no engine log-probs",
            {"data.train_files": "/data/other.parquet"},
            {},
            (
                "training/rollout_probs_diff_mean",
                "training/rollout_actor_probs_pearson_corr",
                "rollout_corr/k3_kl",
            ),
        ),
    ],
    "trl": [
        ("plain", {}, {"ref_kl": 0.0016, "clip_frac": 0.01}, ()),
        ("no engine", {"use_vllm": False}, {}, ("train/sampling/sampling_logp_difference/mean",)),
        (
            "averaged rows",
            {"logging_steps": 10},
            {"ref_kl": 0.03, "clip_frac": 0.03, "train/global_step": 10.0},
            (),
        ),
        ("LoRA", {"peft_config": {"r": 32}}, {"*gap": 1.2}, ()),
        ("no reference", {"beta": 0.0}, {}, ("train/kl",)),
        (
            "answers of one word",
            {"max_completion_length": 32},
            {"termination": 1.0, "learned:truncation": 1.0},
            (),
        ),
        ("FP16", {"fp16": True, "bf16": False}, {"*gap": 0.3}, ()),
        ("two iterations", {"num_iterations": 2}, {"clip_frac": 0.01}, ()),
    ],
    "openrlhf": [
        ("plain", {}, {}, ()),
        ("averaged rows", {"train.batch_size": 128}, {"ppo_kl": 2e-4, "clip_frac": 2e-3}, ()),
        ("asynchronous", {"train.async_enable": True}, {"ppo_kl": 2e-3, "clip_frac": 0.01}, ()),
        ("LoRA", {"ds.lora.rank": 32}, {}, ()),
        ("no correction", {}, {}, ("train/vllm_kl",)),
        ("no reference", {}, {}, ("train/kl",)),
    ],
    "nemo_rl": [
        ("plain", {}, {}, ()),
        ("averaged rows", {"policy.train_global_batch_size": 128}, {"ppo_kl": 1.0004}, ()),
        ("asynchronous", {"grpo.async_grpo.enabled": True}, {"ppo_kl": 1.0001, "*gap": 1.0}, ()),
        ("ratio of 1 by construction", {"loss_fn.force_on_policy_ratio": True}, {}, ()),
        (
            "exactly 0",
            {"policy.megatron_cfg.enabled": True, "policy.megatron_cfg.zero_train_gen_mismatch": True},
            {"gap": 1.0, "bound:k3": 0.0},
            (),
        ),
        ("no reference", {}, {}, ("train/kl_penalty",)),
    ],
    "skyrl": [
        ("plain", {}, {}, ()),
        ("averaged rows", {"trainer.policy_mini_batch_size": 64}, {"clip_frac": 2e-3, "ref_kl": 1e-3}, ()),
        ("asynchronous", {"trainer.fully_async.enabled": True}, {"clip_frac": 0.01, "ref_kl": 4e-3}, ()),
        ("LoRA", {"trainer.policy.model.lora.rank": 32}, {"*gap": 0.6}, ()),
        ("no reference", {}, {}, ("policy/policy_kl", "loss/avg_kl")),
    ],
    "prime_rl": [
        ("plain", {}, {}, ()),
        ("LoRA", {"model.lora.rank": 32}, {"*gap": 1.3}, ()),
        ("no orchestrator rows", {}, {}, ("is_truncated/all/mean", "reward/all/mean", "decode_len/all/mean")),
    ],
    "areal": [
        ("plain", {}, {}, ()),
        (
            "averaged rows",
            {"actor.ppo_n_minibatches": 4},
            {"ppo_kl": 2e-4, "clip_frac": 2e-3, "ratio": 1.0004},
            (),
        ),
        (
            "old log-probs of the engine",
            {"actor.recompute_logprob": False, "actor.use_decoupled_loss": False},
            {"ppo_kl": 0.008, "clip_frac": 0.02, "ratio": 1.003},
            ("ppo_actor/update/behave_approx_kl/avg",),
        ),
        ("LoRA", {"actor.use_lora": True}, {}, ()),
    ],
    "unsloth": [
        ("plain", {}, {}, ()),
        ("default: no correction", {"vllm_importance_sampling_correction": False}, {}, ("train/sampling/sampling_logp_difference/mean",)),
        ("ten steps a row", {"logging_steps": 10}, {"clip_frac": 2e-3, "ref_kl": 1.6e-3}, ()),
    ],
    "ms_swift": [
        ("plain", {}, {}, ()),
        ("default: no off-policy metrics", {"log_rollout_offpolicy_metrics": False}, {}, ("train/rollout_correction/k3_kl", "train/rollout_correction/is_weight_mean", "train/rollout_correction/ess")),
        ("LoRA", {"tuner_type": "lora"}, {"*gap": 1.4}, ()),
    ],
    "rlinf": [
        ("plain", {}, {"ppo_kl": 2e-5}, ()),
        ("old log-probs of the engine", {"algorithm.recompute_logprobs": False}, {"ppo_kl": 0.0074, "clip_frac": 0.046, "ratio": 1.003}, ("actor/training/actor/rollout_train_kl",)),
        ("LoRA", {"actor.model.is_lora": True}, {}, ()),
    ],
    "open_instruct": [
        ("plain", {}, {}, ()),
        ("averaged rows", {"num_mini_batches": 4}, {"clip_frac": 2e-3, "ratio": 1.0004}, ()),
        ("no reference", {"load_ref_policy": False}, {}, ("objective/kl3_avg",)),
    ],
    "torchtitan": [
        ("plain", {}, {"clip_frac": 2e-3}, ()),
        ("batch-invariant", {"trainer.debug.batch_invariant": True, "generator.debug.batch_invariant": True}, {"gap": 0.0, "bound:signed-mean": 0.0}, ()),
    ],
    "trl_ppo": [
        ("plain", {}, {"ppo_kl": 2e-6}, ()),
        ("four epochs", {"num_ppo_epochs": 4}, {"ppo_kl": 0.39, "clip_frac": 0.52}, ()),
    ],
    "tunix": [
        ("plain", {}, {"ppo_kl": 3e-6}, ()),
        ("old log-probs of the engine", {"rl_training_config.use_rollout_logps": True}, {"ppo_kl": 3e-4, "clip_frac": 1e-3}, ()),
        ("ratio of 1 by construction", {"force_on_policy_ratio": True}, {}, ()),
    ],
    "roll": [
        ("plain", {}, {}, ()),
        ("averaged rows", {"init_kl_coef": 0.2}, {"ppo_kl": 2e-4, "clip_frac": 1e-3}, ()),
    ],
    "tinker": [
        ("plain", {}, {}, ()),
        ("asynchronous", {"async_config": {"max_steps_off_policy": 2}}, {}, ()),
    ],
}  # fmt: skip


def variants_of(profile: Profile) -> list[Variant]:
    """Return the legal variants of a framework."""
    return [
        Variant(title, _changed(profile.name, changes), row, frozenset(without))
        for title, changes, row, without in _KINDS.get(profile.name, [("plain", {}, {}, ())])
    ]
