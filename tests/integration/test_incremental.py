"""A sync judges the setups that changed, and leaves the same ranges and verdicts as judging everything."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from step0_wandb.app import judging
from step0_wandb.profiles import load_profiles
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.settings.load import load_settings
from step0_wandb.sources.base import Reading
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import Accept, Label, Store, kept
from step0_wandb.wandb_api.context import Context
from step0_wandb.wandb_api.credentials import Places
from tests.support.miles import CONFIG, GAP

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PROFILES = load_profiles()
FINDER = Step0Finder(PROFILES)
FLAG = {"check_weight_update_equal": True}


def observed(setup, number):
    """Return the other numbers of a row, as healthy runs of one setup scatter."""
    off = np.random.default_rng([setup, number]).standard_normal(4)
    return {
        "train/grad_norm": 0.12 * float(np.exp(0.3 * off[0])),
        "rollout/entropy": 0.4 * float(np.exp(0.2 * off[1])),
        "rollout/response_len/mean": 900.0 * float(np.exp(0.3 * off[2])),
        "rollout/truncated_ratio": float(1 / (1 + np.exp(2.5 - off[3]))),
    }


def record(setup, number, gap, *, logged=None, **config):
    name = f"s{setup}n{number}"
    model = f"/models/Model-{setup}B"
    row = {"train/step": 0.0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: gap}
    row |= observed(setup, number) | (logged or {})
    return RunRecord(
        *("team", "rl", name, name),
        created_at=NOW - timedelta(days=20) + timedelta(hours=number),
        state="finished",
        config=CONFIG | {"hf_checkpoint": model, "load": model, "ref_load": model, "seed": number} | config,
        rows=(HistoryRow(row),),
    )


def add(store, *records):
    store.sources.save_readings(
        "wandb:team/rl", [(Reading(one, ()), FINDER.facts(one)) for one in records], now=NOW
    )


def history(setups=6, runs=8):
    rng = np.random.default_rng(3)
    return [
        record(setup, number, 0.012 * 1.1**setup * float(np.exp(0.02 * rng.standard_normal())), **FLAG)
        for setup in range(setups)
        for number in range(runs)
    ]


@pytest.fixture
def sync(tmp_path, monkeypatch):
    """Return what judges a store as a sync does, however few runs it has."""
    monkeypatch.setattr(judging, "FEW", 0)
    monkeypatch.setattr(judging, "GROWN", 10)
    loaded = load_settings(cwd=tmp_path, environ={})
    context = Context(Places({}, tmp_path, tmp_path), lambda: NOW, 1.0)

    def run(store, *, refit=False):
        return judging.judge_store(store, loaded, PROFILES, context, refit=refit)

    return run


@pytest.fixture
def store(tmp_path, sync):
    with Store.open(tmp_path / "step0.db", mode="write") as opened:
        add(opened, *history())
        sync(opened)
        yield opened


def setups_read(monkeypatch, store, sync):
    """Return the setups whose runs one sync reads."""
    seen = []
    frame = store.runs.frame
    monkeypatch.setattr(store.runs, "frame", lambda **given: seen.append(found := frame(**given)) or found)
    sync(store)
    return {setup.split(" · ")[1] for found in seen for setup in found["setup"] if setup}


def everything(store):
    return [
        store.verdicts.ranges(),
        {run.run: (run.verdict, run.reasons) for run in store.verdicts.iterate()},
        kept.load_coverage(store),
        kept.load_weight_checks(store),
        store.verdicts.counts(),
    ]


def assert_as_if_judged_whole(store, sync):
    before = everything(store)
    with Store.open(store.path, mode="copy") as again:
        sync(again, refit=True)
        after = everything(again)
    for one, other in zip(before[0], after[0], strict=True):
        numbers = ("center", "low", "high", "sigma", "df", "seen_low", "seen_high")
        assert [getattr(one, name) for name in numbers] == pytest.approx(
            [getattr(other, name) for name in numbers], rel=1e-9
        )
        cleared = dict.fromkeys(numbers)
        assert replace(one, **cleared) == replace(other, **cleared)
    assert before[1:] == after[1:]


@pytest.mark.parametrize("gap", [0.0145, 0.0400])
def test_one_new_run_has_its_setup_read_alone_and_leaves_what_judging_everything_does(
    store, sync, monkeypatch, gap
):
    add(store, record(2, 99, gap))
    assert setups_read(monkeypatch, store, sync) == {"Model-2B"}
    assert_as_if_judged_whole(store, sync)


@pytest.mark.parametrize(
    ("metric", "value", "flagged"),
    [("train/grad_norm", 40.0, True), ("rollout/entropy", 6.0, True), ("rollout/entropy", 0.6, False)],
)
def test_other_numbers_of_the_row_are_judged_alike_however_the_store_is(store, sync, metric, value, flagged):
    add(store, record(2, 99, 0.0145, logged={metric: value}))
    sync(store)
    (run,) = store.verdicts.iterate(keys=["team/rl/s2n99"])
    assert (run.verdict == "suspect") == flagged
    assert_as_if_judged_whole(store, sync)


def test_a_setup_that_scatters_wildly_changes_no_verdict_of_another(store, sync):
    add(store, record(2, 99, 0.0145, logged={"rollout/entropy": 1.6}))
    sync(store)
    before = everything(store)[1]
    wild = [
        record(8, number, 0.015, logged={"rollout/entropy": 0.4 * 3.0 ** (number % 4)}) for number in range(8)
    ]
    add(store, *wild)
    sync(store)
    after = everything(store)[1]
    assert {key: after[key][0] for key in before} == {key: verdict for key, (verdict, _) in before.items()}
    assert_as_if_judged_whole(store, sync)


def test_a_new_setup_widens_or_narrows_the_others_as_a_full_fit_would(store, sync):
    before = store.verdicts.ranges()
    add(store, *(record(9, number, 0.02 * 1.1 ** (number % 3)) for number in range(9)))
    sync(store)
    assert_as_if_judged_whole(store, sync)
    assert store.verdicts.ranges()[0].high != before[0].high


@pytest.mark.parametrize(
    "say",
    [
        lambda store, _: store.people.save(Label("team/rl/s1n0", "broken", "", "mia", NOW)),
        lambda store, setup: store.people.save(Accept(setup, "", "mia", NOW)),
    ],
)
def test_what_a_person_says_costs_one_setup(store, sync, monkeypatch, say):
    say(store, store.verdicts.ranges()[1].setup)
    assert setups_read(monkeypatch, store, sync) == {"Model-1B"}
    assert_as_if_judged_whole(store, sync)


def test_a_run_that_moves_to_another_setup_has_both_judged(store, sync, monkeypatch):
    moved = record(0, 3, 0.0122)
    later = record(4, 3, 0.0122)
    add(store, replace(later, run_id=moved.run_id, name=moved.name))
    store.runs.refresh_facts(FINDER.facts)
    assert setups_read(monkeypatch, store, sync) <= {"Model-0B", "Model-4B"}
    assert_as_if_judged_whole(store, sync)


def test_a_run_without_step0_is_judged_without_reading_any_setup(store, sync, monkeypatch):
    before = kept.load_coverage(store)
    add(store, replace(record(1, 50, 0.01), rows=()))
    assert setups_read(monkeypatch, store, sync) == set()
    assert store.verdicts.counts()["no-step0"] == 1
    assert len(kept.load_coverage(store)) > len(before)


def test_a_setup_whose_last_run_is_gone_has_no_range_any_more(store, sync):
    add(store, record(7, 1, 0.02))
    sync(store)
    assert len(store.verdicts.ranges()) == 7
    add(store, replace(record(2, 1, 0.0151), run_id="s7n1"))
    with store.transaction():
        store.stale.mark_setups(["nothing of that name"])
    sync(store)
    assert_as_if_judged_whole(store, sync)


def test_judging_in_batches_gives_what_judging_at_once_does(store, sync, monkeypatch):
    at_once = everything(store)
    monkeypatch.setattr(judging, "BATCH", 20)
    sync(store, refit=True)
    assert everything(store)[1:] == at_once[1:]
    widths = [[one.low, one.high] for one in store.verdicts.ranges()]
    assert np.array(widths) == pytest.approx(np.array([[one.low, one.high] for one in at_once[0]]), rel=1e-6)


def test_two_levels_are_one_question_with_their_runs_and_what_differs(store, sync):
    low = [
        record(2, number, 0.0068 * factor, bf16=False, **FLAG) for number, factor in ((91, 1.0), (92, 1.01))
    ]
    add(store, low[0])
    sync(store)
    assert not any(setup.question for setup in store.verdicts.ranges())
    add(store, low[1])
    sync(store)
    (asked,) = (setup for setup in store.verdicts.ranges() if setup.question)
    older, newer = asked.question.levels
    assert set(newer.runs) == {"team/rl/s2n91", "team/rl/s2n92"}
    assert len(older.runs) == 8
    assert asked.question.differs == ("bf16",)
    assert asked.note == asked.question.text
    assert {run.verdict for run in store.verdicts.iterate(keys=older.runs)} == {"healthy"}
    levels = [row["level"] for row in store.outbox.sent()] + [
        subject.level for queued in store.outbox.unsent() for subject in queued.message.subjects
    ]
    assert levels.count("question") <= 1
    store.people.save(Accept(asked.setup, "", "mia", NOW))
    sync(store)
    assert not any(setup.question for setup in store.verdicts.ranges())
