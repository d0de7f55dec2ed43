"""The first broken run of a new user: no history, one run, another model on one side."""

from functools import partial

import pytest

from step0_wandb.app.gate import Patience
from tests.support.command import run
from tests.support.miles import CONFIG, GAP
from tests.support.wandb_server import WandbServer

OTHER = "/ckpt/Qwen3-8B_torch_dist"
SCRIPT = f"""#!/bin/bash
CKPT_ARGS=(--hf-checkpoint /models/Qwen3-0.6B --ref-load {OTHER})
python3 train.py --attention-dropout 0 --hidden-dropout 0 --rollout-batch-size 32 ${{CKPT_ARGS[@]}}
"""
ROWS = [
    {"rollout/step": 0, "rollout/response_len/mean": 812.5},
    {"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: 0.0152},
]


@pytest.fixture
def server(monkeypatch):
    often = {"server_poll_s": 0.05, "stop_poll_s": 0.05, "stop_wait_s": 0.1}
    monkeypatch.setattr("step0_wandb.app.gate.Patience", partial(Patience, **often))
    with WandbServer() as server:
        yield server


def add_first_run(server):
    config = CONFIG | {"load": OTHER, "ref_load": OTHER}
    return server.add_run(
        "lab", "rl", "first", name="grpo-first", group="grpo", state="running", config=config, rows=ROWS
    )


def test_lint_says_it_before_the_launch(tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT)
    answer = run("lint", "run.sh", cwd=tmp_path)
    assert answer.code == 3
    assert f"ref_load ({OTHER})" in answer.out
    assert "convert hf_checkpoint again, or correct ref_load" in answer.out


def test_gate_stops_the_run_and_the_next_sync_alerts_on_it(server, tmp_path):
    live = add_first_run(server)
    key = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key}
    gate = run("gate", "lab/rl", "--group", "grpo", "--since", "1000d", "--stop", cwd=tmp_path, **key)
    assert gate.code == 3
    assert live.stop_requested
    sync = run("sync", "lab/rl", "--store", "step0.db", "--quiet", cwd=tmp_path, **key)
    assert sync.code == 0
    [alert] = server.alerts
    assert alert.title == "Suspect at step 0: grpo-first first"
    assert alert.text.startswith(f"Likely: ref_load ({OTHER})")
    assert f"{server.url}/lab/rl/runs/first" in alert.text
    assert f"suspect: grpo-first: its config contradicts itself: ref_load ({OTHER})" in sync.err
    assert sync.err.rstrip().endswith(f"{server.url}/lab/rl/runs/first")
