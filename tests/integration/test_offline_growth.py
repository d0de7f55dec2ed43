import pytest

from tests.support.offline import (
    CONFIG,
    offline_source,
    one_run,
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
    config_record,
    exit_record,
    filler_record,
    run_record,
    wandb_file,
    write_file,
)


def test_reading_goes_on_where_it_stopped(tmp_path):
    path = one_run(tmp_path, rollout(), *[filler_record(50_000)] * 6)
    memory = Memory()
    (first,) = sync(tmp_path, memory)
    assert step0(first).status == "pending"
    path.write_bytes(append(path.read_bytes(), training(0), training(1)))
    offline = offline_source(tmp_path)
    (second,) = memory.keep(offline.readings(memory))
    assert step0(second).gap == 0.0152
    assert second.record.config == CONFIG
    assert second.record.name == first.record.name
    assert any("rollout/response_len" in row.values for row in second.record.rows)
    assert offline.counts.bytes_read < 5000


def test_it_makes_no_difference_where_a_sync_fell_in_between(tmp_path):
    records = [
        rollout(),
        filler_record(9000),
        config_record({("late",): 1}),
        training(0),
        training(1),
        exit_record(),
    ]
    head = wandb_file(run_record("abc", CONFIG))
    (whole,) = sync(one_run(tmp_path / "whole", *records))
    parts = Memory()
    for count in range(len(records) + 1):
        for extra in (0, 5):
            content = append(head, *records)[: len(append(head, *records[:count])) + extra]
            path = written(write_file(tmp_path / "parts", content))
            sync(tmp_path / "parts", parts)
    record = parts.record("team/project/abc")
    assert (record.state, record.config) == (whole.record.state, whole.record.config)
    assert [row.values for row in record.rows] == [row.values for row in whole.record.rows]
    assert path.exists()


def test_an_unchanged_file_is_not_opened(tmp_path, monkeypatch):
    path = one_run(tmp_path, training(0))
    memory = Memory()
    sync(tmp_path, memory)
    refuse(monkeypatch, path)
    offline = offline_source(tmp_path)
    assert list(offline.readings(memory)) == []
    assert offline.counts.runs_seen == 1


def test_of_a_settled_file_only_the_end_is_looked_at(tmp_path):
    path = one_run(tmp_path, training(0), training(1), filler_record(900_000))
    memory = Memory()
    assert sync(tmp_path, memory)[0].marks[0].settled
    path.write_bytes(append(path.read_bytes(), filler_record(500_000), training(0, gap=9.0), exit_record()))
    offline = offline_source(tmp_path)
    (reading,) = memory.keep(offline.readings(memory))
    assert reading.record.state == "finished"
    assert step0(reading).gap == 0.0152
    assert offline.counts.bytes_read <= 96 * 1024


@pytest.mark.parametrize("more", [0, 40_000])
def test_a_file_that_was_replaced_is_read_again(tmp_path, more):
    path = one_run(tmp_path, *[filler_record(1000)] * 9, rollout(**{"rollout/old": 1}))
    memory = Memory()
    sync(tmp_path, memory)
    other = [filler_record(313)] * 4 + [training(0, gap=0.02)] + ([filler_record(more)] if more else [])
    path.write_bytes(wandb_file(run_record("abc", CONFIG), *other))
    (reading,) = sync(tmp_path, memory)
    assert step0(reading).gap == 0.02
    assert not any("rollout/old" in row.values for row in reading.record.rows)
    assert reading.problems == ()


def test_a_run_that_the_store_lost_is_read_again(tmp_path):
    one_run(tmp_path, training(0))
    memory = Memory()
    sync(tmp_path, memory)
    memory.records.clear()
    path = one_run(tmp_path, training(0), filler_record(10))
    assert step0(sync(tmp_path, memory)[0]).gap == 0.0152
    assert path.exists()
