"""Console logs of ms-swift, RLinf, open-instruct, unsloth and axolotl, as their sources print them.

The frame of open-instruct is drawn by rich itself, with the calls of open_instruct/model_utils.py @e6c3044
(print_rich_single_line_metrics); RLinf's bar by tqdm's own formatting of numbers. Rows of ms-swift are public:
modelscope/ms-swift issue 9261 (a run whose answers are all cut off).
"""

import io
import json
from collections import defaultdict

import pytest
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from step0_wandb.errors import NoStep0Error
from step0_wandb.profiles import load_profiles
from step0_wandb.sources.console.log import read_stream
from step0_wandb.step0.finder import Step0Finder

FINDER = Step0Finder(load_profiles())
SWIFT = {
    "loss": 0.0, "grad_norm": 0.12, "reward": 1.0, "reward_std": 0.19, "frac_reward_zero_std": 0.0, "entropy/mean": 0.04,
    "kl": 0.0, "clip_ratio/region_mean": 0.0, "rollout_correction/k3_kl": 0.00081, "epoch": 0.04,
}  # fmt: skip
PUBLIC_SWIFT = '{"loss": 0.0, "grad_norm": 0.0, "learning_rate": 1e-06, "completions/mean_length": 4096.0, "completions/clipped_ratio": 1.0, "reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "entropy/mean": 0.82074341, "clip_ratio/region_mean": 0.0, "step_time": 17.67188024, "epoch": 0.0001, "global_step/max_steps": "1/10000", "elapsed_time": "36s", "memory(GiB)": 55.33}'  # fmt: skip
BAR = "Global Step:   0%|          | 0/100 [00:00<?, ?it/s]\rGlobal Step:   1%|1         | 1/100 [05:12<8:35:10, 312.23s/it, rollout_time=121, response_length=512, rewards=0.31, actor/policy_loss=-0.0123, actor/approx_kl=0.31, actor/rollout_train_kl=0.0118, actor/lr=1e-6]"  # fmt: skip
OPEN_INSTRUCT = {
    "training_step": 1, "debug/vllm_vs_local_logprob_diff_mean": 0.0118, "debug/vllm_vs_local_logprob_diff_max": 0.9,
    "debug/vllm_local_reverse_kl": 1.23e-06, "policy/clipfrac_avg": 0.0, "val/ratio": 1.0, "objective/kl2_avg": 0.0, "scores": 0.31,
}  # fmt: skip


def facts(log):
    reading = read_stream(io.BytesIO(log.encode()), FINDER, name="train.log")
    return reading.parts(FINDER)[0][1]


def panel(metrics, width=80):
    table = Table(show_header=False, box=None)
    table.add_column("Category", style="cyan")
    table.add_column("Values", style="magenta")
    groups = defaultdict(list)
    for key, value in metrics.items():
        group, _, name = key.rpartition("/")
        shown = f"{value:.2e}" if isinstance(value, float) and abs(value) < 1e-5 else f"{value:.2f}"
        groups[group or "other"].append(f"{name}: {shown if isinstance(value, float) else value}")
    for group in sorted(groups):
        table.add_row(group, " | ".join(groups[group]))
    out = io.StringIO()
    Console(file=out, width=width).print(Panel(table, title="Metrics", expand=False))
    return out.getvalue()


@pytest.mark.parametrize(
    "line",
    [
        repr(SWIFT | {"global_step/max_steps": "1/560"}),
        "\rTrain:   0%|          | 1/560 [06:58<64:56:20, 418.21s/it]" + repr(SWIFT | {"global_step/max_steps": "1/560"}),
        repr(SWIFT | {"iteration": "1/100", "train_speed(s/it)": 35.870414}),
        json.dumps(SWIFT | {"global_step/max_steps": "1/560"}),
    ],
    ids=["ms-swift", "behind the bar", "Megatron-SWIFT", "logging.jsonl"],
)  # fmt: skip
def test_a_dict_of_ms_swift_is_read_with_its_step(line):
    found = facts(line + "\n")
    assert (found.step0.profile, found.step0.status, found.step0.step) == ("ms_swift", "found", 1)
    assert (found.step0.gap, found.plan.gap.kind) == (0.00081, "range")


@pytest.mark.parametrize("program", ["swift", "megatron"])
def test_the_launch_line_of_ms_swift_names_the_model_of_its_log(program):
    launch = f"NPROC_PER_NODE=4 \\\n{program} rlhf \\\n  --rlhf_type grpo \\\n  --model Qwen/Qwen3-4B \\\n  --temperature 0.8\n"
    found = facts(launch + repr(SWIFT | {"global_step/max_steps": "1/560"}) + "\n")
    assert found.setup == "ms_swift · Qwen3-4B · temperature=0.8 logging_steps=5"


def test_a_log_of_ms_swift_that_begins_later_has_no_step_0():
    found = facts(repr(SWIFT | {"global_step/max_steps": "45/560"}) + "\n")
    assert found.step0.status == "no-step0"
    assert "step 45" in found.step0.note


def test_the_numbers_that_transformers_5_quotes_are_read_too():
    quoted = {key: f"{value:.4g}" for key, value in SWIFT.items()} | {"global_step/max_steps": "1/60"}
    assert facts(repr(quoted)).step0.gap == 0.00081


def test_a_public_row_of_ms_swift_whose_answers_are_all_cut_off_says_so():
    found = facts(PUBLIC_SWIFT)
    assert found.step0.profile == "ms_swift"
    assert found.step0.observed["termination"] == 1.0
    assert found.step0.observed["gradient"] == 0.0


def test_the_progress_bar_of_rlinf_shows_the_gap_and_nothing_of_a_later_mini_batch():
    found = facts(f"{BAR}\rGlobal Step:   2%|1         | 2/100 [9:12<8:35:10, actor/rollout_train_kl=0.5]\n")
    assert (found.step0.profile, found.step0.step, found.step0.gap) == ("rlinf", 0, 0.0118)
    assert found.step0.ppo_kl is found.step0.clip_frac is None
    assert not any("approx_kl" in name for name in found.step0.row)
    assert found.plan.gap.kind == "range"


def test_a_bar_of_rlinf_without_the_gap_says_which_switch_is_missing():
    with pytest.raises(NoStep0Error, match=r"RLinf: .*rollout\.return_logprobs=True"):
        facts(BAR.replace("actor/rollout_train_kl=0.0118, ", ""))


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("ray", ["", "(PolicyTrainerRayProcess pid=7) "])
def test_the_frame_of_open_instruct_is_read_however_wide_the_terminal_is(width, ray):
    log = "".join(f"{ray}{line}\n" for line in panel(OPEN_INSTRUCT, width).splitlines())
    found = facts(f"Starting\n{log}{log.replace('training_step: 1', 'training_step: 2')}")
    assert (found.step0.profile, found.step0.step, found.step0.gap) == ("open_instruct", 1, 0.01)
    assert found.step0.row["debug/vllm_local_reverse_kl"] == 1.23e-06
    assert found.plan.gap.kind == "skipped"
    assert "rounded to 0.01" in found.plan.gap.why


def test_a_frame_with_a_large_gap_is_beyond_its_absolute_bound():
    found = facts(panel(OPEN_INSTRUCT | {"debug/vllm_vs_local_logprob_diff_mean": 0.84}))
    assert found.plan.gap.kind == "range"
    (bound,) = (rule for rule in found.plan.observables if rule.name == "bound:mean-abs")
    assert found.step0.observed[bound.name] > bound.broken_high


def test_a_frame_that_is_cut_off_is_read_as_far_as_it_goes():
    found = facts(panel(OPEN_INSTRUCT).split("policy")[0])
    assert found.step0.gap == 0.01


def test_logs_of_unsloth_and_axolotl_are_dicts_of_trl():
    row = {"loss": 0.1, "reward_std": 0.3, "clip_ratio/region_mean": 0.0, "sampling/sampling_logp_difference/mean": 0.0123, "epoch": 0.01}  # fmt: skip
    found = facts(f"🦥 Unsloth: Will patch your computer\n 0%| | 1/250 [00:16<1:07:01]{row!r}\n{row!r}\n")
    assert (found.step0.profile, found.step0.step, found.step0.gap) == ("trl", 1, 0.0123)
