"""``step0-wandb doctor``: what it looks at, what it exits with, and what it never tells."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.cli.app import run
from step0_wandb.store import Message, Mute, Store, Subject
from tests.support.command import Answer
from tests.support.miles import miles_run
from tests.support.server_source import CONFIG, miles_rows
from tests.support.wandb_server import WandbServer
from tests.support.webhook import Hook

NOW = datetime(2026, 11, 30, 3, 12, tzinfo=UTC)


@pytest.fixture
def server():
    with WandbServer() as server:
        server.add_run("lab", "rl", "r1", config=CONFIG, rows=miles_rows())
        yield server


@pytest.fixture
def doctor(server, tmp_path, monkeypatch, capsys):
    """Return the command in a folder of its own; its settings file is ``step0.toml`` there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", server.api_key)
    (tmp_path / "step0.toml").write_text('sources = ["lab/rl"]\n')

    def doctor(*words):
        code = run(["doctor", *words])
        return Answer(code, *capsys.readouterr())

    return doctor


def findings(answer):
    document = answer.document
    assert document["schema"] == "step0/doctor/1"
    return {finding["name"]: (finding["outcome"], finding["what"]) for finding in document["findings"]}


def mutations(server):
    return [request.operations for request in server.requests if request.mutates]


# ── what it looks at ────────────────────────────────────────────────────────


def test_it_tells_all_that_a_sync_would_use_and_changes_nothing(doctor, server, tmp_path):
    answer = doctor("--json")
    found = findings(answer)
    assert answer.code == 0
    assert {outcome for outcome, _ in found.values()} == {"ok"}
    assert found["settings"][1] == str(tmp_path / "step0.toml")
    assert found["server"][1] == f"{server.url} (from WANDB_BASE_URL)"
    assert found["key"][1] == "found in WANDB_API_KEY"
    assert found["login"][1].endswith("the key is ada's")
    assert found["lab/rl"][1] == "readable, 1 run"
    assert found["store"][1].startswith("none yet at ")
    assert "younger than 24 h; more than 5 new ones become one" in found["alerts"][1]
    assert "Scriptable run alerts" in found["receiving alerts"][1]
    assert mutations(server) == []
    assert [path.name for path in tmp_path.iterdir()] == ["step0.toml"]


def test_it_prints_one_line_a_finding(doctor):
    answer = doctor()
    assert answer.code == 0
    (line,) = (line for line in answer.out.splitlines() if "found in WANDB_API_KEY" in line)
    assert line.split()[0].startswith("ok")


def test_it_tells_of_the_store_and_when_each_source_was_read(doctor, tmp_path, capsys):
    miles_run(tmp_path, "a1")
    assert run(["sync", str(tmp_path / "wandb")]) == 0
    capsys.readouterr()
    found = findings(doctor("--json"))
    assert "schema version " in found["store"][1]
    assert found["store"][1].endswith("1 run judged")
    assert found[f"last sync of file:{tmp_path / 'wandb'}"][1].startswith("1 run, read last ")
    assert found["unsent alerts"] == ("ok", "none")


def test_it_tells_which_alerts_wait_and_why_and_who_muted_what(doctor, tmp_path):
    subject = Subject("lab/rl/r1", "broken")
    message = Message("wandb", "ERROR", "Broken at step 0: r1", "text", "lab", "rl", "r1", None, (subject,))
    later = datetime.now(UTC) + timedelta(days=1)
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        store.outbox.add(message, now=NOW)
        (queued,) = store.outbox.unsent()
        store.outbox.mark_failed(queued.number, "the server says no (HTTP 403)")
        store.people.save(Mute("miles · Qwen3-4B", later, "mia", NOW))
        store.people.save(Mute("miles · over", NOW, "mia", NOW))
    answer = doctor("--json")
    found = findings(answer)
    assert answer.code == 0
    assert found["unsent alert (wandb)"] == (
        "warn",
        "Broken at step 0: r1 (since 2026-11-30 03:12 UTC): the server says no (HTTP 403); the next sync tries again",
    )
    assert found["muted"][1].startswith("miles · Qwen3-4B until ")
    assert "miles · over" not in answer.out


def test_a_server_that_cannot_read_histories_inside_pages_is_a_warning(doctor, server):
    server.abilities = replace(server.abilities, nested_history=False)
    answer = doctor("--json")
    assert answer.code == 0
    assert findings(answer)["lab/rl: nested query"][0] == "warn"


# ── what it exits with ──────────────────────────────────────────────────────


def test_without_a_key_it_exits_with_4(doctor, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY")
    answer = doctor("--json")
    assert answer.code == 4
    assert findings(answer)["key"][0] == "fail"


def test_with_a_key_that_is_refused_it_exits_with_4(doctor, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    answer = doctor("--json")
    assert answer.code == 4
    assert findings(answer)["login"][0] == "fail"


def test_with_a_server_that_does_not_answer_it_exits_with_5(doctor, server):
    server.stop()
    answer = doctor("--json")
    assert answer.code == 5
    assert "cannot be reached" in findings(answer)["login"][1]


def test_with_a_project_that_does_not_exist_it_exits_with_5_and_looks_on(doctor, tmp_path):
    (tmp_path / "step0.toml").write_text('sources = ["lab/nope", "lab/rl"]\n')
    answer = doctor("--json")
    assert answer.code == 5
    found = findings(answer)
    assert (found["lab/nope"][0], found["lab/rl"][0]) == ("fail", "ok")


def test_with_a_store_that_is_none_it_exits_with_6(doctor, tmp_path):
    (tmp_path / "step0.db").write_text("not a database, but long enough to look like one")
    answer = doctor("--json")
    assert answer.code == 6
    assert "is no SQLite database" in findings(answer)["store"][1]


def test_with_a_source_that_does_not_exist_it_exits_with_2(doctor, tmp_path):
    (tmp_path / "step0.toml").write_text('sources = ["./nowhere"]\n')
    assert doctor().code == 2


def test_sources_on_disk_need_no_server_and_no_key(doctor, server, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY")
    miles_run(tmp_path, "a1")
    (tmp_path / "step0.toml").write_text('sources = ["./wandb"]\n')
    answer = doctor("--json")
    assert answer.code == 0
    assert findings(answer)["server"][1].startswith("not asked")
    assert server.requests == []


def test_where_no_source_is_named_a_key_is_not_needed_and_not_there(doctor, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY")
    (tmp_path / "step0.toml").unlink()
    answer = doctor("--json")
    assert answer.code == 0
    outcome, what = findings(answer)["key"]
    assert (outcome, what.endswith("; only W&B projects need one")) == ("warn", True)


@pytest.mark.parametrize("settings", ["", 'sources = ["lab/nope"]'])
def test_sources_can_be_named_as_for_a_sync(doctor, server, tmp_path, settings):
    (tmp_path / "step0.toml").write_text(settings)
    answer = doctor("lab/rl", "--test-alert", "--json")
    assert answer.code == 0
    assert findings(answer)["lab/rl"][1] == "readable, 1 run"
    assert [(alert.entity, alert.project) for alert in server.alerts] == [("lab", "rl")]
    assert doctor("lab/rl", "lab/nope").code == 5
    assert doctor("./nowhere").code == 2


def test_a_webhook_whose_variable_is_not_set_fails(doctor, tmp_path):
    (tmp_path / "step0.toml").write_text('sources = ["lab/rl"]\n[alerts]\nwebhook_env = "HOOK"\n')
    answer = doctor("--json")
    assert answer.code == 2
    assert findings(answer)["webhook"][0] == "fail"


# ── the test alert ──────────────────────────────────────────────────────────


def test_a_test_alert_goes_to_every_project_and_the_webhook(doctor, server, tmp_path, monkeypatch):
    server.add_run("ops", "serving", "r2", config=CONFIG, rows=miles_rows())
    (tmp_path / "step0.toml").write_text(
        'sources = ["lab/rl", "ops/serving", "lab/rl/r1"]\n[alerts]\nwebhook_env = "HOOK"\n'
    )
    with Hook() as hook:
        monkeypatch.setenv("HOOK", hook.url)
        answer = doctor("--test-alert", "--json")
        assert len(hook.texts) == 1
    assert answer.code == 0
    assert [(alert.entity, alert.project, alert.run_id, alert.level) for alert in server.alerts] == [
        ("lab", "rl", "step0-sync", "INFO"),
        ("ops", "serving", "step0-sync", "INFO"),
    ]
    assert findings(answer)["test alert to lab/rl"][0] == "ok"
    assert hook.url not in answer.out + answer.err


def test_a_test_alert_that_is_refused_exits_with_5(doctor, server):
    server.abilities = replace(server.abilities, alerts=False)
    answer = doctor("--test-alert", "--json")
    assert answer.code == 5
    assert "HTTP 403" in findings(answer)["test alert to lab/rl"][1]


def test_a_dry_run_says_which_test_alert_it_would_send(doctor, server):
    answer = doctor("--test-alert", "--dry-run", "--json")
    assert answer.code == 0
    assert findings(answer)["test alert"][1].startswith("would send to lab/rl: Test alert of step0-wandb")
    assert mutations(server) == []


def test_there_is_nowhere_to_send_a_test_alert_without_a_project(doctor, tmp_path):
    (tmp_path / "step0.toml").write_text("")
    answer = doctor("--test-alert", "--json")
    assert findings(answer)["test alert"][0] == "warn"


# ── what it never tells ─────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [(), ("--json",), ("-v",), ("--test-alert",)])
@pytest.mark.parametrize("broken", [False, True])
def test_no_secret_is_told_whatever_works(doctor, server, tmp_path, monkeypatch, words, broken):  # noqa: PLR0913, PLR0917 - the case
    (tmp_path / "step0.toml").write_text('sources = ["lab/rl"]\n[alerts]\nwebhook_env = "HOOK"\n')
    with Hook() as hook:
        monkeypatch.setenv("HOOK", hook.url)
        if broken:
            hook.status = 404
            server.faults.always("403")
        answer = doctor(*words)
    assert (answer.code == 0) != broken
    assert Hook.SECRET not in answer.out + answer.err
    assert server.api_key not in answer.out + answer.err
    assert json.dumps(server.api_key)[1:-1] not in answer.out
