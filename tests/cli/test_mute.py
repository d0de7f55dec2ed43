"""``step0-wandb mute``: which setup, until when, and what is refused."""

from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.cli.app import run
from step0_wandb.store import Store
from tests.support.judged import setup_range

SMALL, LARGE = "miles · Qwen3-0.6B", "miles · Qwen3-4B"


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Return the store that a command finds, with two setups."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEP0_STORE", "step0.db")
    path = tmp_path / "step0.db"
    with Store.open(path, mode="write") as store:
        store.verdicts.save([], [setup_range(), setup_range(setup=LARGE)], now=datetime.now(UTC))
    return path


def mutes(path):
    with Store.open(path, mode="read") as store:
        return store.people.mutes()


def test_a_part_that_only_one_setup_has_mutes_it_for_the_span(path, capsys):
    before = datetime.now(UTC)
    assert run(["mute", "0.6b", "--for", "7d"]) == 0
    mute = mutes(path)[SMALL]
    assert timedelta(days=7) <= mute.until - before < timedelta(days=7, minutes=5)
    assert mute.who
    assert "miles · Qwen3-0.6B muted until " in capsys.readouterr().err
    with Store.open(path, mode="read") as store:
        assert store.notes.stale  # the next sync looks at what waits


@pytest.mark.parametrize("said", ["Qwen3-0.6B", "qwen3-0.6b", SMALL])
def test_a_label_without_its_profile_names_the_setup_that_is_called_so(path, said):
    longer = setup_range(setup=f"{SMALL} · top_p=0.95")
    with Store.open(path, mode="write") as store:
        store.verdicts.save([], [setup_range(), longer], now=datetime.now(UTC))
    assert run(["mute", said, "--for", "7d"]) == 0
    assert set(mutes(path)) == {SMALL}


def test_a_date_ends_a_mute_and_one_that_is_over_is_refused(path, capsys):
    assert run(["mute", SMALL, "--until", "2999-01-01"]) == 0
    assert mutes(path)[SMALL].until == datetime(2999, 1, 1, tzinfo=UTC)
    assert run(["mute", SMALL, "--until", "2020-01-01"]) == 2
    assert "is in the past" in capsys.readouterr().err


def test_an_accepted_setup_can_be_taken_back(path, capsys):
    assert run(["accept", SMALL, "--why", "new kernel"]) == 0
    with Store.open(path, mode="read") as store:
        assert set(store.people.accepts()) == {SMALL}
    assert run(["accept", SMALL, "--clear", "--why", "x"]) == 2
    assert run(["accept", SMALL, "--clear"]) == 0
    with Store.open(path, mode="read") as store:
        assert store.people.accepts() == {}
    assert run(["accept", SMALL, "--clear"]) == 0
    assert "was not accepted" in capsys.readouterr().err


def test_a_later_mute_takes_the_place_of_the_first(path):
    run(["mute", SMALL, "--for", "7d"])
    run(["mute", SMALL, "--for", "1h"])
    assert mutes(path)[SMALL].until < datetime.now(UTC) + timedelta(hours=2)


def test_a_mute_can_be_taken_back(path, capsys):
    run(["mute", SMALL, "--for", "7d"])
    assert run(["mute", SMALL, "--clear"]) == 0
    assert mutes(path) == {}
    assert run(["mute", SMALL, "--clear"]) == 0
    assert "was not muted" in capsys.readouterr().err


def test_a_dry_run_mutes_nothing(path, capsys):
    assert run(["mute", SMALL, "--for", "7d", "--dry-run"]) == 0
    assert run(["mute", SMALL, "--clear", "--dry-run"]) == 0
    assert mutes(path) == {}
    assert "would mute miles · Qwen3-0.6B until " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Qwen3"], "one of --for, --until and --clear"),
        (["Qwen3-4B", "--for", "7d", "--clear"], "one of --for, --until and --clear"),
        (["Qwen3-4B", "--for", "soon"], "is not a duration"),
        (["Llama", "--for", "7d"], "Llama"),
        (["Qwen3", "--for", "7d"], "matches 2 setups"),
    ],
)
def test_what_is_not_clear_is_refused_and_changes_nothing(path, capsys, words, said):
    assert run(["mute", *words]) == 2
    assert said in capsys.readouterr().err
    assert mutes(path) == {}


def test_without_a_store_no_setup_is_known_and_none_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEP0_STORE", "step0.db")
    assert run(["mute", SMALL, "--for", "7d"]) == 2
    assert "there is no store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
