"""Documents survive being kept as a difference, whatever JSON holds, and take little room."""

import json
import math
import random
import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from step0_wandb.store.codec import DamagedError, Template, compare, flatten, restore

KEYS = st.sampled_from(["", "a", "b", "a.b", "a/b", "ключ", "\ud800", "\0"]) | st.text(
    st.characters(), max_size=3
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**70)
    | st.floats()
    | st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, math.nan, math.inf, -math.inf, "NaN", "1"])
    | st.text(st.characters())
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(KEYS, JSON, max_size=6)


def exact(document):
    """Return a text that is equal for equal documents only: NaN to itself, 1 not to 1.0."""
    return json.dumps(document, sort_keys=True)


def through(document, template):
    return restore(compare(flatten(document), template).body(), template)


@given(DOCUMENTS, DOCUMENTS)
@example({"a": 0.0}, {"a": -0.0})
@example({"a": {}}, {"a": {"b": {}}})
@example({"a.b": 1}, {"a": {"b": 1}})
def test_a_document_comes_back_exactly_whatever_its_template(document, other):
    assert exact(through(document, Template(flatten(other)))) == exact(document)


@given(DOCUMENTS, DOCUMENTS)
def test_a_template_comes_back_as_it_was_stored(shared, document):
    template = Template.of_body(Template(flatten(shared)).body())
    assert exact(through(shared, template)) == exact(shared)
    assert exact(through(document, template)) == exact(document)


@given(DOCUMENTS)
def test_a_document_that_equals_its_template_takes_no_room(document):
    assert compare(flatten(document), Template(flatten(document))).body() == b""


@given(st.lists(st.floats(), min_size=30, max_size=60), st.floats())
def test_numbers_come_back_bit_by_bit(values, value):
    numbers = {f"train/metric {at}": number for at, number in enumerate(values)}
    template = Template(flatten(dict.fromkeys(numbers, value)))
    assert exact(through(numbers, template)) == exact(numbers)


@pytest.mark.parametrize(
    ("old", "new"), [(1, 1.0), (1, True), (0, False), (0.0, -0.0), (None, "null"), ([1], [1.0])]
)
def test_values_that_python_takes_for_equal_are_told_apart(old, new):
    template = Template(flatten({"a": old}))
    assert exact(through({"a": new}, template)) == exact({"a": new})


def test_nan_is_no_difference_to_nan():
    assert len(compare(flatten({"a": float("nan")}), Template(flatten({"a": math.nan})))) == 0


def test_objects_may_be_nested_as_deep_as_json_is_read():
    document = {"leaf": 1}
    for _ in range(300):
        document = {"a": document}
    assert exact(through(document, Template({}))) == exact(document)


def test_only_what_stands_under_the_wanted_keys_is_restored():
    document = {"actor": {"lr": 1, "model": {"path": "x"}}, "actor.lr": 2, "actors": 3, "seed": 4}
    template = Template(flatten(document))
    body = compare(flatten(document | {"new": 5}), template).body()
    wanted = restore(body, template, template.under(["actor.model", "seed"]))
    assert wanted == {"actor": {"model": {"path": "x"}}, "seed": 4, "new": 5}


def test_a_word_counts_as_another_kind_of_document_and_a_number_does_not():
    template = Template(flatten({"lr": 1, "loss": 2.0, "model": "a", "flag": True, "gone": 0}))
    difference = compare(flatten({"lr": 3, "loss": 4, "model": "b", "flag": 1, "new": 0}), template)
    assert (len(difference), difference.words) == (6, 4)  # model, flag, gone, new


@given(DOCUMENTS, DOCUMENTS, st.data())
def test_whatever_becomes_of_the_bytes_a_document_is_read_or_told_to_be_damaged(common, document, data):
    template = Template(flatten(common))
    bodies = {"template": template.body(), "document": compare(flatten(document), template).body()}
    which = data.draw(st.sampled_from(sorted(bodies)))
    body = bytearray(bodies[which])
    for at in data.draw(st.lists(st.integers(0, max(len(body) - 1, 0)), max_size=3)):
        body[at : at + 1] = data.draw(st.binary(max_size=2))
    try:
        Template.of_body(bytes(body)) if which == "template" else restore(bytes(body), template)
    except DamagedError:
        return


@pytest.mark.parametrize("keys", [600, 1237])
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_forty_changed_keys_among_many_cost_little_more_than_their_new_values(keys, nested):
    rng = random.Random(7)  # noqa: S311 - the same configs each time
    common = {f"key_{at}": rng.choice([None, True, 0, 1e-6, "adam"]) for at in range(keys)}
    own = {key: f"/checkpoints/{rng.getrandbits(32):x}" for key in rng.sample(sorted(common), 40)}
    before, after = ({"args": some} if nested else some for some in (common, common | own))
    template = Template(flatten(before))
    body = compare(flatten(after), template).body()
    assert exact(restore(body, template)) == exact(after)
    values = zlib.compress(json.dumps(list(own.values())).encode(), 9)
    assert len(body) < len(values) + 2.5 * len(own)  # two bytes or so say where each value goes


def test_metrics_that_were_32_bits_wide_take_less_than_five_bytes_each():
    rng = random.Random(7)  # noqa: S311 - the same row each time
    row = {f"train/{at}": struct.unpack("f", struct.pack("f", rng.gauss(0, 1)))[0] for at in range(60)}
    assert len(compare(flatten(row), Template(flatten(dict.fromkeys(row, 0.0)))).body()) < 5 * len(row) + 20
