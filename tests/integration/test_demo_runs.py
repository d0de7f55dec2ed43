"""The demo's runs, read back from the files with the client's own message classes."""

import json
import math
import os
import socket
import struct
import threading
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from wandb.proto import wandb_internal_pb2

from step0_wandb import demo
from step0_wandb.app.check import explain_run
from step0_wandb.app.sync import Job, run_sync
from step0_wandb.demo import write_demo
from step0_wandb.demo.scenario import directories
from step0_wandb.errors import Step0Error, UsageError
from step0_wandb.settings.load import load_settings
from tests.support import command
from tests.support.miles import miles_run

NOW = datetime(2026, 10, 20, 12, 0, tzinfo=UTC)
GAP = "train/train_rollout_logprob_abs_diff"
BLOCK = 32768


def records_in(path):
    """Yield the records of a .wandb file: LevelDB's log format behind a header of seven bytes."""
    data, at, parts = path.read_bytes(), 7, []
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        part = data[at + 7 : at + 7 + length]
        assert zlib.crc32(part, zlib.crc32(bytes([kind]))) == checksum
        parts = [*parts, part] if kind in (3, 4) else [part]
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(b"".join(parts))
        at += 7 + length


@dataclass
class Written:
    """What the files of one run say."""

    run: object = None
    user: str = ""
    config: dict = field(default_factory=dict)
    rows: list = field(default_factory=list)
    exit_codes: list = field(default_factory=list)
    files: list = field(default_factory=list)

    @property
    def started(self):
        return datetime.fromtimestamp(self.run.start_time.seconds, UTC)

    def first(self, name):
        return next((row for row in self.rows if name in row), None)


def take(item, into):
    name = item.key or ".".join(item.nested_key)
    into[name] = json.loads(item.value_json)


def read_back(folder):
    runs = {}
    for path in sorted(folder.wandb.glob("offline-run-*/*.wandb")):
        seen = runs.setdefault(path.stem.removeprefix("run-"), Written())
        seen.files.append(path)
        for record in records_in(path):
            read_record(record, seen)
    return runs


def read_record(record, seen):
    match record.WhichOneof("record_type"):
        case "run":
            seen.run = seen.run or record.run
            for item in record.run.config.update:
                take(item, seen.config)
        case "environment":
            seen.user = seen.user or record.environment.username
        case "history":
            seen.rows.append(row := {})
            for item in record.history.item:
                take(item, row)
        case "exit":
            seen.exit_codes.append(record.exit.exit_code)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo") / "step0-demo", now=NOW)


@pytest.fixture(scope="module")
def runs(folder):
    return read_back(folder)


def gap_of(run):
    row = run.first(GAP)
    return None if row is None else row[GAP]


def test_the_folder_tells_how_many_runs_it_holds(folder, runs):
    assert len(runs) == folder.runs
    assert 28 <= folder.runs <= 36
    assert not folder.replaced


def test_the_reference_setups_have_the_gaps_that_miles_published(runs):
    reference = [run for run in runs.values() if run.run.run_group == "qwen3-0.6b-dapo"]
    gaps = [gap_of(run) for run in reference]
    assert len(gaps) == 17
    assert (round(min(gaps), 4), round(max(gaps), 4)) == (0.0148, 0.0157)
    truncated = next(run for run in runs.values() if run.config.get("rollout_top_k") == 64)
    assert (truncated.config["rollout_top_p"], round(gap_of(truncated), 4)) == (0.95, 0.0136)
    larger = [run for run in runs.values() if str(run.config.get("hf_checkpoint")).endswith("Qwen3-1.7B")]
    assert [round(gap_of(run), 4) for run in larger if gap_of(run)] == [0.0109]


def test_every_way_to_break_a_run_is_there(runs):
    miles = [run for run in runs.values() if run.run.project == "reasoning-rl" and run.first("train/ppo_kl")]
    wrong = next(run for run in miles if "Base" in run.config["load"])
    assert round(gap_of(wrong), 4) == 0.0461
    assert wrong.config["hf_checkpoint"] == "/models/Qwen3-0.6B"
    dropout = next(run for run in miles if run.config["attention_dropout"])
    first = dropout.first("train/ppo_kl")
    assert (round(first["train/ppo_kl"], 2), round(first["train/pg_clipfrac"], 3)) == (0.30, 0.047)
    assert any(round(gap_of(run), 4) == 0.0180 for run in miles)
    assert [gap_of(run) for run in miles if run.config["use_rollout_logprobs"]] == [0.0]
    assert [
        run.first("train/step")["train/step"] for run in miles if run.config["load"] == run.config["save"]
    ] == [400]
    assert any(gap_of(run) is not None and math.isnan(gap_of(run)) for run in runs.values())


def test_runs_without_step_0_have_failed_before_it_or_not_come_to_it(runs):
    without = {
        run.run.run_group: run.exit_codes
        for run in runs.values()
        if not (run.first(GAP) or run.first("actor/ppo_kl"))
    }
    assert without == {"qwen3-0.6b-long": [1], "qwen3-1.7b-dapo-v2": [], "sft-warmstart": [0]}


def test_a_run_that_still_runs_has_no_exit_record_and_fresh_files(runs):
    alive = [run for run in runs.values() if not run.exit_codes]
    assert {run.run.run_group for run in alive} == {"qwen3-0.6b-dapo-v2", "qwen3-1.7b-dapo-v2"}
    for run in runs.values():
        ages = {NOW.timestamp() - file.stat().st_mtime for file in run.files}
        assert ages == {0.0} if run in alive else min(ages) > 3600


def test_runs_lie_in_the_ten_days_before_and_none_logs_in_the_future(runs):
    for run in runs.values():
        assert NOW - timedelta(days=10) <= run.started < NOW
        assert all(run.started.timestamp() < row["_timestamp"] < NOW.timestamp() for row in run.rows)


def test_the_trainer_of_a_split_run_logs_step_0_into_its_own_directory(runs):
    split = [run for run in runs.values() if len(run.files) > 1]
    assert len(split) >= 4
    for run in split:
        driver, rollout, trainer = (list(records_in(file)) for file in run.files)
        assert not any(record.HasField("history") for record in driver)
        assert any(record.HasField("exit") for record in driver)
        assert not any(GAP in str(record) for record in rollout)
        assert any(GAP in str(record) for record in trainer)
        assert not any(record.HasField("exit") for record in trainer)


def test_rows_come_in_the_order_of_the_framework(runs):
    run = next(run for run in runs.values() if run.run.run_group == "qwen3-0.6b-dapo")
    seen = [
        next(key for key in ("eval/step", "train/step", "rollout/step") if key in row) for row in run.rows
    ]
    assert seen[:6] == [
        *("eval/step", "rollout/step", "rollout/step"),
        *("train/step", "train/step", "rollout/step"),
    ]
    assert [row["_step"] for row in run.rows] == list(range(len(run.rows)))


def test_off_policy_steps_differ_from_the_first_one_of_a_rollout(runs):
    run = next(run for run in runs.values() if run.run.run_group == "qwen3-0.6b-dapo")
    values = [row["train/ppo_kl"] for row in run.rows if "train/step" in row]
    assert values[0::2] == [0.0] * 3
    assert min(values[1::2]) > 1e-5


def test_people_and_hosts_are_invented(runs):
    text = repr([(run.user, run.run.host) for run in runs.values()])
    assert socket.gethostname() not in text
    # The client looks at its surroundings in its own time: a run that ends at once may be without a user.
    users = {run.user for run in runs.values()} - {""}
    assert users == {"aiko", "tomasz", "leila", "henrik", "noor", "pei"}


def test_the_same_moment_gives_the_same_runs():
    assert repr(directories(NOW)) == repr(directories(NOW))


@pytest.fixture
def listener():
    """Count the connections to a local port that the client is told to use for everything."""
    server = socket.create_server(("127.0.0.1", 0))
    seen = []

    def accept():
        while True:
            try:
                connection, address = server.accept()
            except OSError:
                return
            seen.append(address)
            connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}", seen
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(5)


def test_the_users_wandb_variables_and_settings_and_network_are_left_alone(
    tmp_path, monkeypatch, listener, capfd
):
    url, connections = listener
    config = tmp_path / "config"
    (config / "wandb").mkdir(parents=True)
    (config / "settings").write_text("[default]\nproject = theirs\nmode = online\n")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(config))
    for name, value in {
        "WANDB_MODE": "online",
        "WANDB_API_KEY": "x" * 40,
        "WANDB_BASE_URL": url,
        "WANDB_PROJECT": "theirs",
        "WANDB_RUN_ID": "theirs",
        "WANDB_DIR": str(tmp_path / "theirs"),
        "WANDB_SILENT": "false",
        "WANDB_SERVICE": "3-1-tcp-localhost-1",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), url),
    }.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    told = []
    folder = write_demo(tmp_path / "demo", now=NOW, progress=lambda done, total: told.append((done, total)))
    assert connections == []
    assert dict(os.environ) == before
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "theirs").exists()
    assert {run.run.project for run in read_back(folder).values()}.isdisjoint({"theirs", ""})
    assert told[-1] == (folder.runs, folder.runs)


def run_directories(folder):
    return sorted(path.name for path in (folder / "wandb").glob("offline-run-*"))


def test_an_interrupted_demo_is_mended_by_the_next_and_files_of_others_stay(tmp_path):
    target = tmp_path / "demo"

    def stop(done, _total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_demo(target, now=NOW - timedelta(days=1), progress=stop)
    assert not (target / "step0.toml").exists()
    half = run_directories(target)
    theirs = target / "wandb" / "offline-run-20260101_000000-theirs00"
    theirs.mkdir()
    (target / "notes.txt").write_text("mine")
    (target / "step0.db").write_text("of the demo before")

    folder = write_demo(target, now=NOW)
    assert folder.settings.exists()
    assert folder.replaced
    assert (target / "notes.txt").read_text() == "mine"
    assert not (target / "step0.db").exists()
    assert half
    assert not set(half) & set(run_directories(target))
    assert len(run_directories(target)) == len(directories(NOW)) + len([theirs])


@pytest.mark.parametrize(("replaced", "words"), [(True, []), (True, ["-q"]), (False, [])])
def test_that_a_demo_starts_again_is_told_once(tmp_path, monkeypatch, replaced, words):
    miles_run(tmp_path, "one", 0.0151)
    (tmp_path / "step0.toml").write_text("sources = ['.']\n")
    monkeypatch.setattr(demo, "write_demo", lambda path, **_: demo.DemoFolder(path, 1, replaced))
    answer = command.run("demo", ".", *words, cwd=tmp_path)
    assert answer.code == 0
    assert answer.err.count("held an older demo") == (replaced and not words)


def test_a_directory_that_holds_something_else_is_refused_untouched(tmp_path):
    (tmp_path / "wandb").mkdir()
    with pytest.raises(UsageError, match="is not empty and is not a demo folder"):
        write_demo(tmp_path, now=NOW)
    assert [path.name for path in tmp_path.rglob("*")] == ["wandb"]


@pytest.mark.parametrize("below", [".", "deeper"])
def test_a_path_that_is_a_file_is_refused(tmp_path, below):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        write_demo(tmp_path / "file" / below, now=NOW)


def test_a_client_that_fails_is_told_with_its_last_words(tmp_path, monkeypatch):
    writer = tmp_path / "writer.py"
    writer.write_text("raise SystemExit('no space left on device')")
    monkeypatch.setattr(demo, "WRITER", writer)
    with pytest.raises(Step0Error, match="could not write the demo: no space left on device"):
        write_demo(tmp_path / "demo", now=NOW)


MEANT = {
    "qwen3-0.6b-dapo": "healthy",
    "leila-lr-3e-6": "healthy",
    "qwen2.5-math-7b": "healthy",
    "qwen2.5-7b-gsm8k": "healthy",
    "qwen3-0.6b-dapo-topp": "no-range",
    "qwen3-1.7b-dapo": "no-range",
    "qwen2.5-7b-gsm8k-old": "unchecked",
    "qwen3-0.6b-dapo-v2": "broken",
    "qwen3-0.6b-newlauncher": "broken",
    "qwen2.5-math-7b-eps": "broken",
    "qwen3-0.6b-fp16softmax": "suspect",
    "qwen3-0.6b-rollout-logprobs": "unchecked",
    "qwen3-0.6b-dapo-resume": "no-step0",
    "qwen3-0.6b-long": "no-step0",
    "sft-warmstart": "no-step0",
    "qwen3-1.7b-dapo-v2": "pending",
}


def test_the_main_job_gives_every_run_the_verdict_that_it_is_there_for(folder):
    loaded = load_settings(folder.settings, cwd=folder.directory, environ={})
    result = run_sync(Job(loaded, clock=lambda: NOW))
    assert result.problems == ()
    assert len(result.changed) == folder.runs
    assert {(run.group, run.verdict) for run in result.changed} == set(MEANT.items())
    (reference,) = [item for item in result.setups if item.n > 2]
    assert (reference.n, reference.seen_low, reference.seen_high) == (18, 0.014802754, 0.015698012)
    assert explain_run("q06s0180", Job(loaded)).packages == ("transformer-engine 2.10.0 -> 2.8.0",)
    assert explain_run("q06wr0ng", Job(loaded)).packages == ()
