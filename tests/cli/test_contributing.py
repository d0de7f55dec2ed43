"""What CONTRIBUTING.md names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_what_it_names_is_there():
    names = re.findall(r"`((?:step0_wandb|tests|\.ci)/[\w/.]+)`", TEXT)
    assert len(names) >= 5
    assert [name for name in names if not (ROOT / name).exists()] == []
    modules = re.findall(r"-m (tests\.[\w.]+)", TEXT)
    assert modules
    assert all((ROOT / module.replace(".", "/")).with_suffix(".py").is_file() for module in modules)


def test_the_one_test_that_it_runs_is_there():
    path, word = re.search(r"-m pytest (\S+) -k (\w+)", TEXT).groups()
    assert re.search(rf"^def test_\w*{word}\w*\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
