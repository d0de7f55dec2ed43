from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.sources.offline import directories
from tests.support.offline import (
    CONFIG,
    GAP,
    NOW,
    offline_source,
    one_run,
    rollout,
    step0,
    sync,
    training,
    written,
)
from tests.support.runs import (
    BLOCK,
    Memory,
    append,
    config_record,
    exit_record,
    filler_record,
    history_record,
    run_record,
    wandb_file,
    write_file,
)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def test_identity_comes_from_the_run_record(tmp_path):
    given = {"display_name": "night-7", "run_group": "g", "job_type": "train", "tags": ["a", "b"]}
    write_file(tmp_path, wandb_file(run_record("abc", CONFIG, **given, started=1767225600), training(0)))
    record = sync(tmp_path)[0].record
    assert record.key == "team/project/abc"
    assert (record.name, record.group, record.job_type, record.tags) == ("night-7", "g", "train", ("a", "b"))
    assert record.created_at == BEGAN
    assert (record.url, record.user) == (None, None)


def test_config_is_what_all_records_make_of_it_without_secrets(tmp_path):
    path = write_file(
        tmp_path,
        wandb_file(
            run_record("abc", {"lr": 0.1, "wandb_key": "x", "gone": 1, "_wandb": {"cli_version": "0.24"}}),
            config_record(
                {("lr",): 0.2, ("optim", "eps"): 1e-8, ("env_vars",): {"A": "b"}}, remove=[("gone",)]
            ),
            training(0),
        ),
    )
    assert sync(path)[0].record.config == {
        "lr": 0.2,
        "optim": {"eps": 1e-8},
        "_wandb": {"cli_version": "0.24"},
    }


def test_the_whole_step_0_row_is_kept(tmp_path):
    path = one_run(tmp_path, training(0, **{"train/entropy": 0.5, "_step": 3, "word": '"x"'}), training(1))
    row = next(row for row in sync(path)[0].record.rows if GAP in row.values)
    assert row.values["train/entropy"] == 0.5
    assert row.values["_step"] == 3


@pytest.mark.parametrize("old", [True, False])
def test_rows_of_old_and_new_clients_are_read_alike(tmp_path, old):
    values = {"train/step": 0, "train/ppo_kl": "NaN", "train/pg_clipfrac": 0, GAP: "Infinity"}
    path = one_run(tmp_path, exit_record(), history_record(values, old=old))
    found = step0(sync(path)[0])
    assert found.ppo_kl != found.ppo_kl
    assert found.gap == float("inf")


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (1, "failed"), (255, "failed"), (-2, "failed")])
def test_an_exit_record_says_it(tmp_path, code, state):
    one_run(tmp_path, training(0), filler_record(300_000), exit_record(code), filler_record(30_000))
    assert sync(tmp_path)[0].record.state == state


def test_without_one_a_run_is_alive_for_a_day(tmp_path):
    path = one_run(tmp_path, training(0))
    assert sync(written(path, hours_ago=23.9))[0].record.state == "running"
    assert sync(written(path, hours_ago=24.1))[0].record.state == "crashed"


def test_a_run_crashes_by_mere_time_without_a_look_at_its_file(tmp_path):
    one_run(tmp_path, training(0))
    memory = Memory()
    assert sync(tmp_path, memory)[0].record.state == "running"
    later = offline_source(tmp_path, NOW + timedelta(hours=23.5))
    (reading,) = memory.keep(later.readings(memory))
    assert reading.record.state == "crashed"
    assert step0(reading).gap == 0.0152
    assert later.counts.bytes_read == 0
    assert sync(tmp_path, memory, NOW + timedelta(days=9)) == [], "told once"


def test_a_crashed_run_that_is_written_again_is_alive(tmp_path):
    path = one_run(tmp_path, training(0))
    memory, later = Memory(), NOW + timedelta(days=3)
    sync(tmp_path, memory, later)
    path.write_bytes(append(path.read_bytes(), filler_record(10)))
    written(path, now=later)
    assert sync(tmp_path, memory, later)[0].record.state == "running"
    path.write_bytes(append(path.read_bytes(), exit_record(0)))
    written(path, now=later)
    assert sync(tmp_path, memory, later)[0].record.state == "finished"


def test_a_large_file_costs_what_a_small_one_costs(tmp_path):
    small = one_run(tmp_path / "small", training(0), training(1), *[filler_record(10_000)] * 100)
    large = write_file(tmp_path / "large", small.read_bytes())
    end = append(b"", *[filler_record(10_000)] * 20, exit_record())
    with large.open("r+b") as file:
        file.seek(10**9 // BLOCK * BLOCK)  # a hole in the middle: a reader finds zeros
        file.write(end)
    for path, state in ((small, "running"), (written(large), "finished")):
        offline = offline_source(path)
        (reading,) = offline.readings(Memory())
        assert (step0(reading).gap, reading.record.state) == (0.0152, state)
        assert offline.counts.bytes_read < 300_000


def test_a_run_without_metrics_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(directories, "GIVE_UP", 3 * 1024 * 1024)
    path = one_run(tmp_path, *[filler_record(100_000)] * 60)
    memory, offline = Memory(), offline_source(tmp_path)
    (reading,) = memory.keep(offline.readings(memory))
    assert reading.marks[0].settled
    assert step0(reading).status == "pending"
    assert 3 * 1024 * 1024 < offline.counts.bytes_read < 5 * 1024 * 1024
    path.write_bytes(append(path.read_bytes(), training(0), exit_record()))
    again = offline_source(tmp_path)
    (reading,) = memory.keep(again.readings(memory))
    assert reading.record.state == "finished"
    assert again.counts.bytes_read <= 96 * 1024


def test_a_long_history_without_an_end_in_sight_keeps_few_rows(tmp_path):
    resumed = [training(step) for step in range(600, 700)]
    path = one_run(tmp_path, *[rollout(reward=number) for number in range(50)], *resumed)
    (reading,) = sync(path)
    assert len(reading.record.rows) < 40
    assert step0(reading).step is None
    assert "step 600" in step0(reading).note or step0(reading).status == "pending"


def test_an_end_is_found_behind_records_that_are_no_messages(tmp_path):
    strange = b"\x0d\x00\x92\x01 is what an exit record begins with"
    records = [training(0), filler_record(300_000), strange, exit_record(0), strange]
    (reading,) = sync(one_run(tmp_path, *records))
    assert reading.record.state == "finished"
    assert reading.problems == (), "what is not read for step 0 is not looked at"


def test_a_run_record_behind_something_strange_names_the_run(tmp_path):
    path = write_file(tmp_path, wandb_file(b"\x0d\x00", run_record("abc", CONFIG), training(0)))
    (reading,) = sync(path)
    assert reading.record.key == "team/project/abc"
    assert len(reading.problems) == 1
