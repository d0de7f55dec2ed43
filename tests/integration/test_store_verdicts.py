"""Verdicts, ranges and what people say: kept from sync to sync, written only where they differ."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event

from step0_wandb.records import VERDICTS, CheckResult
from step0_wandb.store import Accept, Label, Retraction, Store
from tests.support.judged import judged, setup_range
from tests.support.stored import LATER, NOW, SERVER, SETUP, facts, from_server, record

CHECKS = (
    CheckResult("ppo_kl", "pass", 0.0, 1e-9, ""),
    CheckResult("gap", "fail", 0.0461, 0.0165, "gap 0.0461 is 3.0 times the center"),
    CheckResult("gap", "vacuous", math.nan, math.inf, "a second word on the same check"),
)


def verdict(run_id="a", **changes):
    """Return a verdict on a run of the store, as judging gives it."""
    run = record(run_id)
    who = ("name", "url", "user", "group", "created_at", "state")
    return replace(judged(), run=run.key, **{name: getattr(run, name) for name in who} | changes)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write") as opened:
        opened.sources.save_readings(SERVER, [from_server(name) for name in "abc"], now=NOW)
        yield opened


def save(store, *runs, setups=(), now=NOW):
    return store.verdicts.save(runs, setups, now=now)


def writes(store):
    """Return the list of statements that change the store from now on."""
    found = []

    @event.listens_for(store._database.connection, "before_cursor_execute")
    def note(_connection, _cursor, statement, *_more):
        if not statement.startswith(("SELECT", "BEGIN")):
            found.append(statement)

    return found


def test_a_verdict_comes_back_as_it_was_judged(store):
    whole = verdict(verdict="broken", checks=CHECKS, reasons=("one", "two"), gap=0.0461, ratio=3.0)
    bare = verdict(
        "b",
        verdict="no-step0",
        **dict.fromkeys(
            ("ppo_kl", "clip_frac", "gap", "gap_metric", "profile", "setup", "range", "ratio", "p_value")
        ),
    )
    odd = verdict("c", verdict="suspect", gap=math.inf, ratio=math.inf, p_value=0.0, ppo_kl=-0.0)
    save(store, whole, bare, odd)
    back = {run.run: run for run in store.verdicts.runs()}
    assert repr(back["team/rl/a"]) == repr(whole)
    assert back["team/rl/b"] == bare
    assert repr(back["team/rl/c"]) == repr(odd)


def test_the_gravest_come_first_and_of_these_the_newest(store):
    names = [f"r{at}" for at in range(len(VERDICTS) * 2)]
    times = {name: NOW - timedelta(hours=at % 3) if at else None for at, name in enumerate(names)}
    store.sources.save_readings(
        SERVER, [from_server(name, created_at=times[name]) for name in names], now=NOW
    )
    given = [verdict(name, verdict=VERDICTS[at % len(VERDICTS)]) for at, name in enumerate(names)]
    save(store, *given)
    found = store.verdicts.runs()
    oldest = NOW - timedelta(days=999)
    assert found == sorted(
        found,
        key=lambda run: (VERDICTS.index(run.verdict), -(run.created_at or oldest).timestamp(), run.run),
    )
    assert len(found) == len(names)


def test_only_news_is_told(store):
    assert save(store, verdict("b"), verdict("a")) == ("team/rl/a", "team/rl/b")
    assert save(store, verdict("a"), verdict("b")) == ()
    assert save(store, verdict("a", verdict="suspect"), verdict("b")) == ("team/rl/a",)
    assert save(store, verdict("a", verdict="suspect", gap=0.02), verdict("b")) == ("team/rl/a",)
    assert save(store, verdict("a", verdict="suspect", gap=0.02), verdict("b", label="healthy")) == (
        "team/rl/b",
    )


def test_a_range_that_moves_a_little_is_stored_and_is_no_news(store):
    save(store, verdict("a"))
    moved = verdict("a", range=setup_range(n=18, center=0.01521), reasons=("of 18 healthy runs",))
    assert save(store, moved, now=LATER) == ()
    assert store.verdicts.runs() == [moved]
    assert store.notes.get("changed_at") == LATER.isoformat()


def test_a_value_that_becomes_nan_is_news(store):
    save(store, verdict("a", gap=None))
    assert save(store, verdict("a", gap=math.nan)) == ("team/rl/a",)
    assert save(store, verdict("a", gap=math.nan)) == ()


def test_nothing_is_written_where_nothing_changed(store):
    given = [verdict("a", checks=CHECKS), verdict("b")]
    save(store, *given, setups=[setup_range()])
    statements = writes(store)
    save(store, *given, setups=[setup_range()], now=LATER)
    assert statements == []
    assert store.notes.get("changed_at") == NOW.isoformat()
    save(store, given[0], verdict("b", ratio=2.0), setups=[setup_range()], now=LATER)
    assert len(statements) > 0
    assert store.notes.get("changed_at") == LATER.isoformat()


def test_a_run_that_is_judged_no_more_has_no_verdict(store):
    save(store, verdict("a"), verdict("b"))
    assert save(store, verdict("a")) == ()
    assert [run.run for run in store.verdicts.runs()] == ["team/rl/a"]
    assert save(store, verdict("a"), verdict("b")) == ("team/rl/b",)


def test_a_verdict_on_an_unknown_run_is_a_mistake_and_changes_nothing(store):
    with pytest.raises(KeyError):
        save(store, verdict("a"), verdict("unknown"))
    assert store.verdicts.runs() == []


def test_who_a_run_is_and_what_people_say_of_it_are_of_today(store):
    save(store, verdict("a"))
    store.runs.update([record("a", name="new", state="failed")])
    store.people.save(Label("team/rl/a", "exclude", "trial", "mia", NOW))
    (run,) = store.verdicts.runs()
    assert (run.name, run.state, run.label, run.verdict) == ("new", "failed", "exclude", "healthy")


def test_verdicts_are_found_by_what_people_ask_for(store):
    store.sources.save_readings(
        SERVER,
        [from_server("d", user="noa", created_at=NOW), from_server("e", created_at=None)],
        now=NOW,
    )
    other = replace(facts(), setup="verl · 100%_real")
    store.runs.refresh_facts(lambda record: other if record.run_id == "c" else facts())
    save(store, verdict("a", verdict="broken"), *(verdict(name) for name in "bcde"))

    def ids(**wanted):
        return sorted(run.run[-1] for run in store.verdicts.runs(**wanted))

    assert ids(verdict=["broken"]) == ["a"]
    assert ids(verdict=["broken", "healthy"]) == list("abcde")
    assert ids(verdict=[]) == []
    assert ids(user="noa") == ["d"]
    assert ids(since=NOW) == ["d"]
    assert ids(since=NOW - timedelta(days=1)) == list("abcd")
    assert ids(setup="QWEN3-0.6") == list("abde")
    assert ids(setup="%_") == ["c"]
    assert ids(setup="QWEN3", user="mia", verdict=["healthy"]) == list("be")
    assert ids(keys=["team/rl/b", "team/rl/none"]) == ["b"]
    assert ids(keys=[]) == []


def test_more_keys_may_be_asked_for_than_sql_takes_at_once(store):
    save(store, verdict("a"))
    assert len(store.verdicts.runs(keys=[f"team/rl/{at:x}" for at in range(40_000)])) == 1


def test_verdicts_are_counted_the_gravest_first(store):
    save(store, verdict("a"), verdict("b", verdict="broken"), verdict("c"))
    assert list(store.verdicts.counts().items()) == [("broken", 1), ("healthy", 2)]


def test_ranges_come_back_by_setup_and_are_replaced_as_a_whole(store):
    two = [
        setup_range(setup="b", note="moved"),
        setup_range(setup="a", center=None, df=math.inf, accepted=True),
    ]
    save(store, setups=two)
    assert store.verdicts.ranges() == two[::-1]
    save(store, setups=[two[0]])
    assert store.verdicts.ranges() == [two[0]]


def test_judging_settles_what_was_stale_and_words_of_people_raise_it_again(store):
    assert store.notes.stale
    save(store, verdict("a"))
    assert not store.notes.stale
    store.people.save(Label("team/rl/a", "healthy", "why", "mia", NOW))
    assert store.notes.stale
    save(store, verdict("a"))
    assert not store.people.retract(Retraction("label", "team/rl/none", LATER))
    assert not store.notes.stale
    assert store.people.retract(Retraction("label", "team/rl/a", LATER))
    assert store.notes.stale
    save(store, verdict("a"))
    store.people.save(Accept(SETUP, "new image", "mia", NOW))
    assert store.notes.stale
    save(store, verdict("a"))
    store.notes.mark_stale()
    assert store.notes.stale


def test_the_last_word_of_a_person_counts(store):
    store.people.save(Label("team/rl/a", "broken", "first", "mia", NOW))
    store.people.save(Label("team/rl/a", "healthy", "second", "noa", LATER))
    store.people.save(Label("not/yet/known", "exclude", "'; --", "mia", NOW))
    assert store.people.labels() == {
        "not/yet/known": Label("not/yet/known", "exclude", "'; --", "mia", NOW),
        "team/rl/a": Label("team/rl/a", "healthy", "second", "noa", LATER),
    }
    store.people.retract(Retraction("label", "team/rl/a", LATER))
    assert list(store.people.labels()) == ["not/yet/known"]


def test_an_accepted_setup_is_known_to_its_runs(store):
    store.people.save(Accept(SETUP, "first", "mia", NOW))
    store.people.save(Accept(SETUP, "again", "noa", LATER))
    assert store.people.accepts() == {SETUP: Accept(SETUP, "again", "noa", LATER)}
    assert store.runs.frame()["accepted_at"].dt.to_pydatetime().tolist() == [LATER] * 3


@pytest.mark.parametrize("value", [None, 0, False, "", [1, {"a": None}], "2026-11-01T00:00:00+00:00"])
def test_a_note_comes_back_as_it_was_written(store, value):
    store.notes.put("note", "before")
    store.notes.put("note", value)
    assert store.notes.get("note") == value
    assert store.notes.get("other") is None
