"""What the page on adding a framework says can be done as it stands."""

import re
from pathlib import Path

from tests.support.command import run
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-a-framework.md").read_text(encoding="utf-8")


def block(language):
    return re.search(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[1]


def run_of_my_framework(folder, run_id, gap, ppo_kl=0.0):
    values = {"actor/approx_kl": ppo_kl, "actor/clip_fraction": 0.0, "actor/engine_gap": gap, "actor/step": 0}
    config = {"model_path": "/models/Qwen3-0.6B", "temperature": 1.0}
    records = [run_record(run_id, config), history_record(values), exit_record()]
    write_file(folder / "wandb", wandb_file(*records), run_id=run_id)


def test_the_profile_that_it_shows_judges_runs(tmp_path):
    (tmp_path / "mine.toml").write_text(block("toml"))
    (tmp_path / "step0.toml").write_text('sources = ["./wandb"]\n[profiles]\npaths = ["./mine.toml"]\n')
    for run_id, gap in {"a": 0.0150, "b": 0.0152, "c": 0.0149, "d": 0.0461}.items():
        run_of_my_framework(tmp_path, run_id, gap)
    run_of_my_framework(tmp_path, "e", 0.0151, ppo_kl=0.3)
    answer = run("sync", "--json", cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert answer.document["counts"] == {"healthy": 3, "broken": 2}
    assert [setup["setup"] for setup in answer.document["setups"]] == ["mine · Qwen3-0.6B"]
    assert "mine: My framework" in run("profiles", cwd=tmp_path, COLUMNS="80").out
