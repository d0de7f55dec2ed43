"""What differs from healthy runs: the telling keys, without noise, and never one culprit of many."""

import pytest

from step0_wandb.explanations.differences import differences, nearest_setup
from step0_wandb.text.nested import flatten

HEALTHY = {
    "hf_checkpoint": "/models/Qwen3-0.6B",
    "load": "/a/Qwen3-0.6B_torch_dist",
    "attention_dropout": 0.0,
    "actor": {"optim": {"lr": 1e-6}},
    "seed": 1,
    "wandb_group": "g1",
    "save": "/out/1",
    "sglang_server_port": 30000,
}


def keys(config, *peers):
    return [item.key for item in differences(config, peers or [HEALTHY] * 3)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 7),
        ("wandb_group", "g9"),
        ("save", "/out/9"),
        ("sglang_server_port", 30001),
        ("load", "/b/c/Qwen3-0.6B_torch_dist"),
        (
            "hf_checkpoint",
            "/root/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca",
        ),
        ("attention_dropout", 0),
        ("attention_dropout", "0.0"),
    ],
)
def test_what_differs_by_nature_or_not_at_all_is_left_out(key, value):
    assert keys(HEALTHY | {key: value}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("load", "/a/Qwen3-0.6B-Base_torch_dist"),
        ("attention_dropout", 0.1),
        ("hf_checkpoint", "/models/Qwen3-1.7B"),
        ("new_option", True),
    ],
)
def test_what_no_healthy_run_has_is_named_with_both_values(key, value):
    [item] = differences(HEALTHY | {key: value}, [HEALTHY] * 3)
    assert (item.key, item.value, item.healthy, item.share) == (key, value, HEALTHY.get(key), 1.0)


def test_a_key_that_the_run_lacks_is_named_too():
    without = {key: value for key, value in HEALTHY.items() if key != "attention_dropout"}
    [item] = differences(without, [HEALTHY] * 3)
    assert (item.key, item.value, item.healthy) == ("attention_dropout", None, 0.0)


def test_an_empty_table_is_no_difference_to_none():
    assert keys(HEALTHY | {"env": {}}) == keys(HEALTHY, *[HEALTHY | {"env": {}}] * 3) == []


def test_nested_keys_are_compared_leaf_by_leaf():
    assert keys(HEALTHY | {"actor": {"optim": {"lr": 5e-6}}}) == ["actor.optim.lr"]


def test_a_value_that_any_healthy_run_has_differs_from_nothing():
    assert keys(HEALTHY | {"attention_dropout": 0.1}, HEALTHY, HEALTHY | {"attention_dropout": 0.1}) == []


def test_a_key_that_every_healthy_run_has_its_own_value_of_says_nothing():
    peers = [HEALTHY | {"rollout_shuffle": at} for at in range(5)]
    assert keys(HEALTHY | {"rollout_shuffle": 99}, *peers) == []


def test_the_key_whose_value_is_rarest_among_the_healthy_comes_first():
    peers = [HEALTHY | {"b": at % 2, "a": 0} for at in range(4)]
    assert keys(HEALTHY | {"a": 9, "b": 9}, *peers) == ["a", "b"]


def test_thirteen_keys_that_differ_are_all_named():
    changed = {f"option_{at:02}": at for at in range(13)}
    peers = [HEALTHY | dict.fromkeys(changed, -1)] * 3
    assert len(keys(HEALTHY | changed, *peers)) == 13


def test_without_peers_nothing_differs():
    assert differences(HEALTHY, []) == []


def test_the_random_name_of_a_writing_process_is_no_key():
    noted = {"_wandb": {"e": {"x7f3": {"docker": "img:1"}}}}
    assert flatten(noted) == {"_wandb.e.docker": "img:1"}


def test_the_image_of_a_run_counts_as_a_difference():
    image = [{"_wandb": {"e": {f"w{at}": {"docker": tag}}}} for at, tag in enumerate(["v1", "v1", "v2"])]
    assert keys(HEALTHY | image[2], HEALTHY | image[0], HEALTHY | image[1]) == ["_wandb.e.docker"]


def test_the_nearest_setup_shares_profile_and_model_and_most_of_the_rest():
    others = [
        "miles · Qwen3-0.6B · temperature=0.7 top_k=64",
        "miles · Qwen3-0.6B · top_k=64",
        "miles · Qwen3-1.7B · top_p=0.95 top_k=64",
        "slime · Qwen3-0.6B · top_p=0.95 top_k=64",
    ]
    assert nearest_setup("miles · Qwen3-0.6B · top_p=0.95 top_k=64", others) == others[1]
    assert nearest_setup("miles · Llama", others) is None
