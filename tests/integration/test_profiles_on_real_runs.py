"""Runs as the real W&B client writes them: flat, nested, objects as texts, steps of its own; all frameworks with ``--full-grid``."""

from datetime import UTC, datetime

import pandas as pd
import pytest

import step0_wandb as s0
from step0_wandb.profiles import load_profiles
from step0_wandb.sources.base import SourceMemory
from step0_wandb.sources.offline.source import OfflineSource
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store.columns import columns_of, frame_of
from tests.support.frameworks import CASES, HEALTHY_RUNS, UNKNOWN, name_of, record_of, write_runs
from tests.support.other_frameworks import OTHERS

FINDER = Step0Finder(load_profiles())
ALL = [
    pytest.param(case, id=case.name, marks=() if case.written else pytest.mark.full_grid)
    for case in (*CASES, *OTHERS)
]
OWN_PROFILE = """
name = "inhouse"
title = "Our trainer"
metrics = {ppo_kl = ["policy/kl"], gap = [{metric = "policy/engine_gap", statistic = "mean |log-prob difference|"}]}
step = {keys = ["opt_step"], first = "0"}
setup = [
    {label = "model", value = "model(weights)"},
    {label = "temperature", value = "sampler.temperature", default = 1},
]
exact = [{kind = "exact", limit = 1e-9, above = "broken"}]
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory, pytestconfig):
    root = tmp_path_factory.mktemp("frameworks")
    write_runs(root, every=pytestconfig.getoption("--full-grid"))
    return root


def read(directory, finder):
    source = OfflineSource(directory, finder, clock=lambda: datetime.now(UTC))
    return [(reading.record, finder.facts(reading.record)) for reading in source.readings(SourceMemory())]


def judged(readings):
    """Return the verdict of each run among the runs of its own project."""
    rows = frame_of(columns_of(record, found) for record, found in readings)
    parts = [s0.judge(part.reset_index(drop=True)) for _, part in rows.groupby("project")]
    return pd.concat(parts).set_index("run_id")["verdict"]


@pytest.fixture(scope="module")
def readings(directory):
    return read(directory, FINDER)


@pytest.fixture(scope="module")
def facts(readings):
    return {record.run_id: found for record, found in readings}


@pytest.fixture(scope="module")
def verdicts(readings):
    return judged(readings)


@pytest.mark.parametrize("case", ALL)
def test_what_the_client_writes_gets_the_verdict_that_it_should_have(verdicts, case):
    assert verdicts[name_of(case, 0)] == case.verdict
    assert {verdicts[name_of(case, number)] for number in range(1, HEALTHY_RUNS + 1)} <= {*case.healthy}


@pytest.mark.parametrize("case", ALL)
def test_the_client_writes_what_the_tables_of_the_frameworks_say(facts, case):
    for number in range(HEALTHY_RUNS + 1):
        expected = FINDER.facts(record_of(case, number))
        found = facts[name_of(case, number)]
        assert (found.step0.status, found.step0.profile, found.setup) == (
            "found",
            case.profile,
            expected.setup,
        )
        for name in ("ppo_kl", "clip_frac", "gap", "gap_metric", "step"):
            one, other = getattr(found.step0, name), getattr(expected.step0, name)
            assert one == other or (one != one and other != other)  # noqa: PLR0124 - NaN
        assert (found.plan.ppo_kl, found.plan.clip_frac, found.plan.gap) == (
            expected.plan.ppo_kl,
            expected.plan.clip_frac,
            expected.plan.gap,
        )


def test_a_framework_that_nobody_knows_works_with_a_profile_of_ones_own(directory, facts, tmp_path):
    assert facts[name_of(UNKNOWN, 1)].step0.status == "no-step0"
    path = tmp_path / "inhouse.toml"
    path.write_text(OWN_PROFILE, encoding="utf-8")
    own = [
        (record, found)
        for record, found in read(directory, Step0Finder(load_profiles([path])))
        if record.project == UNKNOWN.name
    ]
    assert {found.setup for _, found in own} == {UNKNOWN.setup}
    assert {found.plan.ppo_kl.kind for _, found in own} == {"exact"}
    verdicts = judged(own)
    assert verdicts[name_of(UNKNOWN, 0)] == "broken"
    assert {verdicts[name_of(UNKNOWN, number)] for number in range(1, HEALTHY_RUNS + 1)} == {"healthy"}
