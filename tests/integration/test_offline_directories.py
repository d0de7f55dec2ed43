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


def test_each_directory_with_its_own_step_0_is_a_start_with_its_own_rows_and_config(tmp_path):
    directory(tmp_path, 0, rollout(**{"rollout/start": 1}), exit_record(1), lived=10, config={"lr": 1})
    directory(tmp_path, 20, rollout(**{"rollout/start": 2}), training(0), lived=10, config={"lr": 2, "a": 1})
    directory(tmp_path, 40, rollout(**{"rollout/start": 3}), training(0, gap=0.5), lived=10, config={"lr": 3})
    first, second = sync(tmp_path)
    assert [reading.record.key for reading in (first, second)] == ["team/project/abc"] * 2
    assert [reading.record.start for reading in (first, second)] == [1, 2]
    assert [step0(reading).gap for reading in (first, second)] == [0.0152, 0.5]
    assert [step0(reading).row["rollout/start"] for reading in (first, second)] == [2, 3]
    assert [reading.record.config for reading in (first, second)] == [{"lr": 2, "a": 1}, {"lr": 3}]
    assert [reading.record.created_at for reading in (first, second)] == [
        BEGAN + timedelta(minutes=20),
        BEGAN + timedelta(minutes=40),
    ]
    assert second.record.state == "running", "the last start has no exit record"
    assert sorted(mark.path for reading in (first, second) for mark in reading.marks) == [
        str(path.resolve()) for path in sorted(tmp_path.rglob("*.wandb"))
    ]


def test_a_start_that_was_resumed_above_the_first_step_is_none_of_its_own(tmp_path):
    directory(tmp_path, 0, training(0), training(1), exit_record(1), lived=10)
    directory(tmp_path, 20, training(1, gap=0.5), training(2), lived=10)
    (reading,) = sync(tmp_path)
    assert (step0(reading).gap, reading.record.start) == (0.0152, 1)


def test_a_start_from_the_beginning_counts_after_one_that_was_resumed(tmp_path):
    directory(tmp_path, 0, training(7, gap=0.5), training(8), lived=10)
    directory(tmp_path, 20, training(0), training(1), lived=10)
    (reading,) = sync(tmp_path)
    assert (step0(reading).status, step0(reading).gap, reading.record.start) == ("found", 0.0152, 1)


def test_a_copy_of_a_directory_is_not_a_start(tmp_path):
    path = directory(tmp_path, 0, training(0, _timestamp=1767225700.5), training(1), lived=10)
    copy = tmp_path / "backup" / path.parent.name
    copy.mkdir(parents=True)
    (copy / path.name).write_bytes(path.read_bytes())
    (reading,) = sync(tmp_path)
    assert reading.record.start == 1
    assert len(reading.marks) == 2


def test_trainers_of_two_policies_that_live_at_the_same_time_are_one_start(tmp_path):
    for minute, policy in enumerate(("solver", "judge")):
        values = {f"{policy}/train/step": 0, f"{policy}/train/ppo_kl": 0.0, f"{policy}/{GAP}": 0.01 + minute}
        later = {**values, f"{policy}/train/step": 1}
        directory(tmp_path, minute, history_record(values), history_record(later), lived=60)
    (reading,) = sync(tmp_path)
    names = {name for row in reading.record.rows for name in row.values}
    assert {f"solver/{GAP}", f"judge/{GAP}"} <= names


@pytest.mark.parametrize("first_known", [True, False])
def test_a_named_directory_is_judged_by_what_it_logged_itself(tmp_path, first_known):
    paths = [
        directory(tmp_path, 0, training(0), training(1), exit_record(1), lived=10, config={"lr": 1}),
        directory(tmp_path, 20, training(0, gap=0.063), exit_record(0), lived=10, config={"lr": 2}),
    ]
    memory = Memory()
    if first_known:
        sync(tmp_path, memory)
    found = [reading.record for path in paths for reading in sync(path.parent)]
    assert [record.start for record in found] == [1, 2]
    assert [record.config["lr"] for record in found] == [1, 2]
    assert [record.state for record in found] == ["failed", "finished"]


def test_a_named_directory_that_has_logged_nothing_yet_has_no_step_0(tmp_path):
    directory(tmp_path, 0, training(0), training(1), exit_record(1), lived=10)
    path = directory(tmp_path, 20, lived=10)
    (reading,) = sync(path.parent)
    assert (step0(reading).status, reading.record.state, reading.record.start) == ("pending", "running", 2)


def test_a_named_directory_keeps_its_number_while_it_is_waited_for(tmp_path):
    directory(tmp_path, 0, training(0), training(1), exit_record(1), lived=10)
    path = directory(tmp_path, 20, lived=10)
    memory = Memory()
    assert [reading.record.start for reading in sync(path.parent, memory)] == [2]
    path.write_bytes(append(path.read_bytes(), training(0, gap=0.063)))
    (reading,) = sync(path.parent, memory)
    assert (reading.record.start, step0(reading).gap) == (2, 0.063)


def test_a_run_that_ended_before_its_first_row_is_told_with_its_framework(tmp_path):
    config = {"hf_checkpoint": "/models/Qwen3-0.6B", "rollout_batch_size": 32}
    memory = Memory()
    path = directory(tmp_path, 0, lived=5, config=config)
    (reading,) = sync(tmp_path, memory)
    assert (step0(reading).status, step0(reading).profile) == ("pending", "miles")
    path.write_bytes(append(path.read_bytes(), exit_record(1)))
    (reading,) = sync(tmp_path, memory)
    found = step0(reading)
    assert (found.status, found.note) == ("no-step0", "it ended before its first row (Miles, by its config)")


def test_a_run_that_logged_other_rows_ended_before_its_first_training_row(tmp_path):
    config = {"hf_checkpoint": "/models/Qwen3-0.6B", "rollout_batch_size": 32}
    memory = Memory()
    path = directory(tmp_path, 0, lived=5, config=config)
    sync(tmp_path, memory)
    path.write_bytes(append(path.read_bytes(), history_record({"loss": 1.0})))
    sync(tmp_path, memory)
    path.write_bytes(append(path.read_bytes(), history_record({"loss": 1.0}), exit_record(1)))
    (reading,) = sync(tmp_path, memory)
    assert step0(reading).note == "it ended before its first training row (Miles, by its config)"
    assert reading.record.rows == ()


LINE = f"(Trainer pid=1) model.py:847 - step {{}}: {{{{'train/ppo_kl': 0.0, 'train/pg_clipfrac': 0.0, '{GAP}': 0.0152}}}}\n"


def write_log(path, text):
    (path.parent / "files").mkdir(exist_ok=True)
    (path.parent / "files" / "output.log").write_text(text)


def test_the_console_log_next_to_a_file_without_rows_shows_its_step_0(tmp_path):
    path = directory(tmp_path, 0, exit_record(1), lived=10)
    write_log(path, LINE.format(0) + LINE.format(1))
    memory = Memory()
    (reading,) = sync(tmp_path, memory)
    assert (step0(reading).status, step0(reading).gap) == ("found", 0.0152)
    assert [problem.what for problem in reading.problems] == [
        "ends before its first row; step 0 was read from files/output.log next to it"
    ]
    assert sync(tmp_path, memory) == []


def test_the_console_log_of_a_run_that_goes_on_is_read_only_where_it_is_asked_for(tmp_path):
    path = directory(tmp_path, 0, lived=10)
    write_log(path, LINE.format(0) + LINE.format(1))
    assert step0(sync(tmp_path)[0]).status == "pending"
    assert step0(sync(path.parent)[0]).gap == 0.0152


def test_the_console_log_does_not_speak_where_the_history_does(tmp_path):
    path = directory(tmp_path, 0, training(0, gap=0.5), training(1), exit_record(1), lived=10)
    write_log(path, LINE.format(0))
    (reading,) = sync(tmp_path)
    assert (step0(reading).gap, reading.problems) == (0.5, ())


def test_rounded_numbers_of_the_console_log_prove_nothing(tmp_path):
    path = directory(tmp_path, 0, exit_record(1), lived=10)
    pairs = "actor/ppo_kl:-0.000 - actor/pg_clipfrac:0.001 - training/rollout_probs_diff_mean:0.003"
    write_log(path, f"step:1 - {pairs} - training/global_step:1.000\n")
    (reading,) = sync(tmp_path)
    assert step0(reading).status == "no-step0"
    assert "rounded too much" in reading.problems[0].what


def test_a_later_start_has_its_whole_config_whenever_it_was_read(tmp_path):
    memory = Memory()
    directory(tmp_path, 0, training(0), training(1), exit_record(1), lived=10, config={"old": 1, "lr": 1})
    sync(tmp_path, memory)
    path = directory(tmp_path, 20, lived=10, config={"lr": 2})
    (before,) = sync(tmp_path, memory)
    assert (before.record.start, before.record.config) == (1, {"old": 1, "lr": 1})
    path.write_bytes(append(path.read_bytes(), training(0, gap=0.063)))
    (after,) = sync(tmp_path, memory)
    assert (after.record.start, step0(after).gap, after.record.config) == (2, 0.063, {"lr": 2})
    path.write_bytes(append(path.read_bytes(), training(0, gap=0.063), training(1)))
    assert [reading.record.start for reading in sync(tmp_path, memory)] == [2]


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


def test_a_start_that_appears_later_is_the_second(tmp_path):
    directory(tmp_path, 0, rollout(), training(0), training(1), exit_record(1), lived=10)
    memory = Memory()
    (first,) = sync(tmp_path, memory)
    assert (first.record.state, first.record.start) == ("failed", 1)
    directory(tmp_path, 30, rollout(**{"rollout/again": 1}), training(0, gap=0.5), training(1), lived=10)
    (second,) = sync(tmp_path, memory)
    assert (step0(second).gap, second.record.state, second.record.start) == (0.5, "running", 2)
    assert len(second.marks) == 2
    assert list(offline_source(tmp_path).readings(memory)) == []


def test_a_capture_outlives_its_directory(tmp_path):
    captured = directory(tmp_path, 0, training(0), training(1), lived=10)
    memory = Memory()
    directory(tmp_path, 20, filler_record(10), lived=10)
    sync(tmp_path, memory)
    captured.unlink()
    captured.parent.rmdir()
    directory(tmp_path, 20, filler_record(10), rollout(), lived=11)
    (reading,) = sync(tmp_path, memory)
    assert step0(reading).gap == 0.0152
    directory(tmp_path, 20, filler_record(10), rollout(), training(0, gap=0.5), lived=12)
    (reading,) = sync(tmp_path, memory)
    assert (step0(reading).gap, reading.record.start) == (0.5, 2)


def test_directories_that_grow_in_turns_are_histories_of_their_own(tmp_path):
    memory = Memory()
    paths = [directory(tmp_path, minute, rollout()) for minute in (0, 1, 2)]
    sync(tmp_path, memory)
    for number, record in enumerate([filler_record(10), training(0, gap=0.02), training(0, gap=0.5)]):
        paths[number].write_bytes(append(paths[number].read_bytes(), record))
        offline = offline_source(tmp_path)
        (reading,) = memory.keep(offline.readings(memory))
        assert offline.counts.bytes_read < 4 * len(record) + 1500, "only what is new"
        assert step0(reading).gap == [None, 0.02, 0.5][number]


def test_each_directory_is_read_up_to_its_own_step_0(tmp_path):
    early = [filler_record(50_000)] * 30
    directory(tmp_path, 0, *early, training(0, gap=0.02), *early)
    directory(tmp_path, 1, rollout(), training(0, gap=0.5), *early)
    assert sorted(step0(reading).gap for reading in sync(tmp_path)) == [0.02, 0.5]


@pytest.mark.parametrize("before", [10_000, 200_000, 3_000_000])
def test_rows_of_the_first_rollout_count_wherever_they_stand_in_their_directory(tmp_path, before):
    fillers = [filler_record(50_000)] * (before // 50_000)
    directory(tmp_path, 0, training(0), training(1), lived=90)
    directory(tmp_path, 1, *fillers, rollout(**{"rollout/entropy": 0.25}), rollout(1), lived=90)
    (reading,) = sync(tmp_path)
    assert step0(reading).row["rollout/entropy"] == 0.25


def test_a_directory_that_is_far_behind_the_first_rollout_is_read_no_further(tmp_path):
    fillers = [filler_record(100_000)] * 100
    directory(tmp_path, 0, training(0), training(1), *fillers)
    directory(tmp_path, 1, *(rollout(step) for step in range(5)), *fillers)
    offline = offline_source(tmp_path)
    (reading,) = offline.readings(Memory())
    assert all(mark.settled for mark in reading.marks)
    assert offline.counts.bytes_read < 1.5 * MB, "of 20 MB"


def test_a_directory_without_rows_is_read_so_far_and_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr(directories, "REACH", 3 * MB)
    for minute in (0, 1, 3, 4):
        directory(tmp_path, minute, *[filler_record(100_000)] * 100)
    directory(tmp_path, 2, filler_record(1_100_000), training(0), *[filler_record(100_000)] * 100)
    offline = offline_source(tmp_path)
    (reading,) = offline.readings(Memory())
    assert step0(reading).gap == 0.0152
    assert all(mark.settled for mark in reading.marks)
    assert offline.counts.bytes_read < 5 * 5 * MB, "of 54 MB"


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
    assert sync(tmp_path, now=BEGAN + timedelta(hours=3))[-1].record.state == state


def test_a_restart_that_goes_silent_crashes_by_mere_time(tmp_path):
    directory(tmp_path, 0, training(0), exit_record(1), lived=10)
    directory(tmp_path, 20, training(0), lived=60)
    memory = Memory()
    assert sync(tmp_path, memory)[-1].record.state == "running"
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
