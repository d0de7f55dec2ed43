import os
from pathlib import Path

import pytest

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.records import OWN_JOB_TYPE
from tests.support.offline import CONFIG, offline_source, one_run, refuse, rollout, step0, sync, training
from tests.support.runs import HEADER, Memory, append, filler_record, run_record, wandb_file, write_file


def test_runs_at_any_depth_are_read_in_the_order_of_their_keys(tmp_path):
    for place, run_id in (("a/b/c", "zzz"), ("d", "aaa"), (".", "mmm")):
        write_file(tmp_path / place / "wandb", wandb_file(run_record(run_id), training(0)), run_id=run_id)
    assert [reading.record.run_id for reading in sync(tmp_path)] == ["aaa", "mmm", "zzz"]


def test_a_root_may_be_a_run_directory_or_a_file_and_brings_the_directories_of_the_same_run(tmp_path):
    path = one_run(tmp_path, training(0))
    sibling = write_file(tmp_path, wandb_file(run_record("abc"), training(1)), stamp="20260101_000001")
    write_file(tmp_path, wandb_file(run_record("xabc"), training(1)), run_id="xabc", stamp="20260101_000001")
    for root in (path.parent, path):
        (reading,) = sync(root)
        assert [mark.path for mark in reading.marks] == [str(path.resolve()), str(sibling.resolve())]
        assert step0(reading).gap == 0.0152


def test_links_count_once_and_may_lead_in_circles(tmp_path):
    path = one_run(tmp_path / "wandb", training(0))
    (tmp_path / "wandb" / "latest-run").symlink_to(path.parent)
    (tmp_path / "wandb" / "again").symlink_to(tmp_path)
    (tmp_path / "wandb" / "latest.wandb").symlink_to(path)
    (tmp_path / "wandb" / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "wandb" / "itself").symlink_to(tmp_path / "wandb" / "itself")
    (reading,) = sync(tmp_path)
    assert [mark.path for mark in reading.marks] == [str(path.resolve())]
    assert [mark.path for mark in sync(tmp_path / "wandb" / "latest-run")[0].marks] == [str(path.resolve())]


def test_links_that_lead_elsewhere_are_followed(tmp_path):
    one_run(tmp_path / "scratch", training(0))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "wandb").symlink_to(tmp_path / "scratch")
    assert len(sync(tmp_path / "project")) == 1


def test_a_directory_whose_name_only_looks_like_a_run_is_searched(tmp_path):
    one_run(tmp_path / "run-experiments" / "wandb", training(0))
    assert len(sync(tmp_path)) == 1


def test_files_in_a_run_directory_are_not_searched(tmp_path):
    path = one_run(tmp_path, training(0))
    write_file(path.parent / "files", wandb_file(run_record("copy"), training(0)))
    assert len(sync(tmp_path)) == 1


def test_the_own_runs_of_this_tool_are_never_given(tmp_path):
    write_file(tmp_path, wandb_file(run_record("own", job_type=OWN_JOB_TYPE), training(0)), run_id="own")
    memory = Memory()
    assert sync(tmp_path, memory) == []
    offline = offline_source(tmp_path)
    assert list(offline.readings(memory)) == []
    assert offline.counts.bytes_read == 0


def test_nothing_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        offline_source(tmp_path / "typo").readings(Memory())


def test_a_directory_without_runs_is_a_source_error(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(SourceError, match="no W&B run directories") as caught:
        offline_source(tmp_path).readings(Memory())
    assert "offline-run" in caught.value.hint


def test_a_run_directory_without_a_file_is_a_run_that_has_not_begun(tmp_path):
    (tmp_path / "run-20260101_000000-abc").mkdir()
    assert sync(tmp_path) == []


def test_a_root_that_is_no_such_file_is_a_source_error(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("step 0: {'train/ppo_kl': 0.0}")
    with pytest.raises(SourceError, match=r"train\.log: not a \.wandb file"):
        offline_source(log).readings(Memory())


def test_a_stranger_among_the_files_is_a_problem_that_is_told_once(tmp_path):
    one_run(tmp_path, training(0))
    other = write_file(tmp_path, b"some text", run_id="odd")
    memory, offline = Memory(), offline_source(tmp_path)
    assert len(memory.keep(offline.readings(memory))) == 1
    memory.keep((), offline.loose_marks)
    assert [(problem.where, problem.what[:19]) for problem in offline.problems] == [
        (str(other.resolve()), "not a .wandb file: "[:19])
    ]
    again = offline_source(tmp_path)
    assert list(again.readings(memory)) == []
    assert again.problems == ()
    assert again.counts.files_without_run == 1


def test_empty_files_and_bare_headers_hold_no_run_yet_and_are_no_error(tmp_path):
    for run_id, content in {"empty": b"", "cut": HEADER[:4], "head": HEADER, "run": HEADER + b"\x01"}.items():
        write_file(tmp_path, content, run_id=run_id)
    memory, offline = Memory(), offline_source(tmp_path)
    assert list(offline.readings(memory)) == []
    assert offline.problems == ()
    assert offline.counts.files_without_run == 4
    assert offline.counts.runs_seen == 0


def test_a_file_that_held_no_run_is_read_when_it_grows(tmp_path):
    path = write_file(tmp_path, HEADER)
    memory = Memory()
    assert sync(tmp_path, memory) == []
    path.write_bytes(wandb_file(run_record("abc", CONFIG), training(0)))
    assert [step0(reading).gap for reading in sync(tmp_path, memory)] == [0.0152]


def test_a_file_that_may_not_be_read_is_a_problem_and_tried_again(tmp_path, monkeypatch):
    locked = one_run(tmp_path / "a", training(0))
    write_file(tmp_path / "b", wandb_file(run_record("open"), training(0)), run_id="open")
    memory, offline = Memory(), offline_source(tmp_path)
    with monkeypatch.context() as context:
        refuse(context, locked)
        kept = memory.keep(offline.readings(memory))
        memory.keep((), offline.loose_marks)
    assert [reading.record.run_id for reading in kept] == ["open"]
    assert [problem.what for problem in offline.problems] == ["cannot be read: Permission denied"]
    assert [reading.record.run_id for reading in sync(tmp_path, memory)] == ["abc"]


def test_a_root_that_may_not_be_read_is_a_source_error(tmp_path, monkeypatch):
    path = one_run(tmp_path, training(0))
    refuse(monkeypatch, path)
    with pytest.raises(SourceError, match="Permission denied"):
        offline_source(path).readings(Memory())


def test_a_known_file_that_may_not_be_read_any_more_keeps_its_place(tmp_path, monkeypatch):
    path = one_run(tmp_path, rollout())
    memory = Memory()
    sync(tmp_path, memory)
    path.write_bytes(append(path.read_bytes(), training(0)))
    with monkeypatch.context() as context:
        refuse(context, path)
        (reading,) = sync(tmp_path, memory)
    assert [problem.what for problem in reading.problems] == ["cannot be read: Permission denied"]
    assert len(reading.record.rows) == 1
    assert step0(sync(tmp_path, memory)[0]).gap == 0.0152


def test_a_damaged_record_is_named_with_its_place_and_told_once(tmp_path):
    path = one_run(tmp_path, rollout(), filler_record(100), training(0))
    file = bytearray(path.read_bytes())
    place = len(wandb_file(run_record("abc", CONFIG), rollout()))
    file[place + 30] ^= 8
    path.write_bytes(file)
    memory = Memory()
    (reading,) = sync(tmp_path, memory)
    assert step0(reading).gap == 0.0152
    assert [(problem.where, problem.what) for problem in reading.problems] == [
        (str(path.resolve()), f"skipped the damaged record at byte {place}: its checksum is wrong")
    ]
    assert sync(tmp_path, memory) == []
    path.write_bytes(append(bytes(file), filler_record(10)))
    assert sync(tmp_path, memory)[0].problems == ()


def test_many_damaged_records_are_told_in_a_few_lines(tmp_path):
    path = one_run(tmp_path, *[filler_record(300)] * 20, training(0))
    file = bytearray(path.read_bytes())
    for place in range(1000, 5000, 700):
        file[place] ^= 1
    path.write_bytes(file)
    (reading,) = sync(tmp_path)
    assert len(reading.problems) == 4
    assert reading.problems[-1].what.startswith("skipped 3 more damaged records, the last at byte ")
    assert step0(reading).gap == 0.0152


def test_a_record_that_is_no_message_is_named_too(tmp_path):
    path = one_run(tmp_path, b"\x12\x7fno history record", training(0))
    (reading,) = sync(tmp_path)
    assert [problem.what.partition(": ")[2] for problem in reading.problems] == ["it is not a W&B record"]
    assert step0(reading).gap == 0.0152
    assert str(path.resolve()) == reading.problems[0].where


def test_a_run_whose_run_record_is_damaged_is_named_by_its_file(tmp_path):
    run_id = "7236206980.67167-f40a17dc-3b5d"
    file = bytearray(wandb_file(run_record(run_id), training(0)))
    file[20] ^= 1
    write_file(tmp_path, bytes(file), run_id=run_id)
    (reading,) = sync(tmp_path)
    assert reading.record.key == f"_/_/{run_id}"
    assert len(reading.problems) == 1
    assert step0(reading).gap == 0.0152


def test_only_regular_files_are_opened(tmp_path):
    one_run(tmp_path, training(0))
    os.mkfifo(tmp_path / "pipe.wandb")  # opening it would wait for ever
    (tmp_path / "directory.wandb").mkdir()
    assert len(sync(tmp_path)) == 1


def test_a_link_that_goes_while_the_directory_is_read_is_passed_over(tmp_path, monkeypatch):
    link = tmp_path / "latest-run"
    link.symlink_to(one_run(tmp_path, training(0)).parent)
    asked = os.path.realpath

    def realpath(path):
        if str(path).endswith("latest-run"):
            link.unlink()
            return str(Path(path).readlink())  # as it happens within: the link was there, and then it was not
        return asked(path)

    monkeypatch.setattr(os.path, "realpath", realpath)
    assert len(sync(tmp_path)) == 1


def test_a_link_into_a_directory_that_is_closed_is_a_problem_and_the_rest_goes_on(tmp_path, monkeypatch):
    one_run(tmp_path, training(0))
    (tmp_path / "link").symlink_to("theirs")
    looked = Path.is_dir

    def is_dir(path):
        if path.name == "theirs":
            raise PermissionError(13, "Permission denied")
        return looked(path)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    offline = offline_source(tmp_path)
    assert len(list(offline.readings(Memory()))) == 1
    assert [problem.what for problem in offline.problems] == ["cannot be followed: Permission denied"]


def test_a_name_that_is_no_utf_8_is_a_problem_and_the_rest_goes_on(tmp_path):
    one_run(tmp_path, training(0))
    odd = os.fsencode(tmp_path) + b"/run-caf\xe9.wandb"
    with open(odd, "wb") as file:  # noqa: PTH123 - a path of bytes
        file.write(wandb_file(run_record("odd"), training(0)))
    offline = offline_source(tmp_path)
    assert len(list(offline.readings(Memory()))) == 1
    assert [problem.what for problem in offline.problems] == ["its path is not UTF-8"]


def test_a_directory_that_may_not_be_listed_is_a_problem_and_the_rest_goes_on(tmp_path, monkeypatch):
    one_run(tmp_path / "mine", training(0))
    (tmp_path / "theirs").mkdir()
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("theirs"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    offline = offline_source(tmp_path)
    assert len(list(offline.readings(Memory()))) == 1
    assert [problem.what for problem in offline.problems] == ["cannot be listed: Permission denied"]
    with pytest.raises(SourceError, match="theirs cannot be listed: Permission denied"):
        offline_source(tmp_path / "theirs").readings(Memory())
