"""Several starts under one run id, on a server: found, numbered, and at few requests."""

from __future__ import annotations

from datetime import timedelta

import pytest
import wandb

from step0_wandb.sources.server.history import later_starts
from step0_wandb.step0.policies import split_policies
from tests.support.command import run
from tests.support.project import add_project, environment
from tests.support.server_source import CONFIG, START, Lab, miles_rows
from tests.support.wandb_server import WandbServer, client_online

GAP = "train/train_rollout_logprob_abs_diff"


@pytest.fixture
def lab():
    with WandbServer() as server:
        server.clock = lambda: START + timedelta(days=1)
        yield Lab(server)


def readings(lab):
    """Return what a sync yields; the store takes it."""
    found = []
    for page in lab.pages():
        found += page.readings
        lab.store.take(page)
    return found


def gap_of(lab, record):
    return lab.finder.find(record).gap


def run_of(lab, name):
    return lab.server.project("lab", lab.project).runs[name]


def begin_again(lab, name, rows, *, writer="second", keep=0):
    """Let another process write to a run, behind the first `keep` rows of its history."""
    run = run_of(lab, name)
    kept = run.rows[:keep]
    run.rows = [*kept, *({**row, "_step": at} for at, row in enumerate(rows, start=keep))]
    run._keys = (-1, None)
    run.heartbeat_at = START + timedelta(days=2)
    run.merge_config({"_wandb": {"value": {"e": {**writers_of(run), writer: {"os": "Linux"}}}}})


def writers_of(run):
    return run.config.get("_wandb", {}).get("value", {}).get("e", {})


def with_writer(lab, name, **options):
    lab.add(name, config={**CONFIG, "_wandb": {"e": {"first": {"os": "Linux"}}}}, **options)


def requests(lab):
    before = len(lab.server.requests)
    found = readings(lab)
    return found, len(lab.server.requests) - before


def test_a_quiet_sync_stays_at_one_request_also_beside_runs_that_run(lab):
    with_writer(lab, "done")
    with_writer(lab, "live", state="running")
    readings(lab)
    lab.add("silent", rows=[], state="running")
    readings(lab)
    for _ in range(3):
        assert requests(lab)[1] == 1


@pytest.mark.parametrize("state", ["finished", "running"])
def test_a_run_that_was_rewound_is_read_again_at_one_further_request(lab, state):
    with_writer(lab, "job7", state=state)
    with_writer(lab, "other")
    readings(lab)
    begin_again(lab, "job7", miles_rows(gap=0.063))
    (again,), asked = requests(lab)
    assert again.again
    assert gap_of(lab, again.record) == 0.063
    assert asked == 2
    assert requests(lab) == ([], 1)


def test_a_running_run_whose_history_became_shorter_is_read_again_though_no_writer_is_known(lab):
    lab.add("job7", state="running", rows=miles_rows(steps=50))
    readings(lab)
    run_of(lab, "job7").rows[:] = run_of(lab, "job7").rows[:2]
    (again,), _asked = requests(lab)
    assert again.again
    assert lab.finder.find(again.record).status == "pending"


def test_a_resumed_run_whose_steps_begin_again_shows_both_starts(lab):
    with_writer(lab, "job7", rows=miles_rows(gap=0.0151, steps=40))
    readings(lab)
    begin_again(lab, "job7", miles_rows(gap=0.063, steps=40), keep=43)
    (again,), asked = requests(lab)
    assert gap_of(lab, again.record) == 0.063
    assert [gap_of(lab, start) for start in again.earlier] == [0.0151]
    assert asked <= 3
    assert requests(lab) == ([], 1)


def test_each_policy_of_a_run_that_was_started_again_has_its_newest_start(lab):
    first, second = (
        [
            {f"{policy}/{name}": value for name, value in row.items()}
            for row in miles_rows(at=1, gap=gap)
            for policy in ("solver", "judge")
        ]
        for gap in (0.0151, 0.063)
    )
    with_writer(lab, "two", rows=first)
    readings(lab)
    begin_again(lab, "two", second, keep=len(first))
    (again,), asked = requests(lab)
    gaps = [
        {part.policy: gap_of(lab, part) for part in split_policies(start, lab.finder)}
        for start in (*again.earlier, again.record)
    ]
    assert gaps == [{"judge": gap, "solver": gap} for gap in (0.0151, 0.063)]
    assert asked <= 4


def test_a_first_sync_sees_every_start_of_a_history(lab):
    rows = [row for gap in (0.0151, 0.0152, 0.063) for row in miles_rows(gap=gap, steps=30)]
    with_writer(lab, "job7", rows=rows)
    begin_again(lab, "job7", rows)
    lab.add("other")
    (first, other) = sorted(readings(lab), key=lambda reading: reading.record.run_id)
    assert [gap_of(lab, record) for record in (*first.earlier, first.record)] == [0.0151, 0.0152, 0.063]
    assert other.earlier == ()


def test_a_run_that_resumes_from_a_checkpoint_has_not_started_again(lab):
    with_writer(lab, "job7", rows=miles_rows(gap=0.0151, steps=40))
    readings(lab)
    resumed = [{**row, "train/step": 20 + at} for at, row in enumerate(miles_rows(at=0, gap=0.063, steps=9))]
    begin_again(lab, "job7", resumed, keep=43)
    (again,), _asked = requests(lab)
    assert gap_of(lab, again.record) == 0.0151
    assert again.earlier == ()


def test_a_run_that_cannot_be_read_again_is_named_and_costs_no_request_for_ever(lab):
    with_writer(lab, "job7")
    readings(lab)
    begin_again(lab, "job7", miles_rows(gap=0.063))
    lab.server.faults.poison("job7", fields=["history"])
    readings(lab)
    assert [problem.where for problem in lab.store.problems] == ["lab/rl/job7"]
    requests(lab)
    later = [requests(lab) for _ in range(3)]
    assert all(found == [] and asked <= 4 for found, asked in later)
    assert lab.time.now < 60


def test_only_runs_with_several_writers_cost_a_look_for_later_starts(lab):
    for index in range(200):
        with_writer(lab, f"r{index:03}", minutes=index)
    assert requests(lab)[1] == 2


def test_a_page_of_runs_with_several_writers_costs_one_further_request(lab):
    several = {**CONFIG, "_wandb": {"e": {"driver": {}, "trainer": {}}}}
    for index in range(100):
        lab.add(f"r{index:03}", minutes=index, config=several)
    assert requests(lab)[1] == 2
    assert set(lab.store.gaps().values()) == {0.015}
    assert requests(lab) == ([], 1)


def test_a_first_step_that_came_late_in_shared_mode_is_found(lab):
    rows = miles_rows(at=0, steps=60)
    rows = [*rows[1:], rows[0]]
    with_writer(lab, "shared", rows=rows)
    begin_again(lab, "shared", rows)
    (reading,) = readings(lab)
    assert gap_of(lab, reading.record) == 0.015
    assert reading.earlier == ()


@pytest.mark.parametrize("rows", [0, 3, 200])
def test_a_step_0_that_another_process_wrote_over_is_told_apart_from_none(lab, rows):
    several = {**CONFIG, "_wandb": {"e": {"driver": {}, "trainer": {}}}}
    history = [{"eval/score": 0.5}] * rows
    for name, metrics in {"lost": {"train/ppo_kl": 0.0, GAP: 0.015}, "none": {}}.items():
        lab.add(name, rows=history, config=several, summary={"eval/score": 0.5, **metrics})
    _, asked = requests(lab)
    notes = {name: lab.finder.find(record).note for name, record in lab.store.runs.items()}
    assert "its summary has metrics of a training step and its history has none" in notes["lost"]
    assert "its summary" not in notes["none"]
    assert asked <= 3
    assert requests(lab) == ([], 1)


def test_a_new_name_of_a_finished_run_is_taken_up_at_no_further_request(lab):
    for index in range(250):
        lab.add(f"r{index:03}", minutes=index)
    readings(lab)
    for name in ("r003", "r150", "r249"):
        run_of(lab, name).display_name = f"renamed {name}"
    for _ in range(3):
        assert requests(lab) == ([], 1)
    assert {update.name for update in lab.store.updates} == {f"renamed r{at}" for at in ("003", "150", "249")}


def test_steps_begin_again_where_they_fall_back_to_the_first_and_nowhere_else():
    def starts(*steps):
        rows = [{"_step": 10 * at, "train/step": step} for at, step in enumerate(steps)]
        return [window.high // 10 for window in later_starts(rows, "train/step")]

    assert starts() == starts(0) == starts(0, 0, 1, 2) == starts(0, 1, 2, 1, 2) == []
    assert starts(0, 1, 2, 0, 0, 1) == [4]
    assert starts(0, 1, 0, 1, 2, 0) == [3, 6]
    assert starts(5, 6, 5) == [3]


# --- by the real client -----------------------------------------------------------------------------


def log_with_client(gap, **how):
    settings = wandb.Settings(console="off", x_disable_stats=True)
    run = wandb.init(project="rl", id="job7", config=CONFIG, settings=settings, **how)
    for step in range(4):
        run.log({"rollout/step": step, "rollout/response_len/mean": 512.0})
        run.log({"train/step": step, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: gap * (1 + step)})
    run.finish()


def test_what_the_real_client_logs_again_under_one_id_is_another_start(tmp_path):
    with client_online(tmp_path) as server:
        lab = Lab(server)
        server.clock = lambda: START + timedelta(days=1)
        log_with_client(0.0151)
        assert [reading.record.start for reading in readings(lab)] == [1]
        assert requests(lab) == ([], 1)

        server.clock = lambda: START + timedelta(days=2)
        log_with_client(0.063, resume="allow")  # goes on behind the rows of the first
        (again,), asked = requests(lab)
        assert [gap_of(lab, record) for record in (*again.earlier, again.record)] == [0.0151, 0.063]
        assert asked <= 3
        assert requests(lab) == ([], 1)

        server.clock = lambda: START + timedelta(days=3)
        del run_of(lab, "job7").rows[:]  # as a rewind to the first step does
        log_with_client(0.0152, resume="allow")
        (again,), asked = requests(lab)
        assert [gap_of(lab, record) for record in (*again.earlier, again.record)] == [0.0152]
        assert asked <= 3
        assert requests(lab) == ([], 1)


# --- a whole sync -----------------------------------------------------------------------------------


def test_a_run_that_moved_to_another_project_is_the_same_run_and_does_not_alert_again(tmp_path):
    with WandbServer() as server:
        add_project(server)
        (tmp_path / "step0.toml").write_text(
            'sources = ["lab/rl", "lab/archive"]\n[report]\nstate = false\n[alerts]\nsince = "9999d"\n'
        )
        archive = server.project("lab", "archive")
        for name in ("first", "second"):
            answer = run("sync", "--json", cwd=tmp_path, **environment(server, tmp_path))
            assert answer.code == 0, answer.err
            if name == "first":
                assert {alert.run_id for alert in server.alerts} == {"rl-bad", "rl-long"}
                run(
                    "label",
                    "rl-bad",
                    "broken",
                    "--why",
                    "seen",
                    cwd=tmp_path,
                    **environment(server, tmp_path),
                )
                moved = server.project("lab", "rl").runs.pop("rl-bad")
                moved.project = archive
                archive.runs["rl-bad"] = moved
                server.alerts.clear()
        assert server.alerts == []
        shown = run("runs", "--json", cwd=tmp_path, **environment(server, tmp_path)).document["runs"]
        assert [(item["run"], item["label"]) for item in shown if item["run"].endswith("bad")] == [
            ("lab/archive/rl-bad", "broken")
        ]
        assert len(shown) == 9


def test_a_sync_judges_the_newest_start_and_alerts_once_about_it(tmp_path):
    with WandbServer() as server:
        add_project(server)
        (tmp_path / "step0.toml").write_text(
            'sources = ["lab/rl"]\n[report]\nstate = false\n[alerts]\nsince = "9999d"\n'
        )

        def sync():
            server.alerts.clear()
            answer = run("sync", "--json", cwd=tmp_path, **environment(server, tmp_path))
            assert answer.code == 0, answer.err
            shown = run("runs", "--json", cwd=tmp_path, **environment(server, tmp_path)).document["runs"]
            return next(item for item in shown if item["run"] == "lab/rl/rl-ok3"), {
                alert.run_id for alert in server.alerts
            }

        first, _ = sync()
        assert (first["verdict"], first["start"], first["earlier"]) == ("healthy", 1, [])
        job = server.project("lab", "rl").runs["rl-ok3"]
        job.rows = [{**row, "_step": at} for at, row in enumerate(miles_rows(gap=0.063))]
        job.heartbeat_at = max(other.heartbeat_at for other in server.state.all_runs()) + timedelta(seconds=9)
        asked = run("check", "lab/rl/rl-ok3", "--json", cwd=tmp_path, **environment(server, tmp_path))
        again, alerted = sync()
        for part in ("verdict", "start", "starts", "gap", "earlier"):
            assert asked.document["run"][part] == again[part]
        assert (again["verdict"], again["start"], again["gap"]) == ("broken", 2, 0.063)
        assert [(start["start"], start["verdict"], start["gap"]) for start in again["earlier"]] == [
            (1, "healthy", 0.0153)
        ]
        assert alerted == {"rl-ok3"}
        assert sync() == (again, set())
