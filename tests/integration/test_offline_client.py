"""What the installed W&B client writes, read back."""

import math
import time
from contextlib import ExitStack

import pytest

from tests.support.offline import GAP, offline_source, step0, sync
from tests.support.runs import Client, Memory

STEP_0 = {"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: 0.015234567890123456}
BALLAST = {f"option_{number}": "x" * 100 for number in range(600)}  # fills blocks, which is when files grow


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Two runs of one process: the first ends, the second is killed after step 1."""
    root = tmp_path_factory.mktemp("alone")
    config = {
        "hf_checkpoint": "/models/Qwen3-0.6B",
        "optim": {"lr": 1e-6, "api_key": "hunter2"},
        "wandb_key": "0123456789abcdef0123456789abcdef01234567",
        "nothing": None,
    }
    with Client(root) as client:
        client.start("done.1-a", config=config, name="größer", group="g", job_type="train", tags=["a", "b"])
        client.log({"rollout/step": 0, "rollout/response_len": 512.5, "rollout/text": "hello"})
        client.configure({"late": {"z": [1, 2]}, "optim": {"eps": 1e-8}})
        client.log({**STEP_0, "train/deep": {"a": {"b": 2}}, "train/odd": math.nan, "train/far": -math.inf})
        client.log({"train/step": 1, "train/ppo_kl": 1e-4})
        client.finish(3)
        client.start("killed", config=BALLAST)
        client.log(STEP_0, {"train/step": 1, "train/ppo_kl": 1e-4}, *[{"more": "y" * 200}] * 900)
    return {reading.record.run_id: reading for reading in sync(root)}


def test_a_finished_run_comes_back_as_it_was_logged(alone):
    reading = alone["done.1-a"]
    record = reading.record
    assert (record.key, record.name, record.group) == ("team/project/done.1-a", "größer", "g")
    assert (record.job_type, record.tags, record.state) == ("train", ("a", "b"), "failed")
    assert reading.problems == ()
    row = step0(reading).row
    assert {name: row[name] for name in STEP_0} == STEP_0
    assert row["train/deep.a.b"] == 2
    assert math.isnan(row["train/odd"])
    assert row["train/far"] == -math.inf
    assert row["rollout/response_len"] == 512.5
    assert "rollout/text" not in row


def test_its_config_comes_back_without_secrets(alone):
    config = dict(alone["done.1-a"].record.config)
    notes = config.pop("_wandb")
    assert config == {
        "hf_checkpoint": "/models/Qwen3-0.6B",
        "optim": {"eps": 1e-8},
        "nothing": None,
        "late": {"z": [1, 2]},
    }
    (place,) = notes["e"].values()
    assert place["python"].startswith("CPython 3.")
    assert not {"args", "host", "root", "executable", "email"} & set(place)


def test_a_killed_run_is_read_as_far_as_it_was_written(alone):
    reading = alone["killed"]
    (mark,) = reading.marks
    assert not mark.ended
    assert reading.problems == ()
    assert step0(reading).gap == STEP_0[GAP]
    assert len(reading.record.config) == len(BALLAST) + 1


def test_processes_that_share_one_run_id_are_one_run(tmp_path):
    with ExitStack() as stack:
        driver, manager, trainer = (
            stack.enter_context(Client(tmp_path / f"node{number}")) for number in range(3)
        )
        driver.start("shared", config={"hf_checkpoint": "/models/Qwen3-0.6B", "seed": 7}, name="night-RANK_0")
        manager.start("shared")
        trainer.start("shared")
        manager.log({"rollout/step": 0, "rollout/response_len": 512})
        trainer.log(STEP_0, {**STEP_0, "train/step": 1})
        manager.finish()
        trainer.finish()
        driver.finish()
    offline, memory = offline_source(tmp_path), Memory()
    (reading,) = memory.keep(offline.readings(memory))
    assert len(reading.marks) == 3
    assert (reading.record.name, reading.record.state) == ("night-RANK_0", "finished")
    assert reading.record.config["seed"] == 7
    assert step0(reading).gap == STEP_0[GAP]
    assert step0(reading).row["rollout/response_len"] == 512
    assert list(offline_source(tmp_path).readings(memory)) == []


def test_a_run_that_is_being_written_is_read_again_as_it_grows(tmp_path):
    memory = Memory()
    filler = [{"more": "y" * 200}] * 400
    with Client(tmp_path) as client:
        client.start("live", config=BALLAST)
        client.log(*filler)
        wait_for(lambda: any(tmp_path.rglob("*.wandb")) and sync(tmp_path, memory))
        assert memory.records["team/project/live"].state == "running"
        client.log(STEP_0, {**STEP_0, "train/step": 1}, *filler)
        wait_for(lambda: [reading for reading in sync(tmp_path, memory) if step0(reading).status == "found"])
        client.finish()
    (reading,) = sync(tmp_path, memory)
    assert reading.record.state == "finished"
    assert step0(reading).gap == STEP_0[GAP]
    assert len(reading.record.config) == len(BALLAST) + 1


def wait_for(condition, tries=2000):
    """Ask until the client's helper has written what it was given."""
    for _ in range(tries):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the client wrote nothing")
