"""The tables of the sync's own run: plain, bounded, harmless, and the same for the same runs."""

import math
import random

import pytest

from step0_wandb.publish.wandb import tables
from step0_wandb.publish.wandb.tables import (
    RUN_COLUMNS,
    SETUP_COLUMNS,
    count_metrics,
    runs_table,
    setups_table,
)
from step0_wandb.records import VERDICTS
from tests.support.judged import START, judged, setup_range

HOSTILE = "</script><img src=x>|**x**\x1b[31m\u202e" + "y" * 5000


def column(table, name):
    return [row[table.columns.index(name)] for row in table.rows]


def test_a_setup_is_a_row_with_its_range_and_what_was_seen():
    table = setups_table([setup_range(setup="b"), setup_range(setup="a", accepted=True, note="moved")])
    assert table.columns == SETUP_COLUMNS
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "setup": "a",
        "profile": "miles",
        "gap_metric": "train/train_rollout_logprob_abs_diff",
        "n": 17,
        "center": 0.0152,
        "low": 0.0140,
        "high": 0.0165,
        "seen_low": 0.0148,
        "seen_high": 0.0157,
        "sigma": 0.019,
        "basis": "own",
        "accepted": True,
        "note": "moved",
    }


def test_a_run_is_a_row_with_its_figures_and_reasons():
    run = judged(3, verdict="broken", gap=0.0456, p_value=1e-9, reasons=("three times", "and more"))
    table = runs_table([run])
    assert table.columns == RUN_COLUMNS
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "verdict": "broken",
        "label": None,
        "run": "team/grpo/aa000003",
        "name": "qwen3-3",
        "url": "https://wandb.ai/team/grpo/runs/aa000003",
        "user": "mia",
        "group": None,
        "created_at": "2026-10-01T15:00:00+00:00",
        "state": "finished",
        "setup": "miles · Qwen3-0.6B",
        "gap": 0.0456,
        "ratio": pytest.approx(3.0),
        "p_value": 1e-9,
        "ppo_kl": 0.0,
        "clip_frac": 0.0,
        "reasons": "three times; and more",
    }


def test_flagged_runs_come_first_then_labeled_ones_then_the_newest():
    runs = [
        judged(1),
        judged(2, created_at=None),
        judged(3),
        judged(4, verdict="suspect", gap=0.018),
        judged(5, label="healthy"),
        judged(6, verdict="broken", gap=0.04),
        judged(7, verdict="broken", gap=0.06),
        judged(8, verdict="broken", label="exclude"),
    ]
    random.Random(1).shuffle(runs)  # noqa: S311 - no secret
    ids = [int(key[-1]) for key in column(runs_table(runs), "run")]
    assert ids == [7, 6, 4, 8, 5, 3, 1, 2]


def test_a_long_table_ends_with_a_count_of_what_was_left_out(monkeypatch):
    monkeypatch.setattr(tables, "MOST_RUNS", 3)
    monkeypatch.setattr(tables, "MOST_SETUPS", 2)
    runs = runs_table([judged(number) for number in range(10)])
    setups = setups_table([setup_range(setup=str(number)) for number in range(5)])
    assert (len(runs.rows), runs.left_out) == (3, 7)
    assert (len(setups.rows), setups.left_out) == (2, 3)


def test_texts_of_others_are_harmless_and_short_in_every_cell():
    run = judged(1, name=HOSTILE, user=HOSTILE, group=HOSTILE, setup=HOSTILE, reasons=(HOSTILE,) * 9)
    rows = [*runs_table([run]).rows, *setups_table([setup_range(setup=HOSTILE, note=HOSTILE)]).rows]
    texts = [cell for row in rows for cell in row if isinstance(cell, str)]
    assert all(len(text) <= tables.TEXT_LENGTH for text in texts)
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://a@evil.example/", None])
def test_an_address_that_is_not_plain_is_left_away(url):
    assert column(runs_table([judged(1, url=url)]), "url") == [None]


def test_numbers_that_no_table_holds_are_left_away_and_told_by_the_reason():
    run = judged(1, gap=math.nan, ppo_kl=math.inf, clip_frac=None, verdict="broken", reasons=("gap is NaN",))
    table = runs_table([run])
    assert [column(table, name) for name in ("gap", "ppo_kl", "clip_frac")] == [[None], [None], [None]]
    assert column(table, "reasons") == ["gap is NaN"]


def test_counts_know_every_verdict_and_respect_labels():
    runs = [
        judged(1),
        judged(2, verdict="broken", state="running"),
        judged(3, verdict="broken"),
        judged(4, verdict="broken", label="healthy", state="running"),
        judged(5, verdict="suspect", label="exclude"),
    ]
    counts = count_metrics(runs, [setup_range(), setup_range(setup="b", low=None, high=None)])
    assert counts == {
        **{f"verdicts/{verdict}": 0 for verdict in VERDICTS},
        "verdicts/healthy": 2,
        "verdicts/broken": 2,
        "verdicts/excluded": 1,
        "runs/all": 5,
        "runs/labeled": 2,
        "runs/broken_and_running": 1,
        "setups/all": 2,
        "setups/with_range": 1,
    }


def test_the_order_in_which_runs_arrive_does_not_matter():
    runs = [judged(number, created_at=START) for number in range(20)]
    assert runs_table(runs) == runs_table(runs[::-1])
