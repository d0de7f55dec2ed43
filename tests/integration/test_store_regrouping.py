"""Setups whose names change take along what people said about them and what was alerted."""

from dataclasses import replace

import pytest

from step0_wandb.store import Accept, Message, Mute, Store, Subject
from tests.support.stored import LATER, NOW, SETUP, facts, from_server, save

HALVES = {"a": "miles · qwen3-4b-math", "b": "miles · glm-9b-code"}
ACCEPT, MUTE = Accept(SETUP, "new image", "mia", NOW), Mute(SETUP, LATER, "mia", NOW)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write") as opened:
        save(opened, from_server("a"), from_server("b"))
        yield opened


def regroup(store, names):
    """Give the runs other setups; return the setups whose accepts and mutes went along."""
    moved = store.runs.refresh_facts(lambda record: replace(facts(), setup=names[record.run_id]))
    return {old for old, new in moved.items() for name in new if store.people.carry_over(old, name)}


def test_accepts_and_mutes_go_on_under_the_new_name_and_are_told_once(store):
    store.people.save(ACCEPT)
    store.people.save(MUTE)
    new = dict.fromkeys("ab", "new")
    assert regroup(store, new) == {SETUP}
    assert store.people.accepts()["new"] == replace(ACCEPT, setup="new")
    assert store.people.mutes()["new"] == replace(MUTE, setup="new")
    assert regroup(store, new) == set()


def test_a_setup_that_falls_apart_leaves_its_accepts_to_every_part(store):
    store.people.save(ACCEPT)
    assert regroup(store, HALVES) == {SETUP}
    assert store.people.accepts().keys() >= set(HALVES.values())


def test_a_setup_that_keeps_some_of_its_runs_keeps_its_accept(store):
    store.people.save(ACCEPT)
    regroup(store, {"a": SETUP, "b": "new"})
    assert store.people.accepts().keys() == {SETUP, "new"}


def test_what_a_person_said_about_the_new_name_stays(store):
    mine = replace(ACCEPT, setup="new", why="measured")
    store.people.save(ACCEPT)
    store.people.save(mine)
    regroup(store, dict.fromkeys("ab", "new"))
    assert store.people.accepts()["new"] == mine


@pytest.mark.parametrize("accepted", [False, True])
def test_what_was_alerted_about_a_setup_is_not_alerted_again(store, accepted):
    if accepted:  # before the alert, which it does not answer then
        store.people.save(ACCEPT)
    subject = Subject(SETUP, "moved")
    message = Message("wandb", "WARN", "moved", "text", "team", "rl", "aa11", None, (subject,))
    store.outbox.add(message, now=LATER)
    store.outbox.mark_sent(store.outbox.unsent()[0].number, now=LATER)
    regroup(store, dict.fromkeys("ab", "new"))
    assert Subject("new", "moved") in store.outbox.alerted("wandb")


def test_setups_that_nobody_spoke_about_change_their_names_in_silence(store):
    assert regroup(store, HALVES) == set()
    assert set(store.runs.frame()["setup"]) == set(HALVES.values())
    assert store.notes.stale
