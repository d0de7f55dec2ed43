"""``--summary FILE``: the outcome as Markdown for a job summary."""

import re

import pytest

from step0_wandb.publish.job_summary import job_summary
from tests.support.command import run
from tests.support.judged import judged
from tests.support.miles import miles_run

HOSTILE = "</td><img src=x>|**x**[a](javascript:b)`"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("summary")
    for number, gap in enumerate((0.0150, 0.0152, 0.0149)):
        miles_run(place / "all", f"ok{number}", gap)
    wrong = {"ref_load": "/models/Llama-3_torch_dist", "load": "/models/Llama-3_torch_dist"}
    miles_run(place / "all", "wrong", 0.0461, config=wrong)
    miles_run(place / "one", "wrong", 0.0461)
    return place


def test_a_sync_appends_what_is_broken_why_and_what_to_do(folder):
    (folder / "summary.md").write_text("before\n")
    answer = run("sync", "all", "--store", "s.db", "--summary", "summary.md", cwd=folder)
    assert answer.code == 0, answer.err
    text = (folder / "summary.md").read_text()
    assert text.startswith("before\n### step0-wandb: 4 runs seen, 4 new; stored: 1 broken, 3 healthy\n")
    assert "**broken**: run-wrong" in text
    assert "- likely: ref\\_load" in text
    assert "- do: " in text
    assert "| broken | run-wrong | 0.0461 | " in text


def test_a_check_can_print_it_and_exits_as_it_would_without(folder):
    answer = run("check", "one", "--store", "none.db", "--summary", "-", cwd=folder)
    assert answer.code == run("check", "one", "--store", "none.db", cwd=folder).code
    assert "### step0-wandb: run-wrong is " in answer.out


def test_json_and_a_summary_on_stdout_exclude_each_other(folder):
    assert run("check", "one", "--json", "--summary", "-", cwd=folder).code == 2


def test_a_summary_that_cannot_be_written_is_told_and_the_rest_is_done(folder):
    answer = run("sync", "all", "--store", "other.db", "--summary", "no/where.md", cwd=folder)
    assert (answer.code, "cannot write the summary no/where.md" in answer.err) == (7, True)
    assert run("runs", "--json", "--store", "other.db", cwd=folder).document["runs"]


def test_a_page_that_cannot_be_written_is_told_and_the_rest_is_done(folder):
    answer = run("sync", "all", "--store", "third.db", "--html", "no/where.html", cwd=folder)
    assert (answer.code, "cannot write the page no/where.html" in answer.err) == (7, True)
    assert "page:" not in answer.out
    assert run("runs", "--json", "--store", "third.db", cwd=folder).document["runs"]


def test_other_peoples_text_stays_text():
    run_of_evil = judged(name=HOSTILE, verdict="broken", gap=0.05, reasons=(HOSTILE,), setup=HOSTILE)
    text = job_summary(HOSTILE, [run_of_evil])
    assert not re.search(r"(?<!\\)<|\*\*x|\[a\]\(|javascript:b\)", text)
    assert r"\<img src=x\>\|" in text
