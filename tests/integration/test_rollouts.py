"""Every rollout judged: on runs of the real client, on server runs, by `check` and by a sync that follows them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.app.check import judge_one, read_one
from step0_wandb.app.sync import Job, run_sync
from step0_wandb.errors import UsageError
from step0_wandb.profiles import load_profiles
from step0_wandb.settings.load import load_settings
from step0_wandb.sources.server.rollouts import WINDOW, RolloutRows
from step0_wandb.store import Label, Store
from step0_wandb.wandb_api.address import RemoteAddress
from step0_wandb.wandb_api.context import Context
from step0_wandb.wandb_api.credentials import Places
from tests.support.command import run
from tests.support.miles import CONFIG, GAP
from tests.support.runs import Client, append, exit_record, history_record, run_record, wandb_file, write_file
from tests.support.wandb_server import WandbServer

TWO = CONFIG | {"num_steps_per_rollout": 2, "colocate": True}
NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
MILES = load_profiles().by_name["miles"]


def history(rollouts, *, lost=None, stale=False):
    """Return what Miles logs in so many rollouts of two optimizer steps: five rows each."""
    rows = []
    for rollout in range(rollouts):
        gap = 0.201 if stale and rollout == 1 else 0.0150
        opening = {"train/step": 2 * rollout, "train/ppo_kl": 3e-4 if rollout == lost else 0.0}
        second = {"train/step": 2 * rollout + 1, "train/ppo_kl": 2e-3}
        rows += [
            {"rollout/step": rollout, "rollout/response_len/mean": 800.0},
            {"rollout/step": rollout, "rollout/log_probs": -0.3},
            *({"train/pg_clipfrac": 0.0, GAP: gap, "train/loss": 0.1} | step for step in (opening, second)),
            {"rollout/step": rollout, "perf/step_time": 40.0},
        ]
    return rows


@pytest.fixture
def server(tmp_path, monkeypatch):
    with WandbServer() as server:
        for name, value in {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOME", str(tmp_path))
        yield server


def job(folder, **changes):
    (folder / "step0.toml").write_text("store = 'step0.db'\n[checks]\nevery_rollout = true\n")
    return Job(load_settings(cwd=folder, environ={}), clock=lambda: NOW, **changes)


def checked(source, folder):
    (one,) = read_one(str(source), job(folder), every_rollout=True)
    return judge_one(one.record, job(folder).loaded, facts=one.facts, later=one.later)


def outcomes(judged):
    return {check.check: check.outcome for check in judged.checks}


# ── one run ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "verdict", "outcome", "said"),
    [
        ({}, "no-range", ("pass", "pass"), "no other healthy run"),
        ({"lost": 7}, "broken", ("fail", "pass"), "ppo_kl is 0.000300 at the first step of rollout 7"),
        (
            {"stale": True},
            "broken",
            ("pass", "fail"),
            "gap 0.201 of rollout 1 is 13.4 times step 0's 0.0150",
        ),
    ],
)
def test_a_run_of_the_real_client_is_judged_at_every_rollout(tmp_path, given, verdict, outcome, said):
    with Client(tmp_path) as client:
        place = client.start("abc", config=TWO)
        client.log(*history(10, **given))
        client.finish()
    judged = checked(place, tmp_path)
    assert judged.verdict == verdict
    assert (outcomes(judged)["every-rollout"], outcomes(judged)["first-update"]) == outcome
    assert said in judged.reasons[0]
    assert judged.gap == 0.0150


@pytest.mark.usefixtures("server")
def test_a_server_run_is_judged_as_its_directory_is(server, tmp_path):
    for name, given in {"good": {}, "lost": {"lost": 70}, "stale": {"stale": True}}.items():
        rows = history(120, **given)
        server.add_run("lab", "rl", name, config=TWO, rows=rows)
        with Client(tmp_path / name) as client:
            place = client.start(name, config=TWO)
            client.log(*rows)
            client.finish()
        here, there = checked(place, tmp_path), checked(f"lab/rl/{name}", tmp_path)
        assert (here.verdict, here.reasons, here.checks) == (there.verdict, there.reasons, there.checks)


def test_a_console_log_of_a_framework_with_one_row_a_rollout_is_judged(tmp_path):
    steps = [f"step:{step} - actor/ppo_kl:0.0 - training/rollout_probs_diff_mean:{gap}" for step, gap in
             ((1, 0.0041234567), (2, 0.0612345678), (3, 0.0042345678))]  # fmt: skip
    (tmp_path / "run.log").write_text("\n".join(steps) + "\n")
    judged = checked(tmp_path / "run.log", tmp_path)
    assert judged.verdict == "broken"
    assert "gap 0.0612 of rollout 2 is 14.9 times" in judged.reasons[0]


def test_check_tells_it_only_where_it_is_asked(tmp_path):
    with Client(tmp_path) as client:
        place = client.start("abc", config=TWO)
        client.log(*history(4, lost=2))
        client.finish()
    plain = run("check", place, "--json", cwd=tmp_path)
    assert plain.code == 0
    assert not {"every-rollout", "first-update"} & {
        check["check"] for check in plain.document["run"]["checks"]
    }
    asked = run("check", place, "--json", "--every-rollout", cwd=tmp_path)
    assert asked.code == 3
    assert {"every-rollout", "first-update"} <= {check["check"] for check in asked.document["run"]["checks"]}
    told = run("check", place, "--every-rollout", cwd=tmp_path)
    assert "at the first step of rollout 2" in told.out
    assert "gap 0.0150 of rollout 1 is 1.00 times step 0's 0.0150" in " ".join(told.out.split())


# ── the server's rows ───────────────────────────────────────────────────────


def reader(server, run_id):
    environ = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key}
    client = Context(Places.of(environ), lambda: NOW).client()
    return RolloutRows(client, RemoteAddress("lab", "rl", run_id), MILES)


def asked(server):
    return [
        spec for request in server.requests for spec in map(json.loads, request.variables.get("specs", ()))
    ]


def test_no_row_of_a_long_run_is_thinned_out(server):
    server.add_run("lab", "rl", "long", config=TWO, rows=history(400))
    rows = reader(server, "long").read()
    assert [row.values["train/step"] for row in rows] == list(range(800))
    assert all({"train/ppo_kl", "train/pg_clipfrac", GAP} <= row.values.keys() for row in rows)
    assert all(spec["maxStep"] - spec["minStep"] < spec["samples"] == WINDOW for spec in asked(server))
    assert len(server.requests) == 2


def test_a_row_is_read_once_however_often_one_looks(server):
    run = server.add_run("lab", "rl", "live", state="running", config=TWO, rows=history(2))
    following = reader(server, "live")
    assert len(following.read()) == 4
    assert following.read() == ()
    run.write_rows(10, history(3)[10:])
    assert [row.values["train/step"] for row in following.read()] == [4, 5]


def test_nan_and_metrics_in_rows_of_their_own_come_through(server):
    rows = [{"train/step": 0, "train/ppo_kl": float("nan")}, {"train/step": 0, GAP: 0.015}, {"train/step": 1}]
    server.add_run("lab", "rl", "odd", config=TWO, rows=rows)
    first, second = reader(server, "odd").read()
    assert str(first.values["train/ppo_kl"]) == "nan"
    assert second.values == {"_step": 1.0, "train/step": 0.0, GAP: 0.015}


def test_a_run_without_rows_or_metrics_has_none(server):
    server.add_run("lab", "rl", "empty", state="running")
    server.add_run("lab", "rl", "other", rows=[{"loss": 1.0}])
    assert reader(server, "empty").read() == reader(server, "other").read() == ()
    with pytest.raises(UsageError, match="lab/rl/gone does not exist"):
        reader(server, "gone").read()


# ── a sync that follows ─────────────────────────────────────────────────────


def verdicts(folder):
    with Store.open(folder / "step0.db", mode="read") as store:
        return {judged.run.rsplit("/", 1)[-1]: judged for judged in store.verdicts.runs()}


def test_a_sync_follows_the_runs_that_go_on(server, tmp_path):
    live = server.add_run("lab", "rl", "live", state="running", config=TWO, rows=history(2), created_at=NOW)
    server.add_run(
        "lab",
        "rl",
        "old",
        config=TWO | {"seed": 2},
        rows=history(9, lost=5),
        created_at=NOW - timedelta(days=3),
    )
    syncing = job(tmp_path, sources=("lab/rl",))
    assert run_sync(syncing).counts == {"healthy": 2}
    assert outcomes(verdicts(tmp_path)["live"])["every-rollout"] == "pass"
    assert "every-rollout" not in outcomes(verdicts(tmp_path)["old"])
    live.write_rows(10, history(9, lost=7)[10:])
    (changed,) = run_sync(syncing).changed
    assert (changed.run, changed.verdict) == ("lab/rl/live", "broken")
    assert "at the first step of rollout 7" in changed.reasons[0]


def test_a_sync_looks_at_a_run_that_has_ended_once_more_and_then_no_more(server, tmp_path):
    live = server.add_run("lab", "rl", "live", state="running", config=TWO, rows=history(2), created_at=NOW)
    syncing = job(tmp_path, sources=("lab/rl",))
    run_sync(syncing)
    live.write_rows(10, history(5, lost=4)[10:])
    live.status = "finished"
    assert run_sync(syncing).counts == {"broken": 1}
    server.requests.clear()
    assert run_sync(syncing).changed == ()
    assert not [request for request in server.requests if "Step0Rollouts" in request.operations]


def test_a_run_on_disk_is_followed_too_and_a_label_beats_what_is_found(tmp_path):
    syncing = job(tmp_path, sources=(str(tmp_path),))
    syncing = Job(syncing.loaded, syncing.sources)
    file = write_file(
        tmp_path, wandb_file(run_record("abc", TWO), *map(history_record, history(2))), run_id="abc"
    )
    assert run_sync(syncing).counts == {"no-range": 1}
    more = [*map(history_record, history(4, lost=3)[10:]), exit_record(0)]
    file.write_bytes(append(file.read_bytes(), *more))
    assert run_sync(syncing).counts == {"broken": 1}
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        store.people.save(Label("team/project/abc", "healthy", "an experiment", "ada", NOW))
    assert run_sync(syncing).counts == {"healthy": 1}
    assert "at the first step of rollout 3" in " ".join(verdicts(tmp_path)["abc"].reasons)


def test_what_cannot_be_followed_is_told_and_tried_again(server, tmp_path):
    server.add_run("lab", "rl", "live", state="running", config=TWO, rows=history(3, lost=2), created_at=NOW)
    server.faults.next("403", match=lambda request: "Step0Keys" in request.operations)
    syncing = job(tmp_path, sources=("lab/rl",))
    result = run_sync(syncing)
    assert [problem.where for problem in result.problems] == ["lab/rl/live"]
    assert result.counts == {"no-range": 1}
    assert run_sync(syncing).counts == {"broken": 1}


def test_the_setting_taken_back_takes_back_what_it_found(server, tmp_path):
    server.add_run("lab", "rl", "live", state="running", config=TWO, rows=history(3, lost=2), created_at=NOW)
    assert run_sync(job(tmp_path, sources=("lab/rl",))).counts == {"broken": 1}
    (tmp_path / "step0.toml").write_text("store = 'step0.db'\n")
    without = Job(load_settings(cwd=tmp_path, environ={}), ("lab/rl",), clock=lambda: NOW)
    assert run_sync(without).counts == {"no-range": 1}
