"""What the page on adding a framework says can be done as it stands."""

import re
import textwrap
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-a-framework.md").read_text(encoding="utf-8")
FIRST = "./wandb/run-20260101_000000-a"


def blocks(language):
    found = re.findall(rf"^   ```{language}\n(.*?)^   ```$", TEXT, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in found]


def run_of_my_framework(folder, run_id, gap):
    values = {
        "actor/approx_kl": 0.0,
        "actor/clip_fraction": 0.0,
        "actor/engine_gap": gap,
        "actor/grad_norm": 0.2,
        "actor/step": 0,
    }
    config = {"model_path": "/models/Qwen3-0.6B", "temperature": 1.0}
    records = [run_record(run_id, config), history_record(values), exit_record()]
    write_file(folder / "wandb", wandb_file(*records), run_id=run_id)


@pytest.fixture
def folder(tmp_path):
    for run_id, gap in {"a": 0.0150, "b": 0.0152, "c": 0.0149, "d": 0.0461}.items():
        run_of_my_framework(tmp_path, run_id, gap)
    return tmp_path


def test_a_run_of_an_unknown_framework_is_explained_as_shown(folder):
    shown = run("profiles", "--explain", FIRST, cwd=folder, COLUMNS="80").out
    expected = blocks("console")[0].split("\n", 1)[1].replace("RUN", FIRST)
    assert shown == expected


def test_the_profile_that_it_shows_is_written_from_a_run_and_judges_the_others(folder):
    written, settings = blocks("toml")
    answer = run("profiles", "--new", "mine", FIRST, cwd=folder)
    assert answer.code == 0, answer.err
    assert (folder / "mine.toml").read_text() == written
    assert '[profiles] paths = ["./mine.toml"]' in answer.err
    (folder / "step0.toml").write_text(settings)
    answer = run("sync", cwd=folder)
    assert answer.code == 0, answer.err
    assert blocks("console")[2].split("\n", 1)[1] in answer.out
    assert "stored: 1 broken, 3 healthy" in answer.err + answer.out
    assert "mine: mine" in run("profiles", cwd=folder, COLUMNS="80").out
