import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from step0_wandb.text.python_values import OPAQUE, LiteralError, Numeral, fields, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'train/ppo_kl': 0.0, 'train/step': 0}", {"train/ppo_kl": 0.0, "train/step": 0}),
        ("{'train/grad_norm': tensor(2.)}", {"train/grad_norm": 2.0}),
        ("tensor(0.5494, device='cuda:3', grad_fn=<SelectBackward0>)", 0.5494),
        ("tensor([0.25])", 0.25),
        ("np.float64(-1e-05)", -1e-05),
        ("array([1., 2.])", OPAQUE),
        ("{\n  'a': 1,\n  'b': [True, None, ('x',)],\n}", {"a": 1, "b": [True, None, ["x"]]}),
        ("{'a': <torch.Size object at 0x7f>, 'b': 2}", {"a": OPAQUE, "b": 2}),
        ("{'a': dtype, 'b': 2, ...}", {"a": OPAQUE, "b": 2}),
        ("{1: 'one', 2.5: 'half'}", {"1": "one", "2.5": "half"}),
        (r"'it\'s \x41 \u00e9\n'", "it's A é\n"),
        ('"C:\\\\temp"', "C:\\temp"),
        ("'line\nbreak'", "linebreak"),
        ("{}", {}),
        ("[]", []),
        ("-7", -7),
        ("1_000_000", 1_000_000),
        (".5", 0.5),
    ],
)
def test_what_programs_print_is_read(text, value):
    assert parse(text).value == value


@pytest.mark.parametrize(
    ("text", "value"), [("inf", math.inf), ("-inf", -math.inf), ("-Infinity".lower(), -math.inf)]
)
def test_bare_infinities_are_numbers(text, value):
    assert parse(text).value == value


def test_a_bare_nan_is_a_number():
    assert math.isnan(parse("{'kl': nan}").value["kl"])


def test_a_number_remembers_how_it_was_printed():
    number = parse("{'actor/ppo_kl': -0.000}").value["actor/ppo_kl"]
    assert isinstance(number, Numeral)
    assert number.text == "-0.000"


def test_reading_stops_behind_the_value():
    assert parse("noise {'a': 1} more", 6).end == 14


@pytest.mark.parametrize(
    ("text", "at_end"),
    [
        ("{'a': 1", True),
        ("{'a': ", True),
        ("{'a': 'never closed", True),
        ("[1, 2", True),
        ("tensor(1.0", True),
        ("<object at", True),
        ("", True),
        ("{'a': -", True),
        ("{'a': 1e", True),
        ("{'a': -in", True),
        ("{'a': ..", True),
        ("{'a': -x, 'b': 1}", False),
        ("{'a' 1}", False),
        ("{'a': 1; 'b': 2}", False),
        ("?", False),
        ("[" * 100, False),
    ],
)
def test_an_error_says_whether_more_text_could_help(text, at_end):
    with pytest.raises(LiteralError) as caught:
        parse(text)
    assert caught.value.at_end is at_end


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "namespace(1, 2",
        "namespaces",
        "",
        "f(1)",
        "tensor(2.0, device='cuda:0')",
        "lr=1e-6 and more",
        "a == b",
        "{'never': closed",
        "[1, 2]",
        "base_args={'fp8': 'e4m3'} trailing",
        "Config(a=1) Config(b=2)",
        "x=" + "[" * 5000 + "]" * 5000,
        "x='" + "a" * 200_000 + "'",
    ],
)
def test_a_text_that_is_not_an_object_has_no_fields(text):
    assert fields(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Namespace(a=1, b=namespace(c='x'), d=[1.5])", {"a": 1, "b": {"c": "x"}, "d": [1.5]}),
        ("NS(fp8='e4m3', dropout=0.1)", {"fp8": "e4m3", "dropout": 0.1}),
        ("argparse.Namespace(a=1, **{'b-c': 2})", {"a": 1, "b-c": 2}),
        ("Config(args=Args(bf16=True), fn=<function f at 0x7f>, n=3)", {"args": {"bf16": True}, "n": 3}),
        ("trainers=[{'id': 'actor'}] base_args={'fp8': None}", {"trainers": [{"id": "actor"}], "base_args": {"fp8": None}}),
        ("mode=<Mode.FAST: 'fast'> level=<Level.TWO: 2> dtype=torch.bfloat16", {"mode": "fast", "level": 2}),
        ("path=PosixPath('/data/x') when=datetime.datetime(2026, 1, 2)", {"path": "/data/x", "when": 2026}),
        ("{'a': {'b': 1}, 2: None}", {"a": {"b": 1}, "2": None}),
    ],
)  # fmt: skip
def test_an_object_that_was_stored_as_text_gives_its_literal_fields(text, found):
    assert fields(text) == found


def test_a_dict_that_a_call_was_made_of_is_read():
    assert fields("dict(a=1)") == {"a": 1}


WORDS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
VALUES = st.recursive(
    st.one_of(NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=12,
)


@given(VALUES)
@example({"a": 1e22, "b": -0.0, "c": 'it\'s "quoted"'})
def test_any_value_is_read_back_from_its_repr_to_the_last_digit(value):
    text = repr(value)
    parsed = parse(text)
    assert parsed.value == value
    assert parsed.end == len(text)


@given(st.text(max_size=60))
@example("{'" * 30)
@example("9" * 5000)
def test_no_text_does_worse_than_a_literal_error(text):
    try:
        parsed = parse(text)
    except LiteralError:
        return
    assert 0 < parsed.end <= len(text)
