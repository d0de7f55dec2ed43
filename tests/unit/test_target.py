"""Which projects a sync writes to, and what of the store concerns each."""

import pytest

from step0_wandb.errors import UsageError
from step0_wandb.publish.wandb.target import shown_in, targets
from step0_wandb.settings.load import load_settings


def loaded(tmp_path, **flags):
    return load_settings(cwd=tmp_path, environ={}, flags=flags)


def described(found):
    return {
        str(target): ("shows" if target.shows else "") + (" shares" if target.shares else "")
        for target in found
    }


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, {"team/rl": " shares", "team/sft": " shares"}),
        ("same", {"team/rl": "shows shares", "team/sft": "shows shares"}),
        ("team/sft", {"team/rl": " shares", "team/sft": "shows shares"}),
        (
            "https://wandb.example.com/team/health",
            {"team/rl": " shares", "team/sft": " shares", "team/health": "shows shares"},
        ),
    ],
)
def test_every_project_that_is_read_gets_the_state_and_those_of_the_setting_tables_and_report(
    tmp_path, setting, expected
):
    (tmp_path / "wandb").mkdir()
    sources = [
        "team/rl/7f3a",
        str(tmp_path / "wandb"),
        "https://wandb.example.com/team/rl",
        "wandb:team/sft",
        "no such thing",
    ]
    found = targets(sources, loaded(tmp_path, **{"report.wandb": setting}))
    assert described(found) == expected
    assert [target.texts for target in found[:2]] == [(sources[0], sources[2]), (sources[3],)]
    assert str(found[0].address) == "team/rl"


def test_directories_alone_write_to_no_project_unless_one_is_named(tmp_path):
    assert targets([str(tmp_path)], loaded(tmp_path, **{"report.wandb": "same"})) == ()
    [home] = targets([str(tmp_path)], loaded(tmp_path, **{"report.wandb": "team/health"}))
    assert (str(home), home.shows, home.scope.everything) == ("team/health", True, True)


def test_without_the_state_only_projects_with_a_report_are_written_to(tmp_path):
    settings = {"report.wandb": "team/health", "report.state": False}
    found = targets(["team/rl"], loaded(tmp_path, **settings))
    assert described(found) == {"team/health": "shows"}
    assert targets(["team/rl"], loaded(tmp_path, **{"report.state": False})) == ()


def test_runs_of_no_project_count_as_the_first_projects(tmp_path):
    first, second = targets(["team/rl", "team/sft"], loaded(tmp_path))
    keys = {"rl": "team/rl/a", "sft": "team/sft/b", "disk": "_/rl/c", "other": "else/where/d"}
    assert {name for name, key in keys.items() if first.scope.has(key)} == {"rl", "disk", "other"}
    assert {name for name, key in keys.items() if second.scope.has(key)} == {"sft"}


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({}, {"team/step0": " shares"}),
        ({"report.wandb": "same"}, {"team/step0": "shows shares"}),
        ({"report.wandb": "team/step0"}, {"team/step0": "shows shares"}),
        ({"report.wandb": "team/health"}, {"team/step0": " shares", "team/health": "shows"}),
        ({"report.wandb": "same", "report.state": False}, {"team/step0": "shows"}),
        ({"report.state": False}, {}),
    ],
)
def test_a_home_is_the_only_project_that_is_written_to_besides_a_named_report(tmp_path, report, expected):
    found = targets(["team/rl", "team/sft"], loaded(tmp_path, **{"report.home": "team/step0"}, **report))
    assert described(found) == expected
    assert all(target.scope.everything for target in found)
    assert all(target.texts == ("team/rl", "team/sft") for target in found)


def test_a_home_that_is_not_a_project_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"report\.home = 'step0' does not name a W&B project"):
        targets(["team/rl"], loaded(tmp_path, **{"report.home": "step0"}))


@pytest.mark.parametrize("setting", ["health", "./wandb", "a/b/c/d/e", "https://wandb.example.com/"])
def test_a_setting_that_names_no_project_is_refused_with_its_value(tmp_path, setting):
    with pytest.raises(UsageError, match=r"report\.wandb = ") as caught:
        targets(["team/rl"], loaded(tmp_path, **{"report.wandb": setting}))
    assert setting in caught.value.message


def test_the_report_command_takes_the_settings_projects_or_the_one_it_is_given(tmp_path):
    known = targets(["team/rl", "team/sft"], loaded(tmp_path, **{"report.wandb": "same"}))
    assert shown_in(known, None, shares=True) == known
    assert shown_in(known, "team/sft", shares=True) == known[1:]
    [other] = shown_in(known, "team/health", shares=False)
    assert (str(other), other.scope.everything, other.shares) == ("team/health", True, False)
    with pytest.raises(UsageError, match="no source is a W&B project"):
        shown_in((), None, shares=True)
    with pytest.raises(UsageError, match="--wandb = 'health' does not name a W&B project"):
        shown_in(known, "health", shares=True)
