"""Judged runs and ranges as outputs receive them, each with a sensible default for what a test leaves out."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta

from step0_wandb.records import JudgedRun, SetupRange
from step0_wandb.verdicts.weight_checks import WeightCheck

START = datetime(2026, 10, 1, 12, tzinfo=UTC)
SETUP = "miles · Qwen3-0.6B"

RANGE = SetupRange(
    setup=SETUP,
    profile="miles",
    n=17,
    center=0.0152,
    low=0.0140,
    high=0.0165,
    seen_low=0.0148,
    seen_high=0.0157,
    sigma=0.019,
    df=19.0,
    alpha=0.001,
    basis="own",
    gap_metric="train/train_rollout_logprob_abs_diff",
)

_HEALTHY = JudgedRun(
    run="team/grpo/aa000000",
    name="",
    url=None,
    user="mia",
    group=None,
    created_at=START,
    state="finished",
    profile="miles",
    setup=SETUP,
    ppo_kl=0.0,
    clip_frac=0.0,
    gap=0.0152,
    gap_metric="train/train_rollout_logprob_abs_diff",
    verdict="healthy",
    label=None,
    reasons=(),
    checks=(),
    range=RANGE,
    ratio=1.0,
    p_value=0.9,
)


def judged(number: int = 0, **changes: object) -> JudgedRun:
    """Return run `number` of the setup, an hour younger than the run before; `changes` as given."""
    run = dataclasses.replace(
        _HEALTHY,
        run=f"team/grpo/aa{number:06d}",
        name=f"qwen3-{number}",
        url=f"https://wandb.ai/team/grpo/runs/aa{number:06d}",
        created_at=START + timedelta(hours=number),
    )
    run = dataclasses.replace(run, **changes)
    known = run.gap is not None and run.gap > 0 and math.isfinite(run.gap)
    ratio = changes.get("ratio", run.gap / 0.0152 if known else None)
    return dataclasses.replace(run, ratio=ratio)


def setup_range(**changes: object) -> SetupRange:
    """Return the reference setup's range with `changes`."""
    return dataclasses.replace(RANGE, **changes)


def weight_check(status: str = "due", **changes: object) -> WeightCheck:
    """Return an entry of the book of weight checks; what is not due rests on run 1; `changes` as given."""
    entry = WeightCheck(
        profile="miles",
        model="Qwen3-0.6B",
        image="",
        status=status,
        run=None if status == "due" else "team/grpo/aa000001",
        checked_at=None if status == "due" else START,
        runs=1,
        last_run=START,
        projects=("team/grpo",),
        notes=(),
        add=(
            "--num-rollout 2 --check-weight-update-equal",
            '-e MILES_EXTRA_ARGS="--check-weight-update-equal"',
        ),
    )
    return dataclasses.replace(entry, **changes)
