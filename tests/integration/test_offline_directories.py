from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.sources.offline import directories
from tests.support.offline import (
    CONFIG,
    GAP,
    NOW,
    offline_source,
    refuse,
    rollout,
    step0,
    sync,
    training,
    written,
)
from tests.support.runs import (
    Memory,
    append,
    exit_record,
    filler_record,
    history_record,
    run_record,
    wandb_file,
    write_file,
)

BEGAN = datetime(2026, 1, 1, 10, tzinfo=UTC)
MB = 1024 * 1024


def directory(root, minute, *records, lived=90, config=None, **run):
    """Write one directory of run ``abc`` that began at a minute after `BEGAN`, and lived some minutes."""
    begin = BEGAN + timedelta(minutes=minute)
    record = run_record("abc", CONFIG if config is None else config, started=int(begin.timestamp()), **run)
    path = write_file(root, wandb_file(record, *records), stamp=begin.strftime("%Y%m%d_%H%M%S"))
    return written(path, hours_ago=0, now=begin + timedelta(minutes=lived))


def shared(root):
    """Write what shared mode leaves: the driver, the rollout manager and the trainer."""
    return [
        directory(
            root, 0, exit_record(1), lived=93, config={**CONFIG, "seed": 7}, display_name="night-RANK_0"
        ),
        directory(root, 1, rollout(**{"rollout/response_len": 512}), filler_record(90_000), lived=92),
        directory(root, 2, training(0), training(1), filler_record(90_000), lived=91),
    ]


def test_the_directories_of_one_run_id_are_one_run(tmp_path):
    paths = shared(tmp_path)
    (reading,) = sync(tmp_path)
    assert step0(reading).gap == 0.0152
    assert step0(reading).row["rollout/response_len"] == 512
    assert (reading.record.name, reading.record.state) == ("night-RANK_0", "failed")
    assert reading.record.created_at == BEGAN
    assert reading.record.config == {**CONFIG, "seed": 7}
    assert [mark.path for mark in reading.marks] == [str(path.resolve()) for path in paths]
    assert all(mark.settled for mark in reading.marks)


def test_a_run_id_in_two_projects_is_two_runs(tmp_path):
    directory(tmp_path / "a", 0, training(0), project="one")
    directory(tmp_path / "b", 1, training(0, gap=0.02), project="two")
    assert [(r.record.key, step0(r).gap) for r in sync(tmp_path)] == [
        ("team/one/abc", 0.0152),
        ("team/two/abc", 0.02),
    ]


def test_of_restarts_the_first_that_has_the_metric_counts(tmp_path):
    directory(tmp_path, 0, rollout(**{"rollout/start": 1}), exit_record(1), lived=10, config={"lr": 1})
    directory(tmp_path, 20, rollout(**{"rollout/start": 2}), training(0), lived=10, config={"lr": 2})
    directory(tmp_path, 40, rollout(**{"rollout/start": 3}), training(0, gap=0.5), lived=10, config={"lr": 3})
    (reading,) = sync(tmp_path)
    assert step0(reading).gap == 0.0152
    assert step0(reading).row["rollout/start"] == 2
    assert all(row.values.get(GAP, 0.0152) == 0.0152 for row in reading.record.rows)
    assert reading.record.config == {"lr": 2}
    assert reading.record.state == "running", "the last start has no exit record"


def test_rows_of_another_start_do_not_mix_in_whenever_they_are_read(tmp_path):
    memory = Memory()
    directory(tmp_path, 0, rollout(**{"rollout/early": 1}), exit_record(1), lived=10)
    assert step0(sync(tmp_path, memory)[0]).status == "no-step0"
    manager = directory(tmp_path, 20, rollout(**{"rollout/late": 1}), lived=5)
    sync(tmp_path, memory)
    trainer = directory(tmp_path, 21, filler_record(100), lived=5)
    sync(tmp_path, memory)
    for path, record in ((trainer, training(0)), (manager, filler_record(10))):
        path.write_bytes(append(path.read_bytes(), record))
        written(path, hours_ago=0, now=BEGAN + timedelta(minutes=30))
    (reading,) = sync(tmp_path, memory)
    assert step0(reading).gap == 0.0152
    assert "rollout/late" in step0(reading).row
    assert "rollout/early" not in step0(reading).row


def test_a_restart_that_appears_after_the_capture_changes_only_the_state(tmp_path):
    directory(tmp_path, 0, rollout(), training(0), training(1), exit_record(1), lived=10)
    memory = Memory()
    (first,) = sync(tmp_path, memory)
    assert first.record.state == "failed"
    directory(tmp_path, 30, rollout(**{"rollout/again": 1}), training(0, gap=0.5), training(1), lived=10)
    offline = offline_source(tmp_path)
    (second,) = memory.keep(offline.readings(memory))
    assert second.record.rows == first.record.rows
    assert second.record.state == "running"
    assert len(second.marks) == 2
    assert list(offline_source(tmp_path).readings(memory)) == []


def test_a_capture_outlives_its_directory(tmp_path):
    captured = directory(tmp_path, 0, training(0), training(1), lived=10)
    memory = Memory()
    directory(tmp_path, 20, filler_record(10), lived=10)
    sync(tmp_path, memory)
    captured.unlink()
    captured.parent.rmdir()
    directory(tmp_path, 20, filler_record(10), training(0, gap=0.5), lived=11)
    (reading,) = sync(tmp_path, memory)
    assert step0(reading).gap == 0.0152


def test_directories_that_grow_in_turns_are_histories_of_their_own(tmp_path):
    memory = Memory()
    paths = [directory(tmp_path, minute, rollout()) for minute in (0, 1, 2)]
    sync(tmp_path, memory)
    for number, record in enumerate([filler_record(10), training(0, gap=0.02), training(0, gap=0.5)]):
        paths[number].write_bytes(append(paths[number].read_bytes(), record))
        offline = offline_source(tmp_path)
        (reading,) = memory.keep(offline.readings(memory))
        assert offline.counts.bytes_read < 4 * len(record) + 1000, "only what is new"
        assert step0(reading).gap == [None, 0.02, 0.02][number]


def test_an_earlier_directory_is_read_as_far_as_a_later_one_before_that_counts(tmp_path):
    early = [filler_record(50_000)] * 30
    directory(tmp_path, 0, *early, training(0, gap=0.02), *early)
    directory(tmp_path, 1, *early[:25], rollout(), *early[:8], training(0, gap=0.5), *early)
    (reading,) = sync(tmp_path)
    assert step0(reading).gap == 0.02


def test_reading_stops_everywhere_once_one_directory_is_decided(tmp_path):
    for minute in (0, 1, 3, 4):
        directory(tmp_path, minute, *[filler_record(100_000)] * 100)
    directory(tmp_path, 2, filler_record(1_100_000), training(0), *[filler_record(100_000)] * 100)
    offline = offline_source(tmp_path)
    (reading,) = offline.readings(Memory())
    assert step0(reading).gap == 0.0152
    assert all(mark.settled for mark in reading.marks)
    assert offline.counts.bytes_read < 5 * 3 * MB, "of 54 MB"


def test_a_long_run_without_metrics_is_given_up_over_all_directories(tmp_path, monkeypatch):
    monkeypatch.setattr(directories, "GIVE_UP", 4 * MB)
    for minute in range(4):
        directory(tmp_path, minute, *[filler_record(100_000)] * 40)
    memory, offline = Memory(), offline_source(tmp_path)
    (reading,) = memory.keep(offline.readings(memory))
    assert all(mark.settled for mark in reading.marks)
    assert offline.counts.bytes_read < 9 * MB
    directory(tmp_path, 30, training(0))
    assert step0(sync(tmp_path, memory)[0]).gap == 0.0152, "a new start has its own chance"


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ([(1, 90), (None, 90)], "failed"),
        ([(0, 90), (None, 89)], "finished"),
        ([(0, 90), (1, 90)], "failed"),
        ([(1, 30), (0, 90)], "finished"),
        ([(0, 30), (1, 90)], "failed"),
        ([(1, 30), (None, 90)], "running"),
        ([(None, 30), (None, 90)], "running"),
    ],
)
def test_the_end_is_the_exit_record_written_last_unless_another_start_goes_on(tmp_path, ends, state):
    for minute, (code, until) in enumerate(ends):
        records = [] if code is None else [exit_record(code)]
        directory(tmp_path, minute, training(0), *records, lived=until - minute)
    assert sync(tmp_path, now=BEGAN + timedelta(hours=3))[0].record.state == state


def test_a_restart_that_goes_silent_crashes_by_mere_time(tmp_path):
    directory(tmp_path, 0, training(0), exit_record(1), lived=10)
    directory(tmp_path, 20, training(0), lived=60)
    memory = Memory()
    assert sync(tmp_path, memory)[0].record.state == "running"
    assert [r.record.state for r in sync(tmp_path, memory, NOW + timedelta(days=2))] == ["crashed"]
    assert sync(tmp_path, memory, NOW + timedelta(days=3)) == []


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_directory_whose_run_record_is_lost_still_belongs_to_its_run(tmp_path, lost):
    paths = shared(tmp_path)
    file = bytearray(paths[lost].read_bytes())
    file[40] ^= 1
    paths[lost].write_bytes(file)
    (reading,) = sync(tmp_path)
    assert reading.record.key == "team/project/abc"
    assert step0(reading).gap == 0.0152
    assert [problem.where for problem in reading.problems] == [str(paths[lost].resolve())]


def test_one_directory_that_cannot_be_read_does_not_stop_the_others(tmp_path, monkeypatch):
    paths = shared(tmp_path)
    refuse(monkeypatch, paths[1])
    offline = offline_source(tmp_path)
    (reading,) = offline.readings(Memory())
    assert step0(reading).gap == 0.0152
    assert [problem.what for problem in offline.problems] == ["cannot be read: Permission denied"]


def test_a_history_without_steps_of_its_own_is_found_by_its_metric(tmp_path):
    directory(
        tmp_path, 0, history_record({"eval/step": 0, "eval/reward": 0.5}), rollout(), training(0), training(1)
    )
    (reading,) = sync(tmp_path)
    assert "_step" not in step0(reading).row
    assert step0(reading).step == 0
