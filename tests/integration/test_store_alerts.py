"""The store's outbox: messages and verdicts together or not at all, and nothing told twice."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.store import Accept, Message, Mute, Retraction, RunPresence, Store, Subject
from tests.support.judged import judged
from tests.support.stored import DISK, LATER, NOW, SERVER, SETUP, from_disk, from_server

RUN, OTHER = "team/rl/aa11", "team/rl/bb22"
BROKEN, SUSPECT = Subject(RUN, "broken"), Subject(OTHER, "suspect")
MOVED = Subject(SETUP, "moved")


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        yield store


def message(*subjects, **changes):
    found = Message(
        "wandb", "ERROR", "Broken at step 0: aa11", "several\nlines", "team", "rl", "aa11", None, subjects
    )
    return replace(found, **changes)


def test_a_message_waits_with_all_it_says_until_it_was_sent(store):
    digest = message(BROKEN, SUSPECT, url="https://wandb.example.com/x")
    store.outbox.add(digest, now=NOW)
    (queued,) = store.outbox.unsent()
    assert (queued.message, queued.queued_at, queued.failure) == (digest, NOW, None)
    assert store.outbox.alerted("wandb") == {BROKEN, SUSPECT}
    assert store.outbox.alerted("webhook") == set()
    store.outbox.mark_sent(queued.number, now=LATER)
    assert store.outbox.unsent() == ()
    assert store.outbox.alerted("wandb") == {BROKEN, SUSPECT}


def test_a_failure_is_kept_until_the_message_was_sent(store):
    store.outbox.add(message(BROKEN), now=NOW)
    (queued,) = store.outbox.unsent()
    store.outbox.mark_failed(queued.number, "HTTP 403")
    assert [waiting.failure for waiting in store.outbox.unsent()] == ["HTTP 403"]
    store.outbox.mark_sent(queued.number, now=LATER)
    assert store.outbox.unsent() == ()


def test_the_gravest_go_first_and_then_the_oldest(store):
    store.outbox.add(message(Subject("a/b/1", "suspect"), severity="WARN", title="1"), now=NOW)
    store.outbox.add(message(Subject("a/b/2", "broken"), title="2"), now=NOW)
    store.outbox.add(message(Subject("a/b/3", "broken"), title="3"), now=LATER)
    assert [queued.message.title for queued in store.outbox.unsent()] == ["2", "3", "1"]


def test_a_message_that_is_withdrawn_leaves_nothing_behind(store):
    store.outbox.add(message(BROKEN, SUSPECT), now=NOW)
    store.outbox.withdraw(store.outbox.unsent()[0].number)
    assert store.outbox.unsent() == ()
    assert store.outbox.alerted("wandb") == set()


def test_what_fails_together_with_a_message_takes_it_along(store):
    def add_and_fail():
        with store.transaction():
            store.outbox.add(message(BROKEN), now=NOW)
            store.verdicts.save([judged()], [], now=NOW)  # of a run that is not stored

    with pytest.raises(KeyError):
        add_and_fail()
    assert store.outbox.unsent() == ()
    assert store.outbox.alerted("wandb") == set()


def test_what_was_sent_is_exported_and_what_waits_is_not(store):
    store.outbox.add(message(BROKEN), now=NOW)
    store.outbox.mark_sent(store.outbox.unsent()[0].number, now=NOW)
    store.outbox.add(message(SUSPECT, channel="webhook"), now=NOW)
    assert store.outbox.sent() == [
        {"channel": "wandb", "subject": RUN, "level": "broken", "at": "2026-11-01T08:30:00+00:00"}
    ]


def test_what_another_store_has_sent_is_known_and_travels_on(store, tmp_path):
    rows = [{"channel": "wandb", "subject": RUN, "level": "broken", "at": "2026-11-01T08:30:00+00:00"}]
    store.outbox.restore(rows)
    store.outbox.restore([*rows, {**rows[0], "at": "2026-11-02T08:30:00+01:00"}])
    store.outbox.restore([])
    assert store.outbox.sent() == rows
    assert store.outbox.alerted("wandb") == {BROKEN}
    with Store.open(tmp_path / "second.db", mode="write") as second:
        second.outbox.restore(store.outbox.sent())
        assert second.outbox.sent() == rows


def test_what_waits_here_and_was_told_by_another_store_is_told(store):
    store.outbox.add(message(BROKEN), now=LATER)
    store.outbox.add(message(SUSPECT, MOVED, title="several"), now=LATER)
    told = [{"channel": "wandb", "subject": name, "level": "broken"} for name in (RUN, "team/rl/cc33")]
    store.outbox.restore([{**row, "at": NOW.isoformat()} for row in told])
    store.outbox.restore([{"channel": "wandb", "subject": SETUP, "level": "moved", "at": NOW.isoformat()}])
    assert [queued.message.subjects for queued in store.outbox.unsent()] == [(SUSPECT,)]
    assert {(item["subject"], item["at"]) for item in store.outbox.sent()} == {
        (name, NOW.isoformat()) for name in (RUN, "team/rl/cc33", SETUP)
    }


def test_an_alert_of_another_store_that_a_person_has_answered_since_is_not_brought_back(store):
    store.people.save(Accept(SETUP, "new image", "mia", LATER))
    rows = [
        {"channel": "wandb", "subject": SETUP, "level": "moved", "at": at.isoformat()} for at in (NOW, LATER)
    ]
    store.outbox.restore(rows)
    assert store.outbox.sent() == []
    store.outbox.restore([{**rows[0], "at": (LATER + timedelta(seconds=1)).isoformat()}])
    assert store.outbox.alerted("wandb") == {MOVED}


def test_a_setup_that_is_accepted_can_be_told_again_and_its_waiting_message_goes(store):
    store.outbox.add(message(MOVED), now=NOW)
    store.outbox.add(message(BROKEN, Subject(SETUP, "doubted")), now=NOW)
    store.people.save(Accept(SETUP, "new image", "mia", LATER))
    assert store.outbox.alerted("wandb") == {BROKEN}
    assert [queued.message.subjects for queued in store.outbox.unsent()] == [(BROKEN,)]


def test_accepting_a_setup_forgets_no_later_alert(store):
    store.outbox.add(message(MOVED), now=LATER)
    store.people.save(Accept(SETUP, "new image", "mia", NOW))
    assert store.outbox.alerted("wandb") == {MOVED}


def test_a_run_read_on_both_sides_is_told_once_whichever_came_first(store):
    store.sources.save_readings(DISK, [from_disk("aa11")], now=NOW)
    store.outbox.add(message(Subject("_/rl/aa11", "broken"), channel="webhook"), now=NOW)
    store.outbox.add(message(Subject("_/rl/aa11", "suspect"), channel="webhook"), now=NOW)
    store.outbox.restore([{"channel": "webhook", "subject": RUN, "level": "suspect", "at": NOW.isoformat()}])
    store.sources.save_readings(SERVER, [from_server("aa11")], now=NOW)
    assert store.outbox.alerted("webhook") == {BROKEN, Subject(RUN, "suspect")}


def test_mutes_are_kept_and_forgotten_and_make_the_verdicts_stale(store):
    first = Mute(SETUP, LATER, "mia", NOW)
    store.people.save(first)
    assert store.people.mutes() == {SETUP: first}
    assert store.notes.stale
    store.verdicts.save([], [], now=NOW)
    store.people.end_mutes(now=LATER - timedelta(seconds=1))
    assert (store.people.mutes(), store.notes.stale) == ({SETUP: first}, False)
    store.people.end_mutes(now=LATER)
    assert (store.people.mutes(), store.notes.stale) == ({}, True)
    assert not store.people.retract(Retraction("mute", SETUP, LATER))


def test_it_knows_where_a_run_is_and_when_it_was_heard_of(store):
    store.sources.save_readings(SERVER, [from_server("aa11"), from_server("bb22")], now=NOW)
    store.sources.save_readings(DISK, [from_disk("cc33", gap=0.0161)], now=NOW)
    store.verdicts.save([], [], now=NOW)
    store.runs.save_heartbeats({RUN: LATER, "team/rl/unknown": LATER})
    store.runs.mark_deleted([OTHER], now=NOW)
    assert store.runs.presence([RUN, OTHER, "_/rl/cc33", "team/rl/unknown"]) == {
        RUN: RunPresence(on_server=True, deleted=False, seen_at=LATER),
        OTHER: RunPresence(on_server=True, deleted=True, seen_at=None),
        "_/rl/cc33": RunPresence(
            on_server=False, deleted=False, seen_at=datetime.fromtimestamp(1_700_000_000, UTC)
        ),
    }
    assert not store.notes.stale  # a heartbeat changes no verdict
