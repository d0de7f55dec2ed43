"""Bad input: a clear error of one to three lines, the exit code of the contract, and nothing lost."""

import sqlite3

import pytest

from tests.support.command import run
from tests.support.miles import miles_run


def fails(answer, code, *said):
    assert answer.code == code, answer.err
    assert "Traceback" not in answer.err
    assert 1 <= len(answer.err.strip().splitlines()) <= 3
    for part in said:
        assert part in answer.err


def test_a_directory_without_runs(tmp_path):
    fails(run("sync", ".", cwd=tmp_path), 5, "error:")


def test_a_path_that_does_not_exist(tmp_path):
    fails(run("sync", "./nowhere", cwd=tmp_path), 2, "nowhere", "does not exist")


def test_a_source_that_is_nothing(tmp_path):
    fails(run("sync", "nothing", cwd=tmp_path), 2, "nothing", "entity/project")


def test_no_source_at_all(tmp_path):
    fails(run("sync", cwd=tmp_path), 2, "No source was given", "sources")


def test_a_file_that_is_no_wandb_file(tmp_path):
    (tmp_path / "run-x.wandb").write_bytes(b"PK\x03\x04 something else entirely")
    fails(run("check", "run-x.wandb", cwd=tmp_path), 5, "run-x.wandb")


def test_such_a_file_beside_good_runs_is_named_and_the_rest_is_stored(tmp_path):
    miles_run(tmp_path, "good")
    bad = miles_run(tmp_path, "bad")
    (file,) = bad.glob("*.wandb")
    file.write_bytes(b"PK\x03\x04 something else entirely")
    answer = run("sync", ".", "--json", cwd=tmp_path)
    assert answer.code == 7
    assert "run-bad.wandb" in answer.document["problems"][0]["where"]
    assert answer.document["counts"] == {"no-range": 1}
    assert run("sync", ".", cwd=tmp_path).code == 0


def test_a_file_that_cannot_be_opened_is_named_and_tried_again(tmp_path):
    miles_run(tmp_path, "good")
    (file,) = miles_run(tmp_path, "shut").glob("*.wandb")
    content = file.read_bytes()
    file.unlink()
    file.symlink_to(file.name)  # shuts out root too, whom permissions do not stop
    assert run("sync", ".", "--store", "s.db", cwd=tmp_path).code == 7
    file.unlink()
    file.write_bytes(content)
    answer = run("sync", ".", "--store", "s.db", "--json", cwd=tmp_path)
    assert (answer.code, answer.document["sources"][0]["runs_new"]) == (0, 1)


def test_a_store_that_is_no_database_stays_as_it_is(tmp_path):
    miles_run(tmp_path, "good")
    store = tmp_path / "step0.db"
    store.write_bytes(b"not a database, but somebody's file" * 40)
    before = store.read_bytes()
    fails(run("sync", ".", "--store", store, cwd=tmp_path), 6, "step0.db")
    fails(run("runs", "--store", store, cwd=tmp_path), 6, "step0.db")
    assert store.read_bytes() == before


def test_the_database_of_another_program_stays_as_it_is(tmp_path):
    miles_run(tmp_path, "good")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("create table mine (x)")
    connection.close()
    before = other.read_bytes()
    fails(run("sync", ".", "--store", other, cwd=tmp_path), 6, "other.db")
    assert other.read_bytes() == before


def test_a_store_that_is_not_there_names_the_command_that_makes_one(tmp_path):
    fails(run("runs", "--store", "none.db", cwd=tmp_path), 6, "none.db", "sync")
    assert not (tmp_path / "none.db").exists()


def test_a_typo_in_the_settings_file(tmp_path):
    (tmp_path / "step0.toml").write_text("sorces = ['./wandb']\n")
    fails(run("sync", cwd=tmp_path), 2, "sorces", "Did you mean sources?")


def test_a_wrong_profile_names_file_and_key(tmp_path):
    (tmp_path / "mine.toml").write_text("name = 'mine'\ntitel = 'Mine'\n")
    (tmp_path / "step0.toml").write_text("sources = ['.']\n[profiles]\npaths = ['mine.toml']\n")
    fails(run("sync", cwd=tmp_path), 2, "mine.toml", "titel")


def test_an_unknown_run_and_an_unknown_setup(tmp_path):
    miles_run(tmp_path, "good")
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    fails(run("explain", "nobody", "--store", "s.db", cwd=tmp_path), 2, "nobody")
    fails(run("label", "nobody", "healthy", "--why", "x", "--store", "s.db", cwd=tmp_path), 2, "nobody")
    fails(run("accept", "nobody", "--why", "x", "--store", "s.db", cwd=tmp_path), 2, "nobody")


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "x"],
        ["label", "x", "healthy", "--why", "y"],
        ["label", "x", "--clear"],
        ["accept", "x", "--why", "y"],
        ["mute", "x", "--until", "7d"],
    ],
)
def test_without_a_store_no_run_and_no_setup_is_known_and_none_is_made(tmp_path, words):
    fails(run(*words, "--store", "none.db", cwd=tmp_path), 2, "none.db", "sync")
    assert not list(tmp_path.glob("none.db*"))


def test_a_label_without_a_reason(tmp_path):
    fails(run("label", "x", "healthy", cwd=tmp_path), 2, "--why")


@pytest.mark.parametrize(
    "words", [["snyc"], ["sync", "--jsno"], ["runs", "--verdict", "bad"], ["runs", "--since", "soon"]]
)
def test_wrong_words_on_the_command_line(tmp_path, words):
    fails(run(*words, cwd=tmp_path), 2)


def test_a_mistyped_command_is_told_the_nearest_one(tmp_path):
    fails(run("exlain", cwd=tmp_path), 2, "Did you mean 'explain'")


def test_with_json_a_failure_is_a_document_too(tmp_path):
    answer = run("sync", "./nowhere", "--json", cwd=tmp_path)
    assert answer.code == 2
    assert answer.document["schema"] == "step0/error/1"
    assert answer.document["error"].keys() == {"kind", "message", "hint"}
    answer = run("sync", "--jsno", "--json", cwd=tmp_path)
    assert (answer.code, answer.document["error"]["kind"]) == (2, "usage")


def test_one_source_that_fails_does_not_touch_the_others(tmp_path):
    miles_run(tmp_path / "a", "good")
    (tmp_path / "b").mkdir()
    answer = run("sync", "a", "b", "--json", cwd=tmp_path)
    assert answer.code == 7
    assert answer.document["counts"] == {"no-range": 1}
    assert [bool(source["error"]) for source in answer.document["sources"]] == [False, True]


def test_check_judges_one_run_and_says_so(tmp_path):
    miles_run(tmp_path, "one")
    miles_run(tmp_path, "two")
    fails(run("check", ".", cwd=tmp_path), 2, "2 runs")


def test_check_creates_no_store(tmp_path):
    place = miles_run(tmp_path, "one")
    answer = run("check", place, "--store", "s.db", "--json", cwd=tmp_path)
    assert (answer.code, answer.document["run"]["verdict"]) == (0, "no-range")
    assert not list(tmp_path.glob("s.db*"))


def test_names_that_steer_a_terminal_are_made_harmless(tmp_path):
    miles_run(tmp_path, "evil", 0.9, display_name="\x1b[2J\x1b]0;owned\x07</script>\u202eevil" + "x" * 5000)
    answer = run("sync", ".", cwd=tmp_path)
    table = run("runs", cwd=tmp_path, STEP0_STORE=str(tmp_path / "none"))
    assert "\x1b" not in answer.out + answer.err + table.out + table.err
    assert "\u202e" not in answer.out
