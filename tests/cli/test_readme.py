"""Every block of the README does what the README says."""

import re
import shlex
from pathlib import Path

import pytest

from step0_wandb.app.doctor import RECEIVING
from tests.support import command
from tests.support.project import python

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
NO_STEP0 = 8
NO_KEY = 4
CONSOLE_LINE = (
    "(MegatronTrainRayActor pid=2429) [2026-08-15 05:04:17.003 actor_cell0_rank8] log_utils.py:460 - step 0: "
    "{'train/ppo_kl': 0.0, 'train/pg_clipfrac': 0.0, 'train/train_rollout_logprob_abs_diff': 0.0151, 'train/step': 0}\n"
)
NOTHING_LISTENS = "http://127.0.0.1:9"


def blocks(language):
    return [text for name, text in BLOCKS if name == language]


def installs():
    return [line for line in "\n".join(blocks("sh")).splitlines() if line.startswith("python3 -m venv")]


def commands():
    lines = "\n".join(blocks("sh")).splitlines()
    return [line for line in lines if re.search(r"^step0-wandb |\| step0-wandb ", line)]


@pytest.fixture(scope="module")
def place(fresh_demo):
    """Return a directory that holds a fresh demo, with the main job run on it."""
    folder = fresh_demo("readme")
    done = command.run("sync", cwd=folder)
    assert done.code == 0, done.err
    (folder.parent / "alarm.txt").write_text(done.out)
    (folder / "train.log").write_text(CONSOLE_LINE)
    return folder


def expected(line):
    """Return the exit code of a command on the demo, whose newest run is in its first rollout, without a key."""
    if "my-team/" in line:
        return NO_KEY if "||" not in line else 0
    return NO_STEP0 if "latest-run" in line else 0


def words_of(text):
    return " ".join(text.split())


def test_the_first_forty_lines_hold_alarm_both_commands_and_the_notebook_call():
    top = "\n".join(README.splitlines()[:40])
    assert top.count("```") == 8
    for text in [*blocks("text")[:1], *installs(), *blocks("python")[:1]]:
        assert text in top


def test_the_alarm_is_what_the_demo_and_the_command_print(place):
    alarm, asked, explained = re.split(r"^\$ step0-wandb (.*)\n", blocks("text")[0], flags=re.MULTILINE)
    assert words_of(alarm) in words_of((place.parent / "alarm.txt").read_text())
    assert words_of(explained) in words_of(command.run(*shlex.split(asked), cwd=place).out)


def test_the_list_of_weight_checks_is_what_the_command_prints(place):
    page = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text\n(\$ step0-wandb weights\n.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    printed = command.run("weights", cwd=place).out
    assert words_of(shown.partition("\n")[2]) in words_of(printed)
    assert re.search(r"^passed +Qwen3-1\.7B ", printed, re.MULTILINE)


def test_the_demo_and_the_tests_are_installed_with_the_lock():
    demo, tests = installs()
    assert demo.endswith(".venv/bin/step0-wandb demo")
    assert tests.endswith(".venv/bin/python -m pytest -n 3 --dist worksteal")
    assert demo.count("-c requirements.lock") == tests.count("-c requirements.lock") == 1
    assert f"bash -c '{tests}'" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", commands())
def test_a_command_runs_on_the_demo(line, place, tmp_path):
    elsewhere = {"HOME": str(tmp_path), "WANDB_BASE_URL": NOTHING_LISTENS}
    done = command.run_line(line, cwd=place, program=command.install(tmp_path), **elsewhere)
    assert done.code == expected(line), done.err


def test_every_line_of_shell_is_an_install_or_is_run():
    lines = [line for line in "\n".join(blocks("sh")).splitlines() if line]
    assert sorted(lines) == sorted([*installs(), *commands()])


@pytest.mark.parametrize("block", blocks("python"))
def test_a_notebook_call_runs_on_the_demo(block, place):
    program = f"import matplotlib; matplotlib.use('agg')\n{block}\nprint(len(runs), len(verdicts))"
    done = python(program, cwd=place.parent)
    assert (done.code, done.err) == (0, "")
    runs, verdicts = map(int, done.out.split())
    assert runs == verdicts > 30


def test_what_people_switch_on_to_get_alerts_is_what_the_doctor_says():
    quoted = re.findall(r'"([^"]+)"', RECEIVING)
    for words in (*quoted, "User Settings > Alerts", "step0-sync", "webhook_env", "doctor --test-alert"):
        assert words in RECEIVING
        assert words in README
    assert quoted == ["Scriptable run alerts", "Connect Slack"]


def test_cron_runs_a_command_that_exists(place):
    for block in blocks("cron"):
        words = shlex.split(block.rsplit("step0-wandb ", 1)[1])
        assert command.run(*words, cwd=place).code == 0


def test_the_readme_names_only_commands_that_there_are(place):
    helped = command.run("--help", cwd=place).out
    assert set(re.findall(r"step0-wandb ([a-z]+)", README)) <= set(
        re.findall(r"^ {2}([a-z]+) ", helped, re.MULTILINE)
    )


def test_every_file_that_the_readme_links_or_shows_is_there():
    linked = re.findall(r"\]\((?!https?:)([^)#]+)\)|(?:src|srcset)=\"([^\"]+)\"", README)
    files = [one or other for one, other in linked]
    assert len(files) >= 9
    assert [name for name in files if not (ROOT / name).is_file()] == []
