import math

import pytest

from step0_wandb.text.nested import as_float, collect_numbers, lookup

CONFIG = {"a": {"b": {"c": 1}, "b.c": 2, "x": None}, "a.b": {"c": 3}, "": 4, "lr": 0.1, "list": [1]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("lr", 0.1),
        ("a.b", {"c": 3}),
        ("a.b.c", 3),
        ("a.x", None),
        ("", 4),
        ("list", [1]),
        ("a.b.d", None),
        ("lr.x", None),
        ("nope", None),
    ],
)
def test_a_dotted_path_finds_nested_keys_and_keys_with_dots(path, value):
    assert lookup(CONFIG, path) == value


@pytest.mark.parametrize(
    "config",
    [
        {"a.b": {"c": 1}},
        {"a": {"b.c": 1}},
        {"a": {"b": {"c": 1}}},
        {"a.b.c": 1},
        {"a": "namespace(b=namespace(c=1))"},
        {"a.b": "namespace(c=1)"},
        {"a.b": {"d": 2}, "a": {"b": {"c": 1}}},
    ],
)
def test_every_way_to_nest_a_value_has_the_same_path(config):
    assert lookup(config, "a.b.c") == 1


def test_a_printed_namespace_is_read_like_a_nested_table():
    config = {
        "actor": "namespace(model_name_or_path='/models/Qwen3-4B', num_nodes=2, lr=1e-06, moe=None)",
        "algo": "namespace(advantage=namespace(is_correction_enable=True, threshold=[0.5, 5.0]))",
        "note": "namespace(never closed",
    }
    assert lookup(config, "actor.model_name_or_path") == "/models/Qwen3-4B"
    assert lookup(config, "actor.num_nodes") == 2
    assert lookup(config, "actor.moe") is None
    assert lookup(config, "algo.advantage.is_correction_enable") is True
    assert lookup(config, "algo.advantage.threshold") == [0.5, 5.0]
    assert lookup(config, "note.anything") is None


@pytest.mark.parametrize(("value", "number"), [(10**400, math.inf), (-(10**400), -math.inf), (3, 3.0)])
def test_an_integer_that_no_float_holds_is_infinite(value, number):
    assert as_float(value) == number
    found = {}
    collect_numbers("n", {"a": value}, found)
    assert found == {"n.a": number}
