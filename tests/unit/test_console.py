"""Console logs: the first training step as each framework prints it."""

import contextlib
import io
import math
import os
import threading

import pytest

from step0_wandb.errors import NoStep0Error, SourceError
from step0_wandb.profiles import load_profiles
from step0_wandb.sources.console import scan, steps
from step0_wandb.sources.console.log import read_console, read_stream
from step0_wandb.sources.console.printed import clean
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.text.python_values import parse

GAP = "train/train_rollout_logprob_abs_diff"
LOGP = "train/sampling/sampling_logp_difference/mean"
FINDER = Step0Finder(load_profiles())
RAY = "\x1b[36m(MegatronTrainRayActor pid=24290, ip=10.0.0.7)\x1b[0m [2026-08-15 05:04:17.003 actor_cell0_rank8] "


def read(text):
    return read_stream(io.BytesIO(text.encode()), FINDER, name="train.log")


def step0(text):
    return read(text).parts(FINDER)[0][1].step0


def miles(step, kl=0.0, clip=0.0, gap=0.0151):
    return repr(
        {"train/loss": 0.1, "train/pg_clipfrac": clip, "train/ppo_kl": kl, GAP: gap, "train/step": step}
    )


def test_a_step_with_more_digits_than_a_float_has_is_no_first_step():
    log = f"step {'9' * 400}: {{'train/ppo_kl': 0.0, 'train/pg_clipfrac': 0.0, '{GAP}': 0.0151}}"
    assert step0(log).status == "no-step0"


# --- Miles and slime -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"step 0: {miles(0)}",
        f"{RAY}log_utils.py:460 - step 0: {miles(0)}",
        f"[2026-02-01 18:11:12] model.py:665 - step 0: {miles(0)}",
        f"2026-08-15T05:04:18.1Z (MegatronTrainRayActor pid=1) model.py:1 - step 0: {miles(0)} [repeated 3x across cluster]",
        f"\r 12%|###     | 3/25 [00:01<00:09]\rstep 0: {miles(0)}",
        f"step 0: {miles(0)}\r",
        miles(0),
    ],
)  # fmt: skip
def test_a_step_line_is_read_through_all_that_stands_around_it(line):
    found = step0(line + "\n")
    assert (found.profile, found.status, found.step) == ("miles", "found", 0)
    assert (found.ppo_kl, found.clip_frac, found.gap) == (0.0, 0.0, 0.0151)


def test_a_line_that_is_printed_twice_is_one_step():
    line = f"{RAY}log_utils.py:460 - step 0: {miles(0)}\n"
    assert step0(line + line.replace("log_utils.py:460", "model.py:857")).gap == 0.0151


@pytest.mark.parametrize(
    "prefix", ["", "(MegatronTrainRayActor pid=7) ", "2026-08-15 05:04:18,123 ", "[rank0]: "]
)
def test_a_dict_over_several_lines_is_read_whatever_stands_before_each(prefix):
    lines = ["step 0: {", "  'train/ppo_kl': 6.2e-12,", f"  '{GAP}': 0.0127,", "  'train/step': 0", "}"]
    found = step0("".join(f"{prefix}{line}\n" for line in lines))
    assert (found.ppo_kl, found.clip_frac, found.gap) == (6.2e-12, None, 0.0127)


def test_the_step_in_front_counts_where_the_dict_has_none():
    assert step0("x.py:1 - step 0: {'train/ppo_kl': 0.0}").status == "found"
    assert step0("x.py:1 - step 3: {'train/ppo_kl': 0.0}").note.startswith("its first row is step 3, not 0")
    assert "no step" in step0("{'train/ppo_kl': 0.0}").note


@pytest.mark.parametrize("word", ["critic-step", "mini_step", "substep"])
def test_other_words_that_end_in_step_are_not_the_step(word):
    assert "no step" in step0(f"{word} 0: {{'train/ppo_kl': 0.0}}").note


def test_numbers_are_read_as_any_library_prints_them():
    found = step0(
        f"step 0: {{'train/ppo_kl': tensor(0., device='cuda:0'), '{GAP}': np.float64(0.0151), 'train/pg_clipfrac': nan, 'train/x': None}}"
    )
    assert (found.ppo_kl, found.gap) == (0.0, 0.0151)
    assert math.isnan(found.clip_frac)


@pytest.mark.parametrize(
    "line",
    [
        "perf 0: {'perf/train_time': 93.7, 'perf/step_time': 1.0}",
        "rollout 0: {'rollout/log_probs': -0.5, 'rollout/raw_reward': 0.3}",
        "eval 0: {'eval/math': 0.42}",
        "critic-step 0: {'train/critic-value_loss': 0.1, 'train/step': 0}",
        "step:0 - val-core/openai/gsm8k/acc/mean@1:0.508",
        "assert log_dict['train/ppo_kl'] < 1e-8",
        "",
    ],
)
def test_other_lines_are_no_step_of_a_training(line):
    with pytest.raises(NoStep0Error, match=r"train\.log shows no training step") as caught:
        read(line)
    assert "step0-wandb check" in caught.value.hint


def test_a_log_that_begins_later_has_no_step_0():
    found = step0(f"step 1: {miles(1)}\nstep 2: {miles(2)}\n")
    assert (found.status, found.note) == (
        "no-step0",
        "its first row is step 1, not 0: the run was resumed, or its first rows are lost",
    )


def test_a_dict_that_was_torn_does_not_hide_the_next():
    torn = miles(0, gap=0.9)[:70]
    assert step0(f"step 0: {torn}\n[12:00:00] INFO other {{}}\nstep 0: {miles(0)}\n").gap == 0.0151


# --- verl ----------------------------------------------------------------------------------------

VERL = "step:1 - global_seqlen/mean:17567.5 - actor/pg_clipfrac:0.0 - actor/ppo_kl:1.5150089893722907e-05 - training/global_step:1 - training/rollout_probs_diff_mean:0.0041"


@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=222265) ", "\x1b[36m(TaskRunner pid=1)\x1b[0m "])
def test_a_line_of_verl_is_read(prefix):
    found = step0(f"{prefix}step:0 - val-core/acc/mean@1:0.5\n{prefix}{VERL}\n")
    assert (found.profile, found.step, found.ppo_kl, found.gap) == ("verl", 1, 1.5150089893722907e-05, 0.0041)


def test_the_numbers_of_numpy_are_read_in_a_line_of_verl():
    line = (
        "step:1 - actor/ppo_kl:np.float64(-0.0001957) - actor/pg_clipfrac:np.float64(0.0) - x:<object> - y\n"
    )
    found = step0(line)
    assert (found.ppo_kl, found.clip_frac) == (-0.0001957, 0.0)


def test_a_line_that_breaks_inside_a_key_goes_on_in_the_next():
    found = step0(VERL.replace("rollout_probs", "rollout\n_probs") + "\n")
    assert found.gap == 0.0041
    found = step0(VERL.replace(" - training/rollout", " -\ntraining/rollout") + "\n")
    assert found.gap == 0.0041


@pytest.mark.parametrize(
    "before", ["100%|███| 1/1 [00:02<00:00,  2.1s/it]", "\r  0%|   | 0/108 [00:00<?, ?it/s]"]
)
@pytest.mark.parametrize(
    "behind",
    [
        "",
        " [repeated 2x across cluster]",
        "\x1b[32m [repeated 8x across cluster]\x1b[0m",
        " - a/flag:True",
        " - a/flag:False - b/none:None",
        "\r 1%|# | 1/108 [00:09<01:00, 9.9s/it]",
    ],
)
def test_what_stands_around_a_line_of_verl_costs_none_of_its_numbers(before, behind):
    later = VERL.replace("step:1", "step:2").replace("training/global_step:1", "training/global_step:2")
    found = step0(f"{before}{VERL}{behind}\n{later}\n")
    assert (found.status, found.step, found.gap) == ("found", 1, 0.0041)


def test_two_steps_of_verl_in_one_line_are_two_steps():
    later = VERL.replace("step:1", "step:2").replace("1.5150089893722907e-05", "0.9")
    assert step0(f"{VERL} {later}\n").ppo_kl == 1.5150089893722907e-05


@pytest.mark.parametrize(
    "torn", ["step 0: {'train/ppo_kl': 0.0, 'train/st\n", "step 0: {'train/ppo_kl': =, 'train/step': 0}\n"]
)
def test_a_first_step_that_cannot_be_read_is_not_taken_for_a_resumed_run(torn):
    with pytest.raises(NoStep0Error, match="shows step 0, but in a form that cannot be read"):
        read_stream(io.BytesIO(f"{torn}step 1: {miles(1)}\n".encode()), FINDER, enough=lambda: False)


# --- several policies in one log ------------------------------------------------------------------


def of_policy(policy, text):
    return text.replace("'train/", f"'{policy}/train/")


def policies(text):
    reading = read_stream(io.BytesIO(text.encode()), FINDER, enough=lambda: False)
    return [
        {part.policy: facts.step0.gap for part, facts in one.parts(FINDER)}
        for one in (*reading.earlier, reading)
    ]


def test_each_policy_of_a_log_is_a_run_of_its_own():
    lines = [of_policy(name, f"step {step}: {miles(step, gap=gap)}\n")
             for step in range(3) for name, gap in (("solver", 0.0151), ("judge", 0.046))]  # fmt: skip
    assert policies("".join(lines)) == [{"judge": 0.046, "solver": 0.0151}]
    both = f"step 0: {of_policy('a', miles(0))[:-1]}, {of_policy('b', miles(0, gap=0.02))[1:]}\n"
    assert policies(both) == [{"a": 0.0151, "b": 0.02}]


def test_a_policy_whose_step_stands_in_front_alone_and_is_rounded_is_known_too():
    line = f"step 0: {{'solver/train/ppo_kl': 0.000, 'solver/{GAP}': 0.015}}\n"
    ((part, facts),) = read(line).parts(FINDER)
    assert (part.policy, part.key) == ("solver", "_/_/train#solver")
    assert facts.plan.ppo_kl.kind == "skipped"
    assert "rounded to 0.001" in facts.plan.ppo_kl.why


def test_a_relaunch_starts_every_policy_again():
    first, second = (
        "".join(of_policy(name, f"step {step}: {miles(step, gap=gap)}\n") for step in (0, 1) for name in "ab")
        for gap in (0.015, 0.063)
    )
    assert policies(first + second) == [{"a": 0.015, "b": 0.015}, {"a": 0.063, "b": 0.063}]


def test_names_before_a_slash_are_no_policies_where_a_step_has_plain_metrics():
    line = f"step 0: {miles(0)[:-1]}, 'eval/train/ppo_kl': 0.5}}\n"
    assert policies(line) == [{None: 0.0151}]


# --- several launches in one log -----------------------------------------------------------------


def launches(text):
    reading = read_stream(io.BytesIO(text.encode()), FINDER, enough=lambda: False)
    return [one.parts(FINDER)[0][1].step0.gap for one in (*reading.earlier, reading)]


def test_of_launches_in_one_log_the_newest_counts_and_the_earlier_ones_are_kept():
    first = "".join(f"step {step}: {miles(step, gap=0.015 + step / 1000)}\n" for step in range(3))
    second = "".join(f"step {step}: {miles(step, kl=0.02, gap=0.063)}\n" for step in range(3))
    assert launches(f"{first}Traceback ...\n{second}") == [0.015, 0.063]
    assert launches(f"{first}{second}{first}") == [0.015, 0.063, 0.015]


def test_a_launch_that_ended_after_its_first_step_is_one_of_its_own():
    assert launches(f"step 0: {miles(0)}\nrestarting\nstep 0: {miles(0, gap=0.063)}\n") == [0.0151, 0.063]


def test_equal_lines_of_one_step_are_one_launch():
    line = f"step 0: {miles(0, clip=math.nan)}\n"
    assert launches(line * 2 + f"step 1: {miles(1)}\n" * 2) == [0.0151]


def test_a_launch_that_goes_on_above_the_first_step_is_none_of_its_own():
    steps = [f"step {step}: {miles(step, gap=0.015 + step / 1000)}\n" for step in (0, 1, 2, 3, 1, 2, 3)]
    assert launches("".join(steps)) == [0.015]


def test_a_launch_from_the_beginning_counts_after_one_that_was_resumed():
    steps = [f"step {step}: {miles(step, gap=0.015 + step / 1000)}\n" for step in (7, 8, 0, 1)]
    assert launches("".join(steps)) == [0.015]


def test_launches_of_verl_and_trl_are_told_apart_too():
    later = VERL.replace("step:1", "step:2")
    again = VERL.replace("0.0041", "0.041")
    assert launches(f"{VERL}\n{later}\n{again}\n") == [0.0041, 0.041]
    name = "sampling/sampling_logp_difference/mean"
    rows = [
        trl(**{name: gap, "epoch": epoch}) for gap, epoch in ((0.7, 0.1), (0.8, 0.2), (0.9, 0.1), (0.6, 0.2))
    ]
    assert launches("\n".join(rows)) == [0.7, 0.9]


def test_a_step_that_shows_the_gap_alone_is_read():
    found = step0(f"model.py:847 - step 0: {{'train/loss': 0.1, '{GAP}': 0.81, 'train/grad_norm': 0.3}}\n")
    assert (found.status, found.ppo_kl, found.gap) == ("found", None, 0.81)


# --- work ----------------------------------------------------------------------------------------

REPEATED = {
    "pairs without a step": b"| actor/ppo_kl:0.0 - x\n",
    "steps in one line": b"step:1 - actor/ppo_kl:0 - ",
    "lines that break off": b"step:5 - actor/ppo_kl:0.1 - x\n",
    "a dict without an end": b"'train/ppo_kl': 0.0, ",
    "dicts without an end": b"step 0: {'train/ppo_kl': 0.0, \n",
    "dicts in dicts": b"{'a': [{'train/ppo_kl': ",
    "dicts that are closed too early": b"{'x': {}, 'ppo_kl': 1, {}}",
    "texts without an end": b"{'a': \"{'ppo_kl': 0} ",
    "bars that name a metric": b"\r 12%|## | ppo_kl: 0.1, 3/25 [00:01<00:09]",
    "the name alone": b"ppo_kl:",
    "one metric again and again": b"ppo_kl=0.1 ",
    "a dict inside each value": b"{'train/ppo_kl': 0.0, ",
    "braces": b"{",
    "spaces": b"ppo_kl" + b" " * 500,
    "launches": b"step 0: {'train/ppo_kl': 0.1, 'train/step': 0} step 1: {'train/ppo_kl': 0, 'train/step': 1}",
}  # fmt: skip


def work_for(monkeypatch, text):
    """Return how many bytes and characters reading a log looks at, and one for each look."""
    looks = []

    def counted(function, size):
        def wrapper(*args, **kwargs):
            result = function(*args, **kwargs)
            looks.append(1 + size(args, result))
            return result

        return wrapper

    with monkeypatch.context() as patch:
        patch.setattr(steps.Log, "text", counted(steps.Log.text, lambda _args, result: len(result)))
        patch.setattr(
            steps.Log, "first", counted(steps.Log.first, lambda args, _: 8 * (args[3] - args[2]) // 512)
        )
        patch.setattr(
            steps.Log, "last", counted(steps.Log.last, lambda args, _: 8 * (args[3] - args[2]) // 512)
        )
        patch.setattr(steps, "clean", counted(clean, lambda args, _result: len(args[0])))
        patch.setattr(steps, "parse", counted(parse, lambda args, _result: len(args[0])))
        with contextlib.suppress(NoStep0Error):
            read_stream(io.BytesIO(text), FINDER, enough=lambda: False)
    return sum(looks)


@pytest.mark.parametrize("kind", REPEATED)
def test_twice_the_log_takes_twice_the_work(monkeypatch, kind):
    once, twice = (
        work_for(monkeypatch, b"step 0: {" + REPEATED[kind] * (size // len(REPEATED[kind])))
        for size in (30_000, 60_000)
    )
    assert twice <= 2.6 * once
    assert twice <= 500 * 60_000, "looks a byte"


# --- TRL and OpenRLHF ----------------------------------------------------------------------------


def trl(**more):
    return repr(
        {
            "loss": 0.0751,
            "reward": 1.75,
            "reward_std": 1.3,
            "kl": math.nan,
            "clip_ratio/region_mean": 0.0,
            **more,
        }
    )


def test_a_dict_of_trl_is_read_behind_what_is_left_of_the_progress_bar():
    gap = {"sampling/sampling_logp_difference/mean": 0.008603203762322664}
    bar = "\r  3%|▎         | 5/200 [00:20<13:02,  4.02s/it]\r" + " " * 50 + "\r"
    found = step0(f"{bar}{trl(**gap)}\n{trl()}\n")
    assert (found.profile, found.gap, found.gap_metric) == ("trl", 0.008603203762322664, LOGP)
    assert (found.ppo_kl, found.clip_frac) == (None, 0.0)


def test_the_first_dict_of_trl_counts():
    texts = [trl(**{"sampling/sampling_logp_difference/mean": value}) for value in (0.0069, 0.0086)]
    assert step0("\n".join(texts)).gap == 0.0069


def test_a_step_of_openrlhf_is_read_where_it_shows_the_metrics():
    found = step0(
        "(PPOTrainer pid=3) ppo_trainer.py:547] ✨ Global step 1: {'ppo_kl': 0.0002, 'ppo_clip_ratio': 0.001, 'kl': 0.3}\n"
    )
    assert (found.profile, found.step, found.ppo_kl, found.clip_frac) == ("openrlhf", 1, 0.0002, 0.001)


def test_a_bare_ppo_kl_without_the_words_of_its_framework_is_not_read():
    with pytest.raises(NoStep0Error):
        read("{'ppo_kl': 0.0002, 'ppo_clip_ratio': 0.001}")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Global step 1: {'response_length': 40.4, ...}", "OpenRLHF: its step lines do not show ppo_kl"),
        ("skyrl_train.trainer:train:469 - {'ppo_clip_ratio': 0.018}", "SkyRL: "),
        ("│ ppo_actor/update/approx_kl/avg │ 0.0000e+00 │", "AReaL: "),
        ("SUCCESS Step 1 | Loss 0.1 | Mismatch KL 0.0007 |", "prime-rl: "),
        ("  • Generation KL Error: 0.0004", "NeMo RL: "),
    ],
)
def test_a_log_that_no_profile_reads_surely_says_why(line, says):
    with pytest.raises(NoStep0Error) as caught:
        read(line)
    assert f"looks like a log of {says}" in caught.value.message
    assert caught.value.exit_code == 8


# --- rounded values ------------------------------------------------------------------------------


def rounded_verl(kl="-0.000", clip="0.001", gap="0.003"):
    return f"step:1 - actor/entropy:0.323 - actor/pg_clipfrac:{clip} - actor/ppo_kl:{kl} - training/rollout_probs_diff_mean:{gap} - training/global_step:1.000\n"


def test_a_log_rounded_to_three_decimals_is_known_as_rounded():
    resolution = read(rounded_verl()).resolution
    assert resolution["actor/ppo_kl"] == resolution["training/rollout_probs_diff_mean"] == 0.001


def test_numbers_in_full_are_not_taken_for_rounded_ones():
    assert read(f"step 0: {miles(0)}").resolution == {}
    assert read(VERL + "\n").resolution == {}


@pytest.mark.parametrize(
    ("printed", "value", "resolution"),
    [("tensor(0.)", 0.0, 1e-4), ("tensor(0.0151)", 0.0151, 1e-4), ("tensor(1.2e-05)", 1.2e-5, 1e-9), ("'0.0086'", 0.0086, 1e-6), ("'1.234e-05'", 1.234e-5, 1e-8), ("'0'", 0.0, None), ("np.float64(0.0151)", 0.0151, None), ("0.0151", 0.0151, None)],
)  # fmt: skip
def test_what_a_library_rounds_is_known_to_be_rounded(printed, value, resolution):
    reading = read(f"step 0: {{'train/ppo_kl': 0.0, 'train/step': 0, '{GAP}': {printed}}}")
    assert reading.parts(FINDER)[0][1].step0.gap == value
    assert reading.resolution.get(GAP) == (None if resolution is None else pytest.approx(resolution))


@pytest.mark.parametrize(
    ("kl", "kind"),
    [("tensor(0.)", "skipped"), ("tensor(0.3009)", "exact"), ("tensor(1.0000e-12)", "exact"), ("0.0", "exact"), ("'0'", "exact")],
)  # fmt: skip
def test_a_check_is_skipped_only_where_rounding_leaves_it_open(kl, kind):
    rule = read(f"step 0: {{'train/ppo_kl': {kl}, 'train/step': 0}}").parts(FINDER)[0][1].plan.ppo_kl
    assert rule.kind == kind
    if kind == "skipped":
        assert rule.why == "this log is rounded to 0.0001, which cannot prove 1e-09"


def test_a_check_that_does_not_apply_still_says_that_the_log_is_rounded():
    plan = read(rounded_verl()).parts(FINDER)[0][1].plan
    assert plan.ppo_kl.kind == "averaged"
    assert "this log is rounded to 0.001" in plan.ppo_kl.why


@pytest.mark.parametrize(("gap", "kind"), [("0.003", "skipped"), ("0.000", "skipped"), ("0.162", "range")])
def test_a_gap_that_is_rounded_too_coarsely_is_held_against_no_range(gap, kind):
    rule = read(rounded_verl(gap=gap)).parts(FINDER)[0][1].plan.gap
    assert rule.kind == kind
    assert rule.kind == "range" or "too coarse" in rule.why


# --- files and pipes -----------------------------------------------------------------------------


def test_a_log_file_gives_a_run_of_its_name(tmp_path):
    path = tmp_path / "job-7.log"
    path.write_text(f"step 0: {miles(0)}\n")
    record = read_console(path, FINDER).record
    assert (record.key, record.name, record.state) == ("_/_/job-7", "job-7.log", "finished")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(SourceError, match="cannot be read"):
        read_console(tmp_path, FINDER)


@pytest.mark.parametrize(
    "text",
    [
        f"step 0: {miles(0)}\n",
        f"step 0: {miles(0)[:-1]},\n 'train/x': 1}}",
        VERL + "\n",
        f"step 7: {miles(7)}\n",
    ],
)
def test_a_log_that_still_grows_is_read_no_further_than_step_0(text):
    receiver, sender = os.pipe()
    with os.fdopen(sender, "wb", buffering=0) as growing, os.fdopen(receiver, "rb") as log:
        half = len(text) // 2
        growing.write(b"starting\n" + text[:half].encode())
        timer = threading.Timer(0.05, growing.write, [text[half:].encode()])
        timer.start()
        record = read_stream(log, FINDER).record
        timer.join()
    assert record.state == "running"


class Pieces(io.BytesIO):
    """A stream that gives a few bytes at a time, as pipes may."""

    def __init__(self, data, size):
        super().__init__(data)
        self._size = size

    def readinto1(self, buffer):
        piece = self.read(self._size)
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("size", [1, 2, 5, 7, 64])
def test_a_step_is_found_however_the_log_is_cut_into_pieces(size):
    others = "'a': -1.25e-05, 'b': -inf, 'c': tensor(-0.5), 'd': True, 'e': ..., 'f': np.float64(nan)"
    text = f"noise\n{RAY}x.py:1 - step 0: {miles(0, kl=-1.25e-05)[:-1]}, {others}}}\nmore\n"
    found = read_stream(Pieces(text.encode(), size), FINDER).parts(FINDER)[0][1].step0
    assert (found.ppo_kl, found.gap, found.row["b"], found.row["c"]) == (-1.25e-05, 0.0151, -math.inf, -0.5)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_line_of_verl_is_read_whole_however_it_is_cut_into_pieces(size):
    reading = read_stream(Pieces(f"step:0 - x:1\n{VERL}\n".encode(), size), FINDER)
    assert reading.parts(FINDER)[0][1].step0.gap == 0.0041


@pytest.mark.parametrize("offset", [0, 1, 5, 6, 7, 300])
@pytest.mark.parametrize("memmem", [True, False])
def test_a_step_is_found_across_the_edge_of_two_chunks(monkeypatch, offset, memmem):
    if not memmem:
        monkeypatch.setattr(scan.ctypes, "CDLL", lambda _name: object())
    line = f"step 0: {miles(0)}\n"
    noise = "x" * (2 * scan.CHUNK - line.index("ppo_kl") - offset - 1) + "\n"
    found = step0(noise + line + noise)
    assert (found.status, found.gap) == ("found", 0.0151)


def test_a_step_behind_a_gigantic_line_is_found():
    text = "y" * 300_000 + f"\nstep 0: {miles(0)}\n"
    assert step0(text).status == "found"


def test_a_dict_that_never_ends_is_given_up():
    text = "step 0: {'train/ppo_kl': 0.0, 'train/step': [" + "1, " * 600_000
    with pytest.raises(NoStep0Error):
        read(text)
