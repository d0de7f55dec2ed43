import json

import pytest

from step0_wandb.text.redact import looks_like_key, scrub

HEX = "0123456789abcdef0123456789abcdef01234567"
KEYS = [
    HEX,
    HEX.upper(),
    f"local-{HEX}",
    "wandb_v1_" + "aZ9_" * 12,
    "hf_" + "aB3" * 11,
    "sk-proj-" + "aB3-_" * 8,
    "sk-ant-api03-" + "aB3" * 20,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2_" * 9,
    "glpat-" + "a1B2-" * 4,
    "AKIAIOSFODNN7EXAMPLE",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_known_by_their_look_alone_and_inside_longer_text(key):
    assert looks_like_key(key)
    assert looks_like_key(f"python train.py --login {key} --seed 7")
    assert looks_like_key(f"namespace(use_wandb='{key}')")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Qwen/Qwen3-0.6B",
        "hf_checkpoint",
        "--hf-checkpoint /models/hf_to_megatron_converted_checkpoints",
        "task-scheduler-with-a-very-long-name",
        "disk-usage-of-the-whole-cluster",
        "a" * 39,
        "0" * 64,
        f"/cache/models--Qwen--Qwen3/snapshots/{HEX}",
        f"/cache/{HEX}/model.safetensors",
        rf"C:\cache\{HEX}\model",
    ],
)
def test_names_paths_and_digests_are_no_keys(text):
    assert not looks_like_key(text)


@pytest.mark.parametrize(
    "name", ["git_commit", "revision", "model_sha", "sha", "sha1", "weights_hash", "Commit"]
)
def test_forty_hex_digits_pass_where_the_name_speaks_of_a_version(name):
    assert not looks_like_key(HEX, name)
    assert looks_like_key(HEX, "shared_id")
    assert looks_like_key(HEX, "shape")
    assert looks_like_key("hf_" + "aB3" * 11, name), "other keys never pass"


@pytest.mark.parametrize(
    "name",
    [
        "wandb_key",
        "WANDB_API_KEY",
        "apiKey",
        "hf_token",
        "tokens",
        "db_password",
        "passwd",
        "Secrets",
        "credential",
    ],
)
def test_text_under_the_name_of_a_secret_goes_whatever_it_looks_like(name):
    assert scrub({name: "hunter2", "lr": 0.1}) == {"lr": 0.1}
    assert scrub({"outer": [{"inner": {name: "hunter2"}}]}) == {"outer": [{"inner": {}}]}
    assert scrub({name: ["hunter2", 1], "lr": 0.1}) == {name: [1], "lr": 0.1}
    assert scrub({name: {"user": "me", "of": {"deep": ["hunter2"]}}}) == {name: {"of": {"deep": []}}}


def test_numbers_and_flags_under_such_names_stay():
    config = {"max_tokens": 4096, "use_token": True, "key": None, "keys": [1, 2], "token": {"id": 5}}
    assert scrub(config) == config


def test_names_that_only_contain_such_a_word_stay():
    config = {"key_path": "/etc/tls.pem", "tokenizer": "gpt2", "secretary": "x", "keyword": "y"}
    assert scrub(config) == config


def test_environments_go_whole():
    assert scrub(
        {"env_vars": {"A": "b"}, "sub": {"launcher_env_report": '{"image": "x"}', "env_vars": "A=b"}}
    ) == {"sub": {}}


def test_values_that_look_like_keys_go_at_any_depth():
    config = {"use_wandb": HEX, "extra": {"args": ["--key", HEX, 3], "note": f"logged in with {HEX}"}}
    assert scrub(config) == {"extra": {"args": ["--key", 3]}}


def test_of_the_clients_own_notes_only_image_commit_gpus_and_versions_stay():
    notes = {
        "cli_version": "0.24.0",
        "python_version": "3.12",
        "t": {"1": [1, 2], "4": "3.12"},
        "e": {
            "writer": {
                "docker": "registry/miles:1",
                "args": ["--wandb-key", HEX],
                "git": {"remote": "https://me:pw@example.org/x.git", "commit": HEX},
                "gpu": "NVIDIA H100",
                "gpu_count": 8,
                "cudaVersion": "12.8",
                "host": "node-1",
                "email": "me@example.org",
                "executable": "/home/me/python",
            }
        },
    }
    kept = {
        "cli_version": "0.24.0",
        "python_version": "3.12",
        "e": {
            "writer": {
                "docker": "registry/miles:1",
                "git": {"commit": HEX},
                "gpu": "NVIDIA H100",
                "gpu_count": 8,
                "cudaVersion": "12.8",
            }
        },
    }
    assert scrub({"_wandb": notes}) == {"_wandb": kept}
    assert scrub({"outer": {"_wandb": notes}}) == {"outer": {"_wandb": kept}}
    assert scrub({"_wandb": {"docker": KEYS[3], "version": ["x"]}}) == {"_wandb": {}}


def test_what_is_given_is_not_changed_and_scrubbing_twice_changes_nothing():
    config = {"a": {"b_key": "x", "c": [HEX, {"d": "e"}]}, "_wandb": {"args": ["x"], "cli_version": "1"}}
    before = json.loads(json.dumps(config))
    once = scrub(config)
    assert config == before
    assert scrub(once) == once


def test_what_is_nested_without_end_is_cut_off():
    config = {}
    for _ in range(20_000):
        config = {"a": config}
    depth, level = 0, scrub(config)
    while level:
        depth, level = depth + 1, level["a"]
    assert depth < 200
