"""The book of weight checks: passed, failed, due, for each model and image."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.text import json_documents
from step0_wandb.verdicts.weight_checks import (
    FAILED,
    ONCE,
    ComparedRun,
    from_json,
    image_of,
    keys_of,
    weight_check_log,
)

PROFILES = load_profiles()
START = datetime(2026, 1, 1, tzinfo=UTC)
FLAG = {"check_weight_update_equal": True, "num_rollout": 2, "check_weight_update_selector": "all"}
DIED = FLAG | {"profile": None, "logged": False, "state": "failed"}
SGLANG = {"sglang": "0.5.9", "torch": "2.9.1", "numpy": "2.2"}


def carrier(run_id="a", *, profile="miles", logged=True, state="finished", project="p", **config):
    created = START + timedelta(hours=ord(run_id[0]))
    config = {"hf_checkpoint": "/models/Qwen3-0.6B", **config}
    return ComparedRun(f"t/{project}/{run_id}", state, created, profile, logged, config)


def image(docker=None, commit=None):
    notes = {"docker": docker, "git": {"commit": commit}}
    return {"_wandb": {"cli_version": "0.31.0", "e": {"x7f3": notes}}}


def book(*runs, packages=None):
    return weight_check_log(runs, PROFILES, lambda run: (packages or {}).get(run[-1], {}))


# ── passed, failed, due ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "status", "run"),
    [
        ({}, "due", None),
        (FLAG, "passed", "t/p/a"),
        (FLAG | {"state": "running"}, "passed", "t/p/a"),
        (DIED, "failed", "t/p/a"),
        (DIED | {"state": "crashed"}, "failed", "t/p/a"),
        (DIED | {"state": "running"}, "due", None),
        (DIED | {"logged": True}, "passed", "t/p/a"),
        ({"check_weight_update_equal": False}, "due", None),
    ],
)
def test_a_run_with_the_flag_tells_what_became_of_it(given, status, run):
    [entry] = book(carrier(**given))
    assert (entry.status, entry.run) == (status, run)


def test_a_failure_is_said_loudly():
    [entry] = book(carrier(**DIED))
    assert entry.notes == (FAILED,)
    assert "died before step 0" in FAILED


def test_a_comparison_under_way_is_named():
    [entry] = book(carrier("a"), carrier("b", **DIED | {"state": "running"}))
    assert (entry.status, entry.notes) == ("due", ("t/p/b is comparing now",))


def test_the_newest_word_counts():
    passed, died, plain = carrier("a", **FLAG), carrier("b", **DIED), carrier("c")
    [entry] = book(plain, died, passed)
    assert (entry.status, entry.run, entry.runs) == ("failed", "t/p/b", 3)
    assert entry.notes == (FAILED, "t/p/a had passed before")
    [entry] = book(passed, died, carrier("d", **FLAG), plain)
    assert (entry.status, entry.run, entry.notes) == ("passed", "t/p/d", ())


def test_a_whole_comparison_counts_more_than_a_later_weaker_one():
    weaker = FLAG | {"check_weight_update_skip_list": ["lm_head"]}
    [entry] = book(carrier("a", **FLAG), carrier("b", **weaker))
    assert (entry.run, entry.notes) == ("t/p/a", ())
    [entry] = book(carrier("a", **FLAG), carrier("b", **DIED), carrier("c", **weaker))
    assert entry.run == "t/p/c"
    assert "left out" in entry.notes[0]


def test_each_model_and_image_has_its_own_line_what_failed_first():
    entries = book(
        carrier("a", **FLAG),
        carrier("b", **image("miles:v6")),
        carrier("c", **(DIED | {"hf_checkpoint": "/models/Qwen3-1.7B"})),
    )
    assert [(e.status, e.model, e.image) for e in entries] == [
        ("failed", "Qwen3-1.7B", ""),
        ("due", "Qwen3-0.6B", "miles:v6"),
        ("passed", "Qwen3-0.6B", ""),
    ]


def test_of_what_stands_alike_the_newest_comes_first():
    entries = book(carrier("b", **image("v1")), carrier("c", **image("v3")), carrier("a", **image("v2")))
    assert [(e.image, e.last_run) for e in entries] == [
        (name, START + timedelta(hours=ord(run))) for name, run in (("v3", "c"), ("v1", "b"), ("v2", "a"))
    ]


def test_one_model_in_many_places_is_one():
    paths = ("/models/Qwen3-0.6B", "Qwen/Qwen3-0.6B", "/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de2")
    [entry] = book(*(carrier(name, hf_checkpoint=path) for name, path in zip("abc", paths, strict=True)))
    assert entry.runs == 3


def test_the_projects_of_the_runs_are_named():
    [entry] = book(carrier("a", project="rl"), carrier("b", project="dev"), carrier("c", project="rl"))
    assert entry.projects == ("t/dev", "t/rl")


# ── the frameworks ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "profile", ["verl", "trl", "openrlhf", "nemo_rl", "skyrl", "prime_rl", "areal", None]
)
def test_frameworks_without_such_a_check_are_never_due(profile):
    config = {"actor_rollout_ref": {"model": {"path": "/m/Qwen3-0.6B"}}, "_name_or_path": "/m/Qwen3-0.6B"}
    assert book(carrier(profile=profile, **config)) == []


@pytest.mark.parametrize("profile", ["slime", "vime"])
def test_frameworks_with_the_flag_and_without_its_launcher_form(profile):
    [entry] = book(carrier(profile=profile))
    assert (entry.status, entry.add) == ("due", ("--num-rollout 2 --check-weight-update-equal",))


@pytest.mark.parametrize(
    ("config", "profile"),
    [({"slime_router_ip": "::1"}, "slime"), ({"vllm_dtype": "auto"}, "vime"), ({}, "miles")],
)
def test_a_run_that_died_shows_its_framework_by_its_config(config, profile):
    [entry] = book(carrier(**(DIED | config)))
    assert entry.profile == profile
    assert PROFILES.by_name[profile] in PROFILES.comparing(DIED | config)
    assert PROFILES.comparing({}) == []


def test_the_keys_that_the_book_reads_are_a_handful():
    keys = keys_of(PROFILES)
    assert {
        "_wandb",
        "hf_checkpoint",
        "check_weight_update_equal",
        "sglang_quantization",
        "num_rollout",
    } <= set(keys)
    assert "engine_quantized" not in keys
    assert len(keys) < 70


# ── what to add ─────────────────────────────────────────────────────────────


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
        {"hf_checkpoint": "/m/Qwen3-4B-FP8"},
        {"hf_checkpoint": "/m/Qwen3-4B-w4a16-AWQ"},
    ],
)
def test_a_quantized_engine_needs_the_allowance_too(config):
    [entry] = book(carrier(**config))
    assert entry.add == (
        "--num-rollout 2 --check-weight-update-equal --check-weight-update-allow-quant-error",
        '-e MILES_NUM_ROLLOUT=2 -e MILES_EXTRA_ARGS="--check-weight-update-equal --check-weight-update-allow-quant-error"',
    )


def test_a_quantized_cache_is_no_quantized_engine():
    [entry] = book(carrier(sglang_kv_cache_dtype="fp8_e5m2"))
    assert not any("quant" in text for text in entry.add)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"check_weight_update_skip_list": ["lm_head"]}, "left out"),
        ({"check_weight_update_selector": "target"}, "only the target or the draft model"),
        ({"check_weight_update_allow_quant_error": True}, "not quantized"),
        ({"lora_rank": 16}, "LoRA"),
        ({"num_rollout": 3000}, ONCE),
    ],
)
def test_a_weaker_check_and_a_long_run_are_marked(config, said):
    [entry] = book(carrier(**(FLAG | config)))
    assert entry.status == "passed"
    assert len(entry.notes) == 1
    assert said in entry.notes[0]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"check_weight_update_skip_list": []},
        {"check_weight_update_allow_quant_error": True, "sglang_quantization": "fp8"},
        {"num_rollout": 3000, "ci_test": True},
    ],
)
def test_a_plain_check_has_nothing_to_note(config):
    [entry] = book(carrier(**(FLAG | config)))
    assert entry.notes == ()


# ── the image ───────────────────────────────────────────────────────────────


def test_an_image_beats_a_commit_and_a_commit_is_shown_short():
    assert image_of(image(commit="c1899de289a04d12100db370d81485cdf75e47ca")) == "c1899de289a0"
    assert image_of(image("miles:v5", "c1899de")) == "miles:v5"
    assert image_of({"_wandb": {"e": []}}) == image_of({"_wandb": None}) == image_of({}) == ""


def test_without_image_and_commit_the_packages_of_the_newest_run_stand_for_it():
    [entry] = book(carrier("a", **FLAG), carrier("b"), packages={"a": SGLANG, "b": SGLANG | {"numpy": "2.3"}})
    assert (entry.status, entry.image, entry.notes) == ("passed", "sglang 0.5.9, torch 2.9.1", ())


def test_other_packages_than_those_that_were_checked_make_it_due():
    now = SGLANG | {"sglang": "0.5.16"}
    [entry] = book(carrier("a", **FLAG), carrier("b"), packages={"a": SGLANG, "b": now})
    assert (entry.status, entry.run) == ("due", "t/p/a")
    assert entry.notes == ("checked with other packages: sglang 0.5.9 -> 0.5.16",)


@pytest.mark.parametrize("known", ["a", "b", ""])
def test_packages_that_are_not_known_of_both_claim_nothing(known):
    packages = {name: SGLANG | {"sglang": name} for name in known}
    [entry] = book(carrier("a", **FLAG), carrier("b"), packages=packages)
    assert entry.status == "passed"


def test_where_the_image_is_known_no_packages_are_asked_for():
    asked = []
    weight_check_log([carrier(**(FLAG | image("miles:v5")))], PROFILES, lambda run: asked.append(run) or {})
    assert asked == []


def test_of_each_model_two_runs_are_asked_at_most():
    asked = []
    runs = [carrier(name, **FLAG) for name in "abcdefgh"] + [carrier("i")]
    weight_check_log(runs, PROFILES, lambda run: asked.append(run) or SGLANG)
    assert asked == ["t/p/i", "t/p/h"]


# ── as JSON ─────────────────────────────────────────────────────


def test_the_book_comes_back_from_json_as_it_was():
    entries = book(carrier("a", **FLAG), carrier("b", **image("miles:v6")), carrier("c", **DIED))
    assert from_json(json.loads(json.dumps(json_documents.plain(entries)))) == entries
    assert from_json(None) == []
