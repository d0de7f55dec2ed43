import ast
import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from step0_wandb.errors import UsageError
from step0_wandb.profiles.expression import Expression, as_number

CONFIG = {
    "rollout_top_p": 0.95,
    "rollout_top_k": 64,
    "fp8": None,
    "colocate": True,
    "temperature": "0.6",
    "engines": ["vllm", "sglang"],
    "data": {"train_batch_size": 256, "files": {"train": "a.parquet"}},
    "dotted.key": 7,
    "odd-name": "yes",
    "slime_router_ip": "10.0.0.1",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rollout_top_p < 1", True),
        ("rollout_top_k > 0 and rollout_top_p", 0.95),
        ("fp8 or 'bf16'", "bf16"),
        ("missing or 3", 3),
        ("not missing", True),
        ("missing is None", True),
        ("colocate == true", True),
        ("fp8 == null", True),
        ("data.train_batch_size // 100 + 1", 3),
        ("data.train_batch_size / 512", 0.5),
        ("2 * rollout_top_k - 28", 100),
        ("-rollout_top_k", -64),
        ("temperature < 1", True),
        ("temperature", 0.6),
        ("data.files.train", "a.parquet"),
        ("key('dotted.key')", 7),
        ("key('odd-name')", "yes"),
        ("has('slime_*')", True),
        ("has('vime_*')", False),
        ("has('colocate')", True),
        ("has('*_ip')", True),
        ("'vllm' in engines", True),
        ("'trt' not in engines", True),
        ("'parquet' in data.files.train", True),
        ("'train' in data.files", True),
        ("rollout_top_k in [32, 64]", True),
        ("'yes' if colocate else 'no'", "yes"),
        ("model('org/Qwen3-0.6B')", "Qwen3-0.6B"),
        ("differ('org/Qwen3-0.6B-FP8', '/m/Qwen3-0.6B_torch_dist')", False),
        ("differ('org/Qwen3-0.6B', '/m/Qwen3-4B_torch_dist')", True),
        ("known_architecture('org/Qwen3-0.6B')", "28 x 1024, ffn 3072, heads 16"),
        ("architecture(rollout_top_k, data.train_batch_size, 8, missing, 4)", "64 x 256, ffn 8, experts 4"),
        ("architecture(rollout_top_k, missing, 8, 8, 8)", None),
        ("missing > 1", False),
        ("missing + 1", None),
        ("'text' + 1", None),
        ("1 // 0", None),
        ("'a' < 'b'", False),
        ("missing in engines", False),
        ("engines in engines", False),
        ("data in data", False),
    ],
)
def test_an_expression_reads_the_config(text, value):
    assert Expression.parse(text).value(CONFIG) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "(lambda: 1)()",
        "[x for x in engines]",
        "data['train_batch_size']",
        "colocate.real()",
        "has(engines)",
        "key(1)",
        "1 < rollout_top_p < 2",
        "2 ** 10000",
        "f'{colocate}'",
        "b'bytes'",
        "1j",
        "model(1, 2)",
        "differ(1)",
        "model(x=1)",
        "'%d' % 3",
        "~1",
        "x := 1",
        "(" * 2000 + "1" + ")" * 2000,
    ],
)
def test_what_expressions_do_not_have_is_refused_with_what_they_have(text):
    with pytest.raises(UsageError) as caught:
        Expression.parse(text)
    assert caught.value.hint.startswith("Allowed are config keys, numbers, texts")


def test_an_expression_knows_the_keys_that_it_reads():
    expression = Expression.parse("a.b.c > 0 or not d and model(e) in [key('f g'), 'text', true]")
    assert expression.names == {"a.b.c", "d", "e", "f g"}


def test_a_key_whose_name_is_no_identifier_can_still_be_read():
    assert Expression.of_key("odd-name").value(CONFIG) == "yes"
    assert Expression.of_key("data.train_batch_size").value(CONFIG) == 256
    assert Expression.of_key("odd-name").names == {"odd-name"}


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        ("1e-6", 1e-6),
        ("64", 64),
        (1.0, 1),
        (0.95, 0.95),
        (True, True),
        ("bf16", "bf16"),
        (None, None),
        ("", ""),
    ],
)
def test_texts_that_are_numbers_compare_as_numbers(raw, number):
    assert as_number(raw) == number
    assert type(as_number(raw)) is type(number)


NAMES = st.sampled_from(["a", "b", "a.b", "rank", "x.y.z"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(allow_nan=True), st.text(max_size=4)
)
ATOMS = st.one_of(NAMES, VALUES.map(repr).filter(lambda text: text not in {"nan", "inf", "-inf"}))
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/<>"), inner),
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["//", "==", "!=", "and", "or", "in", ">="]), inner
        ),
        st.builds("(not {})".format, inner),
        st.builds("(-{})".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("model({})".format, inner),
    ),
    max_leaves=12,
)
CONFIGS = st.dictionaries(
    st.sampled_from(["a", "b", "x", "rank", "a.b"]),
    st.recursive(
        VALUES,
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.sampled_from("yzb"), inner)),
        max_leaves=5,
    ),
)


@given(EXPRESSIONS, CONFIGS)
@example("(a in [b, b])", {"a": [1], "b": {"y": 1}})
def test_a_compiled_expression_has_a_value_for_every_config(text, config):
    Expression.parse(text).value(config)


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        assert isinstance(Expression.parse(text).names, frozenset)


@given(
    st.recursive(
        st.integers(-5, 5).map(str),
        lambda n: st.builds(
            "({} {} {})".format, n, st.sampled_from(["+", "-", "*", "<", "==", "and", "or"]), n
        ),
        max_leaves=8,
    )
)
def test_arithmetic_and_logic_are_those_of_python(text):
    assert Expression.parse(text).value({}) == eval(compile(ast.parse(text, mode="eval"), "", "eval"))  # noqa: S307 - the witness
