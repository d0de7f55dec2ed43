"""The book of weight checks: passed, failed, due, for each model and image."""

from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.records import RunRecord
from step0_wandb.weights import FAILED, ONCE, Carrier, image_of, weight_book

PROFILES = load_profiles()
START = datetime(2026, 1, 1, tzinfo=UTC)
FLAG = {"check_weight_update_equal": True, "num_rollout": 2}


def carrier(run_id="a", *, found=True, profile="miles", state="finished", **config):
    config = {"hf_checkpoint": "/models/Qwen3-0.6B", **config}
    created = START + timedelta(hours=ord(run_id[0]))
    return Carrier(
        RunRecord("t", "p", run_id, state=state, created_at=created, config=config), profile, found
    )


def book(*carriers):
    return weight_book(carriers, PROFILES)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, "due"),
        (FLAG, "passed"),
        (FLAG | {"found": False}, "failed"),
        (FLAG | {"found": False, "state": "running"}, "due"),
        (FLAG | {"state": "running"}, "passed"),
    ],
)
def test_a_run_with_the_flag_tells_what_became_of_it(given, status):
    [entry] = book(carrier(**given))
    assert entry.status == status


def test_the_newest_run_with_the_flag_counts():
    [entry] = book(carrier("a", **FLAG), carrier("b", found=False, **FLAG), carrier("c"))
    assert (entry.status, entry.run, entry.runs) == ("failed", "t/p/b", 3)
    assert FAILED in entry.notes


def test_each_model_and_image_has_its_own_line_what_failed_first():
    image = {"_wandb": {"e": {"x": {"docker": "miles:v6"}}}}
    entries = book(
        carrier("a", **FLAG),
        carrier("b", **image),
        carrier("c", found=False, hf_checkpoint="/models/Qwen3-1.7B", **FLAG),
    )
    assert [(e.status, e.model, e.image) for e in entries] == [
        ("failed", "Qwen3-1.7B", ""),
        ("due", "Qwen3-0.6B", "miles:v6"),
        ("passed", "Qwen3-0.6B", ""),
    ]


def test_what_to_add_is_printed_whole_in_both_forms():
    [entry] = book(carrier())
    assert entry.add == (
        "--num-rollout 2 --check-weight-update-equal",
        '-e MILES_NUM_ROLLOUT=2 -e MILES_EXTRA_ARGS="--check-weight-update-equal"',
    )


@pytest.mark.parametrize(
    "config",
    [
        {"sglang_quantization": "fp8"},
        {"sglang_kv_cache_dtype": "fp8_e5m2"},
        {"hf_checkpoint": "/m/Qwen3-4B-FP8"},
    ],
)
def test_a_quantised_engine_needs_the_allowance_too(config):
    [entry] = book(carrier(**config))
    assert all("--check-weight-update-allow-quant-error" in text for text in entry.add)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"check_weight_update_skip_list": ["lm_head"]}, "left out"),
        ({"check_weight_update_selector": "layers.0"}, "only selected"),
        ({"check_weight_update_allow_quant_error": True}, "not quantised"),
        ({"lora_rank": 16}, "LoRA"),
        ({"num_rollout": 3000}, ONCE),
    ],
)
def test_a_weaker_check_and_a_long_run_are_marked(config, said):
    [entry] = book(carrier(**(FLAG | config)))
    assert any(said in note for note in entry.notes)


def test_a_plain_check_has_nothing_to_add():
    [entry] = book(carrier(**FLAG))
    assert entry.notes == ()


def test_frameworks_without_such_a_check_are_never_due():
    assert book(carrier(profile="verl"), carrier("b", profile=None)) == []


def test_an_image_beats_a_commit():
    assert image_of({"_wandb": {"e": {"x": {"git": {"commit": "c1899de"}}}}}) == "c1899de"
    assert image_of({"_wandb": {"e": {"x": {"docker": "i:1", "git": {"commit": "c1899de"}}}}}) == "i:1"
    assert image_of({}) == ""
