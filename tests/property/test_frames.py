from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from step0_wandb.profiles import load_profiles
from step0_wandb.sources.offline import messages
from step0_wandb.sources.offline.frames import BLOCK, START, Damage, LogReader, Record
from step0_wandb.sources.offline.source import OfflineSource
from step0_wandb.step0.finder import Step0Finder
from tests.support.runs import (
    HEADER,
    Memory,
    config_record,
    exit_record,
    filler_record,
    history_record,
    run_record,
    wandb_file,
    write_file,
)

FINDER = Step0Finder(load_profiles())
NOW = datetime(2026, 1, 2, tzinfo=UTC)

sizes = st.one_of(
    st.integers(0, 300),
    st.integers(BLOCK - 30, BLOCK + 30),
    st.integers(2 * BLOCK - 60, 2 * BLOCK + 60),
)
records = st.lists(sizes, max_size=8).map(
    lambda lengths: [bytes([number + 1]) * length for number, length in enumerate(lengths)]
)
RUN = [
    run_record("abc", {"hf_checkpoint": "/models/Qwen3-0.6B", "prompt": "x" * 3000}),
    filler_record(700),
    history_record({"rollout/step": 0, "rollout/response_len": 512.5}),
    config_record({("late",): {"z": 1}}),
    history_record(
        {
            "train/step": 0,
            "train/ppo_kl": 0.0,
            "train/pg_clipfrac": 0.0,
            "train/train_rollout_logprob_abs_diff": 0.0152,
        }
    ),
    history_record({"train/step": 1, "train/ppo_kl": 1e-4}, old=True),
    exit_record(1),
]
RUN_FILE = wandb_file(*RUN)


def read(file, offset=START):
    reader = LogReader(lambda at, size: file[at : at + size], len(file), offset=offset)
    return list(reader.records()), reader.offset


def payloads(items):
    return [item.data for item in items if isinstance(item, Record)]


def offline(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("runs")
    path = write_file(root, content)
    source = OfflineSource(root, FINDER, clock=lambda: NOW)
    memory = Memory()
    readings = memory.keep(source.readings(memory), source.loose_marks)
    return path, source, readings


@given(records)
def test_whatever_is_written_is_read(written):
    items, offset = read(wandb_file(*written))
    assert payloads(items) == written
    assert not any(isinstance(item, Damage) for item in items)
    assert offset == len(wandb_file(*written))


@given(records, st.data())
def test_reading_in_two_parts_gives_what_reading_at_once_gives(written, data):
    file = wandb_file(*written)
    cut = data.draw(st.integers(START, len(file)))
    early, offset = read(file[:cut])
    late, _ = read(file, offset)
    assert payloads(early) + payloads(late) == written
    assert not any(isinstance(item, Damage) for item in early)


@given(records, st.data())
def test_a_flipped_bit_costs_at_most_the_record_it_is_in(written, data):
    file = bytearray(wandb_file(*written))
    if len(file) == START:
        return
    place = data.draw(st.integers(START, len(file) - 1))
    file[place] ^= 1 << data.draw(st.integers(0, 7))
    items, offset = read(bytes(file))
    before = [
        record for count, record in enumerate(written) if len(wandb_file(*written[: count + 1])) <= place
    ]
    assert payloads(items)[: len(before)] == before
    got = payloads(items)
    assert len(got) >= len(written) - 1
    if got != written:
        assert any(isinstance(item, Damage) for item in items) or offset <= place
    rest = iter(written)
    assert all(any(record == other for other in rest) for record in got), "nothing is made up"


@given(st.binary(max_size=3 * BLOCK))
def test_any_bytes_can_be_read(junk):
    items, offset = read(HEADER + junk)
    assert all(START <= item.offset <= len(HEADER) + len(junk) for item in items)
    assert offset >= START


@given(st.binary(max_size=400), st.sampled_from(["whole", "cut", "inside"]), st.data())
def test_any_bytes_are_a_message_or_an_error(junk, kind, data):
    if kind != "whole":
        record = data.draw(st.sampled_from(RUN))
        cut = data.draw(st.integers(0, len(record)))
        junk = record[:cut] + (junk + record[cut:] if kind == "inside" else b"")
    try:
        messages.first_run_info(junk)
        record = messages.decode(junk)
        messages.run_info(record.run)
        messages.config_change(record.run.config)
        messages.config_change(record.config)
        messages.row(record.history)
        messages.environment(record.environment)
    except messages.RecordError:
        pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, len(RUN_FILE)))
def test_a_run_cut_anywhere_is_read_as_far_as_it_goes(tmp_path_factory, cut):
    _, source, readings = offline(tmp_path_factory, RUN_FILE[:cut])
    assert source.problems == ()
    found = [len(wandb_file(*RUN[:count])) <= cut for count in (1, 5)]
    assert len(readings) == found[0]
    for reading in readings:
        assert reading.problems == ()
        assert FINDER.has_metrics(reading.record.rows) == found[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.integers(0, len(RUN_FILE) * 8 - 1), min_size=1, max_size=4))
def test_a_run_with_any_bits_flipped_is_read_without_an_error(tmp_path_factory, places):
    file = bytearray(RUN_FILE)
    for place in places:
        file[place // 8] ^= 1 << place % 8
    path, source, readings = offline(tmp_path_factory, bytes(file))
    problems = [*source.problems, *(problem for reading in readings for problem in reading.problems)]
    assert all(problem.where == str(path.resolve()) for problem in problems)
    assert len(readings) <= 1
    whole = [count for count in range(len(RUN)) if len(wandb_file(*RUN[: count + 1])) <= min(places) // 8]
    if min(places) // 8 >= START and 4 in whole:
        assert FINDER.has_metrics(readings[0].record.rows), "what lies in front of the damage is kept"
