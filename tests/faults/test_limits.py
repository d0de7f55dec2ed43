"""The bounds that docs/limits.md names: each is reached by a test, most of them where their subject is tested."""

import re
import socket
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from step0_wandb.app import check, gate, pull
from step0_wandb.app.sync import Job
from step0_wandb.cli import app
from step0_wandb.errors import SourceError
from step0_wandb.profiles import load_profiles
from step0_wandb.publish.alerts.channels import webhook
from step0_wandb.publish.alerts.channels.base import OutOfReachError
from step0_wandb.records import HistoryRow
from step0_wandb.settings.load import load_settings
from step0_wandb.sources.base import SourcePage
from step0_wandb.sources.launch.shell_script import MOST_BYTES
from step0_wandb.sources.server.rollouts import MOST_STEPS, RolloutRows
from step0_wandb.step0.every_row import MOST_ROWS, EveryRow
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import NOWHERE, Store, file
from step0_wandb.wandb_api.address import RemoteAddress
from tests.docs.limits import LIMITS_OF_COMMANDS
from tests.support.command import run
from tests.support.miles import miles_run

ROOT = Path(__file__).parents[2]
PROFILES = load_profiles()


@pytest.mark.parametrize("limit", LIMITS_OF_COMMANDS, ids=lambda limit: limit.what)
def test_every_bound_of_the_page_has_a_test_that_reaches_it(limit):
    path, _, name = limit.reached_by.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_command_is_on_the_page():
    assert {name for limit in LIMITS_OF_COMMANDS for name in limit.commands} == set(app._COMMANDS)


def test_no_more_sources_are_read_at_once_than_the_page_says(monkeypatch):
    together, lock = threading.Barrier(pull.AT_ONCE), threading.Lock()
    reading, most = set(), []

    class Source(SimpleNamespace):
        is_remote, runs_seen, requests = True, 0, 0

        def read(self, _memory):
            with lock:
                reading.add(self.name)
                most.append(len(reading))
            together.wait(timeout=20)  # all of one batch are here before any of them ends
            with lock:
                reading.discard(self.name)
            yield SourcePage()

    monkeypatch.setattr(pull, "open_source", lambda text, _finder, _context: Source(name=text))
    context = SimpleNamespace(clock=lambda: datetime.now(UTC), progress=lambda *_: None)
    with Store.open(NOWHERE, mode="copy") as store:
        pull.pull(store, [f"lab/p{at}" for at in range(2 * pull.AT_ONCE)], Step0Finder(PROFILES), context)
    assert len(most) == 2 * pull.AT_ONCE
    assert max(most) == pull.AT_ONCE


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_a_history_that_is_too_long_is_not_followed(monkeypatch, more, is_read):
    reader = RolloutRows(None, RemoteAddress("lab", "rl", "r1"), PROFILES.by_name["miles"])
    known = {"state": "running", "historyKeys": {"lastStep": MOST_STEPS + more, "keys": {}}}
    monkeypatch.setattr(reader, "_ask", lambda *_: known)
    if is_read:
        assert reader.read() == ()
    else:
        with pytest.raises(SourceError, match=r"1,000,001 steps, which is not read"):
            reader.read()


def test_a_webhook_that_drips_is_left_at_its_deadline(monkeypatch):
    monkeypatch.setattr(webhook, "_DEADLINE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the connection, and says nothing
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/hook"
        sender = webhook.WebhookSender("STEP0_WEBHOOK", {"STEP0_WEBHOOK": address})
        with pytest.raises(OutOfReachError, match=r"not within 0\.2 s"):
            sender.knock()


def test_a_gate_at_the_end_of_its_time_gives_the_ranges_a_minute(tmp_path, monkeypatch):
    miles_run(tmp_path, "new", 0.0151)
    asked = []
    monkeypatch.setattr(gate, "basis_of", lambda _record, job: asked.append(job.at_most_s) or check.Basis())
    loaded = load_settings(cwd=tmp_path, environ={}, flags={"store": str(tmp_path / "s.db")})
    for left_s in (1, 600):
        patience = gate.Patience(timedelta(seconds=left_s), now=lambda: 0.0, sleep=lambda _: None)
        gate.Gate(Job(loaded, clock=lambda: datetime.now(UTC)), patience).judged(str(tmp_path))
    assert asked == [gate._JUDGE_S, 600]


def test_a_pipe_is_read_no_longer_than_the_page_says(monkeypatch):
    now, ready, waits = [0.0], [True], []
    monkeypatch.setattr(check.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        check.select, "select", lambda *lists: waits.append(lists[3]) or ([1] if ready[0] else [], [], [])
    )
    enough = check._quiet_after(check.QUIET_S, check.MOST_S)
    answers = []
    for now[0] in (0.0, check.MOST_S, check.MOST_S + 0.1):
        answers.append(enough())
    assert answers == [False, False, True]
    assert set(waits) == {check.QUIET_S}
    ready[0] = False
    assert check._quiet_after(check.QUIET_S, check.MOST_S)()


def test_profiles_read_no_more_rows_than_the_page_says():
    finder = EveryRow(PROFILES)
    rows = [HistoryRow({"x": float(at)}, at) for at in range(MOST_ROWS + 5)]
    assert not finder.decided(rows[: MOST_ROWS - 1], {})
    assert finder.decided(rows[:MOST_ROWS], {})
    assert finder.prune(rows, {}) == tuple(rows[:MOST_ROWS])


def test_a_launch_file_that_is_too_large_is_refused(tmp_path):
    for name, more in {"fits.sh": 0, "large.sh": 1}.items():
        line = b"python3 train.py --hf-checkpoint /models/Qwen3-0.6B --rollout-batch-size 32\n"
        (tmp_path / name).write_bytes(line + b"#" * (MOST_BYTES - len(line) + more))
    assert run("lint", "fits.sh", cwd=tmp_path).code != 2
    large = run("lint", "large.sh", cwd=tmp_path)
    assert (large.code, "large.sh" in large.err) == (2, True)


def test_a_store_that_another_program_holds_is_waited_for_so_long(tmp_path, monkeypatch):
    miles_run(tmp_path, "one", 0.0151)
    assert run("sync", ".", cwd=tmp_path, STEP0_STORE="s.db").code == 0
    monkeypatch.setattr(file, "_WAIT_S", 0.1)
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    answer = run("label", "one", "healthy", "--why", "known", cwd=tmp_path, STEP0_STORE="s.db")
    other.close()
    assert answer.code == 6, answer.err


def test_settings_ask_no_server(tmp_path, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))
    assert run("settings", "--json", cwd=tmp_path, WANDB_API_KEY="0" * 40).code == 0
    assert run("profiles", "--json", cwd=tmp_path, WANDB_API_KEY="0" * 40).code == 0
