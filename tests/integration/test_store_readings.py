"""What sources read comes back as it was, is kept once, and never overwrites a first capture in silence."""

import json
import math
from dataclasses import replace

import pytest

from step0_wandb.records import HistoryRow, RunFacts, Step0
from step0_wandb.sources.base import Reading
from step0_wandb.store import Label, Store
from tests.support.stored import (
    DISK,
    KEY,
    LATER,
    METRIC,
    NOW,
    OFFLINE_KEY,
    SERVER,
    facts,
    from_disk,
    from_server,
    judge,
    mark,
    offline,
    pending,
    record,
    row,
    save,
)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write") as opened:
        yield opened


def test_a_run_comes_back_as_its_source_gave_it(store):
    run = record(
        config={"": {"a.b": [1, {"c": math.inf}]}, "n": 2**80, "x": 1.0, "y": 1, "empty": {}},
        rows=(HistoryRow({"a": 1, "b": -0.0, "c": 1e300}, 4), HistoryRow({}, 9), HistoryRow(row(), 12)),
        tags=("step0-ok", "ünï"),
        created_at=NOW.replace(microsecond=7),
        job_type="train",
    )
    save(store, (Reading(run), facts()))
    back = store.runs.record(KEY)
    assert back == run
    assert json.dumps(back.config, sort_keys=True) == json.dumps(run.config, sort_keys=True)
    assert [list(map(repr, row.values.values())) for row in back.rows] == [
        list(map(repr, row.values.values())) for row in run.rows
    ]
    assert store.runs.record("team/rl/none") is None


def test_facts_come_back_with_their_plan_and_step0_row(store):
    rows = (HistoryRow({"eval/x": 1.0}, 0), HistoryRow(row(extra=math.nan), 1), HistoryRow(row(0.9), 2))
    known = facts()
    known = replace(
        known, step0=replace(known.step0, row=row(extra=math.nan, made_up=3.0), note="n", fit=False)
    )
    save(store, (Reading(record(rows=rows)), known))
    back = store.runs.facts(KEY)
    assert repr(back.step0.row["extra"]) == "nan"
    assert {**back.step0.row, "extra": 0} == {**known.step0.row, "extra": 0}
    assert replace(back, step0=replace(back.step0, row={})) == replace(
        known, step0=replace(known.step0, row={})
    )
    assert store.runs.facts("team/rl/none") is None


def test_a_metric_logged_as_nan_is_still_nan_and_a_missing_one_still_missing(store):
    save(store, (Reading(record("a")), facts(math.nan, ppo_kl=None)))
    step0 = store.runs.facts("team/rl/a").step0
    assert math.isnan(step0.gap)
    assert step0.ppo_kl is None
    assert store.runs.frame()["nan_metrics"].tolist() == ["gap"]


def test_only_new_runs_are_called_new(store):
    assert save(store, from_server("a"), from_server("b")) == ("team/rl/a", "team/rl/b")
    assert save(store, from_server("b"), from_server("c")) == ("team/rl/c",)
    assert store.runs.keys() == ("team/rl/a", "team/rl/b", "team/rl/c")


def test_a_run_twice_in_one_call_is_one_run(store):
    save(store, (Reading(record(state="running", rows=())), pending()), from_server())
    assert store.runs.keys() == (KEY,)
    assert store.runs.record(KEY).state == "finished"


def test_more_runs_than_one_batch_holds_are_all_stored(store):
    save(store, *(from_server(f"r{at:04d}", gap=0.01 + at * 1e-6) for at in range(1201)))
    frame = store.runs.frame()
    assert frame["run"].tolist() == [f"team/rl/r{at:04d}" for at in range(1201)]
    assert frame["gap"].tolist() == [0.01 + at * 1e-6 for at in range(1201)]
    assert [run.run_id for run in store.runs.records()] == [f"r{at:04d}" for at in range(1201)]


def test_a_pending_run_gets_its_step0_with_a_later_reading(store):
    save(store, (Reading(record(state="running", rows=())), pending()))
    assert store.runs.keys(status="pending") == store.runs.keys(alive=True) == (KEY,)
    save(store, from_server())
    assert store.runs.keys(status="pending") == store.runs.keys(alive=True) == ()
    assert store.runs.facts(KEY).step0.gap == 0.0152
    assert store.runs.frame()["conflict"].tolist() == [None]


def test_the_first_step0_is_kept_and_a_different_one_is_told(store):
    save(store, from_server(gap=0.0152))
    save(store, from_server(gap=0.02, state="failed", name="renamed"))
    assert store.runs.facts(KEY).step0.gap == store.runs.record(KEY).rows[0].values[METRIC] == 0.0152
    assert (store.runs.record(KEY).state, store.runs.record(KEY).name) == ("failed", "renamed")
    assert store.runs.frame()["conflict"].tolist() == [
        "a later reading says gap 0.02 instead of 0.0152; the first one is kept"
    ]


def test_a_metric_that_the_first_capture_lacked_is_taken_from_a_later_one(store):
    first = facts(None)
    first = replace(first, step0=replace(first.step0, gap_metric=None))
    save(store, (Reading(record(rows=(HistoryRow({"train/step": 0, "train/ppo_kl": 0.0}),))), first))
    save(store, from_server())
    assert store.runs.frame()[["gap", "conflict"]].to_numpy().tolist() == [[0.0152, None]]
    assert store.runs.record(KEY).rows == record().rows


def test_other_values_of_the_same_rows_are_another_profile_not_another_writer(store):
    save(store, from_server())
    save(store, (Reading(record()), facts(0.5)))
    assert store.runs.facts(KEY).step0.gap == 0.5
    assert store.runs.frame()["conflict"].tolist() == [None]


def test_a_later_reading_without_step0_does_not_take_it_away(store):
    save(store, from_server())
    save(store, (Reading(record(rows=(), state="crashed")), RunFacts(Step0("no-step0", note="lost"))))
    assert store.runs.facts(KEY).step0.status == "found"
    assert store.runs.record(KEY).state == "crashed"


def test_a_config_that_grows_is_kept_whole(store):
    save(store, from_server(config={"a": 1}))
    save(store, from_server(config={"a": 1, "b": 2}))
    assert store.runs.record(KEY).config == {"a": 1, "b": 2}


def test_reading_again_without_news_changes_nothing(store):
    save(store, from_server(config={"a": math.nan}), (Reading(record("b")), facts(math.nan)))
    judge(store)
    save(store, from_server(config={"a": math.nan}), (Reading(record("b")), facts(math.nan)), now=LATER)
    assert not store.notes.stale


@pytest.mark.parametrize(
    "item",
    [
        from_server(state="crashed"),
        from_server(config={"new": 1}),
        from_server(gap=0.9),
        from_server("another"),
        (Reading(record()), replace(facts(), setup="other")),
    ],
    ids=["state", "config", "values", "run", "setup"],
)
def test_any_news_makes_the_verdicts_stale(store, item):
    save(store, from_server())
    judge(store)
    save(store, item)
    assert store.notes.stale


# ── one run on both sides ──────────────────────────────────────────────────


def test_a_run_of_the_server_that_is_also_on_disk_stays_one_run(store):
    save(store, from_server())
    assert save(store, from_disk(), source=DISK) == ()
    assert store.runs.keys() == (KEY,)
    assert store.runs.record(KEY) == record()
    assert store.sources.memory(DISK).marks == {mark().path: mark(run=KEY)}


def test_the_server_takes_over_a_run_that_came_from_disk_with_its_label_and_files(store):
    save(store, from_disk(), source=DISK)
    store.people.save(Label(OFFLINE_KEY, "healthy", "looked at it", "mia", NOW))
    assert save(store, from_server()) == ()
    assert store.runs.keys() == store.runs.keys(source=DISK) == store.runs.keys(source=SERVER) == (KEY,)
    assert store.people.labels() == {KEY: Label(KEY, "healthy", "looked at it", "mia", NOW)}
    assert set(store.sources.memory(DISK).marks.values()) == {mark(run=KEY)}


def test_a_label_of_the_server_run_beats_that_of_the_run_on_disk(store):
    save(store, from_disk(), source=DISK)
    store.people.save(Label(OFFLINE_KEY, "broken", "disk", "mia", NOW))
    store.people.save(Label(KEY, "healthy", "server", "mia", NOW))
    save(store, from_server())
    assert store.people.labels() == {KEY: Label(KEY, "healthy", "server", "mia", NOW)}


def test_a_run_that_was_pending_on_the_server_meets_its_directory_once_both_have_step0(store):
    save(store, (Reading(record(state="running", rows=())), pending()))
    save(store, from_disk(), source=DISK)
    assert store.runs.keys() == (OFFLINE_KEY, KEY)
    save(store, from_server())
    assert store.runs.keys() == (KEY,)


def test_a_directory_that_was_pending_meets_the_servers_run_once_both_have_step0(store):
    save(store, (Reading(offline(state="running", rows=()), (mark(),)), pending()), source=DISK)
    save(store, from_server())
    assert store.runs.keys() == (OFFLINE_KEY, KEY)
    save(store, from_disk(), source=DISK)
    assert store.runs.keys() == (KEY,)


@pytest.mark.parametrize(
    "other",
    [from_disk(gap=0.0153), from_disk(project="other"), from_disk("aa12")],
    ids=["values", "project", "run id"],
)
def test_runs_that_differ_in_one_of_the_three_stay_two(store, other):
    save(store, from_server())
    save(store, other, source=DISK)
    assert len(store.runs.keys()) == 2


def ended(rows, *, writer="c0ffee", **changes):
    """Return what is read on both sides of a run that ended before its step 0."""
    given = {"rows": rows, "config": {"_wandb": {"e": {writer: {"python": "3.11"}}}}} | changes
    lost = RunFacts(Step0("no-step0", note="lost"))
    return (Reading(record(**given)), lost), (Reading(offline(**given), (mark(),)), lost)


FIRST = HistoryRow({"rollout/step": 0.0, "_timestamp": 1796023463.1})


@pytest.mark.parametrize("rows", [(), (FIRST,)], ids=["no row", "one row"])
@pytest.mark.parametrize("order", [1, -1], ids=["server first", "disk first"])
def test_a_run_that_ended_before_its_step0_is_one_run_on_both_sides(store, rows, order):
    both = tuple(zip(ended(rows), (SERVER, DISK), strict=True))
    for item, source in both[::order]:
        save(store, item, source=source)
    assert store.runs.keys() == (KEY,)


@pytest.mark.parametrize(
    ("rows", "changes"),
    [((), {"writer": "decaf"}), ((FIRST,), {"rows": ()}), ((), {"config": {}}), ((), {"project": "sft"})],
    ids=["another process", "other rows", "unknown process", "another project"],
)
def test_two_runs_that_ended_before_their_step0_stay_two(store, rows, changes):
    save(store, ended(rows)[0])
    save(store, ended(**{"rows": rows} | changes)[1], source=DISK)
    assert len(store.runs.keys()) == 2


def test_nan_on_both_sides_is_the_same_value(store):
    save(store, (Reading(record()), facts(math.nan)))
    save(store, (Reading(offline(), (mark(),)), facts(math.nan)), source=DISK)
    assert store.runs.keys() == (KEY,)


def test_disk_does_not_overwrite_what_the_server_says_of_a_run_with_the_same_key(store):
    save(store, from_server(user="mia"))
    save(store, from_disk(entity="team", user=None, state="running", config={}), source=DISK)
    assert store.runs.record(KEY) == record(user="mia")


def test_disk_brings_the_step0_that_the_server_does_not_have_yet(store):
    save(store, (Reading(record(state="running", rows=())), pending()))
    save(store, from_disk(entity="team", state="running"), source=DISK)
    assert store.runs.facts(KEY).step0.gap == 0.0152
    assert store.runs.record(KEY).user == "mia"
