"""A run that is started again under its id: the newest start speaks for it, earlier ones stay with it."""

from dataclasses import replace

import pytest

from step0_wandb.records import EarlierStart
from step0_wandb.sources.base import Reading, RunUpdate
from step0_wandb.store import Label, Message, Store, Subject
from tests.support.judged import judged
from tests.support.stored import (
    DISK,
    KEY,
    LATER,
    NOW,
    OFFLINE_KEY,
    SERVER,
    facts,
    from_disk,
    from_server,
    mark,
    record,
    save,
)

FIRST_KEY = f"{KEY}@1"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write") as opened:
        yield opened


def started(start, gap, *, on_disk=False, **changes):
    reading, found = (from_disk if on_disk else from_server)(gap=gap, **changes)
    return replace(reading, record=replace(reading.record, start=start)), found


def verdicts_of(store, *pairs):
    """Store a verdict for each stored start, as a sync does."""
    runs = [judged(run=key, verdict=verdict, gap=gap) for key, verdict, gap in pairs]
    return store.verdicts.save(runs, [], now=NOW)


def test_the_newest_start_has_the_run_s_key_and_is_listed_alone(store):
    assert save(store, started(1, 0.0151)) == (KEY,)
    assert save(store, started(2, 0.063), now=LATER) == ()
    assert store.runs.keys() == store.runs.keys(source=SERVER) == (KEY,)
    assert store.runs.record(KEY).start == 2
    assert [(run.start, run.key) for run in store.runs.records()] == [(2, KEY)]
    assert [run.start for run in store.runs.records(starts="all")] == [2, 1]
    assert store.runs.frame()[["run", "start", "gap"]].to_numpy().tolist() == [[KEY, 2, 0.063]]
    assert store.notes.stale


def test_earlier_starts_take_part_in_ranges_marked_as_superseded(store):
    save(store, started(1, 0.0151), started(2, 0.0152), started(3, 0.063))
    frame = store.runs.frame(starts="all")
    assert frame[["run", "start", "superseded", "gap"]].to_numpy().tolist() == [
        [KEY, 3, False, 0.063],
        [FIRST_KEY, 1, True, 0.0151],
        [f"{KEY}@2", 2, True, 0.0152],
    ]


def test_a_verdict_is_that_of_the_newest_start_and_tells_of_the_earlier_ones(store):
    save(store, started(1, 0.0151), started(2, 0.063))
    changed = verdicts_of(store, (FIRST_KEY, "healthy", 0.0151), (KEY, "broken", 0.063))
    assert changed == (KEY,)
    (run,) = store.verdicts.runs()
    created_at = record().created_at
    assert (run.run, run.verdict, run.start, run.starts) == (KEY, "broken", 2, 2)
    assert run.earlier == (EarlierStart(1, created_at, "healthy", 0.0151),)
    assert store.verdicts.counts() == {"broken": 1}
    assert [state.runs for state in store.sources.states()] == [1]


def test_starts_that_arrive_in_any_order_and_again_end_up_the_same(store):
    for starts in ([2, 1], [1, 2], [2], [1]):
        save(store, *(started(start, 0.01 * start) for start in starts))
    frame = store.runs.frame(starts="all")
    assert frame[["run", "start", "gap"]].to_numpy().tolist() == [[KEY, 2, 0.02], [FIRST_KEY, 1, 0.01]]
    assert frame["conflict"].tolist() == [None, None]


def test_a_label_given_before_a_relaunch_belongs_to_the_start_it_was_given_on(store):
    save(store, started(1, 0.0151))
    store.people.save(Label(KEY, "broken", "bad data", "mia", NOW))
    save(store, started(2, 0.063), now=LATER)
    assert list(store.people.labels()) == [FIRST_KEY]
    store.people.save(Label(KEY, "healthy", "measured", "mia", LATER))
    frame = store.runs.frame(starts="all").set_index("run")
    assert frame["label"].to_dict() == {KEY: "healthy", FIRST_KEY: "broken"}


def test_a_tag_is_about_the_start_that_had_it_until_it_is_put_on_again(store):
    def labels():
        store.people.follow_tags(now=LATER)
        return {key: label.label for key, label in store.people.labels().items()}

    def retag(*tags):
        store.runs.update([RunUpdate(KEY, "run", "finished", tags)])

    save(store, started(1, 0.0151, tags=("step0-ok", "mine")))
    assert labels() == {KEY: "healthy"}
    save(store, started(2, 0.063, tags=("step0-ok", "mine")), now=LATER)
    assert labels() == labels() == {FIRST_KEY: "healthy"}
    retag("step0-ok", "step0-bad")
    assert labels() == {FIRST_KEY: "healthy", KEY: "broken"}
    retag()
    assert labels() == {}
    retag("step0-ok")
    assert labels() == {KEY: "healthy"}


def test_a_new_start_is_a_new_subject_of_alerts(store):
    save(store, started(1, 0.063))
    subjects = (Subject(KEY, "broken"),)
    message = Message("wandb", "ERROR", "broken", "text", "team", "rl", "aa11", None, subjects)
    store.outbox.add(message, now=NOW)
    store.outbox.mark_sent(store.outbox.unsent()[0].number, now=NOW)
    save(store, started(2, 0.071), now=LATER)
    assert store.outbox.alerted("wandb") == {Subject(FIRST_KEY, "broken")}
    store.outbox.add(message, now=LATER)
    assert len(store.outbox.unsent()) == 1


def test_the_id_of_another_run_may_look_like_an_earlier_start(store):
    save(store, from_server("aa11@1"), started(1, 0.0151), started(2, 0.063))
    assert store.runs.keys() == (KEY, FIRST_KEY)
    assert store.runs.frame(starts="all")["run"].tolist() == [KEY, FIRST_KEY, f"{FIRST_KEY}@"]


def test_files_of_every_start_are_marks_of_the_run(store):
    first, found = started(1, 0.0151, on_disk=True)
    second = replace(first, marks=(replace(first.marks[0], path="/data/wandb/2/run-aa11.wandb"),))
    second = replace(second, record=replace(started(2, 0.063, on_disk=True)[0].record))
    save(store, (first, found), (second, facts(0.063)), source=DISK)
    assert {known.run for known in store.sources.memory(DISK).marks.values()} == {OFFLINE_KEY}


def test_starts_on_disk_become_those_of_the_run_on_the_server(store):
    save(store, started(1, 0.0151, on_disk=True), started(2, 0.063, on_disk=True), source=DISK)
    save(store, started(1, 0.063), now=LATER)
    assert store.runs.keys() == (KEY,)
    assert (store.runs.record(KEY).start, len(store.runs.frame(starts="all"))) == (2, 2)
    verdicts_of(store, (f"{OFFLINE_KEY}@1", "healthy", 0.0151), (KEY, "broken", 0.063))
    assert [start.gap for start in store.verdicts.runs()[0].earlier] == [0.0151]


def test_the_server_s_only_start_may_be_the_second_one_on_disk(store):
    save(store, started(1, 0.063))
    save(store, started(1, 0.0151, on_disk=True), started(2, 0.063, on_disk=True), source=DISK)
    frame = store.runs.frame(starts="all")
    assert frame[["run", "start", "gap"]].to_numpy().tolist() == [[KEY, 2, 0.063], [FIRST_KEY, 1, 0.0151]]


def test_a_source_goes_on_with_the_rows_of_all_policies(store):
    whole = record(name="job")
    for policy, gap in (("solver", 0.0151), ("judge", 0.046)):
        part = replace(whole, policy=policy, name=f"job#{policy}", rows=record(gap=gap).rows)
        save(store, (Reading(part, (mark(run=KEY),)), facts(gap)))
    memory = store.sources.memory(SERVER)
    assert {known.run for known in memory.marks.values()} == {KEY}
    again = memory.record(KEY)
    assert (again.policy, again.name) == (None, "job")
    (row,) = again.rows
    assert {name.partition("/")[0] for name in row.values} == {"solver", "judge"}
    assert row.values["judge/train/train_rollout_logprob_abs_diff"] == 0.046
