"""The first optimizer step of every rollout: which rows these are, and what they say."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.checks.outcomes import Level
from step0_wandb.profiles import load_profiles
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.step0.rollouts import Opening, RolloutFinder, judge_later

GAP = "train/train_rollout_logprob_abs_diff"
FINDER = RolloutFinder(load_profiles())
TWO = {"hf_checkpoint": "/models/Qwen3-0.6B", "num_steps_per_rollout": 2, "colocate": True}


def run(*values, **config):
    rows = tuple(HistoryRow(row, order) for order, row in enumerate(values))
    return RunRecord("e", "p", "r", state="finished", config=TWO | config, rows=rows)


def miles(step, kl=0.0, clip=0.0, gap=0.0150, **more):
    return {"train/step": step, "train/ppo_kl": kl, "train/pg_clipfrac": clip, GAP: gap, **more}


def rollouts(count, *, lost=(), kl=3e-4, steps=2, **given):
    """Return rollouts of some steps, whose later steps are off-policy by design."""
    return [
        miles(step, **given)
        | {"train/ppo_kl": (kl if step // steps in lost else 0.0) if step % steps == 0 else 2e-3}
        for step in range(count * steps)
    ]


def judged(record):
    every, update = judge_later(FINDER, record)
    assert (every.check, update.check) == ("every-rollout", "first-update")
    return every, update


# ── which rows ──────────────────────────────────────────────────────────────


def test_the_openings_are_the_first_steps_of_the_rollouts_by_the_config():
    record = run({"rollout/step": 0}, *rollouts(3), {"rollout/step": 3})
    assert [(o.rollout, o.step) for o in FINDER.openings(record)] == [(0, 0), (1, 2), (2, 4)]


@pytest.mark.parametrize(
    ("config", "openings"),
    [
        ({"num_steps_per_rollout": 1}, [0, 1, 2, 3, 4, 5]),
        ({"num_steps_per_rollout": None}, []),
        (
            {
                "num_steps_per_rollout": None,
                "rollout_batch_size": 32,
                "n_samples_per_prompt": 8,
                "global_batch_size": 64,
            },
            [0, 4],
        ),
        ({"use_dynamic_global_batch_size": True}, []),
        ({"num_critic_only_steps": 1}, [2, 4]),
    ],
)
def test_the_steps_of_a_rollout_come_from_the_config(config, openings):
    first = 2 if "num_critic_only_steps" in config else 0
    record = run(*(miles(step) for step in range(first, 6)), **config)
    assert [opening.step for opening in FINDER.openings(record)] == openings


def test_a_framework_with_one_row_a_rollout_has_an_opening_in_every_row():
    rows = [{"training/global_step": step, "actor/ppo_kl": 0.0} for step in (1, 2, 3)]
    assert [opening.rollout for opening in FINDER.openings(run(*rows))] == [1, 2, 3]


def test_two_rows_of_one_opening_are_merged_and_the_first_writer_counts():
    (opening,) = FINDER.openings(run({"train/step": 0, "train/ppo_kl": 0.0}, miles(0, kl=9.0)))
    assert opening == Opening(0, 0.0, miles(0))


# ── what sources ask of the finder ──────────────────────────────────────────


def test_reading_ends_with_the_opening_that_was_waited_for():
    finder = replace(FINDER, until=2)
    rows = [HistoryRow(values, order) for order, values in enumerate(rollouts(3))]
    assert [finder.decided(rows[:n], TWO) for n in range(1, 5)] == [False, False, True, True]
    assert not FINDER.decided(rows, TWO)


def test_an_opening_that_lacks_a_metric_is_whole_once_a_later_step_is_there():
    finder = replace(FINDER, until=2)
    first = [HistoryRow(values, order) for order, values in enumerate(rollouts(1))]
    half = HistoryRow({"train/step": 2, "train/ppo_kl": 0.0}, 2)
    later = HistoryRow(miles(3), 3)
    assert not finder.decided([*first, half], TWO)
    assert finder.decided([*first, half, later], TWO)


def test_a_resumed_run_and_one_whose_rollouts_are_not_known_are_not_waited_for():
    finder = replace(FINDER, until=2)
    assert finder.decided([HistoryRow(miles(40))], TWO)
    assert finder.decided([HistoryRow(miles(0))], {})


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 3), st.sets(st.integers(1, 40), max_size=2))
def test_thinning_out_on_the_way_changes_nothing_of_what_is_judged(count, steps, extra, cuts):
    rows = [{"rollout/step": 0}] * extra + rollouts(count, steps=steps, **{"train/loss": 1.0})
    whole = run(*rows, num_steps_per_rollout=steps)
    kept = ()
    for row in whole.rows:
        kept = (*kept, row)
        if len(kept) in cuts:
            kept = FINDER.prune(_padded(kept), whole.config)
    thin = replace(whole, rows=kept)
    assert FINDER.find(thin) == FINDER.find(whole)
    assert judge_later(FINDER, thin) == judge_later(FINDER, whole)


def _padded(rows):
    """Return as many rows as make the finder thin them out; the doubles say nothing new."""
    missing = 1024 - len(rows)
    return (*rows, *(HistoryRow(rows[-1].values, rows[-1].order) for _ in range(missing)))


def test_a_long_run_keeps_one_small_row_a_rollout():
    record = run(
        *rollouts(512, steps=4, **{f"train/extra_{at}": 1.0 for at in range(20)}), num_steps_per_rollout=4
    )
    kept = FINDER.prune(record.rows, record.config)
    assert 512 <= len(kept) <= 520
    assert max(len(row.values) for row in kept[9:]) == 4


# ── what must stay 0 ────────────────────────────────────────────────────────


def test_a_run_that_keeps_the_property_passes_whatever_its_later_steps_say():
    every, _ = judged(run(*rollouts(8)))
    assert (every.outcome, every.level, every.value, every.limit) == ("pass", Level.FINE, 0.0, 1e-9)
    assert every.message == "ppo_kl stays within 1e-09 at the first step of each rollout, up to rollout 7"


def test_the_rollout_at_which_the_property_was_lost_is_told():
    every, _ = judged(run(*rollouts(10, lost={7})))
    assert (every.outcome, every.level, every.value) == ("fail", Level.BROKEN, 3e-4)
    assert every.message == (
        "ppo_kl is 0.000300 at the first step of rollout 7, where it must be 0 (limit 1e-09): it was 0 until "
        "rollout 6, and is over the limit in none of the 2 rollouts since"
    )


def test_whether_it_was_lost_for_good_is_told():
    every, _ = judged(run(*rollouts(10, lost={3, 4, 5, 6, 7, 8, 9}, kl=-3e-4)))
    assert "ppo_kl is -0.000300 at the first step of rollout 3" in every.message
    assert every.message.endswith(
        "it was 0 until rollout 2, and is over the limit in 6 of the 6 rollouts since"
    )


def test_lost_at_the_last_rollout_there_is_nothing_since():
    every, _ = judged(run(*rollouts(3, lost={2})))
    assert every.message.endswith("it was 0 until rollout 1")


def test_noise_below_the_limit_is_no_zero_and_no_loss():
    every, _ = judged(run(*rollouts(4, lost={1}, kl=6e-12)))
    assert every.outcome == "pass"
    every, _ = judged(run(miles(0), miles(2, kl=6e-12), miles(4, kl=1e-3)))
    assert "it was within the limit until rollout 1" in every.message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number_is_lost(value):
    every, _ = judged(run(miles(0), miles(2, kl=value)))
    assert (every.outcome, every.level) == ("fail", Level.BROKEN)


def test_the_clip_fraction_is_judged_too():
    every, _ = judged(run(miles(0), miles(2), miles(4, clip=1e-3)))
    assert every.message.startswith("clip_frac is 0.00100 at the first step of rollout 2")
    assert every.limit == 1e-10


def test_a_failure_of_step_0_is_not_told_again():
    every, _ = judged(run(miles(0, kl=0.3, clip=0.05), miles(2, kl=0.3, clip=0.05)))
    assert (every.outcome, every.message) == ("skipped", "ppo_kl fails at step 0 already")


def test_one_rollout_proves_nothing():
    every, update = judged(run(*rollouts(1)))
    assert (every.outcome, every.message) == ("skipped", "no ppo_kl of a rollout after the first is logged")
    assert (update.outcome, update.message) == ("skipped", "no gap after the first update is logged")


def test_without_the_steps_of_a_rollout_both_are_skipped_and_say_why():
    later = judge_later(FINDER, run(*rollouts(2), num_steps_per_rollout=None))
    assert {(item.outcome, item.message) for item in later} == {
        ("skipped", "the config does not say how many optimizer steps a rollout has")
    }


@pytest.mark.parametrize(
    ("config", "level"),
    [
        ({"train_backend": "fsdp"}, Level.SUSPECT),
        ({"fp8": "e4m3"}, Level.SUSPECT),
        ({"lora_rank": 8}, Level.BROKEN),
    ],
)
def test_a_loss_is_as_grave_as_at_step_0(config, level):
    every, _ = judged(run(miles(0), miles(2, kl=2e-3), **config))
    assert (every.outcome, every.level) == ("fail", level)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"use_rollout_logprobs": True}, "the old log-probs come from the engine"),
        ({"skip_actor_forward_only": True}, "the old log-probs are the training forward itself"),
    ],
)
def test_where_step_0_proves_nothing_later_rows_prove_nothing_either(config, why):
    every, _ = judged(run(miles(0), miles(2, kl=2e-3), **config))
    assert every.outcome == "skipped"
    assert every.message.startswith(why)


def test_a_framework_that_averages_steps_is_not_asserted():
    config = {
        "data": {"train_batch_size": 1024},
        "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 256}},
    }
    rows = [{"training/global_step": step, "actor/ppo_kl": 2e-3 * step} for step in (1, 2)]
    every, _ = judged(run(*rows, **config))
    assert every.outcome == "skipped"
    assert "averages several optimizer steps" in every.message


def test_a_run_without_step_0_has_nothing_to_judge():
    assert judge_later(FINDER, run(miles(40), miles(42))) == ()
    assert judge_later(FINDER, run({"loss": 1.0})) == ()


# ── the gap after the first update ──────────────────────────────────────────


def test_stale_weights_show_in_the_gap_of_the_first_row_after_the_first_update():
    """The reported pair: 0.015 with the weights of the update, 0.201 with those of before."""
    _, update = judged(run(miles(0), miles(1), miles(2, gap=0.201)))
    assert (update.outcome, update.level, update.value) == ("fail", Level.BROKEN, 0.201)
    assert update.message == (
        "gap 0.201 of rollout 1 is 13.4 times step 0's 0.0150 after the first update: the engine may not have got the new "
        "weights"
    )


def test_the_healthy_half_of_the_pair_passes():
    _, update = judged(run(miles(0, gap=0.010), miles(2, gap=0.015)))
    assert (update.outcome, update.limit) == ("pass", pytest.approx(0.03))
    assert update.message == "gap 0.0150 of rollout 1 is 1.50 times step 0's 0.0100 after the first update"


def test_later_steps_of_the_first_rollout_are_not_after_the_update():
    _, update = judged(run(miles(0), miles(1, gap=0.2), miles(2)))
    assert update.outcome == "pass"


def test_a_rollout_that_follows_later_is_compared_where_the_next_one_is_not_in_hand():
    _, update = judged(run(miles(0), miles(8, gap=0.2)))
    assert (update.outcome, update.level) == ("fail", Level.BROKEN)
    assert update.message.startswith("gap 0.200 of rollout 4 is 13.3 times step 0's")


def lr_and_norm(lr=1e-6, norm=0.3):
    return {"train/lr-pg_0": lr, "train/grad_norm": norm}


def test_the_rollout_that_counts_is_the_first_behind_a_step_that_moved_the_weights():
    """Warm-up from a learning rate of 0: the second update is the first that changes anything."""
    gaps = {0: (0.0150, 0.0), 2: (0.0151, 1e-7), 4: (0.31, 2e-7)}
    rows = [
        miles(step + at, gap=gap, **lr_and_norm(lr=lr)) for step, (gap, lr) in gaps.items() for at in (0, 1)
    ]
    _, update = judged(run(*rows[:4]))
    assert (update.outcome, update.level) == ("vacuous", Level.FINE)
    assert update.message == (
        "no optimizer step before rollout 1 had a learning rate and a gradient norm above 0: the weights have not "
        "changed yet"
    )
    _, update = judged(run(*rows))
    assert (update.outcome, update.level, update.value) == ("fail", Level.BROKEN, 0.31)
    assert update.message.startswith("gap 0.310 of rollout 2 is 20.7 times step 0's 0.0150")


@pytest.mark.parametrize("norm", [0.0, math.nan])
def test_steps_without_a_gradient_change_nothing(norm):
    rows = [miles(0, **lr_and_norm(norm=norm)), miles(2, gap=0.2, **lr_and_norm())]
    assert judged(run(*rows))[1].outcome == "vacuous"
    _, update = judged(run(*rows, miles(4, gap=0.21)))
    assert update.message.startswith("gap 0.210 of rollout 2")


def test_any_step_of_a_rollout_moves_the_weights():
    rows = [miles(0, **lr_and_norm(lr=0.0)), miles(1, **lr_and_norm()), miles(2, gap=0.2)]
    assert judged(run(*rows))[1].level == Level.BROKEN


def test_a_gap_that_doubles_slowly_is_told_with_the_rollout_at_which_it_began():
    gaps = (0.0104, 0.0101, 0.0119, 0.0160, 0.0300, 0.0550)
    _, update = judged(run(*(miles(2 * at, gap=gap) for at, gap in enumerate(gaps))))
    assert (update.outcome, update.level, update.value) == ("warn", Level.SUSPECT, 0.03)
    assert update.message == (
        "gap 0.0300 of rollout 4 is 2.9 times step 0's 0.0104, and has grown since rollout 2: the engine may not have "
        "got the new weights, or only a part of them (LoRA?)"
    )


def test_a_gap_that_doubles_after_the_first_rollouts_may_be_the_policy():
    gaps = [0.0104] * 10 + [0.03]
    assert judged(run(*(miles(2 * at, gap=gap) for at, gap in enumerate(gaps))))[1].outcome == "pass"


def test_where_training_may_be_asynchronous_a_jump_is_suspect_only():
    _, update = judged(run(miles(0), miles(2, gap=0.201), colocate=False))
    assert update.level == Level.SUSPECT
    assert update.message.endswith("(unless training is asynchronous here)")


@pytest.mark.parametrize(
    "config",
    [
        {"fully_async": True},
        {"partial_rollout": True},
        {"update_weights_interval": 2},
    ],
)
def test_where_older_weights_are_meant_later_rollouts_are_compared_with_the_stale_ones(config):
    rows = [miles(2 * at, gap=gap) for at, gap in enumerate((0.0150, 0.0400, 0.0390, 0.0850))]
    _, update = judged(run(*rows[:2], **config))
    assert (update.outcome, update.level) == ("vacuous", Level.FINE)
    assert "1 update old by design" in update.message
    assert judged(run(*rows[:3], **config))[1].outcome == "pass"
    _, update = judged(run(*rows, **config))
    assert (update.outcome, update.level) == ("warn", Level.SUSPECT)
    assert "is 2.1 times rollout 1's 0.0400, and has grown since rollout 3" in update.message


def test_the_allowance_is_the_staleness_that_the_config_allows():
    rows = [miles(2 * at, gap=0.015 * (1 + at)) for at in range(5)]
    config = {"fully_async": True, "max_weight_staleness": 3}
    assert judged(run(*rows[:4], **config))[1].outcome == "vacuous"
    assert judged(run(*rows, **config))[1].outcome == "pass"


def test_where_the_engine_keeps_its_weights_by_design_nothing_is_asserted():
    _, update = judged(run(miles(0), miles(2, gap=0.201), lora_train_only=1))
    assert (update.outcome, update.level) == ("skipped", Level.FINE)
    assert "keeps its first weights by design" in update.message


@pytest.mark.parametrize("gap", [math.nan, math.inf])
def test_a_gap_that_is_no_number_is_broken(gap):
    _, update = judged(run(miles(0), miles(2, gap=gap)))
    assert (update.outcome, update.level) == ("fail", Level.BROKEN)
    assert update.message == f"gap is {gap} after the first update (rollout 1)"


def test_a_gap_that_was_not_measured_is_no_measure():
    _, update = judged(run(miles(0, gap=0.0), miles(2, gap=0.2)))
    assert update.outcome == "skipped"


@pytest.mark.parametrize(
    ("before", "after", "outcome", "level"),
    [
        (0.0, 0.0, "pass", Level.FINE),
        (0.0, 1e-4, "fail", Level.BROKEN),
        (1e-4, 1e-4, "skipped", Level.FINE),
    ],
)
def test_true_on_policy_demands_zero_after_the_update_too(before, after, outcome, level):
    _, update = judged(run(miles(0, gap=before), miles(2, gap=after), true_on_policy_mode=True))
    assert (update.outcome, update.level) == (outcome, level)


def test_a_signed_gap_is_not_compared():
    config = {"rollout_batch_size": 8, "train_batch_size": 8, "n_samples_per_prompt": 1}
    rows = [
        {"train/global_step": step, "train/ppo_kl": 0.0, "train/ppo_clip_ratio": 0.0, "train/vllm_kl": gap}
        for step, gap in ((1, 1e-4), (2, 1e-2))
    ]
    _, update = judged(run(*rows, **config))
    assert update.outcome == "skipped"
    assert "signed mean" in update.message


def test_the_trl_report_is_found_by_the_trl_profile():
    """TRL issue 5312: with sleep mode the engine kept its weights; the gap went from 0.010 to 0.201."""
    config = {
        "logging_steps": 1,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 1,
        "use_vllm": True,
    }
    metric = "train/sampling/sampling_logp_difference/mean"
    rows = [{"train/global_step": step, metric: gap} for step, gap in ((1, 0.010), (2, 0.201))]
    _, update = judged(run(*rows, **config))
    assert (update.level, update.value) == (Level.BROKEN, 0.201)
