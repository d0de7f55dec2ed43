import math
import re
import tomllib

import pytest

from step0_wandb.errors import UsageError
from step0_wandb.profiles import load_profile, load_profiles

GAP = "train/train_rollout_logprob_abs_diff"
PROFILES = load_profiles()
MILES = PROFILES.by_name["miles"]
SLIME = PROFILES.by_name["slime"]
VERL = PROFILES.by_name["verl"]

MINIMAL = """
name = "mine"
title = "My framework"
setup = [{label = "model", value = "model(path)"}]
[metrics]
ppo_kl = ["loss/kl"]
[step]
keys = ["step"]
first = "0"
"""


def write(tmp_path, text, name="mine.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def verl(**actor):
    """Return a verl config that is on-policy, with changes to its actor table."""
    table = {"ppo_mini_batch_size": 256, "ppo_epochs": 1, "ppo_micro_batch_size_per_gpu": 4, **actor}
    rollout = {"name": "vllm", "log_prob_micro_batch_size_per_gpu": 4}
    return {"data": {"train_batch_size": 256}, "actor_rollout_ref": {"actor": table, "rollout": rollout}}


# --- which profile -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, "miles"),
        ({"use_miles_router": False, "sglang_router_ip": None}, "miles"),
        ({"rollout_function_path": "miles.rollout.sglang_rollout.generate_rollout"}, "miles"),
        ({"use_slime_router": False}, "slime"),
        ({"slime_router_middleware_paths": ""}, "slime"),
        ({"rollout_function_path": "slime.rollout.sglang_rollout.generate_rollout"}, "slime"),
        (
            {"rollout_function_path": "my.rollout", "data_source_path": "slime.rollout.data_source.Buffer"},
            "slime",
        ),
        ({"vllm_quantization": None}, "vime"),
        ({"rollout_function_path": "vime.rollout.vllm_rollout.generate_rollout"}, "vime"),
    ],
)
def test_frameworks_that_share_metric_names_are_told_apart_by_the_config(config, name):
    assert PROFILES.pick({"train/ppo_kl", "train/pg_clipfrac", GAP}, config).name == name


@pytest.mark.parametrize(
    ("metrics", "name"),
    [
        ({"actor/ppo_kl", "actor/pg_clipfrac"}, "verl"),
        ({"train/ppo_kl", "train/ppo_clip_ratio"}, "openrlhf"),
        ({"train/clip_ratio/region_mean"}, "trl"),
        ({"train/probs_ratio", "train/gen_kl_error"}, "nemo_rl"),
        ({"policy/ppo_clip_ratio"}, "skyrl"),
        ({"mismatch_kl/all/mean"}, "prime_rl"),
        ({"ppo_actor/update/approx_kl/avg"}, "areal"),
    ],
)
def test_the_metric_names_tell_the_framework(metrics, name):
    assert PROFILES.pick(metrics, {}).name == name


@pytest.mark.parametrize("metrics", [set(), {"loss", "train/loss", "train/global_step"}])
def test_a_run_without_any_known_metric_has_no_profile(metrics):
    assert PROFILES.pick(metrics, {}) is None


# --- setups --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "label"),
    [
        ({"hf_checkpoint": "/models/Qwen3-0.6B"}, "miles · Qwen3-0.6B"),
        (
            {"hf_checkpoint": "/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de2"},
            "miles · Qwen3-0.6B",
        ),
        (
            {"hf_checkpoint": "q/Qwen3-0.6B", "rollout_top_p": 0.95, "rollout_top_k": 64},
            "miles · Qwen3-0.6B · top_p=0.95 top_k=64",
        ),
        ({"hf_checkpoint": "q/M", "rollout_temperature": "1.0", "rollout_top_k": "-1"}, "miles · M"),
        ({"hf_checkpoint": "q/M", "rollout_temperature": 1, "rollout_top_p": 1}, "miles · M"),
        ({"hf_checkpoint": "q/M", "rollout_top_k": 0}, "miles · M"),
        ({"hf_checkpoint": "q/M", "rollout_temperature": 0.6}, "miles · M · temperature=0.6"),
        ({"hf_checkpoint": "q/M", "train_backend": "fsdp"}, "miles · M · backend=fsdp"),
        ({"hf_checkpoint": "q/M", "fp8": "e4m3", "fp8_recipe": "blockwise"}, "miles · M · trainer=fp8"),
        ({"hf_checkpoint": "q/M", "fp8": None, "fp8_recipe": "delayed"}, "miles · M"),
        ({"hf_checkpoint": "q/M", "fp16": True}, "miles · M · trainer=fp16"),
        ({"hf_checkpoint": "q/M", "sglang_quantization": "fp8"}, "miles · M · engine=fp8"),
        ({"hf_checkpoint": "q/M", "sglang_kv_cache_dtype": "auto"}, "miles · M"),
        ({"hf_checkpoint": "q/M", "sglang_kv_cache_dtype": "fp8_e5m2"}, "miles · M · kv_cache=fp8_e5m2"),
        ({"hf_checkpoint": "q/M", "lora_rank": 16}, "miles · M · lora=yes"),
        ({"hf_checkpoint": "q/M", "true_on_policy_mode": True}, "miles · M · true_on_policy=yes"),
        ({"hf_checkpoint": "q/M", "use_routing_replay": True}, "miles · M · routing_replay=trainer"),
        (
            {"hf_checkpoint": "q/M", "use_routing_replay": True, "use_rollout_routing_replay": True},
            "miles · M · routing_replay=rollout",
        ),
        ({}, "miles · model?"),
    ],
)
def test_a_setup_is_named_by_the_model_and_what_differs_from_the_defaults(config, label):
    assert MILES.setup_label(config, GAP) == label


@pytest.mark.parametrize(
    "wrong",
    [
        {"load": "/elsewhere"},
        {"ref_load": "/elsewhere"},
        {"attention_dropout": 0.1, "hidden_dropout": 0.1},
        {"use_rollout_logprobs": True},
        {"megatron_to_hf_mode": "raw"},
        {"rotary_base": 10000},
        {"a_new_option": 1},
    ],
)
def test_what_can_be_wrong_and_what_is_new_does_not_split_a_setup(wrong):
    assert MILES.setup_label({"hf_checkpoint": "q/M", **wrong}, GAP) == "miles · M"


def test_another_gap_statistic_is_another_setup():
    config = {"actor_rollout_ref": {"model": {"path": "q/M"}, "rollout": {"name": "vllm"}}}
    assert VERL.setup_label(config, "training/rollout_probs_diff_mean") == "verl · M"
    assert VERL.setup_label(config, None) == "verl · M"
    assert VERL.setup_label(config, "rollout_corr/k3_kl") == "verl · M · rollout_corr/k3_kl"


def test_settings_add_drop_and_replace_setup_keys():
    config = {"hf_checkpoint": "q/M", "context_parallel_size": 2, "rollout_top_p": 0.9, "rollout_top_k": 64}
    changed = PROFILES.with_setups(
        {"miles": {"add": ["context_parallel_size"], "drop": ["rollout_top_p"], "keys": None}}
    )
    assert changed.by_name["miles"].setup_label(config, GAP) == "miles · M · top_k=64 context_parallel_size=2"
    replaced = PROFILES.with_setups({"miles": {"keys": ["model", "top_p"], "add": [], "drop": []}})
    assert replaced.by_name["miles"].setup_label(config, GAP) == "miles · M · top_p=0.9"
    assert len({PROFILES.fingerprint, changed.fingerprint, replaced.fingerprint}) == 3


def test_without_changes_the_profiles_stay_the_same():
    assert PROFILES.with_setups({}).fingerprint == PROFILES.fingerprint


def test_a_raw_key_is_taken_by_its_value():
    config = {
        "actor_rollout_ref": {"model": {"path": "/sft/qwen3-4b/checkpoint-5"}, "rollout": {"name": "vllm"}}
    }
    changed = PROFILES.with_setups({"verl": {"add": ["actor_rollout_ref.model.path"]}}).by_name["verl"]
    label = "verl · qwen3-4b · path=/sft/qwen3-4b/checkpoint-5"
    assert changed.setup_label(config, "training/rollout_probs_diff_mean") == label
    replaced = PROFILES.with_setups({"verl": {"keys": ["actor_rollout_ref.model.path"]}}).by_name["verl"]
    label = "verl · path=/sft/qwen3-4b/checkpoint-5"
    assert replaced.setup_label(config, "training/rollout_probs_diff_mean") == label


def test_a_raw_key_that_a_named_part_reads_drops_the_setup_keys_that_use_it():
    config = {"hf_checkpoint": "q/M", "rollout_top_p": 0.9, "use_sampling_support_replay": True}
    assert "sampler=replayed" in PROFILES.by_name["miles"].setup_label(config, GAP)
    changed = PROFILES.with_setups({"miles": {"drop": ["use_sampling_support_replay"]}}).by_name["miles"]
    assert changed.setup_label(config, GAP) == "miles · M · top_p=0.9"


def test_two_raw_keys_that_end_alike_keep_their_whole_names():
    changed = PROFILES.with_setups({"verl": {"add": ["data.seed", "trainer.seed"]}}).by_name["verl"]
    config = {"actor_rollout_ref": {"model": {"path": "q/M"}}, "data": {"seed": 1}, "trainer": {"seed": 2}}
    assert changed.setup_label(config, None) == "verl · M · seed=1 trainer.seed=2"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mils": {}}, "mils"),
        ({"miles": {"drop": ["rollout_topp"]}}, "rollout_topp.*has no effect"),
        ({"miles": {"add": ["model"]}}, "model.*has no effect"),
        ({"miles": {"add": ["rollout_temperature"]}}, "rollout_temperature.*has no effect"),
        ({"miles": {"add": ["x", "x"]}}, "x.*has no effect"),
        ({"miles": {"keys": ["model", "model"]}}, "keys names 'model'.*has no effect"),
        ({"verl": {"keys": [key.label for key in reversed(VERL.setup)]}}, "keys are.*no effect"),
    ],
)
def test_settings_that_name_what_does_not_exist_are_refused(changes, named):
    with pytest.raises(UsageError, match=named) as caught:
        PROFILES.with_setups(changes)
    assert caught.value.hint.startswith("There are: ")


def test_the_model_and_the_gpus_of_a_run_are_read():
    config = {
        "hf_checkpoint": "q/M",
        "actor_num_nodes": 2,
        "actor_num_gpus_per_node": 8,
        "rollout_num_gpus": 16,
    }
    assert MILES.model(config) == "M"
    assert MILES.gpu_count(config) == 32
    assert MILES.gpu_count({**config, "colocate": True}) == 16
    assert MILES.gpu_count({}) is None
    assert MILES.model({}) is None


# --- the plan: the table of limits ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["miles", "slime", "vime"])
@pytest.mark.parametrize(
    ("config", "kind", "limit", "above"),
    [
        ({}, "exact", 1e-9, "broken"),
        ({"fp16": True}, "exact", 1e-9, "broken"),
        ({"fp8": "e4m3"}, "learned", 1e-3, "suspect"),
        ({"fp4": "e2m1"}, "learned", 1e-3, "suspect"),
        ({"fp8": None, "fp8_recipe": "blockwise"}, "exact", 1e-9, "broken"),
        ({"multi_latent_attention": True}, "learned", 1e-3, "suspect"),
        ({"train_backend": "fsdp"}, "exact", 1e-9, "suspect"),
        ({"train_backend": "fsdp", "fp8": "e4m3"}, "exact", 1e-9, "suspect"),
        ({"use_rollout_logprobs": True}, "skipped", None, "suspect"),
    ],
)
def test_the_limit_of_ppo_kl_follows_backend_and_precision(name, config, kind, limit, above):
    rule = PROFILES.by_name[name].plan(config, GAP).ppo_kl
    assert (rule.kind, rule.limit, rule.above) == (kind, limit, above)
    assert rule.broken_from == 1e-2


@pytest.mark.parametrize(
    ("config", "kind", "above"),
    [
        ({}, "exact", "broken"),
        ({"train_backend": "fsdp"}, "exact", "suspect"),
        ({"fp8": "e4m3"}, "learned", "suspect"),
        ({"multi_latent_attention": True}, "learned", "suspect"),
    ],
)
def test_the_clip_fraction_has_one_limit_and_follows_the_same_rules(config, kind, above):
    rule = MILES.plan(config, GAP).clip_frac
    assert (rule.kind, rule.limit, rule.above, rule.broken_from) == (kind, 1e-10, above, 5e-2)


def test_lora_has_a_wider_limit_of_its_own():
    rule = MILES.plan({"lora_rank": 32}, GAP).ppo_kl
    assert (rule.kind, rule.limit, rule.above) == ("exact", 1e-8, "broken")


def test_log_probs_that_are_the_training_forward_itself_prove_nothing():
    rule = MILES.plan({"skip_actor_forward_only": True}, GAP).ppo_kl
    assert rule.kind == "vacuous"
    assert "skip_actor_forward_only" in rule.why
    assert rule.limit == 1e-9


ONE_STEP = {"rollout_batch_size": 32, "n_samples_per_prompt": 8, "global_batch_size": 256}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (ONE_STEP, "vacuous"),
        ({"num_steps_per_rollout": 1}, "vacuous"),
        ({**ONE_STEP, "use_kl_loss": True, "use_tis": True}, "vacuous"),
        ({**ONE_STEP, "use_routing_replay": True, "use_rollout_routing_replay": True}, "vacuous"),
        ({**ONE_STEP, "global_batch_size": 128}, "exact"),
        ({**ONE_STEP, "num_steps_per_rollout": 4}, "exact"),
        ({**ONE_STEP, "kl_coef": 0.1}, "exact"),
        ({**ONE_STEP, "get_mismatch_metrics": True}, "exact"),
        ({**ONE_STEP, "use_critic": True}, "exact"),
        ({**ONE_STEP, "keep_old_actor": True}, "exact"),
        ({**ONE_STEP, "use_opd": True}, "exact"),
        ({**ONE_STEP, "use_routing_replay": True}, "exact"),
        ({**ONE_STEP, "advantage_estimator": "gspo"}, "exact"),
        ({**ONE_STEP, "loss_type": "custom_loss"}, "exact"),
    ],
)
def test_slime_reuses_the_training_forward_with_one_step_a_rollout(config, kind):
    assert SLIME.plan(config, GAP).ppo_kl.kind == kind


@pytest.mark.parametrize(
    ("config", "kl", "clip"),
    [
        ({}, "averaged", "averaged"),
        (verl(), "exact", "exact"),
        (verl(ppo_epochs=2), "averaged", "averaged"),
        (verl(ppo_mini_batch_size=64), "averaged", "averaged"),
        (verl(ppo_micro_batch_size_per_gpu=8), "learned", "averaged"),
        (verl(shuffle=True), "learned", "averaged"),
        (verl(use_dynamic_bsz=True, ppo_max_token_len_per_gpu=16384), "exact", "exact"),
        (verl(policy_loss={"loss_mode": "kl_cov"}), "exact", "skipped"),
        (verl() | {"algorithm": {"rollout_correction": {"bypass_mode": True}}}, "skipped", "skipped"),
        (verl() | {"trainer": {"v1": {"trainer_mode": "separate_async"}}}, "averaged", "averaged"),
        (verl() | {"trainer": {"v1": {"trainer_mode": "sync"}}}, "exact", "exact"),
        (verl() | {"async_training": {}}, "averaged", "averaged"),
    ],
)
def test_verl_is_exact_only_when_a_row_is_one_optimizer_step_of_the_same_passes(config, kl, clip):
    plan = VERL.plan(config, None)
    assert (plan.ppo_kl.kind, plan.clip_frac.kind) == (kl, clip)


def test_the_gap_must_be_zero_in_true_on_policy_mode_and_lie_in_a_range_elsewhere():
    assert MILES.plan({"true_on_policy_mode": True}, GAP).gap.kind == "zero"
    assert MILES.plan({}, GAP).gap.kind == "range"
    assert MILES.plan({}, None).gap.kind == "skipped"


def test_a_gap_of_zero_is_explained_where_the_config_shows_why():
    assert "use_rollout_logprobs" in MILES.plan({"use_rollout_logprobs": True}, GAP).gap_zero
    assert SLIME.plan({"use_rollout_logprobs": True}, GAP).gap_zero == ""


@pytest.mark.parametrize(
    ("name", "metric", "ceiling"),
    [
        ("miles", GAP, 0.03),
        ("slime", GAP, 0.03),
        ("vime", GAP, 0.03),
        ("verl", "training/rollout_probs_diff_mean", 0.01),
        ("verl", "rollout_corr/k3_kl", None),
        ("trl", "train/sampling/sampling_logp_difference/mean", None),
        ("skyrl", "policy/rollout_train_logprobs_abs_diff_mean", None),
    ],
)
def test_a_ceiling_is_what_the_framework_itself_states(name, metric, ceiling):
    assert PROFILES.by_name[name].plan({}, metric).ceiling == ceiling


@pytest.mark.parametrize("profile", PROFILES.by_name.values(), ids=lambda profile: profile.name)
def test_every_rule_that_checks_nothing_says_why(profile):
    for gap in (None, *(gap.metric for gap in profile.metrics.gap)):
        plan = profile.plan({}, gap)
        for rule in (plan.ppo_kl, plan.clip_frac, plan.gap):
            assert rule.why or rule.kind in ("exact", "range", "zero")
        assert plan.ceiling is None or plan.ceiling_from
        assert gap is not None or plan.switch


# --- switches ------------------------------------------------------------------------------------

SWITCHES = """
[[switch]]
brings = ["gap"]
kind = "key"
set = "rollout.logprobs=1"
when = "not rollout.logprobs"
[[switch]]
brings = ["gap", "ppo_kl"]
kind = "default"
why = "losses of RL log it"
"""


def test_a_missing_gap_is_told_with_the_switches_that_are_not_set(tmp_path):
    profile = load_profile(write(tmp_path, MINIMAL + SWITCHES))
    assert (
        profile.plan({}, None).switch
        == "My framework logs the gap with rollout.logprobs=1; losses of RL log it"
    )
    assert profile.plan({"rollout": {"logprobs": 1}}, None).switch == "losses of RL log it"
    assert [entry.kind for entry in profile.switches({}, "ppo_kl")] == ["default"]
    assert not profile.switches({}, "exact_zero")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('brings = ["gap"]\nkind = "key"', "says what to set"),
        ('brings = ["gap"]\nkind = "default"\nset = "x"', "says what to set"),
        ('brings = ["gap"]\nkind = "default"', "a default says why"),
        ('brings = ["gpa"]\nkind = "flag"\nset = "--x"', "switch.brings names gpa: take one of clip_frac"),
        ('brings = []\nkind = "flag"\nset = "--x"', "brings"),
    ],
)
def test_a_switch_that_says_too_little_is_refused(tmp_path, entry, message):
    with pytest.raises(UsageError, match=message):
        load_profile(write(tmp_path, f"{MINIMAL}[[switch]]\n{entry}\n"))


# --- variants ------------------------------------------------------------------------------------


def test_a_variant_has_all_of_its_base_but_for_what_it_says_itself(tmp_path):
    variant = load_profile(
        write(
            tmp_path,
            """
name = "mine"
title = "Mine"
extends = "verl"
console = {kind = "none", signs = ["mine"], why = "it prints nothing"}
prompts = {keys = []}
resumed = []
[metrics]
clip_frac = ["mine/clip"]
[[metrics.gap]]
metric = "rollout_corr/k3_kl"
statistic = "k3"
[[setup]]
label = "model"
value = "model(path)"
[[setup]]
label = "mine"
value = "mine"
[[exact]]
when = "mine"
kind = "skipped"
why = "mine is set"
""",
        )
    )
    verl_gaps = [gap.metric for gap in VERL.metrics.gap]
    assert variant.metrics.ppo_kl == VERL.metrics.ppo_kl
    assert variant.metrics.clip_frac == ("mine/clip",)
    assert [gap.metric for gap in variant.metrics.gap] == verl_gaps
    assert variant.metrics.gap[verl_gaps.index("rollout_corr/k3_kl")].statistic == "k3"
    assert [key.label for key in variant.setup] == [*(key.label for key in VERL.setup), "mine"]
    assert variant.setup_label({"path": "/models/Qwen3-4B"}, None).startswith("mine · Qwen3-4B")
    assert variant.exact[1:] == VERL.exact
    assert variant.plan({"mine": True}, None).ppo_kl.why == "mine is set"
    assert (variant.observable, variant.resumed, variant.prompts.keys) == (VERL.observable, (), ())


def test_a_variant_of_an_unknown_profile_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(UsageError, match="extends names 'velr', which is not a shipped profile") as error:
        load_profile(write(tmp_path, 'extends = "velr"\n' + MINIMAL))
    assert "verl" in error.value.hint


# --- gaps that are ratios ------------------------------------------------------------------------


def test_a_ratio_becomes_a_gap_whose_perfect_value_is_zero():
    nemo = PROFILES.by_name["nemo_rl"]
    row = {"train/token_mult_prob_error": 1.0152, "train/probs_ratio": 1.0001, "train/gen_kl_error": 2e-4}
    assert nemo.gap_of(row).of(row) == pytest.approx(0.0152)
    assert nemo.metrics.ppo_kl_of(row) == pytest.approx(1e-4)
    assert nemo.metrics.ppo_kl_of({}) is None


# --- first steps and resumed runs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "config", "first"),
    [
        ("miles", {}, 0),
        ("miles", {"num_critic_only_steps": 2, "num_steps_per_rollout": 4}, 8),
        ("miles", {"num_critic_only_steps": 2, **ONE_STEP}, 2),
        ("miles", {"num_critic_only_steps": 2}, 0),
        ("verl", {}, 1),
        ("verl", {"trainer": {"critic_warmup": 5}}, 6),
        ("trl", {}, 10),
        ("trl", {"logging_steps": 1}, 1),
        ("trl", {"logging_steps": 5, "logging_first_step": True}, 1),
        ("openrlhf", {}, 1),
        ("openrlhf", {"critic": "namespace(freezing_steps=-1)"}, 1),
        ("openrlhf", {"critic": "namespace(freezing_steps=10)"}, 12),
        ("nemo_rl", {}, 1),
        ("skyrl", {}, 1),
        ("prime_rl", {}, 1),
        ("areal", {}, 0),
    ],
)
def test_the_first_step_comes_from_the_config(name, config, first):
    assert PROFILES.by_name[name].first_step(config) == first


def test_a_share_as_logging_steps_accepts_any_first_row():
    assert PROFILES.by_name["trl"].first_step({"logging_steps": 0.1}) > 1e6


@pytest.mark.parametrize(
    ("config", "resumed"),
    [
        ({"load": "/ckpt", "save": "/ckpt"}, True),
        ({"load": "/ckpt", "save": "/out", "ref_load": "/base"}, True),
        ({"load": "/base", "save": "/out", "ref_load": "/base"}, False),
        ({"load": "/hf", "ref_load": "/base", "hf_checkpoint": "/hf", "start_rollout_id": 0}, False),
        ({"load": "/hf", "ref_load": "/base", "hf_checkpoint": "/hf"}, True),
        ({"load": None, "save": None}, False),
        ({}, False),
    ],
)
def test_a_resume_that_hides_behind_step_zero_is_seen(config, resumed):
    assert bool(MILES.resumed_because(config)) is resumed


# --- files ---------------------------------------------------------------------------------------


def test_a_profile_of_a_user_works_without_code(tmp_path):
    profiles = load_profiles([write(tmp_path, MINIMAL)])
    profile = profiles.pick({"loss/kl"}, {})
    assert profile.title == "My framework"
    assert profile.setup_label({"path": "org/Tiny"}, None) == "mine · Tiny"
    assert profile.plan({}, None).ppo_kl.kind == "skipped"


def test_a_profile_of_a_user_replaces_the_shipped_one_of_its_name(tmp_path):
    write(tmp_path, MINIMAL.replace('"mine"', '"verl"'))
    profiles = load_profiles([tmp_path])
    assert profiles.by_name["verl"].title == "My framework"
    assert set(profiles.by_name) == set(PROFILES.by_name)
    assert profiles.fingerprint != PROFILES.fingerprint


def test_a_profile_of_a_user_wins_over_a_shipped_one_with_the_same_metrics(tmp_path):
    text = MINIMAL.replace('"loss/kl"', '"actor/ppo_kl", "actor/pg_clipfrac"')
    profiles = load_profiles([write(tmp_path, text)])
    assert profiles.pick({"actor/ppo_kl"}, {}).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "says", "hint"),
    [
        ('ppo_kl = ["loss/kl"]', 'ppo_kls = ["loss/kl"]', "metrics.ppo_kls: there is no such key", "Did you mean ppo_kl?"),
        ('first = "0"', 'frist = "0"', "step.frist: there is no such key", "Did you mean first? Allowed here: keys, first"),
        ('first = "0"', 'first = "steps("', "step.first: 'steps(' is not an expression", "Allowed are config keys"),
        ('first = "0"', 'first = "os.system(1)"', "expressions do not have", "Allowed are config keys"),
        ('first = "0"', "first = 0", "step.first: an expression is a text", "Allowed here: keys, first, context, joined."),
        ('name = "mine"', 'name = "My Framework"', "name: String should match pattern", "Allowed here: name, title"),
        ('name = "mine"', "", "name: Field required", "Allowed here: name, title"),
        ('keys = ["step"]', "keys = []", "step.keys: Tuple should have at least 1 item", "Allowed here: keys"),
        ("[metrics]", "[metrics]\nmarks = [1]", "metrics.marks.0: Input should be a valid string", "Allowed here: ppo_kl"),
        ('ppo_kl = ["loss/kl"]', "", "metrics: a profile names at least one metric", ""),
        ("[step]", '[[exact]]\nkind = "exakt"\n[step]', "exact.0.kind: Input should be 'exact', 'learned'", "Allowed here: kind"),
        ("[step]", '[[exact]]\nkind = "exact"\n[step]', "exact.0: a rule of this kind needs a limit", ""),
        ("[step]", '[[exact]]\nkind = "skipped"\n[step]', "exact.0: a rule of this kind says why", ""),
        ("[step]", '[let]\na = "b + 1"\nb = "a"\n[step]', "let.a is defined by itself", ""),
        ("[step]", '[let]\na = "a or 1"\n[step]', "let.a is defined by itself", ""),
        ("[step]", '[console]\nkind = "dict"\n[step]', "console: a log of this kind needs texts to find", ""),
        ("[step]", '[console]\nkind = "none"\n[step]', "console: a log that shows no step 0 needs signs", ""),
        ("[metrics]", "[metrics", "is not valid TOML", ""),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_refused_with_file_key_and_what_is_allowed(tmp_path, old, new, says, hint):
    path = write(tmp_path, MINIMAL.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load_profile(path)
    assert str(path) in caught.value.message
    assert says in caught.value.message
    assert hint in caught.value.hint


def test_a_profile_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_profile(tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(UsageError, match="is not valid TOML"):
        load_profile(path)


def test_a_profile_path_must_exist_and_hold_a_profile(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        load_profiles([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="has no TOML file in it"):
        load_profiles([tmp_path])


def test_defaults_may_be_written_nested_or_dotted(tmp_path):
    tables = '[defaults]\n"a.b" = 1\n[defaults.c]\nd = 2\n'
    profile = load_profile(write(tmp_path, MINIMAL.replace('first = "0"', 'first = "a.b + c.d"') + tables))
    assert profile.first_step({}) == 3
    assert profile.first_step({"a": {"b": 10}, "c": {"d": 20}}) == 30


def test_named_parts_see_each_other_the_defaults_and_the_config(tmp_path):
    text = MINIMAL.replace('first = "0"', 'first = "twice"')
    text += '[let]\ntwice = "2 * size"\nsize = "batch or 4"\n'
    profile = load_profile(write(tmp_path, text))
    assert profile.first_step({}) == 8
    assert profile.first_step({"batch": 3}) == 6


@pytest.mark.parametrize("first", ["'text'", "missing", "[1]"])
def test_a_first_step_that_is_no_number_is_zero(tmp_path, first):
    assert (
        load_profile(write(tmp_path, MINIMAL.replace('first = "0"', f'first = "{first}"'))).first_step({})
        == 0
    )


def test_a_value_that_is_not_finite_can_stand_in_a_label(tmp_path):
    profile = load_profile(
        write(tmp_path, MINIMAL.replace("]\n[metrics]", ', {label = "t", value = "t"}]\n[metrics]'))
    )
    assert profile.setup_label({"path": "M", "t": math.inf}, None) == "mine · M · t=inf"


@pytest.mark.parametrize("profile", PROFILES.by_name.values(), ids=lambda profile: profile.name)
def test_every_shipped_profile_says_where_its_facts_were_read(profile):
    assert profile.read_from
    assert profile.setup[0].label == "model"
    assert len({gap.metric for gap in profile.metrics.gap}) == len(profile.metrics.gap)


def test_the_example_above_is_valid_toml():
    assert tomllib.loads(MINIMAL)["name"] == "mine"


def test_the_files_of_profiles_are_parsed_once_and_again_when_they_change(tmp_path):
    path = write(tmp_path, MINIMAL)
    first = load_profiles([path])
    again = load_profiles([path])
    assert all(again.by_name[name] is profile for name, profile in first.by_name.items())
    path.write_text(MINIMAL.replace('title = "My framework"', 'title = "Changed"'))
    changed = load_profiles([path])
    assert changed.by_name["mine"] is not first.by_name["mine"]
    assert changed.fingerprint != first.fingerprint


# --- what every profile says ----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", load_profiles().by_name.values(), ids=lambda profile: profile.name)
def test_every_profile_says_once_what_brings_the_gap_and_where_it_was_read(profile):
    (switch,) = (entry for entry in profile.switch if "gap" in entry.brings)
    assert switch.set or switch.why
    assert re.search(r"[0-9a-f]{7}|trl 0\.11", profile.read_from)
    assert profile.exact or not (profile.metrics.ppo_kl or profile.metrics.clip_frac)


def test_a_variant_says_itself_what_its_switches_bring():
    known = load_profiles().by_name
    assert "reference" in next(entry.why for entry in known["trl_async"].switch if "ref_kl" in entry.brings)
    assert [entry.set for entry in known["unsloth"].switch if "ref_kl" in entry.brings] == ["beta=0.001"]
    assert [entry.set for entry in known["ms_swift"].switch if "ref_kl" in entry.brings] == ["--beta 0.001"]


def test_the_gpus_of_torchtitan_are_those_of_trainer_and_generators():
    torchtitan = load_profiles().by_name["torchtitan"]
    trainer = {"data_parallel_shard_degree": 2, "tensor_parallel_degree": 2}
    config = {
        "trainer": {"parallelism": trainer},
        "num_generators": 3,
        "generator": {"parallelism": {"tensor_parallel_degree": 4}},
    }
    assert torchtitan.gpu_count(config) == 2 * 2 + 3 * 4
    assert (
        torchtitan.gpu_count({"trainer": {"parallelism": trainer | {"data_parallel_shard_degree": -1}}})
        is None
    )
    assert torchtitan.gpu_count({}) is None
