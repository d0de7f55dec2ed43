"""What the store tells of sources and runs, and that a transaction is all or nothing."""

from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import select

from step0_wandb.errors import StoreError
from step0_wandb.records import RunFacts, Step0
from step0_wandb.sources.base import Reading
from step0_wandb.store import Label, SourceState, Store
from step0_wandb.store.schema import runs
from tests.support.stored import (
    DISK,
    KEY,
    LATER,
    METRIC,
    NOW,
    OFFLINE_KEY,
    SERVER,
    SETUP,
    facts,
    from_disk,
    from_server,
    judge,
    mark,
    offline,
    pending,
    record,
    save,
)


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write") as opened:
        yield opened


def test_marks_come_back_by_source_and_the_run_with_them(store):
    save(store, from_disk(), source=DISK)
    loose = mark("empty", run="", size=0, settled=True)
    store.sources.save_marks(DISK, [replace(loose, run="")])
    known = store.sources.memory(DISK)
    assert known.marks == {mark().path: mark(run=OFFLINE_KEY), loose.path: replace(loose, run="")}
    assert known.record(OFFLINE_KEY) == offline()
    assert known.record("_/rl/none") is None
    assert store.sources.memory("file:/elsewhere").marks == {}


def test_a_mark_moves_on_with_the_file(store):
    save(store, from_disk(), source=DISK)
    grown = mark(run=OFFLINE_KEY, size=9999, ended=True, settled=True)
    store.sources.save_marks(DISK, [grown])
    assert set(store.sources.memory(DISK).marks.values()) == {grown}


def test_marks_of_runs_without_step0_are_forgotten_on_demand(store):
    save(store, from_disk("found"), source=DISK)
    lost = (Reading(offline("lost"), (mark("lost"),)), RunFacts(Step0("no-step0")))
    save(store, lost, source=DISK)
    store.sources.forget_marks(status="no-step0")
    assert {known.run for known in store.sources.memory(DISK).marks.values()} == {"_/rl/found"}


def test_a_cursor_comes_back_as_it_was_saved(store):
    assert store.sources.cursor(SERVER) is None
    store.sources.save_cursor(SERVER, {"page": "x", "seen": [1, None]})
    store.sources.save_cursor(SERVER, {"page": "y", "seen": []})
    assert store.sources.cursor(SERVER) == {"page": "y", "seen": []}
    assert store.sources.cursor(DISK) is None


def test_sources_are_listed_with_their_time_and_runs(store):
    save(store, from_server("a"), from_server("b"))
    save(store, source=DISK, now=LATER)
    store.sources.save_cursor("wandb:new/one", {})
    assert store.sources.states() == (
        SourceState(DISK, LATER, 0),
        SourceState("wandb:new/one", None, 0),
        SourceState(SERVER, NOW, 2),
    )


def test_a_run_belongs_to_every_source_that_has_shown_it(store):
    save(store, from_server("a"), from_server("b"))
    save(store, from_server("a"), source="wandb:team/rl/a")
    assert store.runs.keys(source=SERVER) == ("team/rl/a", "team/rl/b")
    assert store.runs.keys(source="wandb:team/rl/a") == ("team/rl/a",)


def test_a_run_that_the_server_deleted_is_kept_and_marked_until_it_is_seen_again(store):
    def deleted_at():
        with store._database.transaction() as connection:
            return connection.execute(select(runs.c.deleted_at)).scalar_one()

    save(store, from_server())
    store.runs.mark_deleted([KEY, "team/rl/none"], now=NOW)
    assert (store.runs.keys(), deleted_at()) == ((KEY,), NOW)
    save(store, from_server(), now=LATER)
    assert (store.runs.keys(), deleted_at()) == ((KEY,), None)


def test_name_state_and_tags_change_without_a_reading(store):
    save(store, from_server(state="running"))
    judge(store)
    news = record(name="new name", state="finished", tags=("step0-ok",))
    store.runs.update([news, replace(news, run_id="none")])
    assert store.runs.record(KEY) == news
    assert store.notes.stale
    judge(store)
    store.runs.update([news])
    assert not store.notes.stale


def test_the_frame_holds_labels_accepts_config_and_metrics(store):
    save(store, from_server("a", config={"args": {"lr": 1e-6}, "lr": 5}), from_server("b", config={}))
    store.people.save(Label("team/rl/a", "broken", "saw it", "mia", NOW))
    frame = store.runs.frame(config=["args.lr", "lr"], metrics=[METRIC, "none"]).set_index("run_id")
    assert frame["label"].tolist() == ["broken", None]
    assert (frame.loc["a", "label_why"], frame.loc["a", "label_who"]) == ("saw it", "mia")
    assert frame.loc["a", "args.lr"] == 1e-6
    assert frame["lr"].tolist()[0] == 5
    assert frame["lr"].isna().tolist() == [False, True]
    assert frame[METRIC].tolist() == [0.0152, 0.0152]
    assert frame["none"].isna().all()
    assert frame["ceiling"].tolist() == [0.03, 0.03]


def test_the_frame_of_an_empty_store_is_an_empty_frame(store):
    assert store.runs.frame(config=["lr"]).shape[0] == 0


def test_new_facts_replace_the_old_ones_and_only_where_they_differ(store):
    save(store, from_server("a"), from_server("b"))
    judge(store)
    assert store.runs.refresh_facts(lambda _: facts()) == {}
    assert not store.notes.stale
    new = {"a": replace(facts(0.5), setup="new"), "b": facts()}
    assert store.runs.refresh_facts(lambda record: new[record.run_id]) == {SETUP: {"new"}}
    assert store.notes.stale
    assert store.runs.frame()["setup"].tolist() == ["new", SETUP]
    assert store.runs.facts("team/rl/a").step0.gap == 0.5


def test_records_are_found_by_status_and_setup(store):
    save(
        store,
        from_server("a"),
        (Reading(record("b")), replace(facts(), setup="other")),
        (Reading(record("c")), pending()),
    )
    assert [run.run_id for run in store.runs.records(status="pending")] == ["c"]
    assert [run.run_id for run in store.runs.records(setup="other")] == ["b"]
    assert list(store.runs.configs(["team/rl/c", "none", "team/rl/a"])) == [record().config] * 2


def test_a_person_may_name_a_run_by_key_id_or_name(store):
    save(store, from_server("a", name="same"), from_server("b", name="same"), from_server("c", name="a"))
    assert store.runs.find("team/rl/a") == ("team/rl/a",)
    assert store.runs.find("a") == ("team/rl/a",)
    assert store.runs.find("same") == ("team/rl/a", "team/rl/b")
    assert store.runs.find("rl/a") == store.runs.find("none") == ()


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE runs; --", "a\0b", "\ud800 half a pair", "%_*", "</script>", "x" * 5000, "ключ"]
)
def test_any_name_is_only_a_name(store, text):
    save(store, from_server("a", name=text, group=text, user=text, tags=(text,), config={text: text}))
    stored = text.encode("utf-8", "replace").decode()
    back = store.runs.record("team/rl/a")
    assert (back.name, back.group, back.user) == (stored, stored, stored)
    assert (back.tags, back.config) == ((text,), {text: text})
    assert store.runs.find(text) == ("team/rl/a",)
    assert store.runs.frame(config=[text])[text].tolist() == [text]


@pytest.mark.parametrize("run_id", ["\ud800", "a/b", "", "'"])
def test_any_run_id_is_one_run(store, run_id):
    for _ in range(2):
        save(store, from_server(run_id))
    (key,) = store.runs.keys()
    assert store.runs.record(key).state == "finished"


def test_an_error_inside_a_transaction_leaves_everything_as_it_was(store):
    save(store, from_server("a"))
    with suppress(ZeroDivisionError), store.transaction():
        save(store, from_server("b", config={"other": "words", "than": "before"}))
        store.sources.save_cursor(SERVER, {"page": "x"})
        store.notes.put("note", 1)
        raise ZeroDivisionError
    assert store.runs.keys() == ("team/rl/a",)
    assert store.sources.cursor(SERVER) is None
    assert store.notes.get("note") is None


def test_templates_of_a_transaction_that_failed_are_not_relied_on(store):
    odd = from_server("b", config={f"k{at}": str(at) for at in range(50)})
    with suppress(ZeroDivisionError), store.transaction():
        save(store, odd)
        raise ZeroDivisionError
    save(store, odd)
    assert store.runs.record("team/rl/b") == odd[0].record
    assert store.runs.facts("team/rl/b") == odd[1]


def test_an_error_of_the_caller_is_not_taken_for_one_of_the_store(store):
    with pytest.raises(ConnectionError), store.transaction():
        raise ConnectionResetError


def test_what_is_logged_of_an_error_shows_no_value(store):
    with pytest.raises(StoreError, match="is damaged") as caught:
        save(store, from_server(name=None, config={"k": "much-too-secret"}, group="private-name"))
    assert "private-name" not in str(caught.value)
    assert "much-too-secret" not in f"{caught.value.__cause__}"
