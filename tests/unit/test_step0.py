import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from step0_wandb.profiles import load_profiles
from step0_wandb.records import HistoryRow, RunRecord
from step0_wandb.step0.finder import Step0Finder

GAP = "train/train_rollout_logprob_abs_diff"
PROFILES = load_profiles()
FINDER = Step0Finder(PROFILES)


def rows(*values):
    return tuple(HistoryRow(row, order) for order, row in enumerate(values))


def run(*values, state="finished", **config):
    return RunRecord("e", "p", "r", state=state, config=config, rows=rows(*values))


def miles(step, kl=0.0, clip=0.0, gap=0.0151, **more):
    return {"train/step": step, "train/ppo_kl": kl, "train/pg_clipfrac": clip, GAP: gap, **more}


# --- which row -----------------------------------------------------------------------------------


def test_step_0_is_the_row_that_has_the_metric_whatever_the_number_of_its_row():
    found = FINDER.find(run({"eval/step": 0, "_step": 0}, miles(0, _step=7), miles(1, gap=0.02, _step=8)))
    assert (found.status, found.profile, found.step) == ("found", "miles", 0)
    assert (found.ppo_kl, found.clip_frac, found.gap, found.gap_metric) == (0.0, 0.0, 0.0151, GAP)


def test_a_critic_row_with_the_same_step_is_not_the_step_0_row():
    critic = {"train/step": 0, "train/critic-value_loss": 0.5, "train/critic-grad_norm": 1.0}
    found = FINDER.find(run(critic, miles(0)))
    assert found.ppo_kl == 0.0
    assert "train/critic-value_loss" not in found.row


def test_two_rows_of_one_logical_step_are_merged_and_the_first_writer_counts():
    first = {"train/step": 0, "train/ppo_kl": 0.0, "train/loss": 1.0}
    second = {"train/step": 0, "train/ppo_kl": 9.0, "train/pg_clipfrac": 0.0, GAP: 0.0151}
    found = FINDER.find(run(first, second))
    assert (found.ppo_kl, found.gap) == (0.0, 0.0151)
    assert found.row["train/loss"] == 1.0


def test_the_rollout_rows_of_step_0_are_kept_beside_its_metrics():
    rollout = {"rollout/step": 0, "rollout/response_len/mean": 920.0}
    later = {"rollout/step": 1, "rollout/response_len/mean": 50.0}
    found = FINDER.find(run(rollout, miles(0), later, miles(4)))
    assert found.row["rollout/response_len/mean"] == 920.0


def test_the_smallest_step_counts_when_rows_arrive_out_of_order():
    assert FINDER.find(run(miles(1, gap=0.9), miles(0, gap=0.0151))).gap == 0.0151


def test_rows_count_in_the_order_in_which_they_were_read():
    late, early = HistoryRow(miles(0, gap=0.9), 5), HistoryRow(miles(0, gap=0.0151), 2)
    assert FINDER.find(RunRecord("e", "p", "r", state="finished", rows=(late, early))).gap == 0.0151


def test_metrics_that_are_nan_are_found_and_kept():
    found = FINDER.find(run(miles(0, kl=math.nan, gap=math.inf)))
    assert math.isnan(found.ppo_kl)
    assert found.gap == math.inf


def test_a_metric_that_was_not_logged_is_missing_not_zero():
    found = FINDER.find(run({"train/step": 0, "train/ppo_kl": 0.0}))
    assert (found.status, found.clip_frac, found.gap, found.gap_metric) == ("found", None, None, None)


def test_a_gap_that_is_a_ratio_is_told_from_its_perfect_value():
    row = {"_step": 1, "train/token_mult_prob_error": 1.0152, "train/probs_ratio": 0.9999}
    found = FINDER.find(run({"_step": 0, "validation/accuracy": 0.1}, row))
    assert (found.profile, found.step) == ("nemo_rl", 1)
    assert found.gap == pytest.approx(0.0152)
    assert found.ppo_kl == pytest.approx(-1e-4)
    assert found.row["train/token_mult_prob_error"] == 1.0152


def test_verl_finds_its_first_training_row_behind_the_validation_row():
    validation = {"_step": 0, "val-core/acc": 0.5}
    training = {"_step": 1, "training/global_step": 1, "actor/ppo_kl": 3.7e-5, "actor/pg_clipfrac": 0.0}
    found = FINDER.find(run(validation, training))
    assert (found.profile, found.step, found.ppo_kl, found.gap) == ("verl", 1, 3.7e-5, None)


# --- first steps, resumed runs, no step 0 --------------------------------------------------------


def test_the_first_actor_row_comes_after_the_critic_only_rollouts():
    config = {"num_critic_only_steps": 2, "num_steps_per_rollout": 4}
    assert FINDER.find(run(miles(8), **config)).status == "found"
    assert FINDER.find(run(miles(12), **config)).status == "no-step0"


@pytest.mark.parametrize("first", [5, 6])
def test_the_first_actor_row_of_verl_comes_after_the_warm_up_of_its_critic(first):
    row = {"training/global_step": first, "actor/ppo_kl": 0.0}
    assert FINDER.find(run(row, trainer={"critic_warmup": 5})).status == "found"


@pytest.mark.parametrize("state", ["finished", "running"])
def test_a_run_whose_first_step_is_a_later_one_was_resumed_or_lost_its_rows(state):
    found = FINDER.find(run(miles(40), miles(41), state=state))
    assert (found.status, found.profile, found.fit) == ("no-step0", "miles", False)
    assert found.note == "its first row is step 40, not 0: the run was resumed, or its first rows are lost"
    assert found.gap is None


def test_a_first_step_that_a_second_writer_overwrote_is_told_apart_from_a_resumed_run():
    writers = {"_wandb": {"e": {"trainer": {"os": "Linux"}, "rollout": {"os": "Linux"}}}}
    overwritten = FINDER.find(run(miles(3), miles(4), **writers))
    assert (overwritten.status, overwritten.fit) == ("no-step0", False)
    assert overwritten.note.startswith("its first row is step 3, not 0: several processes wrote it")
    alone = {"_wandb": {"e": {"trainer": {"os": "Linux"}}}}
    assert "the run was resumed" in FINDER.find(run(miles(3), **alone)).note


def test_a_resumed_run_is_known_by_its_training_rows_even_without_the_metrics():
    evaluation = {"_step": 6, "eval/all/avg_score": 0.04}
    training = [{"_step": step, "reward/avg_raw_reward": 0.07} for step in (7, 8)]
    found = FINDER.find(run(evaluation, *training))
    assert (found.status, found.profile) == ("no-step0", "skyrl")
    assert "resumed" in found.note


def test_a_training_row_without_the_metrics_is_a_step_0_without_values():
    row = {"train/global_step": 1, "train/reward_std": 0.0, "train/kl": math.nan}
    found = FINDER.find(run(row, logging_steps=1.0))
    assert (found.status, found.profile, found.ppo_kl, found.clip_frac, found.gap) == (
        "found",
        "trl",
        *[None] * 3,
    )


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"load": "/ckpt", "save": "/ckpt"}, "save directory"),
        ({"load": "/ckpt", "ref_load": "/base"}, "different checkpoints"),
    ],
)
def test_a_resume_that_hides_behind_step_0_is_said_and_kept_out_of_ranges(config, says):
    found = FINDER.find(run(miles(0), **config))
    assert (found.status, found.fit, found.gap) == ("found", False, 0.0151)
    assert says in found.note


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("running", "pending"),
        ("pending", "pending"),
        ("preempting", "pending"),
        ("finished", "no-step0"),
        ("crashed", "no-step0"),
        ("failed", "no-step0"),
        ("killed", "no-step0"),
    ],
)
def test_a_run_without_metrics_is_pending_while_it_lives(state, status):
    found = FINDER.find(run({"loss": 1.0, "_step": 0}, state=state))
    assert (found.status, found.profile, found.fit) == (status, None, True)
    assert found.note


def test_a_run_without_any_row_has_no_step_0():
    assert FINDER.find(run()).status == "no-step0"


@pytest.mark.parametrize(
    ("config", "row", "why"),
    [
        ({"check_weight_update_equal": True}, {"eval/step": 0}, "compare both sides' weights"),
        ({"check_weight_update_equal": True}, {"rollout/step": 0}, "it logged its first rollout"),
        ({"check_weight_update_equal": False}, {"eval/step": 0}, "no metric of a known framework"),
    ],
)
def test_a_run_that_ended_without_a_metric_says_how_far_it_came(config, row, why):
    found = FINDER.find(run(row, state="failed", **config))
    assert (found.status, found.profile) == ("no-step0", None)
    assert why in found.note


@pytest.mark.parametrize("row", [{"train/ppo_kl": 0.0}, {"train/ppo_kl": 0.0, "train/step": math.nan}])
def test_metric_rows_without_a_step_cannot_be_told_apart(row):
    found = FINDER.find(run(row))
    assert (found.status, found.profile) == ("no-step0", "miles")
    assert "no step" in found.note


def test_a_step_below_the_first_is_still_the_beginning():
    assert FINDER.find(run({"step": 0, "mismatch_kl/all/mean": 7e-4})).status == "found"


# --- what it is made into ------------------------------------------------------------------------


def test_the_facts_of_a_run_are_its_step_0_its_setup_and_its_plan():
    facts = FINDER.facts(run(miles(0), hf_checkpoint="/m/Qwen3-0.6B", rollout_top_p=0.95))
    assert facts.setup == "miles · Qwen3-0.6B · top_p=0.95"
    assert facts.plan.gap.kind == "range"
    assert facts.step0.gap == 0.0151


@pytest.mark.parametrize("config", [{}, {"hf_checkpoint": None}, {"hf_checkpoint": ""}])
def test_runs_that_name_no_model_make_no_range_together(config):
    """Two of them may train models of any size; a range of both would call either one healthy."""
    step0 = FINDER.facts(run(miles(0), **config)).step0
    assert (step0.status, step0.fit) == ("found", False)
    assert step0.note == "its config names no model (hf_checkpoint)"
    assert FINDER.facts(run(miles(0), hf_checkpoint="/m/Qwen3-0.6B")).step0.fit


def test_a_run_without_step_0_has_neither_setup_nor_plan():
    facts = FINDER.facts(run({"loss": 1.0}))
    assert (facts.setup, facts.plan) == (None, None)


def test_only_rows_that_may_be_part_of_step_0_are_wanted():
    assert FINDER.wants(miles(3))
    assert FINDER.wants({"rollout/step": 0, "rollout/response_len/mean": 1.0})
    assert not FINDER.wants({"rollout/step": 1, "rollout/response_len/mean": 1.0})
    assert not FINDER.wants({"train/critic-value_loss": 1.0, "train/step": 0})
    assert not FINDER.wants({})
    assert FINDER.has_metrics(rows(miles(3)))
    assert not FINDER.has_metrics(rows({"rollout/step": 0}))


def test_a_long_history_is_pruned_to_a_handful_of_rows():
    history = rows(
        *({"rollout/step": 0} for _ in range(500)), *(miles(0) for _ in range(500)), *map(miles, range(500))
    )
    kept = FINDER.prune(history, {})
    assert len(kept) <= 20
    assert FINDER.find(RunRecord("e", "p", "r", rows=kept)) == FINDER.find(
        RunRecord("e", "p", "r", rows=history)
    )


def test_step_0_is_decided_once_it_is_whole_or_a_later_step_has_come():
    whole, half = rows(miles(0)), rows({"train/step": 0, "train/ppo_kl": 0.0})
    assert FINDER.decided(whole, {})
    assert not FINDER.decided(half, {})
    assert FINDER.decided((*half, HistoryRow(miles(1), 1)), {})
    assert FINDER.decided(rows(miles(40)), {})
    assert not FINDER.decided(rows({"rollout/step": 0}), {})
    assert not FINDER.decided((), {})


# --- laws ----------------------------------------------------------------------------------------

FRAMEWORKS = {
    "miles": ("train/step", 0, ["train/ppo_kl", "train/pg_clipfrac", GAP]),
    "openrlhf": ("train/global_step", 1, ["train/ppo_kl", "train/ppo_clip_ratio", "train/vllm_kl"]),
    "verl": (
        "training/global_step",
        1,
        ["actor/ppo_kl", "actor/pg_clipfrac", "training/rollout_probs_diff_mean"],
    ),
    "trl": (
        "train/global_step",
        1,
        ["train/clip_ratio/region_mean", "train/sampling/sampling_logp_difference/mean"],
    ),
    "prime_rl": ("step", 1, ["mismatch_kl/all/mean", "optim/lr"]),
    "skyrl": ("trainer/global_step", 1, ["policy/loss_metrics/clip_ratio", "policy/policy_loss"]),
}
NUMBERS = st.floats(-10, 10) | st.sampled_from([math.nan, math.inf])
OTHERS = st.dictionaries(
    st.sampled_from(["train/loss", "_step", "rollout/reward", "eval/acc"]), NUMBERS, max_size=2
)


@st.composite
def histories(draw):
    """A run's rows as a framework writes them: steps only grow, other rows stand between."""
    key, first, names = FRAMEWORKS[draw(st.sampled_from(sorted(FRAMEWORKS)))]
    steps = sorted(draw(st.lists(st.integers(first, first + 4), max_size=8)))
    written = []
    for step in steps:
        written += [
            {"rollout/step": float(step - first), **draw(OTHERS)} for _ in range(draw(st.integers(0, 2)))
        ]
        some = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        written.append({**draw(OTHERS), **dict.fromkeys(some, draw(NUMBERS)), key: float(step)})
    return rows(*written)


def same(one, two):
    return repr(one) == repr(two)


def find(history):
    return FINDER.find(RunRecord("e", "p", "r", state="finished", rows=history))


VALUES = ("status", "profile", "note", "step", "ppo_kl", "clip_frac", "gap", "gap_metric")


@given(histories())
def test_pruning_never_changes_what_is_found(history):
    assert same(find(FINDER.prune(history, {})), find(history))


@given(histories(), st.integers(0, 20))
def test_a_history_may_be_pruned_while_it_is_read(history, cut):
    kept = FINDER.prune(history[:cut], {})
    assert same(find((*kept, *history[cut:])), find(history))
    assert FINDER.decided((*kept, *history[cut:]), {}) == FINDER.decided(history, {})


@given(histories())
def test_pruned_rows_stay_as_they_are_when_pruned_again(history):
    kept = FINDER.prune(history, {})
    assert same(FINDER.prune(kept, {}), kept)
    assert len(kept) <= 40


@given(histories(), st.integers(0, 20))
def test_what_is_decided_stays_so_when_more_rows_come(history, cut):
    assume(FINDER.decided(history[:cut], {}))
    assert FINDER.decided(history, {})
    before, after = find(history[:cut]), find(history)
    assert same([getattr(before, name) for name in VALUES], [getattr(after, name) for name in VALUES])


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(sorted(FINDER.keys | {"train/step", "_step", "step"})),
            NUMBERS | st.sampled_from([0.0, 1.0]),
            max_size=6,
        ),
        max_size=8,
    ),
    st.integers(0, 8),
)
def test_even_rows_that_no_framework_writes_may_be_pruned_while_they_are_read(values, cut):
    history = rows(*values)
    kept = FINDER.prune(history[:cut], {})
    assert same(find((*kept, *history[cut:])), find(history))


@given(histories())
def test_rows_that_are_not_wanted_do_not_matter(history):
    assert same(find(tuple(row for row in history if FINDER.wants(row.values))), find(history))
