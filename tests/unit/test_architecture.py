"""How a model is built: as text, compared part by part, known by its name, and what it does to setups."""

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.profiles.architecture import agree, describe, join, of_name
from step0_wandb.profiles.model_names import ModelNames

MILES = load_profiles().by_name["miles"]
QWEN = {"num_layers": 28, "hidden_size": 1024, "ffn_hidden_size": 3072, "num_attention_heads": 16}


def label(path="/models/own-7b", **config):
    return MILES.setup_label({"hf_checkpoint": path, **config}, None)


@pytest.mark.parametrize(
    ("path", "size"),
    [
        ("Qwen/Qwen3-0.6B", "28 x 1024"),
        ("/sft/qwen3-4b-math/checkpoint-500", "36 x 2560"),
        ("/m/DeepSeek-R1-Distill-Qwen-7B_torch_dist", "28 x 3584"),
        ("/m/qwen2_5_7b_instruct", "28 x 3584"),
        ("/m/Qwen3-14B", "40 x 5120"),
        ("/m/my-own", None),
        ("/m/Qwen3-4B5", None),
        ("/m/DeepSeek-V3-5layer", None),
        ("/m/Qwen3-30B-A3B_4layers_torch_dist", None),
        ("/m/qwen3-4b-multilayer", "36 x 2560"),
    ],
)
def test_the_architecture_of_a_well_known_model_is_known_by_its_name(path, size):
    found = of_name(ModelNames().name(path))
    assert (found and found.partition(",")[0]) == size


def test_what_a_name_says_already_is_not_repeated_and_what_contradicts_it_is_shown():
    assert label("/m/Qwen3-0.6B") == label("/m/Qwen3-0.6B", **QWEN) == "miles · Qwen3-0.6B"
    assert label("/m/Qwen3-0.6B", **QWEN | {"num_attention_heads": 8}).endswith("heads 8)")
    assert label(**QWEN) == "miles · own-7b (28 x 1024, ffn 3072, heads 16)"


@pytest.mark.parametrize("key", [*QWEN, "num_experts"])
def test_each_part_of_an_architecture_makes_another_setup_of_one_name(key):
    assert label(**QWEN) != label(**QWEN | {key: 7})


def test_a_vocabulary_that_was_padded_makes_no_other_setup():
    assert label(**QWEN, vocab_size=151936) == label(**QWEN, vocab_size=152064)


@pytest.mark.parametrize("odd", [None, True, "many, x 3", [28], {"a": 1}, -1, 0, float("nan")])
def test_what_is_not_a_number_is_not_part_of_an_architecture(odd):
    assert describe(odd, 1024, 1, 1, 1) is describe(28, odd, 1, 1, 1) is None
    assert describe(28, 1024, odd, odd, odd) == "28 x 1024"


def test_architectures_agree_unless_a_part_that_both_have_differs():
    full = describe(28, 1024, 3072, 16, 8)
    assert all(agree(full, other) for other in (None, "28 x 1024", "28 x 1024, experts 8"))
    assert not any(agree(full, other) for other in ("36 x 1024", "28 x 1024, experts 16"))


def test_a_setup_without_an_architecture_is_the_only_one_of_its_name_that_has_one():
    full, size = "miles · own (28 x 1024, heads 16) · top_p=0.9", "miles · own (28 x 1024) · top_p=0.9"
    bare = "miles · own · top_p=0.9"
    assert join([bare, full]) == {bare: full}
    assert join([bare, size, full]) == {bare: full, size: full}
    assert join([bare, size]) == {bare: size}
    assert join([bare, "miles · own (36 x 1024) · top_p=0.9", full]) == {}
    assert join([bare, "miles · own (28 x 1024)", "miles · other (28 x 1024) · top_p=0.9"]) == {}


def test_a_name_that_says_its_architecture_never_takes_on_a_contradicting_one():
    assert join(["miles · Qwen3-0.6B", "miles · Qwen3-0.6B (36 x 2560)"]) == {}
