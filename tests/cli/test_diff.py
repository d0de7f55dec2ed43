"""``step0-wandb diff`` and `s0.diff`: what differs between two runs."""

import pytest

import step0_wandb as s0
from tests.support.command import run
from tests.support.miles import miles_run

LONG = "/models/" + "x" * 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a store: three healthy runs, a broken one with another model, two without a gap."""
    place = tmp_path_factory.mktemp("diff")
    for number, gap in enumerate((0.0150, 0.0152, 0.0149)):
        miles_run(place / "all", f"ok{number}", gap)
    miles_run(place / "all", "wrong", 0.0461, config={"ref_load": LONG, "rotary_base": 10000})
    miles_run(place / "all", "alone", 0.02, config={"hf_checkpoint": "/models/Llama-9B"})
    for name in ("nan1", "nan2"):
        miles_run(place / "all", name, float("nan"))
    assert run("sync", "all", "--store", "step0.db", cwd=place).code == 0
    return place


def diff(folder, *words):
    return run("diff", *words, cwd=folder, STEP0_STORE="step0.db")


def keys(answer, part="differs"):
    return {(pair["about"], pair["key"]) for pair in answer.document[part]}


def test_a_run_is_compared_with_the_nearest_healthy_one_by_default(folder):
    answer = diff(folder, "wrong", "--json")
    assert answer.document["b"]["verdict"] == "healthy"
    assert {("config", "ref_load"), ("config", "rotary_base"), ("step 0", "gap")} <= keys(answer)


def test_whole_values_are_compared_and_printed(folder):
    assert LONG in diff(folder, "wrong", "ok0").out
    assert ("config", "hf_checkpoint") not in keys(diff(folder, "wrong", "ok0", "--json"))


def test_equal_values_are_shown_when_asked_for(folder):
    assert "equal" not in diff(folder, "wrong", "ok0", "--json").document
    assert ("config", "hf_checkpoint") in keys(diff(folder, "wrong", "ok0", "--json", "--all"), "equal")
    assert "hf_checkpoint" in diff(folder, "wrong", "ok0", "--all").out


def test_nan_does_not_differ_from_nan(folder):
    assert ("step 0", "gap") not in keys(diff(folder, "nan1", "nan2", "--json"))


def test_without_a_healthy_run_a_second_one_has_to_be_named(folder, tmp_path):
    miles_run(tmp_path / "all", "only", 0.0150)
    run("sync", "all", "--store", "step0.db", cwd=tmp_path)
    answer = diff(tmp_path, "only")
    assert (answer.code, "Name a second run" in answer.err) == (2, True)
    assert diff(folder, "wrong", "nobody").code == 2


def test_packages_that_are_not_known_are_said_to_be_so(folder):
    assert "could not be compared" in diff(folder, "wrong", "ok0").out


def test_a_notebook_gets_the_same_answer(folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = s0.diff("wrong", "ok0", store="step0.db")
    document = diff(folder, "wrong", "ok0", "--json").document
    assert [pair.key for pair in found.differs] == [pair["key"] for pair in document["differs"]]
    assert "rotary_base: 10000 | " in str(found)
    assert "<table>" in found._repr_html_()
