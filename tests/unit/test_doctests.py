"""Every example in a docstring does what it shows."""

import doctest
import importlib
from pathlib import Path

import pytest

import step0_wandb

PACKAGE = Path(step0_wandb.__file__).parent


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


WITH_EXAMPLES = sorted(name_of(path) for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8"))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_hold(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def test_there_are_examples_to_run():
    assert len(WITH_EXAMPLES) > 15
