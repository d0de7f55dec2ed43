"""The gate: it waits for the step 0 of a live run, written by the real client, and stops a broken one."""

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from step0_wandb.app.check import Basis, gravest_first, judge_start, read_one
from step0_wandb.app.gate import Gate, Patience
from step0_wandb.app.run_selector import Newest
from step0_wandb.app.stop import stop
from step0_wandb.app.sync import Job, run_sync
from step0_wandb.errors import CredentialsError, NoStep0Error, SourceError, UsageError
from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.settings.load import load_settings
from tests.support.live import Live
from tests.support.miles import CONFIG, GAP, miles_run
from tests.support.runs import Client, exit_record, history_record, run_record, wandb_file, write_file
from tests.support.waiting import until
from tests.support.wandb_server import WandbServer

ROLLOUT = {"rollout/step": 0, "rollout/response_len/mean": 812.5}
HOUR = timedelta(hours=1)


def row(step=0, *, gap=0.0150, ppo_kl=0.0):
    return {"train/step": step, "train/ppo_kl": ppo_kl, "train/pg_clipfrac": 0.0, GAP: gap}


@pytest.fixture
def server(tmp_path, monkeypatch):
    with WandbServer() as server:
        for name, value in {
            "WANDB_BASE_URL": server.url,
            "WANDB_API_KEY": server.api_key,
            "HOME": str(tmp_path),
            "NETRC": str(tmp_path / "netrc"),
        }.items():
            monkeypatch.setenv(name, value)
        yield server


class Waiting:
    """A gate whose time passes by its own naps; `then` is what happens in each of them in turn."""

    def __init__(self, folder, *then, timeout=HOUR, **patience):
        self.naps, self.lines, self.seconds = [], [], 0.0
        self.folder, self.then = folder, list(then)
        loaded = load_settings(cwd=folder, environ={}, flags={"store": str(folder / "step0.db")})
        self.job = Job(loaded, clock=lambda: datetime.now(UTC))
        self.patience = Patience(
            timeout, now=lambda: self.seconds, sleep=self.sleep, tell=self.lines.append, **patience
        )

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.seconds += seconds
        if self.then:
            self.then.pop(0)()

    def patient(self, give_up):
        server = self.job.loaded.settings.server.model_validate({"give_up": give_up})
        settings = self.job.loaded.settings.model_copy(update={"server": server})
        return replace(self.job, loaded=replace(self.job.loaded, settings=settings))

    def gate(self, *, give_up="2s"):
        return Gate(self.patient(give_up), self.patience)

    def stop(self, run):
        return stop(run, self.patient("2s"), self.patience)

    def newest(self, *, since=timedelta(minutes=5), **which):
        return Newest(datetime.now(UTC) - since, **which)


def nothing():
    return


def log(live, server, *rows):
    """Log rows, and wait until the server has them."""
    count = len(server.rows("lab", "rl", live.run_id)) + len(rows)
    live.log(*rows)
    until(lambda: len(server.rows("lab", "rl", live.run_id)) >= count)


def looks(server):
    return [request for request in server.requests if "Step0Runs" in request.operations]


# ── runs on a server ────────────────────────────────────────────────────────


def test_a_live_run_is_judged_as_soon_as_its_step_0_is_there(server, tmp_path):
    with Live(server, tmp_path / "job", "live", config=CONFIG) as live:
        log(live, server, ROLLOUT)
        waiting = Waiting(tmp_path, lambda: log(live, server, row(0), row(1)))
        (run,) = waiting.gate().judged("lab/rl/live")
        assert live.alive
    assert (run.verdict, run.gap, run.state) == ("no-range", 0.0150, "running")
    assert run.setup == "miles · Qwen3-0.6B"


def test_a_run_that_ends_before_step_0_is_told_at_once(server, tmp_path):
    with Live(server, tmp_path / "job", "live", config=CONFIG) as live:
        live.log(ROLLOUT)
        waiting = Waiting(tmp_path, live.finish)
        (run,) = waiting.gate().judged("lab/rl/live")
    assert (run.verdict, len(waiting.naps)) == ("no-step0", 1)


def test_the_ranges_of_the_store_judge_and_the_store_stays_as_it_is(server, tmp_path):
    for at in range(17):
        miles_run(tmp_path, f"ref{at:02}", 0.0148 + at * 5e-5)
    waiting = Waiting(tmp_path)
    run_sync(replace(waiting.job, sources=(str(tmp_path),)))
    before = (tmp_path / "step0.db").read_bytes()
    server.add_run("lab", "rl", "new", state="running", config=CONFIG, rows=[ROLLOUT, row(gap=0.0461)])
    (run,) = waiting.gate().judged("lab/rl/new")
    assert (run.verdict, run.range.n) == ("broken", 17)
    assert (tmp_path / "step0.db").read_bytes() == before


def test_waiting_is_one_request_every_quarter_of_a_minute(server, tmp_path):
    server.add_run("lab", "rl", "slow", state="running", rows=[ROLLOUT])
    waiting = Waiting(tmp_path, timeout=timedelta(minutes=10))
    with pytest.raises(NoStep0Error, match=r"lab/rl/slow has logged no step 0 within 10 min"):
        waiting.gate().wait("lab/rl/slow")
    assert set(waiting.naps) == {15.0}
    assert len(waiting.naps) == 40
    assert len(server.requests) == len(looks(server)) == 41


def test_the_last_look_is_at_the_end_of_the_time(server, tmp_path):
    server.add_run("lab", "rl", "slow", state="running")
    waiting = Waiting(tmp_path, timeout=timedelta(seconds=20))
    with pytest.raises(NoStep0Error):
        waiting.gate().wait("lab/rl/slow")
    assert waiting.naps == [15.0, 5.0]


def test_a_step_0_that_comes_in_two_rows_is_waited_for(server, tmp_path):
    first, second = (
        {"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0},
        {"train/step": 0, GAP: 0.2},
    )
    run = server.add_run("lab", "rl", "two", state="running", config=CONFIG, rows=[ROLLOUT, first])
    waiting = Waiting(tmp_path, lambda: run.write_rows(2, [dict(second)]))
    assert waiting.gate().judged("lab/rl/two")[0].gap == 0.2


def test_a_step_0_that_lacks_a_metric_for_good_is_not_waited_for_long(server, tmp_path):
    first = {"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0}
    server.add_run("lab", "rl", "one", state="running", config=CONFIG, rows=[ROLLOUT, first])
    waiting = Waiting(tmp_path)
    (run,) = waiting.gate().judged("lab/rl/one")
    assert (run.gap, run.verdict, len(waiting.naps)) == (None, "no-range", 2)


def test_a_resumed_run_is_told_although_it_goes_on(server, tmp_path):
    server.add_run("lab", "rl", "late", state="running", config=CONFIG, rows=[row(40)])
    (run,) = Waiting(tmp_path).gate().judged("lab/rl/late")
    assert run.verdict == "no-step0"
    assert "its first row is step 40" in run.reasons[0]


def test_a_wrong_run_id_fails_at_once(server, tmp_path):
    server.project("lab", "rl")
    waiting = Waiting(tmp_path)
    with pytest.raises(UsageError, match="lab/rl/nobody does not exist"):
        waiting.gate().wait("lab/rl/nobody")
    assert waiting.naps == []


@pytest.mark.usefixtures("server")
def test_a_whole_project_fails_at_once(tmp_path):
    with pytest.raises(UsageError, match="lab/rl is a whole project") as failure:
        Waiting(tmp_path).gate().wait("lab/rl")
    assert "--group or --name" in failure.value.hint


@pytest.mark.usefixtures("server")
def test_a_refused_key_fails_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with pytest.raises(CredentialsError):
        Waiting(tmp_path).gate().wait("lab/rl/live")


def test_a_server_that_never_answered_is_an_error(server, tmp_path):
    server.faults.always("502")
    waiting = Waiting(tmp_path)
    with pytest.raises(SourceError, match="given up after 2 s"):
        waiting.gate().wait("lab/rl/live")
    assert waiting.naps == []


def test_a_server_in_trouble_for_a_while_is_waited_for(server, tmp_path):
    run = server.add_run("lab", "rl", "live", state="running", config=CONFIG)

    def recover():
        server.faults.clear()
        run.write_rows(0, [ROLLOUT, row()])

    waiting = Waiting(tmp_path, lambda: server.faults.always("502"), nothing, recover)
    assert waiting.gate().judged("lab/rl/live")[0].gap == 0.0150
    assert sum("waiting on" in line for line in waiting.lines) == 1


def test_a_server_in_trouble_until_the_end_is_an_error_of_the_server(server, tmp_path):
    server.add_run("lab", "rl", "live", state="running", config=CONFIG)
    waiting = Waiting(tmp_path, lambda: server.faults.always("502"), timeout=timedelta(seconds=20))
    with pytest.raises(SourceError):
        waiting.gate().wait("lab/rl/live")


def test_a_server_in_trouble_does_not_hold_the_gate_beyond_its_time(server, tmp_path):
    server.faults.always("502")
    waiting = Waiting(tmp_path, timeout=timedelta(seconds=1))
    with pytest.raises(SourceError, match="given up after 1 s"):
        waiting.gate(give_up="1h").wait("lab/rl/live")


# ── the newest run of a project ─────────────────────────────────────────────


def ago(**span):
    return datetime.now(UTC) - timedelta(**span)


def test_the_newest_run_whose_group_is_or_begins_with_the_name_is_taken(server, tmp_path):
    for run_id, group, age in (
        ("yesterday", "qwen3", {"days": 1}),
        ("older", "qwen3_ab12cd34", {"minutes": 4}),
        ("newer", "qwen3_ef56ab78", {"minutes": 1}),
        ("other", "qwen3-next_12345678", {"seconds": 5}),
        ("none", None, {"seconds": 1}),
    ):
        server.add_run(
            "lab", "rl", run_id, group=group, state="running", config=CONFIG, created_at=ago(**age),
            rows=[ROLLOUT, row()],
        )  # fmt: skip
    waiting = Waiting(tmp_path)
    assert waiting.gate().wait("lab/rl", waiting.newest(group="qwen3"))[0].run_id == "newer"
    assert waiting.gate().wait("lab/rl", waiting.newest(group="qwen3_ab12cd34"))[0].run_id == "older"


def test_a_name_is_looked_for_in_the_same_way_and_our_own_runs_are_none(server, tmp_path):
    for run_id, name, age in (("a", "qwen3_ab12-RANK_0", 9), ("b", "qwen3", 5), ("c", "qwen30_x", 1)):
        server.add_run(
            "lab", "rl", run_id, name=name, state="running", config=CONFIG, rows=[ROLLOUT, row()],
            created_at=ago(seconds=age),
        )  # fmt: skip
    server.add_run("lab", "rl", "step0-sync", name="qwen3", job_type=OWN_JOB_TYPE, state="running")
    waiting = Waiting(tmp_path)
    assert waiting.gate().wait("lab/rl", waiting.newest(name="qwen3"))[0].run_id == "b"
    assert waiting.gate().wait("lab/rl", waiting.newest(name="qwen3_ab12-RANK_0"))[0].run_id == "a"


def test_a_run_of_the_group_that_is_still_to_come_is_waited_for(server, tmp_path):
    server.project("lab", "rl")
    with ExitStack() as stack:

        def launch():
            job = Live(server, tmp_path / "job", "live", config=CONFIG, group="qwen3_ab12cd34")
            log(stack.enter_context(job), server, ROLLOUT, row())

        waiting = Waiting(tmp_path, nothing, launch)
        (record,) = waiting.gate().wait("lab/rl", waiting.newest(group="qwen3"))
    assert (record.run_id, record.group) == ("live", "qwen3_ab12cd34")


BROKEN = [ROLLOUT, row(ppo_kl=0.3)]
EARLIER = [
    {"state": "crashed"},
    {"state": "finished", "rows": [ROLLOUT, row()]},
    {"state": "failed", "rows": BROKEN},
    {"state": "running", "rows": BROKEN, "heartbeat_at": ago(minutes=2)},
]


@pytest.mark.parametrize("earlier", EARLIER, ids=["died", "ended", "broken", "killed"])
def test_a_run_of_an_earlier_launch_is_passed_over(server, tmp_path, earlier):
    server.add_run("lab", "rl", "before", group="g", config=CONFIG, created_at=ago(minutes=3), **earlier)

    def relaunch():
        server.add_run("lab", "rl", "again", group="g", state="running", config=CONFIG, rows=[ROLLOUT, row()])

    waiting = Waiting(tmp_path, relaunch)
    assert waiting.gate().wait("lab/rl", waiting.newest(group="g"))[0].run_id == "again"
    assert any("lab/rl/before was over before this wait" in line for line in waiting.lines)


def test_a_run_that_was_over_is_named_where_no_newer_one_comes_and_judged_on_demand(server, tmp_path):
    server.add_run("lab", "rl", "before", group="g", config=CONFIG, created_at=ago(minutes=3), rows=BROKEN)
    waiting = Waiting(tmp_path, timeout=timedelta(minutes=1))
    with pytest.raises(NoStep0Error, match="No run of lab/rl with group g appeared") as failure:
        waiting.gate().judged("lab/rl", waiting.newest(group="g"))
    assert failure.value.hint == "To judge a run that was over before, give its id: lab/rl/before"
    assert waiting.gate().judged("lab/rl", waiting.newest(group="g", over=True))[0].verdict == "broken"
    assert waiting.gate().judged("lab/rl/before")[0].verdict == "broken"


def test_a_run_of_this_launch_that_died_is_the_answer(server, tmp_path):
    server.project("lab", "rl")
    waiting = Waiting(
        tmp_path,
        lambda: server.add_run("lab", "rl", "dead", group="g", state="failed", created_at=ago(seconds=-2)),
    )
    assert waiting.gate().judged("lab/rl", waiting.newest(group="g"))[0].verdict == "no-step0"


def test_no_run_of_that_name_within_the_time(server, tmp_path):
    server.project("lab", "rl")
    waiting = Waiting(tmp_path, timeout=timedelta(minutes=1))
    with pytest.raises(NoStep0Error, match="No run of lab/rl with group g appeared within 1 min"):
        waiting.gate().wait("lab/rl", waiting.newest(group="g"))
    assert len(server.requests) == 5


def test_more_runs_than_one_page_holds_are_looked_through(server, tmp_path):
    for number in range(250):
        server.add_run("lab", "rl", f"r{number}", group="sweep", created_at=ago(seconds=number))
    server.add_run(
        "lab", "rl", "mine", group="mine", state="running", config=CONFIG, created_at=ago(minutes=4),
        rows=[ROLLOUT, row()],
    )  # fmt: skip
    waiting = Waiting(tmp_path)
    assert waiting.gate().wait("lab/rl", waiting.newest(group="mine"))[0].run_id == "mine"


def test_a_stored_run_goes_by_its_name_too(server, tmp_path):
    run = server.add_run("lab", "rl", "7f3a", name="qwen3 first try", state="running", config=CONFIG)
    waiting = Waiting(tmp_path)
    run_sync(replace(waiting.job, sources=("lab/rl",)))
    run.write_rows(0, [ROLLOUT, row()])
    assert waiting.gate().wait("qwen3 first try")[0].run_id == "7f3a"
    assert waiting.gate().wait("7f3a")[0].run_id == "7f3a"
    with pytest.raises(UsageError, match="'7f3b' is neither a W&B project or run nor a path that exists"):
        waiting.gate().wait("7f3b")


# ── directories ─────────────────────────────────────────────────────────────


def write(client, *rows):
    """Log rows, and wait until they are on disk."""
    client.log(*rows)
    client.write_out()


def test_a_directory_that_fills_is_waited_for(tmp_path):
    with Client(tmp_path) as client:
        place = client.start("abc", config=CONFIG)
        client.log(ROLLOUT)
        waiting = Waiting(tmp_path, nothing, lambda: write(client, row(0), row(1)))
        (run,) = waiting.gate().judged(str(place))
    assert (run.verdict, run.state, run.gap) == ("no-range", "running", 0.0150)
    assert set(waiting.naps) == {2.0}


def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path):
    waiting = Waiting(tmp_path, nothing, (tmp_path / "wandb").mkdir, lambda: miles_run(tmp_path, "abc"))
    (run,) = waiting.gate().judged(str(tmp_path / "wandb"))
    assert (run.run, len(waiting.naps)) == ("team/project/abc", 3)


def test_a_directory_that_never_comes_is_told_with_its_path(tmp_path):
    waiting = Waiting(tmp_path, timeout=timedelta(seconds=5))
    with pytest.raises(NoStep0Error, match="wandb has logged no step 0 within 5 s") as failure:
        waiting.gate().wait(str(tmp_path / "wandb"))
    assert failure.value.hint == "There is no such directory yet: check the path."


def test_a_directory_without_runs_says_so_in_the_end(tmp_path):
    waiting = Waiting(tmp_path, timeout=timedelta(seconds=5))
    with pytest.raises(NoStep0Error) as failure:
        waiting.gate().wait(str(tmp_path))
    assert "holds no W&B run directories" in failure.value.hint


def test_a_path_of_which_two_parents_are_not_there_fails_at_once(tmp_path):
    waiting = Waiting(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        waiting.gate().wait(str(tmp_path / "nowhere" / "wandb" / "latest-run"))
    assert waiting.naps == []


def test_a_file_that_is_no_wandb_file_fails_at_once(tmp_path):
    (tmp_path / "run.log").write_text("step 0: {}\n")
    waiting = Waiting(tmp_path)
    with pytest.raises(SourceError):
        waiting.gate().wait(str(tmp_path / "run.log"))
    assert waiting.naps == []


def test_a_directory_with_several_runs_needs_a_name(tmp_path):
    miles_run(tmp_path, "old", started=int(ago(hours=3).timestamp()))
    miles_run(tmp_path, "new", started=int(ago(minutes=1).timestamp()), run_group="qwen3_ab12")
    waiting = Waiting(tmp_path)
    with pytest.raises(UsageError, match="holds 2 runs") as failure:
        waiting.gate().wait(str(tmp_path))
    assert "--group" in failure.value.hint
    assert waiting.gate().wait(str(tmp_path), waiting.newest(group="qwen3", over=True))[0].run_id == "new"


def test_a_directory_run_of_an_earlier_launch_is_passed_over(tmp_path):
    miles_run(tmp_path, "before", started=int(ago(minutes=2).timestamp()), run_group="g", ppo_kl=0.3)
    waiting = Waiting(
        tmp_path,
        lambda: miles_run(tmp_path, "again", run_group="g", started=int(ago(seconds=-2).timestamp())),
    )
    assert waiting.gate().wait(str(tmp_path), waiting.newest(group="g"))[0].run_id == "again"
    assert any("/before was over before this wait" in line for line in waiting.lines)


def test_a_link_to_a_run_of_an_earlier_launch_is_waited_on_until_it_moves(tmp_path):
    link = tmp_path / "latest-run"
    link.symlink_to(miles_run(tmp_path, "before", started=int(ago(minutes=2).timestamp())))

    def relaunch():
        link.unlink()
        link.symlink_to(miles_run(tmp_path, "again", started=int(ago(seconds=-2).timestamp())))

    waiting = Waiting(tmp_path, nothing, relaunch)
    assert waiting.gate().wait(str(link))[0].run_id == "again"
    assert any("latest-run was over before this wait" in line for line in waiting.lines)
    with pytest.raises(NoStep0Error, match="still leads to a run that was over") as failure:
        Waiting(tmp_path, timeout=timedelta(seconds=5)).gate().wait(str(link))
    assert str(link.resolve()) in failure.value.hint


def test_an_offline_run_that_ends_before_step_0_is_told_at_once(tmp_path):
    with Client(tmp_path) as client:
        place = client.start("abc", config=CONFIG)
        client.log(ROLLOUT)
        waiting = Waiting(tmp_path, client.finish)
        assert waiting.gate().judged(str(place))[0].verdict == "no-step0"


# ── the rollouts after step 0 ───────────────────────────────────────────────

TWO = CONFIG | {"num_steps_per_rollout": 2, "colocate": True}
STALE = "gap 0.201 of rollout 1 is 13.4 times step 0's 0.0150"


def test_the_row_after_the_first_update_is_waited_for_and_compared(server, tmp_path):
    with Live(server, tmp_path / "job", "live", config=TWO) as live:
        log(live, server, ROLLOUT, row(0), row(1))
        later = {"rollout/step": 1}, row(2, gap=0.201)
        waiting = Waiting(tmp_path, nothing, lambda: log(live, server, *later))
        (run,) = waiting.gate().judged("lab/rl/live", rollouts=2)
    assert (run.verdict, run.gap) == ("broken", 0.0150)
    assert STALE in run.reasons[0]
    assert any(
        "step 0 is no-range; waiting for the first step of 2 rollouts" in line for line in waiting.lines
    )


def test_an_engine_with_the_new_weights_passes(server, tmp_path):
    run = server.add_run("lab", "rl", "r", state="running", config=TWO, rows=[ROLLOUT, row(0), row(1)])
    waiting = Waiting(tmp_path, lambda: run.write_rows(3, [row(2, gap=0.0153)]))
    (judged,) = waiting.gate().judged("lab/rl/r", rollouts=2)
    assert judged.verdict == "no-range"
    assert {check.check: check.outcome for check in judged.checks}["first-update"] == "pass"
    assert waiting.naps == [15.0]


def test_a_directory_is_waited_for_too(tmp_path):
    with Client(tmp_path) as client:
        place = client.start("abc", config=TWO)
        write(client, ROLLOUT, row(0), row(1))
        waiting = Waiting(tmp_path, *[nothing] * 4, lambda: write(client, row(2, gap=0.201)))
        (run,) = waiting.gate().judged(str(place), rollouts=2)
    assert STALE in run.reasons[0]


def test_a_step_0_that_is_broken_is_not_waited_on(server, tmp_path):
    server.add_run("lab", "rl", "r", state="running", config=TWO, rows=[ROLLOUT, row(0, ppo_kl=0.3)])
    waiting = Waiting(tmp_path)
    (run,) = waiting.gate().judged("lab/rl/r", rollouts=2)
    assert (run.verdict, waiting.naps) == ("broken", [])


def test_a_run_that_ends_before_the_first_update_is_judged_by_its_step_0(server, tmp_path):
    run = server.add_run("lab", "rl", "r", state="running", config=TWO, rows=[ROLLOUT, row(0)])

    def end():
        run.status = "finished"

    (judged,) = Waiting(tmp_path, end).gate().judged("lab/rl/r", rollouts=2)
    assert judged.verdict == "no-range"
    assert {check.check: check.outcome for check in judged.checks}["first-update"] == "skipped"


def test_where_the_config_does_not_say_where_a_rollout_begins_nothing_is_waited_for(server, tmp_path):
    config = CONFIG | {"num_steps_per_rollout": None}
    server.add_run("lab", "rl", "r", state="running", config=config, rows=[ROLLOUT, row(0)])
    waiting = Waiting(tmp_path)
    (judged,) = waiting.gate().judged("lab/rl/r", rollouts=2)
    assert waiting.naps == []
    [first] = [check for check in judged.checks if check.check == "first-update"]
    assert "does not say how many optimizer steps" in first.message


def test_the_time_ends_also_while_waiting_for_the_update(server, tmp_path):
    server.add_run("lab", "rl", "r", state="running", config=TWO, rows=[ROLLOUT, row(0)])
    waiting = Waiting(tmp_path, timeout=timedelta(minutes=1))
    with pytest.raises(
        NoStep0Error, match="lab/rl/r has logged step 0, and not the first step of 2 rollouts"
    ):
        waiting.gate().judged("lab/rl/r", rollouts=2)
    assert sum(waiting.naps) == 60


# ── stopping ────────────────────────────────────────────────────────────────


def broken(server, **given):
    return server.add_run(
        "lab", "rl", "bad", state="running", config=CONFIG, rows=[ROLLOUT, row(ppo_kl=0.3)], **given
    )


def test_a_driver_that_goes_on_with_its_second_process_is_told_honestly(server, tmp_path):
    """As Miles runs: the driver and the trainer share one run, and a Ray worker swallows the interrupt."""
    shared = {"config": CONFIG, "mode": "shared", "swallows": True}
    trainer = {"x_primary": False, "x_update_finish_state": False, "x_label": "trainer"}
    with (
        Live(server, tmp_path / "a", "bad", settings={"x_label": "driver"}, **shared) as driver,
        Live(server, tmp_path / "b", "bad", settings=trainer, **shared) as worker,
    ):
        log(worker, server, ROLLOUT, row(ppo_kl=0.3))
        waiting = Waiting(tmp_path)
        (run,) = waiting.gate().judged("lab/rl/bad")

        def train():
            worker.log(row(1))
            driver.log({"perf/beat": 1.0})
            until(lambda: driver.interrupted and worker.interrupted)

        waiting.then = [train]
        stopped = waiting.stop(run)
        assert driver.alive
        assert worker.alive
    assert run.verdict == "broken"
    assert (stopped.asked, stopped.stopped) == (True, False)
    assert "still running after 60 s" in stopped.message
    assert "end the job itself" in stopped.message


def test_a_server_that_refuses_to_stop_the_run_is_told(server, tmp_path):
    broken(server)
    server.abilities = replace(server.abilities, stop=False)
    waiting = Waiting(tmp_path)
    stopped = waiting.stop(*waiting.gate().judged("lab/rl/bad"))
    assert (stopped.asked, stopped.stopped) == (False, False)
    assert "refused" in stopped.message


def test_a_run_that_ended_meanwhile_is_not_asked_to_stop(server, tmp_path):
    run = broken(server)
    waiting = Waiting(tmp_path)
    (judged,) = waiting.gate().judged("lab/rl/bad")
    run.status = "failed"
    stopped = waiting.stop(judged)
    assert (stopped.asked, stopped.stopped, run.stop_requested) == (False, True, False)
    assert stopped.message == "the run had ended before: it is failed"


def test_a_server_that_goes_away_before_the_stop_costs_no_verdict(server, tmp_path):
    broken(server)
    waiting = Waiting(tmp_path, stop_wait_s=1.0)
    (judged,) = waiting.gate().judged("lab/rl/bad")
    server.faults.always("502")
    stopped = waiting.stop(judged)
    assert (stopped.asked, stopped.stopped) == (False, False)
    assert "the server could not be asked" in stopped.message


def test_a_server_that_goes_away_after_the_stop_is_told(server, tmp_path):
    broken(server)
    waiting = Waiting(tmp_path, lambda: server.faults.always("502"), stop_wait_s=1.0)
    stopped = waiting.stop(*waiting.gate().judged("lab/rl/bad"))
    assert (stopped.asked, stopped.stopped) == (True, False)
    assert "what became of it is not known" in stopped.message


def test_a_run_on_disk_has_nobody_to_stop_it(tmp_path):
    place = miles_run(tmp_path, "bad", ppo_kl=0.3, ended=False)
    waiting = Waiting(tmp_path)
    stopped = waiting.stop(*waiting.gate().judged(str(place)))
    assert (stopped.asked, stopped.stopped) == (False, False)
    assert "a run on disk has no server" in stopped.message


def test_a_run_of_several_policies_is_judged_policy_by_policy_and_the_gravest_comes_first(tmp_path):
    rows = [
        {f"{policy}/{name}": value for name, value in row(step, ppo_kl=kl).items()}
        for step in (0, 1)
        for policy, kl in (("solver", 0.0), ("judge", 0.2))
    ]
    records = [run_record("two", CONFIG), *map(history_record, rows), exit_record(0)]
    write_file(tmp_path / "wandb", wandb_file(*records), run_id="two")
    found = Waiting(tmp_path).gate().judged(str(tmp_path / "wandb"))
    assert [run.run for run in found] == ["team/project/two#judge", "team/project/two#solver"]
    assert [run.verdict for run in found] == ["broken", "no-range"]
    assert [run.policy for run in found] == ["judge", "solver"]


@pytest.mark.parametrize("where", ["server", "disk"])
def test_the_first_update_of_each_policy_is_waited_for_and_judged(server, tmp_path, where):
    rows = [
        {f"{policy}/{name}": value for name, value in row(step, gap=gap).items()}
        for step in (0, 1, 2)
        for policy, gap in (("solver", 0.0150), ("judge", 0.201 if step == 2 else 0.0150))
    ]
    server.add_run("lab", "rl", "two", config=TWO, rows=rows)
    records = [run_record("two", TWO), *map(history_record, rows), exit_record(0)]
    write_file(tmp_path / "wandb", wandb_file(*records), run_id="two")
    source = "lab/rl/two" if where == "server" else str(tmp_path / "wandb")
    waiting = Waiting(tmp_path)
    checked = read_one(source, waiting.job, every_rollout=True)
    for found in (
        waiting.gate().judged(source, rollouts=2),
        gravest_first(judge_start(one, waiting.job.loaded, Basis()) for one in checked),
    ):
        judge, solver = found
        assert (judge.policy, judge.verdict) == ("judge", "broken")
        assert solver.verdict in ("no-range", "healthy")  # the other policy is a run of its setup
        assert STALE in judge.reasons[0]
        assert "first-update" in {check.check for check in solver.checks}
