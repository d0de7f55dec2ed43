"""A profile that is guessed from one run of a framework reads what its shipped profile reads.

The witnesses are the shipped profiles, which were written by hand from the frameworks' sources.
"""

import tomllib
from pathlib import Path

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.profiles.catalog import Profiles
from step0_wandb.profiles.draft import draft_profile
from step0_wandb.profiles.load import parse_profile
from step0_wandb.records import HistoryRow
from step0_wandb.step0.finder import Step0Finder
from tests.support.frameworks import CASES, record_of
from tests.support.other_frameworks import OTHERS

# NeMo RL logs no PPO-KL but a ratio, AsyncGRPO calls the KL to the engine "kl", torchtitan's best gap is a
# maximum, ROLL logs two PPO-KLs, tunix numbers the two parts of a step apart.
BEYOND_GUESSING = {"nemo_rl", "trl_async", "torchtitan", "roll", "tunix"}
FIRST_OF_EACH = {case.profile: case for case in reversed((*CASES, *OTHERS))}
SHIPPED = Step0Finder(load_profiles())


def drafted(record):
    draft = draft_profile("mine", record.run_id, record.rows, record.config)
    return Step0Finder(
        Profiles({"mine": parse_profile(Path(f"{record.run_id}.toml"), draft.text.encode())}, "")
    )


@pytest.mark.parametrize("name", sorted(FIRST_OF_EACH))
def test_a_guessed_profile_finds_the_step_the_model_and_the_values_of_the_shipped_one(name):
    record = record_of(FIRST_OF_EACH[name], 1)
    guessed, shipped = drafted(record).facts(record), SHIPPED.facts(record)
    assert guessed.step0.status == "found"
    assert guessed.step0.step == shipped.step0.step
    assert guessed.setup.split(" · ")[1] == shipped.setup.split(" · ")[1]
    if name not in BEYOND_GUESSING:
        assert guessed.step0.gap_metric == shipped.step0.gap_metric
        assert (guessed.step0.ppo_kl, guessed.step0.clip_frac) == (
            shipped.step0.ppo_kl,
            shipped.step0.clip_frac,
        )


def test_names_and_values_from_outside_cannot_leave_their_place_in_the_file():
    odd = 'x/rollout_logp_diff"]\n[step]\nfirst = "7"\x1b\x7f\u202e'
    config = {"model_path": 'a"]\nname = "other"\n[x', "and": {"temperature": 0.5}}
    draft = draft_profile("mine", 'r"\nname = "evil"', [HistoryRow({odd: 0.01, "step": 0})], config)
    read = tomllib.loads(draft.text)
    assert read["name"] == "mine"
    assert read["metrics"]["gap"][0]["metric"] == odd
    assert read["step"]["first"] == "0"
    parse_profile(Path("odd.toml"), draft.text.encode())


def test_a_signed_gap_and_a_ppo_kl_that_is_not_zero_are_guessed_as_such():
    values = {"a/ppo_kl": 2e-3, "a/clipfrac": 0.01, "a/rollout_logp_diff_mean": -0.003, "a/step": 3}
    read = tomllib.loads(draft_profile("mine", "r", [HistoryRow(values)], {}).text)
    assert read["metrics"]["gap"][0]["signed"] is True
    assert read["exact"][0]["kind"] == "averaged"
    assert read["step"] == {"keys": ["a/step"], "first": "3"}
    assert read["setup"][0]["value"] == "None"
