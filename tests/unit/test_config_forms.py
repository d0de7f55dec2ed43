"""The same run, whatever form its config comes in: one setup, the same checks, causes and weight checks."""

import argparse
from datetime import UTC, datetime

import pydantic
import pytest

from step0_wandb.explanations.differences import differences
from step0_wandb.profiles import load_profiles
from step0_wandb.profiles.causes import Evidence, find_causes
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.text.nested import flatten
from step0_wandb.verdicts.weight_checks import ComparedRun, keys_of, weight_check_log

PROFILES = load_profiles()
FINDER = Step0Finder(PROFILES)
MILES = PROFILES.by_name["miles"]
TOP = {
    "hf_checkpoint": "/sft/qwen3-4b-math/checkpoint-500",
    "ref_load": "/sft/qwen3-4b-code/checkpoint-500_torch_dist",
    "rollout_temperature": 1.0,
    "num_rollout": 2,
    "check_weight_update_equal": True,
    "num_layers": 36,
    "hidden_size": 2560,
}
MEGATRON = {"fp8": "e4m3", "bf16": True, "attention_dropout": 0.1, "hidden_dropout": 0.1, "lora_rank": 0}
SGLANG = {"quantization": "fp8", "kv_cache_dtype": "fp8_e5m2"}
SGLANG_FLAT = {f"sglang_{key}": value for key, value in SGLANG.items()}


class Tree(pydantic.BaseModel):
    """A settings object as Miles has them; the W&B client stores its text."""

    trainers: list[dict[str, str]] = []
    base_args: dict[str, object]


def under(prefix, table):
    return {f"{prefix}.{key}": value for key, value in table.items()}


FORMS = {
    "flat": TOP | MEGATRON | SGLANG_FLAT,
    "nested": TOP | {"raw_megatron": {"base_args": MEGATRON}, "sglang": {"base_args": SGLANG}},
    "dotted": TOP | under("raw_megatron.base_args", MEGATRON) | under("sglang.base_args", SGLANG),
    "pydantic": TOP
    | {
        "raw_megatron": str(Tree(trainers=[{"trainer_id": "actor"}], base_args=MEGATRON)),
        "sglang": str(Tree(base_args=SGLANG)),
    },
    "namespace": TOP
    | {
        "backend": str(argparse.Namespace(**MEGATRON)),
        "sglang": str(argparse.Namespace(base_args=argparse.Namespace(**SGLANG))),
    },
    "one namespace": {"args": str(argparse.Namespace(**TOP, **MEGATRON, **SGLANG_FLAT))},
}
VALUES = {
    "train/step": 0.0,
    "train/ppo_kl": 0.02,
    "train/pg_clipfrac": 0.01,
    "train/train_rollout_logprob_abs_diff": 0.2,
}


def facts(config):
    rows = (HistoryRow(VALUES),)
    return FINDER.facts(RunRecord("t", "p", "r", config=config, rows=rows, state="finished"))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_setup_and_checks(form):
    found = facts(FORMS[form])
    assert found.setup == "miles · qwen3-4b-math · trainer=fp8 engine=fp8 kv_cache=fp8_e5m2"
    assert found == facts(FORMS["flat"])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_the_same_causes(form):
    evidence = Evidence(FORMS[form], {"gap", "ppo_kl"}, values={"ppo_kl": 0.02})
    found = find_causes(MILES, evidence)
    assert [cause.name for cause in found][:2] == ["wrong-reference", "dropout"]
    assert found == find_causes(MILES, Evidence(FORMS["flat"], {"gap", "ppo_kl"}, values={"ppo_kl": 0.02}))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_weight_checks(form):
    def log(config):
        known = {key: value for key in keys_of(PROFILES) if (value := MILES.logged(config, key)) is not None}
        run = ComparedRun(
            "t/p/r", "finished", datetime(2026, 11, 1, tzinfo=UTC), "miles", logged=True, config=known
        )
        return weight_check_log([run], PROFILES)

    (entry,) = log(FORMS[form])
    assert (entry.model, entry.status) == ("qwen3-4b-math", "passed")
    assert "--check-weight-update-allow-quant-error" in entry.add[0]
    assert [entry] == log(FORMS["flat"])


@pytest.mark.parametrize("form", FORMS)
def test_runs_in_different_forms_do_not_differ_by_their_form(form):
    found = differences(FORMS[form], [FORMS["flat"]] * 3, MILES)
    assert [item.key for item in found if item.value is None or item.healthy is not None] == []


def test_what_another_form_says_more_is_told_by_its_whole_name():
    keys = flatten({"raw_megatron": str(Tree(trainers=[], base_args={"fp8": "e4m3"}))})
    assert keys == {"raw_megatron.trainers": [], "raw_megatron.base_args.fp8": "e4m3"}
