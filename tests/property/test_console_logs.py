"""Any metrics in any known wrapping are read back to the last digit; no bytes crash the reader."""

import contextlib
import io
import math

from hypothesis import example, given
from hypothesis import strategies as st

from step0_wandb.errors import NoStep0Error
from step0_wandb.profiles import load_profiles
from step0_wandb.sources.console.log import read_stream
from step0_wandb.step0.finder import Step0Finder

FINDER = Step0Finder(load_profiles())
GAP = "train/train_rollout_logprob_abs_diff"
NUMBERS = st.floats(allow_subnormal=True) | st.sampled_from(
    [0.0, -0.0, 6.183776581070166e-12, math.nan, -math.inf]
)
NAMES = st.sampled_from(
    ["loss", "grad_norm", "lr-pg_0", "kl_loss", "tis", "x/y/mean@1", "a.b", "rewards/f/std"]
)
BEFORE = st.sampled_from(
    [
        "",
        "(MegatronTrainRayActor pid=24290) ",
        "\x1b[36m(MegatronTrainRayActor pid=24290, ip=10.0.0.7)\x1b[0m ",
        "2026-08-15T05:04:17.003Z (RolloutExecutor pid=1) ",
        "2026-08-15 05:04:17,003 ",
        "[rank0]: ",
    ]
)
NOISE = st.sampled_from(
    [
        "",
        "INFO 08-15 vllm engine stats: {'running': 3, 'waiting': 0}\n",
        "perf 0: {'perf/train_time': 93.7}\nrollout 0: {'rollout/log_probs': -0.5}\n",
        "\r 12%|###▎  | 3/25 [00:01<00:09]\r" + " " * 40 + "\r",
        "log_dict['train/ppo_kl'] is {not a dict\n",
        "step:0 - val-core/acc/mean@1:0.5\n",
    ]
)


@st.composite
def metrics(draw, prefix, names):
    """Numbers of one step: those that matter, and others."""
    keys = [*names, *(prefix + name for name in draw(st.lists(NAMES, unique=True)))]
    return {key: draw(NUMBERS) for key in draw(st.permutations(keys))}


def printed(draw, value):
    """A number as one of the libraries prints it, in full."""
    return draw(
        st.sampled_from([repr(value), f"np.float64({value!r})", f"tensor([{value!r}], dtype=torch.float64)"])
    )


def breaks(draw, text):
    """The text with a line break inside one of its keys, where a terminal was too narrow."""
    spots = [at for at in range(1, len(text)) if text[at - 1].isalpha() and text[at].isalpha()]
    spots = [at for at in spots if "ppo_kl" not in text[at - 6 : at + 6] and "'" in text[:at]]
    if not spots or not draw(st.booleans()):
        return text
    at = draw(st.sampled_from(spots))
    return text[:at] + "\n" + text[at:] if text[:at].count("'") % 2 else text


def read(text):
    return read_stream(io.BytesIO(text.encode()), FINDER, name="log")


def same(read_back, written):
    return all(repr(read_back[name]) == repr(value) for name, value in written.items())


@given(st.data(), metrics("train/", ["train/ppo_kl", "train/pg_clipfrac", GAP]))
def test_any_metrics_of_miles_and_slime_are_read_back_to_the_last_digit(data, written):
    before = data.draw(BEFORE)
    inside = data.draw(st.booleans())
    items = [f"{key!r}: {printed(data.draw, value)}" for key, value in written.items()]
    items += ["'train/step': 0"] if inside else []
    if data.draw(st.booleans()):
        body = f",\n{before}  ".join(items)
        body = f"{{\n{before}  {body}\n{before}}}"
    else:
        body = breaks(data.draw, "{" + ", ".join(items) + "}")
    line = f"{before}[2026-08-15 05:04:17.003 actor] log_utils.py:460 - step 0: {body}\n"
    text = data.draw(NOISE) + line + data.draw(st.sampled_from(["", line])) + data.draw(NOISE)
    found = read(text).parts(FINDER)[0][1].step0
    assert (found.status, found.profile, found.step) == ("found", "miles", 0)
    assert same(found.row, written)
    assert same(
        {"ppo_kl": found.ppo_kl, "gap": found.gap}, {"ppo_kl": written["train/ppo_kl"], "gap": written[GAP]}
    )


@given(
    st.data(), metrics("actor/", ["actor/ppo_kl", "actor/pg_clipfrac", "training/rollout_probs_diff_mean"])
)
def test_any_metrics_of_verl_are_read_back_to_the_last_digit(data, written):
    pairs = [f"{key}:{printed(data.draw, value)}" for key, value in written.items()]
    line = f"{data.draw(BEFORE)}step:1 - " + " - ".join([*pairs, "training/global_step:1"]) + "\n"
    found = read(data.draw(NOISE) + line + data.draw(NOISE)).parts(FINDER)[0][1].step0
    assert (found.status, found.profile, found.step) == ("found", "verl", 1)
    assert same(found.row, written)


@given(
    st.data(), metrics("", ["clip_ratio/region_mean", "sampling/sampling_logp_difference/mean", "reward_std"])
)
def test_any_metrics_of_trl_are_read_back_to_the_last_digit(data, written):
    line = data.draw(NOISE) + repr(written) + "\n"
    found = read(line + repr(dict.fromkeys(written, 0.5)) + "\n").parts(FINDER)[0][1].step0
    assert (found.status, found.profile) == ("found", "trl")
    assert same(found.row, {f"train/{key}": value for key, value in written.items()})


@given(metrics("train/", ["train/ppo_kl", GAP]), st.sampled_from([3, 4, 6]))
def test_the_true_value_lies_within_half_of_the_resolution(written, decimals):
    finite = {key: value for key, value in written.items() if abs(value) < 1e6}
    body = "".join(f"{key!r}: {value:.{decimals}f}, " for key, value in finite.items())
    reading = read(f"step 0: {{{body}'train/ppo_kl': 0.000, 'train/x': {0:.{decimals}f}, 'train/step': 0}}")
    row = reading.parts(FINDER)[0][1].step0.row
    for key, value in finite.items():
        if key != "train/ppo_kl":
            assert abs(row[key] - value) <= reading.resolution[key] / 2 * (1 + 1e-9) + 1e-12


@given(metrics("", ["reward_std", "clip_ratio/region_mean"]))
def test_the_true_value_lies_within_half_of_the_resolution_of_quoted_numbers(written):
    reading = read(repr({key: f"{value:.4g}" for key, value in written.items()}))
    row = reading.record.rows[0].values
    for key, value in written.items():
        if 1e-300 < abs(value) < 1e300:
            step = reading.resolution[f"train/{key}"]
            assert abs(row[f"train/{key}"] - value) <= step / 2 * (1 + 1e-9)


@given(st.binary(max_size=400))
@example(b"step 0: {'train/ppo_kl': " + b"{" * 60)
@example(b"step:1 - actor/ppo_kl:" + b"(" * 60 + b"\n")
@example(b"step:99999999999999999999999999 - actor/ppo_kl:0\n")
@example(b"{'train/ppo_kl': 1" + b"0" * 5000 + b"}")
def test_arbitrary_bytes_give_a_run_or_the_reason_why_there_is_none(noise):
    for data in (
        noise,
        b"step 0: {'train/ppo_kl': " + noise,
        b"step:1 - actor/ppo_kl:" + noise,
        noise + b"'reward_std': 1}",
    ):
        with contextlib.suppress(NoStep0Error):
            reading = read_stream(io.BytesIO(data), FINDER)
            assert reading.parts(FINDER)[0][1].step0.status in {"found", "pending", "no-step0"}
