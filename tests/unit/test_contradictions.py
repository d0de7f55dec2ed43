"""A config that contradicts itself is enough for a verdict: no history is needed."""

import pytest

from step0_wandb.profiles import load_profiles
from step0_wandb.profiles.causes import causes_in, contradiction_in
from step0_wandb.records import HistoryRow
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store.columns import columns_of, frame_of
from step0_wandb.verdicts.judge import judged_runs, weigh
from tests.support.stored import record

PROFILES = load_profiles()
MILES = PROFILES.by_name["miles"]
SOUND = {
    "hf_checkpoint": "/models/Qwen3-0.6B",
    "load": "/models/Qwen3-0.6B_torch_dist",
    "save": "/out/run",
    "ref_load": "/models/Qwen3-0.6B_torch_dist",
    "bf16": True,
}
WRONG = {**SOUND, "load": "/models/Qwen3-1.7B_torch_dist", "ref_load": "/models/Qwen3-1.7B_torch_dist"}


def judged(config, gap, *others, accepted=None):
    """Return the verdict of one run, next to others of sound configs whose gaps are given."""
    finder = Step0Finder(PROFILES)
    rows = []
    for at, (own, value) in enumerate([(config, gap), *((SOUND, g) for g in others)]):
        values = {
            "train/step": 0.0,
            "train/ppo_kl": 0.0,
            "train/pg_clipfrac": 0.0,
            "train/train_rollout_logprob_abs_diff": value,
        }
        run = record(f"run{at}", config=own, rows=(HistoryRow(values, 0),))
        rows.append(columns_of(run, finder.facts(run)) | {"accepted_at": accepted})
    return judged_runs(weigh(frame_of(rows)))[0]


def test_a_first_run_whose_reference_is_another_model_is_suspect_and_says_so():
    run = judged(WRONG, 0.021)
    assert run.verdict == "suspect"
    assert run.reasons[0].startswith(
        "its config contradicts itself: ref_load (/models/Qwen3-1.7B_torch_dist)"
    )
    assert run.must_stop


def test_it_is_broken_where_its_gap_is_above_what_the_framework_allows():
    assert judged(WRONG, 0.043).verdict == "broken"
    assert judged(SOUND, 0.043).verdict == "suspect"


def test_inside_the_range_of_its_setup_it_is_suspect_and_no_member():
    run = judged(WRONG, 0.0151, 0.0150, 0.0152, 0.0149, 0.0151)
    assert (run.verdict, run.range.n) == ("suspect", 4)


def test_in_a_setup_that_a_person_has_accepted_it_is_not_held_against_a_run():
    run = judged(WRONG, 0.0151, 0.0150, 0.0152, 0.0149, accepted="2026-01-01")
    assert run.verdict == "healthy"


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"ref_load": "/models/qwen3-0.6b_mcore"},
        {"ref_load": "/data/hf/dist"},
        {"load": "/models/Qwen3-0.6B", "ref_load": "/models/Qwen3-32B"},
        {"attention_dropout": 0.1},
    ],
)
def test_a_sound_config_contradicts_nothing(change):
    assert contradiction_in(MILES, SOUND | change) == ""


def test_dropout_is_a_contradiction_of_a_launch_alone():
    (cause, *_) = causes_in(MILES, SOUND | {"attention_dropout": 0.1})
    assert (cause.name, cause.contradicts) == ("dropout", "launch")
