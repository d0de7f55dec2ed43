"""Step 0 is the same whether a history is read whole or look by look, whatever the server thins out."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.sources.server.history import MOST_QUERIES, Step0Search, first_query
from step0_wandb.wandb_api.answers import RunNode, numbers, read_history
from tests.support.server_source import CONFIG, shipped_finder
from tests.support.wandb_server.sampling import DEFAULT_SAMPLES, sampled, thin_out, to_json, window

FINDER = shipped_finder()
GAP = "train/train_rollout_logprob_abs_diff"
HALVES = ({"train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0}, {GAP: 0.015})


def answer(rows, look):
    """Return what the double's server shows of a history in one look."""
    asked = look.variables()
    whole = window(rows, asked["low"], asked["high"] - 1)
    return read_history(
        {
            "history": [to_json(row) for row in thin_out(whole, asked["rows"] or DEFAULT_SAMPLES)],
            "sampledHistory": [sampled(rows, spec) for spec in asked["specs"]],
        }
    )


@st.composite
def histories(draw):
    """Rows of a Miles run: a long or short beginning, then optimizer steps, each in one row or in two."""
    before = draw(st.integers(0, 300))
    stride = draw(st.sampled_from([1, 1, 1, 2, 7, 1000]))
    rows = [{"_step": stride * index, "eval/score": 0.5} for index in range(before)]
    for index in draw(st.sets(st.integers(0, max(0, before - 1)), max_size=3)) if before else ():
        rows[index] |= {"rollout/step": 0, "rollout/response_len/mean": 512.0}
    at = stride * before
    first = draw(st.sampled_from([0, 0, 0, 5]))
    for step in range(first, first + draw(st.integers(0, 150))):
        gap = {GAP: 0.015 * (1 + step)}
        if draw(st.booleans()):
            rows.append({"_step": at, "train/step": step, **HALVES[0], **gap})
        else:
            apart = draw(st.integers(1, 3))
            rows.append({"_step": at, "train/step": step, **HALVES[0]})
            rows.append({"_step": at + apart, "train/step": step, **gap})
            at += apart
        at += draw(st.sampled_from([1, 1, stride]))
    return rows


def traced(rows, metrics):
    """Return the run as the source would keep it, and the looks that it took."""
    look = first_query(metrics)
    node = RunNode("r", state="finished", line_count=len(rows), seen=answer(rows, look))
    trace = Step0Search(node, look, config=CONFIG, finder=FINDER)
    looks = 1
    while trace.next is not None:
        trace.add(answer(rows, trace.next))
        looks += 1
    return trace, looks


def step0_of(rows):
    """Return step 0 as text, without the rollout rows around it, of which only the near ones are read."""
    found = FINDER.find(RunRecord("lab", "rl", "r", state="finished", config=CONFIG, rows=tuple(rows)))
    values = {name: value for name, value in found.row.items() if name.startswith("train/")}
    return json.dumps(asdict(replace(found, row=values)), sort_keys=True)


@given(histories(), st.sampled_from([FINDER.metrics, {GAP}, {"actor/ppo_kl"}]))
def test_a_thinned_out_history_gives_the_same_step_0_as_the_whole_one(rows, metrics):
    whole = [HistoryRow(numbers(row), order) for order, row in enumerate(rows)]
    trace, looks = traced(rows, metrics)
    assert step0_of(trace.rows) == step0_of(whole)
    assert looks <= MOST_QUERIES


@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_a_long_history_takes_few_looks(before, steps):
    rows = [{"_step": before + step, "train/step": step, **HALVES[0], **HALVES[1]} for step in range(steps)]
    trace, looks = traced([{"_step": 0, "eval/score": 0.5}] * (before > 0) + rows, FINDER.metrics)
    assert trace.decided
    assert looks <= 5


@given(histories())
def test_what_is_kept_of_a_history_is_small(rows):
    trace, _looks = traced(rows, FINDER.metrics)
    assert len(trace.rows) <= 12
