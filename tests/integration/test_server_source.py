"""The server source against the double: how much it asks, what it finds, and what it keeps up with."""

from __future__ import annotations

import json
import math
import os
import threading
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest
import wandb

from step0_wandb.profiles import load_profiles
from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.sources.base import RunUpdate, SourceMemory
from step0_wandb.sources.offline.source import OfflineSource
from step0_wandb.sources.server import source as server_module
from step0_wandb.sources.server.source import ServerSource
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.step0.policies import split_policies
from step0_wandb.verdicts.weight_checks import image_of
from step0_wandb.wandb_api.address import RemoteAddress
from step0_wandb.wandb_api.client import GraphQLClient
from step0_wandb.wandb_api.credentials import Places, find_account
from step0_wandb.wandb_api.rate_limit import RateLimiter
from tests.support.server_source import CONFIG, NOWHERE, START, Lab, miles_rows
from tests.support.wandb_server import WandbServer, client_online

STEP0 = {"train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, "train/train_rollout_logprob_abs_diff": 0.015}
TRAINING = [{"train/step": step, **STEP0} for step in range(3)]


@pytest.fixture
def server():
    with WandbServer() as server:
        yield server


@pytest.fixture
def lab(server):
    return Lab(server)


def fill(lab, count, **options):
    for index in range(count):
        lab.add(f"r{index:04}", minutes=index, **options)


def as_text(facts):
    """Return facts as text, in which NaN equals itself."""
    return json.dumps(asdict(facts), sort_keys=True)


def test_200_runs_of_100_rows_take_no_more_than_three_requests(lab):
    fill(lab, 200, rows=miles_rows(steps=97))
    assert lab.sync() <= 3
    assert len(lab.store.runs) == 200
    assert set(lab.store.gaps().values()) == {0.015}


def test_a_sync_without_news_is_one_request_without_histories_of_known_runs(lab):
    fill(lab, 200)
    lab.sync()
    lab.server.requests.clear()
    assert lab.sync() == 1
    assert lab.store.readings == 200
    assert lab.server.requests[0].bytes_out < 15_000  # of which most are names that may have changed


def test_an_empty_project_is_one_request(lab):
    lab.server.project("lab", "rl")
    assert (lab.sync(), lab.sync(), lab.store.runs) == (1, 1, {})


def test_one_new_run_among_many_takes_no_more_than_two_requests(lab):
    fill(lab, 300)
    lab.sync()
    lab.add("new", minutes=999)
    assert lab.sync() <= 2
    lab.add("behind-an-evaluation", minutes=1000, at=30)
    assert lab.sync() <= 2
    assert lab.store.gaps()["behind-an-evaluation"] == 0.015
    assert lab.store.readings == 302


def test_runs_created_at_the_same_second_are_read_once(lab):
    for index in range(1200):
        lab.add(f"r{index}")
    lab.sync()
    assert lab.sync() == 1
    lab.add("one-more-at-that-second")
    lab.sync()
    assert len(lab.store.runs) == 1201
    assert lab.store.readings == 1201
    assert lab.sync() == 1


def test_a_run_synced_days_late_is_found_by_the_count(lab):
    fill(lab, 30)
    lab.sync()
    lab.add("from-a-cluster-without-internet", minutes=-3 * 24 * 60)
    lab.sync()
    assert "from-a-cluster-without-internet" in lab.store.runs
    assert lab.store.readings == 31
    assert lab.sync() == 1


def test_a_deleted_run_is_marked_and_the_next_sync_is_quiet_again(lab):
    fill(lab, 30)
    lab.sync()
    lab.server.delete_run("lab", "rl", "r0007")
    lab.sync()
    assert lab.store.deleted == ["lab/rl/r0007"]
    assert lab.store.readings == 30
    assert lab.sync() == 1


def test_a_run_that_comes_back_is_read_again(lab):
    fill(lab, 5)
    lab.sync()
    lab.server.delete_run("lab", "rl", "r0002")
    lab.sync()
    lab.add("r0002", minutes=2)
    lab.sync()
    assert set(lab.store.runs) == {f"r{index:04}" for index in range(5)}
    assert lab.sync() == 1


def test_pages_that_shift_while_runs_are_deleted_lose_no_run(lab):
    fill(lab, 40)
    lab.page_size = 10
    for number, page in enumerate(lab.pages()):
        lab.store.take(page)
        if number == 0:
            for name in ("r0001", "r0002", "r0003"):
                lab.server.delete_run("lab", "rl", name)
    assert set(lab.store.runs) == {f"r{index:04}" for index in range(40)} - {"r0001", "r0002", "r0003"}
    assert lab.sync() == 1


def test_pages_that_shift_while_runs_appear_read_no_run_twice(lab):
    fill(lab, 40)
    lab.page_size = 10
    for number, page in enumerate(lab.pages()):
        lab.store.take(page)
        if number == 0:
            lab.add("older", minutes=-5)
            lab.add("newer", minutes=500)
    assert len(lab.store.runs) == lab.store.readings == 42
    assert lab.sync() == 1


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_an_interrupted_first_sync_goes_on_where_it_stopped(lab, pages):
    fill(lab, 40)
    lab.page_size = 10
    for _, page in zip(range(pages), lab.pages(), strict=False):
        lab.store.take(page)
    assert len(lab.store.runs) == 10 * pages
    lab.sync()
    assert len(lab.store.runs) == lab.store.readings == 40
    assert lab.sync() == 1


def test_a_running_run_is_pending_until_its_step_0_is_there(lab):
    fill(lab, 3)
    lab.add("live", minutes=9, rows=miles_rows(steps=0), state="running", heartbeat_at=datetime.now(UTC))
    lab.sync()
    assert lab.finder.find(lab.store.runs["live"]).status == "pending"
    assert lab.sync() == 1
    lab.server.run("lab", "rl", "live").write_rows(3, [dict(row) for row in TRAINING])
    assert lab.sync() == 1
    assert lab.finder.find(lab.store.runs["live"]).gap == 0.015
    before = lab.store.readings
    assert lab.sync() == 1
    assert lab.store.readings == before


def test_the_end_of_a_run_is_seen_at_no_further_request(lab):
    lab.add("live", state="running", heartbeat_at=datetime.now(UTC))
    lab.sync()
    lab.server.run("lab", "rl", "live").status = "finished"
    assert lab.sync() == 1
    assert lab.store.updates == [RunUpdate("lab/rl/live", "live", "finished", ())]
    lab.sync()
    assert len(lab.store.updates) == 1
    assert lab.store.readings == 1


def test_heartbeats_tell_which_runs_still_run(lab):
    beat = datetime.now(UTC).replace(microsecond=0)
    lab.add("live", state="running", heartbeat_at=beat)
    lab.add("over")
    first, second = (list(lab.pages()) for _ in range(2))
    lab.store.take(first[0])
    assert first[0].heartbeats == second[0].heartbeats == {"lab/rl/live": beat}
    assert next(iter(lab.pages())).heartbeats == {"lab/rl/live": beat}


def test_a_run_that_ends_without_step_0_is_settled(lab):
    lab.add("live", rows=[{"loss": 1.0}], state="running", heartbeat_at=datetime.now(UTC))
    lab.sync()
    lab.server.run("lab", "rl", "live").status = "failed"
    lab.sync()
    assert lab.finder.find(lab.store.runs["live"]).status == "no-step0"
    before = lab.store.readings
    lab.sync()
    assert lab.store.readings == before


@pytest.mark.parametrize(("rows", "what"), [([], "row"), ([{"eval/score": 1.0}] * 3, "training row")])
def test_a_run_that_ended_before_its_step_0_is_told_with_its_framework(lab, rows, what):
    lab.add("died", rows=rows, state="failed", config={**CONFIG, "rollout_batch_size": 32})
    lab.sync()
    found = lab.finder.find(lab.store.runs["died"])
    assert (found.status, found.profile) == ("no-step0", "miles")
    assert found.note == f"it ended before its first {what} (Miles, by its config)"


@pytest.mark.parametrize("tag", ["step0-ok", "step0-bad", "step0-skip"])
def test_a_label_and_its_removal_are_seen_at_no_further_request(lab, tag):
    fill(lab, 30)
    lab.sync()
    run = lab.server.run("lab", "rl", "r0004")
    run.tags = ("baseline", tag)
    assert lab.sync() == 1
    run.tags = ("baseline",)
    assert lab.sync() == 1
    assert lab.sync() == 1
    assert [update.tags for update in lab.store.updates] == [("baseline", tag), ("baseline",)]
    assert lab.store.readings == 30


def test_a_new_name_of_a_labeled_run_is_seen(lab):
    lab.add("r", tags=["step0-ok"])
    lab.sync()
    lab.server.run("lab", "rl", "r").display_name = "the reference"
    lab.sync()
    assert [update.name for update in lab.store.updates] == ["the reference"]


def test_more_watched_and_pending_runs_than_one_filter_holds_are_all_seen(lab, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_NAMES", 4)
    now = datetime.now(UTC)
    for index in range(10):
        lab.add(f"done{index}", minutes=index, state="running", heartbeat_at=now)
        lab.add(f"wait{index}", minutes=index, rows=[], state="running", heartbeat_at=now)
    lab.sync()
    for index in range(10):
        lab.server.run("lab", "rl", f"done{index}").status = "finished"
        lab.server.run("lab", "rl", f"wait{index}").write_rows(0, [dict(row) for row in TRAINING])
    lab.sync()
    assert {update.key for update in lab.store.updates} == {f"lab/rl/done{index}" for index in range(10)}
    assert set(lab.store.gaps().values()) == {0.015}


def test_more_labeled_runs_than_come_along_are_all_seen(lab):
    fill(lab, 620)
    lab.sync()
    for run in lab.server.project("lab", "rl").runs.values():
        run.tags = ("step0-ok",)
    lab.sync()
    assert len(lab.store.updates) == 620
    lab.store.updates.clear()
    lab.sync()
    assert lab.store.updates == []


def test_our_own_runs_are_never_read(lab):
    fill(lab, 5)
    lab.add("own", minutes=7, job_type=OWN_JOB_TYPE)
    lab.sync()
    assert "own" not in lab.store.runs
    assert lab.sync() == 1
    lab.add("own-again", minutes=8, job_type=OWN_JOB_TYPE)
    assert lab.sync() == 1
    assert len(lab.store.runs) == 5


def test_a_run_created_in_the_future_does_not_hide_the_others(lab):
    fill(lab, 3)
    lab.add("wrong-clock", minutes=10 * 365 * 24 * 60)
    lab.sync()
    lab.add("new", minutes=9)
    lab.sync()
    assert "new" in lab.store.runs
    assert lab.store.readings == 5


def test_runs_without_step_0_are_read_again_when_the_profiles_change(lab, tmp_path):
    rows = [{"my/step": step, "my/kl": 0.0, "my/gap": 0.02} for step in range(3)]
    lab.add("unknown", rows=rows)
    lab.add("known", minutes=1)
    lab.sync()
    profile = """
name = "mine"
title = "Mine"
setup = [{label = "model", value = "model(hf_checkpoint)"}]
[metrics]
ppo_kl = ["my/kl"]
[[metrics.gap]]
metric = "my/gap"
statistic = "mean absolute log-prob difference"
[step]
keys = ["my/step"]
first = "0"
"""
    (tmp_path / "mine.toml").write_text(profile)
    lab.finder = lab.store.finder = Step0Finder(load_profiles([tmp_path]))
    assert lab.sync() == 2
    assert lab.store.gaps() == {"unknown": 0.02, "known": 0.015}
    assert lab.store.readings == 3
    assert lab.sync() == 1


def test_a_project_with_other_runs_costs_one_more_request_a_page(lab):
    fill(lab, 50)
    for index in range(50):
        lab.add(f"sft{index}", minutes=99, rows=[{"loss": 1.0}] * 200)
    assert lab.sync() <= 5
    assert len(lab.store.runs) == 100
    assert lab.sync() == 1


def policy_rows(**at):
    """Return a history with rows of several policies, each with so many rows before its first step."""
    rows = [
        {f"{policy}/{key}": value for key, value in row.items()}
        for policy, before in at.items()
        for row in miles_rows(at=before, steps=4)
    ]
    return [{**row, "_step": at} for at, row in enumerate(rows)]


@pytest.mark.parametrize(("solver", "judge"), [(1, 1), (3, 3), (20, 3), (3, 60), (200, 300), (0, 0)], ids=str)
def test_a_run_of_several_policies_brings_step_0_of_each_wherever_it_is(lab, solver, judge):
    rows = [*policy_rows(solver=solver, judge=judge), *({"eval/score": 0.5} for _ in range(400))]
    lab.add("two", rows=[{**row, "_step": at} for at, row in enumerate(rows)])
    (reading,) = [reading for page in lab.pages("two") for reading in page.readings]
    parts = split_policies(reading.record, lab.finder)
    assert [part.policy for part in parts] == ["judge", "solver"]
    assert [lab.finder.facts(part).step0.gap for part in parts] == [0.015, 0.015]
    assert len(lab.server.requests) <= 6


def test_a_single_run_is_one_request(lab):
    fill(lab, 3)
    pages = list(lab.pages("r0001"))
    assert [reading.record.run_id for page in pages for reading in page.readings] == ["r0001"]
    assert len(lab.server.requests) == 1


def test_the_record_says_who_the_run_is(lab):
    lab.add(
        "7f3a",
        minutes=5,
        name="qwen3 try",
        tags=["baseline"],
        user="grace",
        group="sweep",
        job_type="train",
        state="crashed",
        config=CONFIG | {"wandb_key": "a" * 40, "nested": {"lr": 0.1}},
    )
    lab.sync()
    record = lab.store.runs["7f3a"]
    assert (record.entity, record.project, record.run_id, record.name) == ("lab", "rl", "7f3a", "qwen3 try")
    assert record.url == f"{lab.server.url}/lab/rl/runs/7f3a"
    assert (record.user, record.group, record.job_type) == ("grace", "sweep", "train")
    assert (record.tags, record.state) == (("baseline",), "crashed")
    assert record.created_at == START + timedelta(minutes=5)
    assert record.config == {**CONFIG, "nested": {"lr": 0.1}}


def test_the_whole_step_0_row_is_there(lab):
    rows = miles_rows()
    rows[3] |= {"train/grad_norm": 1.5, "train/loss": math.inf, "train/entropy": {"mean": 0.25}, "note": "x"}
    lab.add("r", rows=rows)
    lab.sync()
    row = lab.finder.find(lab.store.runs["r"]).row
    assert row["train/grad_norm"] == 1.5
    assert row["train/loss"] == math.inf
    assert row["train/entropy.mean"] == 0.25
    assert row["rollout/response_len/mean"] == 512.0
    assert "note" not in row


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_arrives_as_that_number(lab, value):
    lab.add("r", rows=[{"train/step": 0, **STEP0, "train/ppo_kl": value}, *TRAINING[1:]])
    lab.sync()
    found = lab.finder.find(lab.store.runs["r"]).ppo_kl
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_one_logical_step_in_two_rows_is_merged(lab):
    gap = "train/train_rollout_logprob_abs_diff"
    first = {key: value for key, value in STEP0.items() if key != gap}
    for name, before in (("near", 2), ("far", 45)):
        rows = [{"eval/score": 0.5}] * before
        rows += [{"train/step": 0, **first}, {"perf/time": 1.0}, {"train/step": 0, gap: 0.017}]
        lab.add(name, rows=[*rows, *TRAINING[1:]])
    lab.sync()
    assert lab.store.gaps() == {"near": 0.017, "far": 0.017}
    assert all(lab.finder.find(record).ppo_kl == 0.0 for record in lab.store.runs.values())


@pytest.mark.parametrize("before", [0, 7, 8, 9, 39, 40, 41, 139, 140, 141, 1000, 5000])
@pytest.mark.parametrize("steps", [1, 3, 700])
def test_step_0_is_found_however_many_rows_come_first(lab, before, steps):
    lab.add("r", at=before, rows=miles_rows(at=before, steps=steps))
    requests = lab.sync()
    assert lab.store.gaps() == {"r": 0.015}
    assert requests <= 6


def test_a_history_with_steps_of_its_own_is_searched_by_them(lab):
    rows = [{"_step": 10**6 + 50 * step, "train/step": step, **STEP0} for step in range(400)]
    lab.add("r", rows=[{"_step": 0, "eval/score": 1.0}, *rows])
    lab.sync()
    assert lab.store.gaps() == {"r": 0.015}


def test_a_resumed_run_is_no_step_0(lab):
    rows = [{"_step": 500 + step, "train/step": 500 + step, **STEP0} for step in range(5)]
    lab.add("r", rows=rows)
    lab.sync()
    step0 = lab.finder.find(lab.store.runs["r"])
    assert step0.status == "no-step0"
    assert "resumed" in step0.note


def test_only_metrics_of_the_project_are_looked_for_once_they_are_known(lab):
    lab.page_size = 5
    fill(lab, 10)
    lab.sync()
    specs = [len(request.variables["specs"]) for request in lab.server.requests]
    assert specs == [len(lab.finder.metrics), len(STEP0)]
    lab.add(
        "of-another-framework",
        minutes=99,
        rows=[
            *[{"eval/score": 1.0}] * 20,
            *[
                {"training/global_step": step, "actor/ppo_kl": 0.0, "training/rollout_probs_diff_mean": 0.004}
                for step in (1, 2)
            ],
        ],
    )
    lab.sync()
    assert lab.store.gaps()["of-another-framework"] == 0.004


def test_windows_hold_no_more_steps_than_samples_are_asked_for(lab):
    fill(lab, 3)
    lab.add("far", at=300)
    lab.sync()
    for request in lab.server.requests:
        for name, specs in request.variables.items():
            for spec in map(json.loads, specs if name.startswith("specs") else ()):
                bounded = "maxStep" in spec and spec["maxStep"] - spec["minStep"] + 1 <= spec["samples"]
                assert bounded or "r0: run" in request.query  # the rest of one run is searched otherwise
                assert len(spec["keys"]) == 2


def test_several_projects_share_four_places_and_one_failure_touches_no_other(server):
    pace = RateLimiter(per_second=1e6)
    server.latency_s = 0.02
    labs = [Lab(server, project=f"p{index}") for index in range(6)]
    for lab in labs:
        lab.page_size = 2
        fill(lab, 10)
    server.project("lab", "p3").hidden = True
    account = find_account(Places({"WANDB_API_KEY": server.api_key}, NOWHERE, NOWHERE), base_url=server.url)
    failed = []

    def sync(lab):
        client = GraphQLClient(account, limiter=pace, environ={})
        address = RemoteAddress("lab", lab.project)
        source = ServerSource(address, client, lab.finder, clock=lambda: START, page_size=2)
        try:
            for page in source.read(SourceMemory()):
                lab.store.take(page)
        except Exception as error:  # noqa: BLE001 - looked at below
            failed.append((lab.project, str(error)))

    threads = [threading.Thread(target=sync, args=(lab,)) for lab in labs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [project for project, _ in failed] == ["p3"]
    assert [len(lab.store.runs) for lab in labs] == [10, 10, 10, 0, 10, 10]
    assert server.peak_in_flight <= 4


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    """The real client, logging to a double; the run directories that it leaves."""
    folder = tmp_path_factory.mktemp("online")
    with client_online(folder, WANDB_DOCKER="radixark/miles:v5") as server:
        for index, gap in enumerate([0.0152, 0.0461, float("nan")]):
            settings = wandb.Settings(console="off", x_disable_stats=True)
            config = CONFIG | {"lr": 1e-6, "wandb_key": os.environ["WANDB_API_KEY"], "n": {"m": [1, "x"]}}
            run = wandb.init(
                project="rl",
                id=f"run{index}",
                name=f"try {index}",
                group="g",
                config=config,
                settings=settings,
            )
            run.log({"rollout/step": 0, "rollout/response_len": {"mean": 512.5, "max": 1024}})
            for step in range(4):
                run.log({"train/step": step, **STEP0, "train/train_rollout_logprob_abs_diff": gap + step})
            run.finish()
        yield server, folder


def test_what_the_real_client_logged_is_the_same_from_disk_and_from_the_server(online):
    server, folder = online
    lab = Lab(server)
    lab.sync()
    offline = OfflineSource(folder / "wandb", lab.finder, clock=lambda: datetime.now(UTC))
    disk = {reading.record.run_id: reading.record for reading in offline.readings(SourceMemory())}
    assert set(disk) == set(lab.store.runs) == {"run0", "run1", "run2"}
    for name, record in lab.store.runs.items():
        twin = disk[name]
        assert (record.project, record.run_id) == (twin.project, twin.run_id)
        assert (record.name, record.group, record.job_type) == (twin.name, twin.group, twin.job_type)
        facts = lab.finder.facts(record)
        assert as_text(facts) == as_text(lab.finder.facts(twin))
        assert facts.step0.status == "found"
        assert facts.step0.row["rollout/response_len.mean"] == 512.5
        assert image_of(record.config) == image_of(twin.config) == "radixark/miles:v5"
        shared = {key: value for key, value in record.config.items() if key != "_wandb"}
        assert shared == {key: value for key, value in twin.config.items() if key != "_wandb"}
    assert math.isnan(lab.store.gaps()["run2"])


def test_a_key_in_the_config_of_a_run_gets_no_further_than_the_answer(online):
    server, _folder = online
    lab = Lab(server)
    lab.sync()
    assert server.api_key in server.run("lab", "rl", "run0").config_json
    assert server.api_key not in repr(lab.store.runs)


def test_no_request_goes_to_another_host_and_none_shows_the_key(online):
    server, _folder = online
    server.requests.clear()
    Lab(server).sync()
    host = server.url.removeprefix("http://")
    assert {request.headers["host"] for request in server.requests} == {host}
    assert {request.path for request in server.requests} == {"/graphql"}
    assert all(request.authorized for request in server.requests)
    assert server.api_key not in repr(server.requests)
