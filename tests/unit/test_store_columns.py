"""A run as columns: the same names and types whether it comes from a store or from a source."""

import math
from dataclasses import replace

import numpy as np
import pytest

from step0_wandb.records import RunFacts, Step0
from step0_wandb.store import COLUMNS, Wanted, columns_of, frame_of
from tests.support.stored import METRIC, NOW, PLAN, SETUP, facts, pending, record

CONFIG = {"a": {"b": {"c": 1}, "b.c": 2, "x": None}, "a.b": {"c": 3}, "": 4, "lr": 0.1, "list": [1]}


def test_a_run_has_its_identity_values_and_checks_in_columns():
    assert columns_of(record(), facts(0.0152)) == {
        "run": "team/rl/aa11",
        "entity": "team",
        "project": "rl",
        "run_id": "aa11",
        "policy": None,
        "start": 1,
        "superseded": False,
        "name": "name-aa11",
        "url": "https://wandb.example.com/team/rl/runs/aa11",
        "user": "mia",
        "group": "g1",
        "created_at": record().created_at,
        "state": "finished",
        "profile": "miles",
        "setup": SETUP,
        "ppo_kl": 0.0,
        "clip_frac": 0.0,
        "gap": 0.0152,
        "gap_metric": METRIC,
        "nan_metrics": "",
        "step0": "found",
        "note": "",
        "fit": True,
        "ppo_kl_rule": "exact",
        "ppo_kl_limit": 1e-9,
        "ppo_kl_above": "broken",
        "ppo_kl_broken_from": 1e-2,
        "ppo_kl_why": "",
        "clip_frac_rule": "exact",
        "clip_frac_limit": 1e-10,
        "clip_frac_above": "broken",
        "clip_frac_broken_from": 5e-2,
        "clip_frac_why": "",
        "gap_rule": "range",
        "gap_why": "",
        "ceiling": 0.03,
        "ceiling_from": "Miles itself allows",
        "gap_zero": "",
        "switch": "",
        "observables": (),
        "contradiction": "",
        "gap_spread": None,
        "entropy": None,
        "seed": None,
        "data": None,
        "prompts": None,
    }


def test_a_metric_logged_as_nan_is_told_from_one_that_was_not_logged():
    assert columns_of(record(), facts(math.nan, ppo_kl=math.nan))["nan_metrics"] == "ppo_kl gap"
    assert columns_of(record(), facts(None, ppo_kl=None))["nan_metrics"] == ""


@pytest.mark.parametrize(
    "runs", [[], [columns_of(record(created_at=None), pending())], [columns_of(record(), facts())]]
)
def test_a_frame_has_the_same_columns_and_types_whatever_is_in_it(runs):
    frame = frame_of(runs)
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == len(runs)
    types = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert types["created_at"] == types["accepted_at"] == "datetime64[us, UTC]"
    assert types["gap"] == types["ppo_kl_limit"] == types["ceiling"] == "float64"
    assert types["fit"] == "bool"
    assert types["setup"] == types["label"] == "object"


def test_what_is_missing_is_none_in_texts_and_nan_in_numbers():
    frame = frame_of([columns_of(record(user=None, created_at=None), RunFacts(Step0("no-step0")))])
    assert frame["user"].tolist() == frame["setup"].tolist() == frame["label"].tolist() == [None]
    assert np.isnan(frame["gap"]).all()
    assert frame["created_at"].isna().all()


def test_times_keep_their_microseconds():
    moment = NOW.replace(microsecond=123_457)
    frame = frame_of([columns_of(record(created_at=moment), facts())])
    assert frame["created_at"].iloc[0].to_pydatetime() == moment


def test_wanted_config_keys_and_metrics_become_columns():
    run = record(config=CONFIG)
    step0 = replace(facts().step0, row={"rollout/len": 512.0})
    wanted = Wanted(config=("lr", "nope"), metrics=("rollout/len", "none"))
    values = wanted.columns_of(run, RunFacts(step0, SETUP, PLAN))
    assert values == {"lr": 0.1, "nope": None, "rollout/len": 512.0, "none": None}
    frame = frame_of([columns_of(run, facts()) | values], wanted)
    assert tuple(frame.columns) == (*COLUMNS, "lr", "nope", "rollout/len", "none")
    assert frame["rollout/len"].dtype == "float64"


def test_a_wanted_name_that_is_a_column_already_gets_its_kind_in_front():
    assert Wanted(("user", "lr"), ("gap", "lr")).names() == ("config.user", "lr", "metric.gap", "metric.lr")
