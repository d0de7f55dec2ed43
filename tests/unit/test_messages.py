import json
import math
from datetime import UTC, datetime

import pytest
from wandb.proto import wandb_internal_pb2 as pb

from step0_wandb.sources.offline import messages
from step0_wandb.sources.offline.messages import ConfigChange, RecordError, RunInfo, decode
from tests.support.runs import config_record, exit_record, filler_record, history_record, run_record


def history(data):
    return messages.row(decode(data).history)


def config(data):
    return messages.config_change(decode(data).config)


def test_the_kind_of_a_record_is_the_clients():
    kinds = {
        "run": run_record("abc"),
        "config": config_record({("lr",): 1}),
        "history": history_record({"loss": 1.0}),
        "exit": exit_record(3),
        "environment": pb.Record(environment={"docker": "img"}).SerializeToString(),
        None: filler_record(300),
    }
    assert [decode(data).WhichOneof("kind") for data in kinds.values()] == list(kinds)


def test_every_field_of_the_schema_is_the_clients():
    ours = {"gpu": "gpu_type", "cudaVersion": "cuda_version", "group": "run_group", "name": "display_name"}
    titles = {"History": "HistoryRecord", "Config": "ConfigRecord", "Item": "HistoryItem", "Run": "RunRecord"}
    titles |= {"Exit": "RunExitRecord", "Environment": "EnvironmentRecord", "Git": "GitRepoRecord"}
    for title, fields in messages._SCHEMA.items():
        if title == "Timestamp":
            continue
        theirs = getattr(pb, titles.get(title, title)).DESCRIPTOR.fields_by_name
        mine = messages._message(title).DESCRIPTOR.fields_by_name
        for name in fields:
            other = theirs[ours.get(name, name)]
            assert (mine[name].number, mine[name].type, mine[name].is_repeated) == (
                other.number,
                other.type,
                other.is_repeated,
            ), f"{title}.{name}"


def test_what_surrounds_a_message_is_passed_over_in_any_order():
    record = pb.Record(num=300, uuid="u" * 200)
    record.control.mailbox_slot = "m" * 150
    record.exit.exit_code = 7
    surroundings = pb.Record(num=2**40)
    surroundings._info.stream_id = "abc"
    for data in (
        record.SerializeToString() + surroundings.SerializeToString(),
        surroundings.SerializeToString() + record.SerializeToString(),
    ):
        assert decode(data).exit.exit_code == 7


def test_a_record_of_no_kind_has_none():
    assert decode(pb.Record(num=1).SerializeToString()).WhichOneof("kind") is None
    assert decode(b"").WhichOneof("kind") is None


def test_exit_codes_may_be_negative():
    assert [decode(exit_record(code)).exit.exit_code for code in (0, 1, 255, -2)] == [0, 1, 255, -2]


def test_a_run_record_says_who_the_run_is():
    data = run_record(
        "7236206980.67167-f40a17dc",
        {"lr": 0.1},
        display_name="größer",
        run_group="g",
        job_type="train",
        tags=["a", "b"],
        started=1767225601,
        notes="n" * 500,
    )
    run = decode(data).run
    assert messages.run_info(run) == RunInfo(
        run_id="7236206980.67167-f40a17dc",
        entity="team",
        project="project",
        name="größer",
        group="g",
        job_type="train",
        tags=("a", "b"),
        started_at=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
    )
    assert messages.config_change(run.config).update == {("lr",): 0.1}


@pytest.mark.parametrize("length", [9000, 40, 10**6])
def test_the_beginning_of_a_run_record_names_the_run(length):
    data = run_record("abc", {f"key{number}": "x" * 100 for number in range(500)})
    info = messages.first_run_info(data[:length])
    assert (info.entity, info.project, info.run_id) == ("team", "project", "abc")
    with pytest.raises(RecordError):
        decode(data[:9000])


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"\x08\xff", b"\x8a", b"\x8a\x01", b"\xff" * 20, history_record({"a": 1})]
)
def test_the_beginning_of_another_record_names_no_run(data):
    assert messages.first_run_info(data) is None


def test_facts_are_filled_from_another_record():
    driver = RunInfo(name="run", group="g", tags=("a",))
    trainer = RunInfo(run_id="abc", name="other", started_at=datetime(2026, 1, 1, tzinfo=UTC))
    both = driver.or_else(trainer)
    assert (both.run_id, both.name, both.group, both.started_at) == ("abc", "run", "g", trainer.started_at)
    assert driver.or_else(None) is driver


@pytest.mark.parametrize("old", [True, False])
def test_history_numbers_are_those_that_the_client_wrote(old):
    logged = {
        "train/ppo_kl": -5.381554728955962e-06,
        "train/step": 0,
        "big": 2**70,
        "tiny": 5e-324,
        "neg": -3,
    }
    assert history(history_record(logged, old=old)) == {name: float(value) for name, value in logged.items()}


def test_nan_and_infinities_are_numbers_bare_or_as_text():
    row = history(
        history_record({"a": "NaN", "b": '"NaN"', "c": "-Infinity", "d": '"Infinity"', "e": {"f": "NaN"}})
    )
    assert math.isnan(row["a"])
    assert math.isnan(row["b"])
    assert (row["c"], row["d"]) == (-math.inf, math.inf)
    assert math.isnan(row["e.f"])


def test_integers_beyond_a_float_are_infinite():
    assert history(history_record({"a": 10**400, "b": {"c": -(10**400)}})) == {
        "a": math.inf,
        "b.c": -math.inf,
    }


def test_text_flags_lists_and_nothing_are_no_numbers():
    values = {"a": '"word"', "b": True, "c": None, "d": [1, 2], "e": '"1.5"', "f": "", "loss": 1}
    assert history(history_record(values)) == {"loss": 1.0}


def test_nested_values_are_flattened_with_dots():
    record = pb.Record()
    record.history.item.add(nested_key=["train", "deep", "kl"], value_json="0.5")
    record.history.item.add(key="eval", value_json='{"reward": {"mean": 2}, "name": "x"}')
    assert history(record.SerializeToString()) == {"train.deep.kl": 0.5, "eval.reward.mean": 2.0}


def test_media_leave_no_numbers_behind():
    record = pb.Record()
    for part, value in {"_type": '"image-file"', "width": "640", "size": "9"}.items():
        record.history.item.add(nested_key=["sample", part], value_json=value)
    record.history.item.add(key="table", value_json='{"_type": "table-file", "nrows": 3}')
    record.history.item.add(key="_type", value_json='"a metric of that name"')
    record.history.item.add(nested_key=["sampled"], value_json="1")
    assert history(record.SerializeToString()) == {"sampled": 1.0}


def test_numbers_with_a_field_of_their_own_are_read():
    record = pb.Record()
    record.history.item.add(nested_key=["count"], integer=-7)
    record.history.item.add(nested_key=["kl"], number=1e-9)
    record.history.item.add(nested_key=["clip"], json=b"0.25")
    record.history.step.num = 12
    assert history(record.SerializeToString()) == {"count": -7.0, "kl": 1e-9, "clip": 0.25}


@pytest.mark.parametrize("length", [1, 100, 125, 126, 127, 128, 129, 300, 20_000])
def test_keys_and_values_of_any_length_are_read(length):
    key, value = "k" * length, "v" * length
    change = config(config_record({(key,): 1, ("short",): value, ("nested", key): [value]}))
    assert change.update == {(key,): 1, ("short",): value, ("nested", key): [value]}


def test_config_records_update_and_remove():
    first = config(config_record({("optim", "lr"): 0.1, ("seed",): 7, ("gone",): 1}))
    second = config(
        config_record({("optim", "eps"): 1e-8}, remove=[("gone",), ("optim", "lr"), ("never", "there")])
    )
    before = {"optim": {"kind": "adam"}}
    after = dict(before)
    first.apply_to(after)
    second.apply_to(after)
    assert after == {"optim": {"kind": "adam", "eps": 1e-8}, "seed": 7}
    assert before == {"optim": {"kind": "adam"}}, "what others hold is not changed"


def test_each_writer_adds_to_the_clients_own_part_of_the_config():
    config = {}
    for value in ({"e": {"one": {"docker": "img"}}}, {"cli_version": "0.31"}, {}):
        ConfigChange({("_wandb",): value}).apply_to(config)
    assert config == {"_wandb": {"e": {"one": {"docker": "img"}}, "cli_version": "0.31"}}


def test_the_environment_becomes_what_the_server_makes_of_it():
    record = pb.Record()
    record.environment.docker = "registry/miles:1"
    record.environment.git.remote_url = "git@example"
    record.environment.git.commit = "c0ffee"
    record.environment.gpu_type = "H100"
    record.environment.gpu_count = 8
    record.environment.cuda_version = "12.8"
    record.environment.args.append("--wandb-key=abc")
    record.environment.writer_id = "w1"
    data = record.SerializeToString()
    change = messages.environment(decode(data).environment)
    assert change.update == {
        ("_wandb", "e", "w1"): {
            "docker": "registry/miles:1",
            "git": {"commit": "c0ffee"},
            "gpu": "H100",
            "gpu_count": 8,
            "cudaVersion": "12.8",
        }
    }


@pytest.mark.parametrize(
    "value", ["{", "1 2", "1,2", "nul", '"a', "[" * 3000 + "]" * 3000, '{"a":' * 200 + "1" + "}" * 200]
)
def test_values_that_are_no_json_or_nested_without_end_are_refused(value):
    record = pb.Record()
    record.config.update.add(key="sane", value_json="1")
    record.config.update.add(key="odd", value_json=value)
    with pytest.raises(RecordError):
        config(record.SerializeToString())


def test_values_that_only_together_look_like_json_are_refused():
    record = pb.Record()
    for value in ("[1", "2]", "3"):
        record.config.update.add(key="odd", value_json=value)
    with pytest.raises(RecordError):
        config(record.SerializeToString())


def test_much_text_with_brackets_is_no_deep_nesting():
    assert config(config_record({("prompt",): "[{" * 500})).update == {("prompt",): "[{" * 500}


def test_the_start_is_known_to_the_microsecond():
    record = pb.Record()
    record.run.start_time.FromMicroseconds(1767225600_987655)
    data = record.SerializeToString()
    started_at = messages.run_info(decode(data).run).started_at
    assert started_at == datetime(2026, 1, 1, 0, 0, 0, 987655, tzinfo=UTC)


@pytest.mark.parametrize(
    "data", [b"\x08", b"\x08\xff", b"\x92", b"\x92\x01", b"\x12\x05abc", b"\x0d\x00\x00"]
)
def test_the_beginning_of_a_record_alone_is_refused(data):
    with pytest.raises(RecordError):
        decode(data)


def test_a_time_beyond_the_calendar_is_refused():
    data = run_record("abc", started=2**62)
    with pytest.raises(RecordError, match="time"):
        messages.run_info(decode(data).run)


@pytest.mark.parametrize("data", [b"\x0b", b"\x0a\x05ab", b"\x80" * 12, b"\x11\x00", b"\x08"])
def test_bytes_that_are_not_a_message_are_refused(data):
    with pytest.raises(RecordError):
        decode(data)


def test_text_that_is_not_utf_8_costs_its_record():
    data = run_record("abc").replace(b"abc", b"a\xffc")
    with pytest.raises(RecordError):
        decode(data)


def test_an_item_without_a_key_is_refused():
    record = pb.Record()
    record.history.item.add(value_json=json.dumps(1))
    with pytest.raises(RecordError, match="no key"):
        history(record.SerializeToString())
