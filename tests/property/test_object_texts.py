"""Objects that were stored as texts: whatever happened to a text, reading it ends, and gives fields or nothing."""

import random

import pytest

from step0_wandb.text.python_values import fields
from tests.benchmarks.object_texts import mutated, whole


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_text_has_fields_or_none(seed):
    rng = random.Random(seed)  # noqa: S311 - test data
    for _ in range(100):
        found = fields(mutated(rng, whole(rng, rng.choice([3, 30]))))
        assert found is None or all(isinstance(key, str) for key in found)


@pytest.mark.parametrize("seed", range(4))
def test_a_whole_text_has_fields(seed):
    rng = random.Random(seed)  # noqa: S311 - test data
    for _ in range(20):
        assert fields(whole(rng, 30))
