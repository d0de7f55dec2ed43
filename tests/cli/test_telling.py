"""What a job tells next to its data: lines with the time for logs, JSON for collectors, nothing if nothing is new."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.command import run
from tests.support.miles import miles_run
from tests.support.terminal import on_terminal, plain

STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (.+)")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with runs that are new to its store, one of them broken and one unreadable."""
    for number, gap in enumerate((0.0150, 0.0152, 0.0149)):
        miles_run(tmp_path, f"healthy{number}", gap)
    miles_run(tmp_path, "wrong", 0.0461)
    (file,) = miles_run(tmp_path, "bad").glob("*.wandb")
    file.write_bytes(b"PK\x03\x04 something else entirely")
    return tmp_path


def stamped(text):
    """Return the texts of lines that each begin with a time, which is about now."""
    found = [STAMP.fullmatch(line) for line in text.splitlines()]
    assert all(found), text
    for match in found:
        moment = datetime.fromisoformat(match[1])
        assert abs(datetime.now(UTC) - moment) < timedelta(minutes=5)
    return [match[2] for match in found]


def test_lines_that_no_terminal_shows_carry_the_time(folder):
    answer = run("sync", ".", cwd=folder)
    (problem,) = [line for line in stamped(answer.err) if line.startswith("problem: ")]
    assert "run-bad.wandb" in problem
    summary = stamped(answer.out.splitlines()[-1])
    assert summary == ["4 runs seen, 4 new; stored: 1 broken, 3 healthy"]


def test_a_dry_run_says_that_it_would_write_the_page_and_writes_none(folder):
    answer = run("sync", ".", "--html", "page.html", "--dry-run", cwd=folder)
    assert "would write page.html" in stamped(answer.err)
    assert "page:" not in answer.out
    assert not list(folder.glob("*.html"))


def test_on_a_terminal_lines_are_plain(folder):
    lines = plain(on_terminal("sync", ".", cwd=folder, columns=200).out).splitlines()
    assert any(line.startswith("problem: ") for line in lines)
    assert not any(STAMP.search(line) for line in lines)


def test_with_log_format_json_all_lines_are_objects_and_stdout_is_left_to_data(folder):
    answer = run("sync", ".", "--log-format", "json", cwd=folder)
    lines = [json.loads(line) for line in answer.err.splitlines()]
    assert answer.out == ""
    assert all(line.keys() == {"time", "level", "message"} for line in lines)
    assert all(datetime.fromisoformat(line["time"]).tzinfo for line in lines)
    by_level = {line["level"]: line["message"] for line in lines}
    assert by_level["info"] == "4 runs seen, 4 new; stored: 1 broken, 3 healthy"
    warnings = [line["message"] for line in lines if line["level"] == "warning"]
    assert any(text.startswith("broken: run-wrong: gap 0.0461 is 3.1 times") for text in warnings)
    assert any(text.startswith("problem: ") for text in warnings)


def test_a_failure_is_a_log_line_too(tmp_path):
    answer = run("sync", "./nowhere", cwd=tmp_path)
    first, *rest = stamped(answer.err)
    assert first.startswith("error: ")
    assert "nowhere" in first
    assert len(rest) <= 2
    answer = run("sync", "./nowhere", "--log-format", "json", cwd=tmp_path)
    (line,) = [json.loads(text) for text in answer.err.splitlines()]
    assert line["level"] == "error"
    assert "nowhere" in line["message"]


@pytest.mark.parametrize(
    "words", [("label", "r", "--clear"), ("mute", "s", "--clear"), ("explain", "r"), ("ranges",)]
)
def test_every_command_tells_its_failures_as_objects_where_a_log_wants_them(tmp_path, words):
    answer = run(*words, "--store", "none.db", "--log-format", "json", cwd=tmp_path)
    (line,) = [json.loads(text) for text in answer.err.splitlines()]
    assert (answer.code != 0, answer.out) == (True, "")
    assert (line["level"], "none.db" in line["message"]) == ("error", True)


def test_other_peoples_text_cannot_break_a_line_of_the_log(tmp_path):
    evil = "a\n2026-01-01T00:00:00Z all is well\x1b[2J"
    for number in range(3):
        miles_run(tmp_path, f"h{number}", 0.0150 + number / 10000)
    miles_run(tmp_path, "x", 0.0461, display_name=evil)
    answer = run("sync", ".", "--log-format", "json", cwd=tmp_path)
    broken = [json.loads(line)["message"] for line in answer.err.splitlines() if "broken: " in line]
    assert len(broken) == 1
    assert "\n" not in broken[0]
    assert "\x1b" not in broken[0]


def test_quiet_says_one_line_when_something_is_new_and_nothing_when_not(folder):
    first = run("sync", ".", "-q", cwd=folder)
    assert stamped(first.out) == ["4 runs seen, 4 new; stored: 1 broken, 3 healthy"]
    second = run("sync", ".", "-q", cwd=folder)
    assert (second.code, second.out, second.err) == (0, "", "")
    miles_run(folder, "late", 0.0151)
    third = run("sync", ".", "-q", cwd=folder)
    assert stamped(third.out) == ["5 runs seen, 1 new; stored: 1 broken, 4 healthy"]


def test_quiet_names_a_broken_run_and_its_place_once(tmp_path):
    for number in range(3):
        miles_run(tmp_path, f"h{number}", 0.0150 + number / 10000)
    miles_run(tmp_path, "x", 0.0461, started=int(datetime.now(UTC).timestamp()) - 600)
    answer = run("sync", ".", "-q", cwd=tmp_path)
    assert [re.sub(r"gap .*\)", "gap ...", line) for line in stamped(answer.err)] == [
        "broken: run-x: gap ...: team/project/x"
    ]
    assert run("sync", ".", "-q", cwd=tmp_path).err == ""
