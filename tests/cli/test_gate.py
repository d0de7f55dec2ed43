"""``step0-wandb gate`` as a launch script uses it: exit codes, what is printed where, and the real stop."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from step0_wandb.app.gate import Patience
from tests.support.command import run
from tests.support.live import Live
from tests.support.miles import CONFIG, GAP, miles_run
from tests.support.waiting import until
from tests.support.wandb_server import WandbServer

ROLLOUT = {"rollout/step": 0, "rollout/response_len/mean": 812.5}


def row(step=0, *, gap=0.0150, ppo_kl=0.0):
    return {"train/step": step, "train/ppo_kl": ppo_kl, "train/pg_clipfrac": 0.0, GAP: gap}


@pytest.fixture
def server():
    with WandbServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    """Let the gate look again at once: nothing here is about how often it looks."""
    often = {"server_poll_s": 0.1, "disk_poll_s": 0.1, "stop_poll_s": 0.1}
    monkeypatch.setattr("step0_wandb.app.gate.Patience", partial(Patience, **often))


def environ(server, **changes):
    return {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key} | changes


def gate(folder, server, *words, **changes):
    return run("gate", *words, cwd=folder, **environ(server, **changes))


def add(server, run_id="r", **given):
    given = {"state": "running", "config": CONFIG, "rows": [ROLLOUT, row()], **given}
    return server.add_run("lab", "rl", run_id, **given)


def bad(server, **given):
    return add(server, rows=[ROLLOUT, row(ppo_kl=0.3)], **given)


@pytest.mark.parametrize(
    ("given", "options", "code"),
    [
        ({}, [], 0),
        ({}, ["--fail-on", "no-range"], 3),
        ({"rows": [ROLLOUT, row(ppo_kl=0.3)]}, [], 3),
        ({"rows": [ROLLOUT, row(ppo_kl=0.3)]}, ["--fail-on", "never"], 0),
        ({"rows": [ROLLOUT], "state": "failed"}, [], 8),
        ({"rows": [row(40)]}, [], 8),
        ({"rows": [ROLLOUT]}, ["--timeout", "1s"], 8),
    ],
)
def test_the_exit_code_is_that_of_the_contract(server, tmp_path, given, options, code):
    add(server, **given)
    answer = gate(tmp_path, server, "lab/rl/r", *options)
    assert answer.code == code, answer.err


@pytest.mark.parametrize(
    "case",
    [
        (["lab/rl/nobody"], {}, 2, "lab/rl/nobody does not exist"),
        (["lab/rl"], {}, 2, "--group or --name"),
        (["nobody"], {}, 2, "neither a W&B project or run nor a path"),
        (["./nowhere/wandb"], {}, 2, "does not exist"),
        (["lab/rl/r", "--timeout", "soon"], {}, 2, "--timeout: 'soon' is not a duration"),
        (["lab/rl", "--group", "g", "--since", "soon"], {}, 2, "--since: 'soon' is not a duration"),
        (["lab/rl/r"], {"WANDB_API_KEY": "0" * 40}, 4, "refuses the key"),
        (["lab/rl/r"], {"WANDB_API_KEY": ""}, 4, "WANDB_API_KEY"),
        (["lab/rl/r", "--timeout", "1s"], {"WANDB_BASE_URL": "http://127.0.0.1:9"}, 5, "127.0.0.1:9"),
        (["lab/nothing", "--group", "g"], {}, 5, "no such project"),
        (["./wandb", "--timeout", "1s"], {}, 8, "There is no such directory yet"),
        (["lab/rl", "--group", "g", "--timeout", "1s"], {}, 8, "No run of lab/rl with group g appeared"),
    ],
)
def test_what_cannot_work_is_told_in_three_lines(server, tmp_path, case):
    words, changes, code, said = case
    add(server)
    answer = gate(tmp_path, server, *words, "-q", **changes)
    assert answer.code == code, answer.err
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert 1 <= len(answer.err.strip().splitlines()) <= 3
    assert answer.out == ""


def test_the_verdict_is_printed_and_what_is_waited_for_told_beside_it(server, tmp_path):
    bad(server, name="qwen3-try")
    answer = gate(tmp_path, server, "lab/rl/r")
    assert answer.out.startswith("broken  qwen3-try\n")
    assert "ppo_kl is 0.300 at the first optimizer step" in answer.out
    told = [line.partition("Z ")[2] for line in answer.err.splitlines()]  # each begins with the time
    assert told == ["waiting for step 0 of lab/rl/r, 1 h at most", "ranges: lab/rl, just read, 1 run"]
    assert gate(tmp_path, server, "lab/rl/r", "--quiet").err == ""


def test_json_is_the_document_of_check_with_what_became_of_the_stop(server, tmp_path):
    add(server)
    answer = gate(tmp_path, server, "lab/rl/r", "--json")
    checked = run("check", "lab/rl/r", "--json", cwd=tmp_path, **environ(server))
    assert answer.document == checked.document | {
        "schema": "step0/gate/1",
        "stop": {"asked": False, "stopped": False},
    }


def test_json_is_a_document_on_failure_too(server, tmp_path):
    server.project("lab", "rl")
    answer = gate(tmp_path, server, "lab/rl/nobody", "--json")
    assert (answer.code, answer.document["error"]["kind"]) == (2, "usage")


def test_no_store_is_made(server, tmp_path):
    add(server)
    assert gate(tmp_path, server, "lab/rl/r", "--store", "s.db").code == 0
    assert not list(tmp_path.glob("s.db*"))


def test_a_directory_works_without_any_server_or_key(tmp_path):
    place = miles_run(tmp_path, "one", ppo_kl=0.3)
    answer = run("gate", place, "--stop", cwd=tmp_path)
    assert answer.code == 3
    assert "stop: a run on disk has no server that could stop it" in answer.err


def test_the_command_for_a_broken_run_knows_the_run_and_stays_out_of_the_answer(server, tmp_path):
    bad(server)
    command = 'echo "$STEP0_RUN $STEP0_VERDICT $STEP0_STOPPED $STEP0_URL"; echo "$STEP0_REASON" > why; exit 7'
    answer = gate(tmp_path, server, "lab/rl/r", "--json", "--on-broken", command)
    assert answer.code == 3
    assert answer.document["run"]["verdict"] == "broken"
    assert f"lab/rl/r broken no {server.url}/lab/rl/runs/r\n" in answer.err
    assert "exited with code 7" in answer.err
    assert (tmp_path / "why").read_text().startswith("ppo_kl is 0.300 at the first optimizer step")


@pytest.mark.parametrize("given", [{}, {"rows": [ROLLOUT, row(gap=0.0)]}, {"rows": [], "state": "failed"}])
def test_the_command_runs_on_no_other_verdict(server, tmp_path, given):
    add(server, **given)
    gate(tmp_path, server, "lab/rl/r", "--on-broken", "touch called", "--fail-on", "no-range")
    assert not (tmp_path / "called").exists()


def test_a_run_that_a_person_excluded_is_neither_stopped_nor_called_for(server, tmp_path):
    live = bad(server)
    assert run("sync", "lab/rl", "--store", "s.db", cwd=tmp_path, **environ(server)).code == 0
    words = ["label", "r", "exclude", "--why", "an experiment", "--store", "s.db"]
    assert run(*words, cwd=tmp_path).code == 0
    answer = gate(tmp_path, server, "r", "--store", "s.db", "--stop", "--on-broken", "touch called")
    assert answer.code == 0
    assert not live.stop_requested
    assert not (tmp_path / "called").exists()


def test_stale_weights_after_the_first_update_are_broken(server, tmp_path):
    config = CONFIG | {"num_steps_per_rollout": 1, "colocate": True}
    add(server, config=config, rows=[ROLLOUT, row(0), {"rollout/step": 1}, row(1, gap=0.201)])
    assert gate(tmp_path, server, "lab/rl/r").code == 0
    answer = gate(tmp_path, server, "lab/rl/r", "--rollouts", "2")
    assert answer.code == 3
    assert "13.4 times step 0's 0.0150 after the first update: the engine may not have got" in answer.out
    assert gate(tmp_path, server, "lab/rl/r", "--rollouts", "0").code == 2


def test_ctrl_c_is_one_clear_line(server, tmp_path):
    add(server, rows=[ROLLOUT])
    process = subprocess.Popen(
        [sys.executable, "-m", "step0_wandb", "gate", "lab/rl/r"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
        | environ(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "waiting for step 0" in process.stderr.readline()
    until(lambda: server.requests)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert (out, err.partition("Z ")[2]) == (
        "",
        "Interrupted while waiting for lab/rl/r; the run was not touched.\n",
    )


def test_a_broken_run_that_is_stopped_really_ends(server, tmp_path):
    """The real client logs, is asked to stop by the server, and interrupts its process."""
    with Live(server, tmp_path / "job", "live", config=CONFIG, group="qwen3_ab12cd34") as live:
        live.log(ROLLOUT, row(ppo_kl=0.3))
        until(lambda: len(server.rows("lab", "rl", "live")) == 2)
        answer = gate(tmp_path, server, "lab/rl", "--group", "qwen3", "--stop", "--json")
        assert live.wait() != 0
    assert answer.code == 3
    assert answer.document["stop"] == {"asked": True, "stopped": True}
    assert "the run is failed" in answer.err
    assert server.run("lab", "rl", "live").status == "failed"


def test_a_broken_run_is_stopped_within_75_s_of_its_step_0_or_told_to_go_on():
    patience = Patience(timedelta(hours=1))
    assert patience.server_poll_s + patience.stop_wait_s <= 75
