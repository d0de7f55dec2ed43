"""``step0-wandb runs``: filters, order, and what it prints; and options that all commands share."""

import csv
import io

import pytest

from step0_wandb.cli.app import run as program
from tests.support.command import run
from tests.support.miles import miles_run
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file

DAY_S = 86400
START_S = 1_790_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a store: healthy runs, a broken and a suspect one, and one that is no RL."""
    place = tmp_path_factory.mktemp("runs")
    for day, gap in enumerate((0.0150, 0.0152, 0.0149, 0.0151)):
        miles_run(place / "all", f"ok{day}", gap, started=START_S + day * DAY_S)
    miles_run(place / "all", "wrong", 0.0461, started=START_S, display_name="=HYPERLINK(1)")
    miles_run(place / "all", "high", 0.0220, started=START_S + 9 * DAY_S)
    records = [run_record("sft", {"lr": 1}), history_record({"loss": 1.0}), exit_record()]
    write_file(place / "all", wandb_file(*records), run_id="sft")
    assert run("sync", "all", "--store", "step0.db", cwd=place).code == 0
    return place


def runs(folder, *words):
    return run("runs", *words, cwd=folder, STEP0_STORE="step0.db")


def ids(answer):
    return [row["run"].rpartition("/")[2] for row in csv.DictReader(io.StringIO(answer.out))]


def test_several_verdicts_stand_in_one_option_or_in_several(folder):
    for words in (["--verdict", "broken,suspect"], ["--verdict", "broken", "--verdict", "suspect"]):
        assert ids(runs(folder, "--csv", *words)) == ["wrong", "high"]
    answer = runs(folder, "--verdict", "broken,brokn")
    assert (answer.code, "unknown verdict 'brokn'" in answer.err) == (2, True)


def test_the_worst_come_first_and_other_orders_can_be_asked_for(folder):
    assert ids(runs(folder, "--csv"))[:2] == ["wrong", "high"]
    assert ids(runs(folder, "--csv", "--sort", "gap"))[:3] == ["wrong", "high", "ok1"]
    assert ids(runs(folder, "--csv", "--sort", "created"))[:3] == ["high", "ok3", "ok2"]
    assert ids(runs(folder, "--csv", "--sort", "ratio"))[0] == "wrong"


def test_a_limit_keeps_the_first_and_says_how_many_there_are_more(folder):
    assert ids(runs(folder, "--csv", "--limit", "1")) == ["wrong"]
    assert "5 more runs; raise --limit" in runs(folder, "--limit", "1").out
    assert len(runs(folder, "--json", "--limit", "2").document["runs"]) == 2


def test_runs_of_no_known_framework_are_left_out_but_for_all_and_json(folder):
    assert "sft" not in ids(runs(folder, "--csv"))
    assert "1 run of no known framework left out (see --all)" in runs(folder).out
    assert "sft" in ids(runs(folder, "--csv", "--all"))
    assert len(runs(folder, "--json").document["runs"]) == 7


def test_since_takes_a_date(folder):
    assert ids(runs(folder, "--csv", "--since", "2026-09-29")) == ["high"]
    answer = runs(folder, "--since", "yesterday")
    assert (answer.code, "is not a duration or a date" in answer.err) == (2, True)


def test_a_project_is_named_whole_or_by_its_last_part(folder):
    (run_key, *_) = [item["run"] for item in runs(folder, "--json").document["runs"]]
    project = run_key.rpartition("/")[0]
    assert ids(runs(folder, "--csv", "--project", project)) == ids(runs(folder, "--csv"))
    assert ids(runs(folder, "--csv", "--project", project.rpartition("/")[2])) == ids(runs(folder, "--csv"))
    assert ids(runs(folder, "--csv", "--project", "nowhere")) == []


def test_a_name_is_never_a_formula_of_a_spreadsheet(folder):
    (row,) = csv.DictReader(io.StringIO(runs(folder, "--csv", "--verdict", "broken").out))
    assert row["name"] == "'=HYPERLINK(1)"


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "--store", "step0.db", "runs", "--limit", "1"],
        ["--store=step0.db", "--json", "runs", "--limit", "1"],
    ],
)
def test_options_that_all_commands_share_may_come_before_the_command(folder, words):
    answer = run(*words, cwd=folder)
    assert (answer.code, len(answer.document["runs"])) == (0, 1)


@pytest.mark.parametrize("command", ["sync", "runs", "explain", "doctor", "demo", "label", "mute", "gate"])
def test_help_shows_no_types_of_python(command, capsys):
    assert program([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert not [word for word in ("<str>", "<int>", "list[", "[[") if word in text]
