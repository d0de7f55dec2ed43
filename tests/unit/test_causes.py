"""The catalog of causes: for each one a run that shows it."""

import tomllib
from importlib import resources

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.profiles.causes import Evidence, blind_spots, find_causes

PROFILES = load_profiles().by_name
CATALOG = tomllib.loads(
    resources.files("step0_wandb").joinpath("profiles", "lists", "causes.toml").read_text(encoding="utf-8")
)
MILES = {
    "hf_checkpoint": "/models/Qwen3-0.6B",
    "load": "/models/Qwen3-0.6B_torch_dist",
    "ref_load": "/models/Qwen3-0.6B_torch_dist",
    "save": "/out",
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "rollout_temperature": 1.0,
    "megatron_to_hf_mode": "bridge",
    "rotary_base": 1000000,
    "rollout_num_gpus_per_engine": 1,
    "num_gpus_per_node": 8,
    "sglang_kv_cache_dtype": "auto",
    "update_weights_interval": 1,
}
ONE_STEP = {"num_steps_per_rollout": 1}
GAP, KL = {"gap"}, {"ppo_kl", "clip_frac"}


def nested(path, *, value):
    """Return a config that has one value under a dotted path."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def peer_ratios(**ratios):
    """Return the rows of a run and of its peers that differ by these factors."""
    names = {"response_length": "rollout/response_len/mean", "entropy": "train/entropy_loss"}
    peers = [{names[key]: 100.0 * noise for key in ratios} for noise in (0.9, 1.0, 1.1)]
    return {"row": {names[key]: 100.0 * ratio for key, ratio in ratios.items()}, "peer_rows": peers}


SHOWN = [
    ("wrong-checkpoint", "miles", {**MILES, "load": "/models/Qwen3-1.7B_torch_dist"}, GAP, {}),
    ("wrong-reference", "slime", {**MILES, "ref_load": "/models/Qwen3-1.7B_torch_dist"}, GAP, {}),
    ("wrong-architecture", "miles", {**MILES, "num_layers": 36, "hidden_size": 2560}, GAP, {}),
    ("not-updated", "miles", {**MILES, "debug_skip_weight_update": True}, GAP, {}),
    ("not-updated", "miles", {**MILES, "lora_train_only": True}, GAP, {}),
    ("resumed", "miles", {**MILES, "load": "/out/Qwen3-0.6B", "save": "/out/Qwen3-0.6B"}, GAP, {}),
    ("conversion", "vime", {**MILES, "megatron_to_hf_mode": "raw"}, GAP, {"differs": ["megatron_to_hf_mode"]}),
    ("conversion", "miles", {**MILES, "megatron_to_hf_mode": "raw", "expert_model_parallel_size": 8}, GAP, {}),
    ("rope", "miles", {**MILES, "rotary_base": 10000}, GAP, {"differs": ["rotary_base"]}),
    ("rope", "miles", {**MILES, "rotary_base": 10000, "rope_theta": 1000000}, GAP, {}),
    ("embeddings", "miles", MILES, GAP, {"differs": ["untie_embeddings_and_output_weights"]}),
    ("dropout", "miles", {**MILES, "attention_dropout": 0.1, "hidden_dropout": 0.1}, KL, {}),
    ("dropout-in-the-gap", "slime", {**MILES, **ONE_STEP, "hidden_dropout": 0.1}, GAP, {}),
    ("lora-dropout", "miles", {**MILES, "lora_dropout": 0.05}, KL, {}),
    ("lora-dropout", "skyrl", nested("trainer.policy.model.lora.dropout", value=0.1), {"clip_frac"}, {}),
    ("lora-dropout", "openrlhf", {"ds": "namespace(lora=namespace(rank=8, dropout=0.1))"}, KL, {}),
    ("model-dropout", "trl", {"attention_dropout": 0.1, "disable_dropout": False}, {"clip_frac"}, {}),
    ("micro-batches", "verl", nested("actor_rollout_ref.actor.shuffle", value=True), KL, {}),
    ("log-prob-batch", "nemo_rl", {"policy": {"logprob_batch_size": 8, "train_micro_batch_size": 4}}, {"ppo_kl"}, {}),
    ("attention", "areal", nested("actor.attn_impl", value="sdpa"), GAP, {}),
    ("not-deterministic", "areal", nested("actor.backend", value="megatron:d4"), KL, {}),
    ("not-truly-on-policy", "miles", {**MILES, "true_on_policy_mode": True}, GAP, {}),
    ("exact-zero-sampler", "miles", {**MILES, "true_on_policy_mode": True, "rollout_top_p": 0.9, "sglang_enable_deterministic_inference": True}, GAP, {}),
    ("exact-zero-precision", "miles", {**MILES, "true_on_policy_mode": True, "sglang_quantization": "fp8", "sglang_enable_deterministic_inference": True}, GAP, {}),
    ("unequal-dtype", "miles", {**MILES, "fp16": True, "sglang_dtype": "bfloat16"}, GAP, {}),
    ("unequal-dtype", "areal", {"actor": {"dtype": "bfloat16"}, "sglang": {"dtype": "float16"}}, GAP, {}),
    ("old-policy", "miles", {**MILES, "keep_old_actor": True}, KL, {}),
    ("masked-nan", "miles", MILES, {"gap-zero"}, {"values": {"gap": 0.0}}),
    ("sampler", "miles", {**MILES, "rollout_top_p": 0.95, "rollout_top_k": 64}, GAP, {}),
    ("sampler-raw", "vime", {**MILES, "vllm_logprobs_mode": "raw_logprobs", "rollout_temperature": 0.6}, GAP, {}),
    ("sampler-raw", "skyrl", nested("generator.sampling_params.temperature", value=0.6), GAP, {}),
    ("sampler-cut-trl", "trl", {"use_vllm": True, "top_p": 0.8}, GAP, {}),
    ("sampler-cut", "verl", nested("actor_rollout_ref.rollout.top_k", value=20), GAP, {}),
    ("engine-precision", "miles", {**MILES, "hf_checkpoint": "/models/Qwen3-0.6B-FP8"}, GAP, {}),
    ("engine-precision", "verl", nested("actor_rollout_ref.rollout.quantization", value="fp8"), GAP, {}),
    ("kv-cache", "miles", {**MILES, "sglang_kv_cache_dtype": "fp8_e5m2"}, GAP, {}),
    ("trainer-precision", "miles", {**MILES, "fp8": "e4m3"}, KL, {}),
    ("large-engine", "miles", {**MILES, "rollout_num_gpus_per_engine": 16}, GAP, {}),
    ("large-engine-verl", "verl", {"actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 16}}, "trainer": {"n_gpus_per_node": 8}}, GAP, {}),
    ("routing", "miles", {**MILES, "num_experts": 128}, GAP, {}),
    ("stale", "miles", {**MILES, "fully_async": True}, GAP, {}),
    ("stale-elsewhere", "verl", nested("trainer.v1.trainer_mode", value="separate_async"), GAP, {}),
    ("off-policy", "nemo_rl", nested("policy.train_global_batch_size", value=128), {"ppo_kl"}, {}),
    ("multi-turn", "miles", {**MILES, "custom_generate_function_path": "my.agent"}, GAP, {}),
    ("multi-turn", "verl", nested("actor_rollout_ref.rollout.multi_turn.enable", value=True), GAP, {}),
    ("other-answers", "miles", MILES, GAP, peer_ratios(response_length=2.4, entropy=1.0)),
    ("other-answers", "miles", MILES, GAP, peer_ratios(entropy=0.3)),
    ("setup-moved", "miles", MILES, GAP, {"moved": True}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "profile", "config", "failed", "known"), SHOWN)
def test_a_cause_that_the_config_shows_is_named_first_or_second(name, profile, config, failed, known):
    found = find_causes(PROFILES[profile], Evidence(config, failed, **known))
    assert name in [cause.name for cause in found[:2]]
    cause = next(cause for cause in found if cause.name == name)
    assert cause.text
    assert cause.advice
    assert "{" not in cause.text
    assert "None" not in cause.text


def test_every_cause_of_the_catalog_has_a_run_that_shows_it():
    names = [entry["name"] for entry in CATALOG["cause"]]
    assert set(names) == {name for name, *_ in SHOWN}
    assert len(names) == len(set(names))
    known = {profile for entry in CATALOG["cause"] for profile in entry.get("profiles", ())}
    assert known <= set(PROFILES)


def test_a_sentence_shows_the_values_of_the_config():
    config = {**MILES, "attention_dropout": 0.1, "hidden_dropout": 0.0}
    (cause, *_) = find_causes(PROFILES["miles"], Evidence(config, {"ppo_kl"}))
    assert cause.text.startswith("dropout is on (attention_dropout 0.1, hidden_dropout 0)")
    assert cause.advice == "set --attention-dropout 0 --hidden-dropout 0"


def test_what_contradicts_itself_comes_before_what_is_known_to_do_this():
    config = {
        **MILES,
        "num_experts": 128,
        "load": "/models/Other",
        "custom_generate_function_path": "my.agent",
    }
    ranks = [cause.rank for cause in find_causes(PROFILES["miles"], Evidence(config, GAP))]
    assert ranks == sorted(ranks)
    assert ranks[0] == 1


@pytest.mark.parametrize(
    ("row", "peer"),
    [
        ({}, {"rollout/response_len/mean": 300.0}),
        ({"rollout/response_len/mean": 900.0}, {}),
        ({"rollout/response_len/mean": 900.0}, {"rollout/response_lengths": 300.0}),
        ({"rollout/response_len/mean": float("nan")}, {"rollout/response_len/mean": 300.0}),
        ({"rollout/response_len/mean": float("inf")}, {"rollout/response_len/mean": 300.0}),
        ({"rollout/response_len/mean": 900.0}, {"rollout/response_len/mean": 0.0}),
    ],
)
def test_a_number_that_one_side_lacks_is_no_cause(row, peer):
    evidence = Evidence({"a": 1}, {"gap"}, row=row, peers=[{"a": 1}], peer_rows=[peer])
    assert find_causes(PROFILES["miles"], evidence) == []


def test_answers_of_another_length_are_told_with_both_lengths():
    rows = {"row": {"rollout/response_len/mean": 0.0}, "peer_rows": [{"rollout/response_len/mean": 1823.5}]}
    [cause] = find_causes(PROFILES["miles"], Evidence({"a": 1}, {"gap"}, peers=[{"a": 1}], **rows))
    assert "(response length 0, healthy runs: 1823.5)" in cause.text


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_a_run_whose_checks_pass_has_no_cause(profile):
    config = {**MILES, "attention_dropout": 0.1, "num_experts": 128}
    assert find_causes(profile, Evidence(config, set(), moved=True)) == []


@pytest.mark.parametrize("failed", [GAP, KL])
def test_the_healthy_defaults_of_miles_show_no_cause(failed):
    assert find_causes(PROFILES["miles"], Evidence(MILES, failed)) == []


def test_a_cause_that_most_healthy_peers_share_explains_nothing():
    config = {**MILES, "num_experts": 128}
    miles = PROFILES["miles"]
    assert find_causes(miles, Evidence(config, GAP, peers=[config, config, MILES])) == []
    assert find_causes(miles, Evidence(config, GAP, peers=[config, MILES, MILES]))
    assert find_causes(miles, Evidence(config, GAP))


def test_a_cause_of_another_check_is_not_named():
    config = {**MILES, "attention_dropout": 0.1}
    assert find_causes(PROFILES["miles"], Evidence(config, GAP)) == []


def test_a_converted_or_quantized_copy_is_no_other_model():
    config = {**MILES, "hf_checkpoint": "/models/Qwen2.5-Math-7B-FP8"}
    config |= {
        "load": "/m/Qwen2.5-Math-7B_torch_dist",
        "ref_load": "/m/Qwen2.5-Math-7B_torch_dist",
        "fp8": "e4m3",
    }
    names = [cause.name for cause in find_causes(PROFILES["slime"], Evidence(config, GAP))]
    assert not {"wrong-checkpoint", "wrong-reference", "engine-precision"} & set(names)


@pytest.mark.parametrize("peer_rows", [[], [{"rollout/response_len/mean": 0.0}], [{"train/loss": 1.0}]])
def test_answers_are_compared_only_where_peers_have_some(peer_rows):
    evidence = Evidence(MILES, GAP, row={"rollout/response_len/mean": 900.0}, peer_rows=peer_rows)
    assert find_causes(PROFILES["miles"], evidence) == []


@pytest.mark.parametrize(
    ("profile", "config", "says"),
    [
        ("miles", {"lora_rank": 16}, "fresh LoRA"),
        ("trl", {"peft_config": {"r": 8}}, "fresh LoRA"),
        ("verl", nested("actor_rollout_ref.model.lora_rank", value=32), "fresh LoRA"),
        ("areal", nested("actor.use_lora", value=True), "fresh LoRA"),
        ("miles", {"fully_async": True}, "asynchronous"),
        ("prime_rl", {"max_off_policy_steps": 8}, "asynchronous"),
        ("trl", {"vllm_enable_sleep_mode": True}, "sleeping engine"),
        ("trl", {"cast_lm_head_to_fp32": True}, "fp32"),
    ],
)
def test_what_step_0_cannot_see_is_said(profile, config, says):
    (sentence,) = blind_spots(PROFILES[profile], config)
    assert says in sentence


def test_nothing_is_said_of_what_a_run_does_not_do():
    assert blind_spots(PROFILES["miles"], MILES) == []


@pytest.mark.parametrize(
    "config",
    [
        {"hf_checkpoint": "/models/Qwen3-4B", "load": "/ckpt/exp7", "save": "/ckpt/exp7"},
        {"hf_checkpoint": "/models/Qwen3-4B", "load": "/root/Qwen3-4B_slime", "save": "/root/Qwen3-4B_slime"},
        {"hf_checkpoint": "/data/sft/exp20/checkpoint-1200", "ref_load": "/data/sft/exp20/dist"},
        {"hf_checkpoint": "/sft/qwen3-0.6b-math/checkpoint-700", "ref_load": "/dist/qwen3-0.6b-math_torch_dist"},
        {"hf_checkpoint": "/models/Qwen3-4B-FP8", "ref_load": "/models/qwen3_4b_mcore", "num_layers": 36, "hidden_size": 2560},
    ],
)  # fmt: skip
def test_no_other_model_is_named_without_evidence(config):
    names = [cause.name for cause in find_causes(PROFILES["miles"], Evidence(config, GAP | KL))]
    assert not {"wrong-checkpoint", "wrong-reference", "wrong-architecture"} & set(names)


def test_two_checkpoints_of_one_training_are_evidence():
    config = {
        "hf_checkpoint": "/sft/q-math/checkpoint-500",
        "ref_load": "/sft/q-math/checkpoint-700_torch_dist",
    }
    found = find_causes(PROFILES["miles"], Evidence(config, GAP))
    assert found[0].name == "wrong-reference"
    assert (
        "names another checkpoint of its training than hf_checkpoint (/sft/q-math/checkpoint-500)"
        in found[0].text
    )


def test_a_resumed_run_is_told_to_go_on_from_a_checkpoint_first():
    config = {**MILES, "load": "/ckpt/exp7", "save": "/ckpt/exp7"}
    assert find_causes(PROFILES["miles"], Evidence(config, GAP))[0].name == "resumed"


@pytest.mark.parametrize(
    ("profile", "config"),
    [
        ("miles", {"rollout_top_p": 0.95, "rollout_top_k": 64, "use_sampling_support_replay": True}),
        ("skyrl", nested("generator.sampling_params.top_k", value=20) | nested("trainer.algorithm.enable_sample_support_replay", value=True)),
    ],
)  # fmt: skip
def test_a_sampler_that_the_trainer_replays_is_no_cause_and_another_setup(profile, config):
    names = [cause.name for cause in find_causes(PROFILES[profile], Evidence(config, GAP))]
    assert not {"sampler", "sampler-cut"} & set(names)
    assert "sampler=replayed" in PROFILES[profile].setup_label(config, None)


def test_dropout_of_a_gpt2_is_found_under_its_own_names():
    config = {
        "_name_or_path": "gpt2",
        "attn_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "disable_dropout": False,
    }
    found = find_causes(PROFILES["trl"], Evidence(config, {"clip_frac"}))
    assert found[0].name == "model-dropout"
    assert "attn_pdrop" in found[0].text
