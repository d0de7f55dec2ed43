"""Every profile on runs as its framework writes them, with the framework's own keys and defaults.

The runs are made in memory; `tests/integration/test_profiles_on_real_runs.py` has some of them written by
the real W&B client and finds the same.
"""

import pandas as pd
import pytest

import step0_wandb as s0
from step0_wandb.profiles import load_profiles
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store.columns import columns_of, frame_of
from tests.support.frameworks import CASES, HEALTHY_RUNS, name_of, record_of
from tests.support.other_frameworks import OTHERS

ALL = (*CASES, *OTHERS)
FINDER = Step0Finder(load_profiles())
RECORDS = [record_of(case, number) for case in ALL for number in range(HEALTHY_RUNS + 1)]


@pytest.fixture(scope="module")
def facts():
    return {record.run_id: FINDER.facts(record) for record in RECORDS}


@pytest.fixture(scope="module")
def verdicts(facts):
    """Return the verdict of each run among the runs of its own case."""
    rows = frame_of(columns_of(record, facts[record.run_id]) for record in RECORDS)
    parts = [s0.judge(part.reset_index(drop=True)) for _, part in rows.groupby("project")]
    return pd.concat(parts).set_index("run_id")["verdict"]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_what_is_asserted_of_a_framework_follows_its_config(facts, case):
    for number in range(HEALTHY_RUNS + 1):
        found = facts[name_of(case, number)]
        assert (found.step0.status, found.step0.profile) == ("found", case.profile)
        assert found.step0.note == ""
        assert found.setup == case.setup
        plan = found.plan
        assert (plan.ppo_kl.kind, plan.clip_frac.kind, plan.gap.kind) == (
            case.ppo_kl,
            case.clip_frac,
            case.gap_rule,
        )


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_no_limit_of_a_profile_is_broken_by_its_healthy_defaults(facts, case):
    for number in range(1, HEALTHY_RUNS + 1):
        found = facts[name_of(case, number)]
        for value, rule in (
            (found.step0.ppo_kl, found.plan.ppo_kl),
            (found.step0.clip_frac, found.plan.clip_frac),
        ):
            if value is not None and rule.limit is not None:
                assert abs(value) <= rule.limit
            if value is not None and rule.kind == "averaged":
                assert abs(value) < rule.broken_from
        if found.plan.gap.kind == "range" and not found.plan.gap_zero:
            assert 0 < found.step0.gap < (found.plan.ceiling or float("inf"))


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_broken_run_is_found_and_no_healthy_one_is_accused(verdicts, case):
    assert verdicts[name_of(case, 0)] == case.verdict
    for number in range(1, HEALTHY_RUNS + 1):
        assert verdicts[name_of(case, number)] in case.healthy


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_no_other_profile_claims_a_run(case):
    names = {name for row in case.rows for name in row}
    assert FINDER.profiles.pick(names, case.config).name == case.profile
