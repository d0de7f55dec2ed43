"""Alerts against a W&B server: about which runs, where, how often, and what becomes of failures."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from step0_wandb.cli import log
from step0_wandb.cli.session import Session
from step0_wandb.cli.sync import print_result
from step0_wandb.errors import StoreError
from step0_wandb.store import Accept, Mute
from step0_wandb.store.outbox import Outbox
from tests.support.alerts import BROKEN, LOW, NOW, SUSPECT, Watch, add_healthy, add_run
from tests.support.miles import miles_run
from tests.support.wandb_server import WandbServer
from tests.support.webhook import Hook

SETUP = "miles · Qwen3-0.6B"
ON_64_GPUS = {"actor_num_nodes": 8, "actor_num_gpus_per_node": 8, "colocate": True}


@pytest.fixture
def server():
    with WandbServer() as server:
        yield server


@pytest.fixture
def watch(server, tmp_path, monkeypatch):
    add_healthy(server)
    return Watch(server, tmp_path, monkeypatch)


@pytest.fixture
def hook(watch, monkeypatch):
    with Hook() as hook:
        monkeypatch.setenv("HOOK", hook.url)
        watch.flags["alerts.webhook_env"] = "HOOK"
        yield hook


def mutations(server):
    return [request.operations for request in server.requests if request.mutates]


@pytest.fixture
def equipped(server, watch):
    """Return the project with the list of packages of every run; in that of the broken one a version differs."""
    broken = add_run(server, "bad")
    for run in [server.run("lab", "rl", f"rl-ok{at}") for at in range(8)] + [broken]:
        version = b"0.5.16" if run is broken else b"0.5.9"
        server.state.new_file(run.files, "requirements.txt").content = b"torch==2.9.1\nsglang==" + version
    return watch


PACKAGES = "- installed: sglang 0.5.9 → 0.5.16\n"


# ── what raises an alert ─────────────────────────────────────────────────────


def test_a_broken_run_raises_an_error_and_a_suspect_one_a_warning_on_the_run_itself(server, watch):
    add_run(server, "bad")
    add_run(server, "odd", SUSPECT)
    result = watch.sync()
    assert [(alert.run_id, alert.level, alert.title) for alert in server.alerts] == [
        ("bad", "ERROR", "Broken at step 0: bad"),
        ("odd", "WARN", "Suspect at step 0: odd"),
    ]
    assert {alert.wait for alert in server.alerts} == {timedelta(hours=24)}
    assert [(alert["run"], alert["level"], alert["sent"]) for alert in result.alerts] == [
        ("lab/rl/bad", "broken", True),
        ("lab/rl/odd", "suspect", True),
    ]


def test_a_sync_without_news_sends_reads_only(server, watch):
    add_run(server, "bad", state="running")
    watch.sync()
    server.requests.clear()
    assert watch.sync().alerts == ()
    assert mutations(server) == []
    assert len(server.requests) == 1


def test_an_alert_touches_nothing_of_the_run(server, watch):
    run = add_run(server, "bad", tags=("mine",), state="running")
    before = (run.tags, run.config, run.summary, run.display_name, run.state(watch.now, 300), len(run.rows))
    watch.sync()
    assert (
        run.tags,
        run.config,
        run.summary,
        run.display_name,
        run.state(watch.now, 300),
        len(run.rows),
    ) == before
    assert mutations(server) == [("Step0Alert",)]


def test_an_alert_names_the_packages_that_differ_and_its_text_stays_what_it_is(server, equipped):
    server.faults.next("lost", times=3, match=lambda request: request.operations == ("Step0Alert",))
    equipped.sync()
    equipped.sync()
    assert PACKAGES in server.alerts[0].text
    assert len({alert.text for alert in server.alert_attempts}) == 1


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("/graphql", "403"),
        ("/graphql", "502"),
        ("/graphql", "hang"),
        ("/graphql", "html"),
        ("/graphql", "null-project"),
        ("/storage", "404"),
        ("/storage", "hang"),
        ("/storage", "truncated"),
    ],
)
def test_packages_that_the_server_does_not_give_keep_no_alert_back(server, equipped, where, fault):
    equipped.flags["server.give_up"] = "0.5s"

    def is_theirs(request):
        is_about_files = request.operations in ((), ("Step0RunFile",))
        return is_about_files and request.path.startswith(where)

    server.faults.always(fault, match=is_theirs)
    assert [alert["sent"] for alert in equipped.sync().alerts] == [True]
    assert "installed" not in server.alerts[0].text


def test_once_packages_have_taken_long_the_alerts_that_are_left_do_without(server, equipped):
    for at in range(3):
        add_run(server, f"later{at}", hours=0.5)
    times = iter(range(1000))
    equipped.clock = lambda: NOW + 6 * timedelta(seconds=next(times))
    equipped.sync()
    questions = [request for request in server.requests if request.operations == ("Step0RunFile",)]
    assert len(server.alerts) == 4
    assert PACKAGES in server.alerts[0].text
    assert 2 <= len(questions) < 8


def test_packages_are_asked_for_about_flagged_runs_alone_and_not_for_a_digest(server, equipped):
    for at in range(6):
        add_run(server, f"bad{at}")
    equipped.sync()
    assert not [request for request in server.requests if request.operations == ("Step0RunFile",)]


def test_what_is_suspect_for_another_reason_than_a_high_gap_raises_nothing(server, watch):
    add_run(server, "low", LOW)
    add_run(server, "zero", 0.0)
    result = watch.sync()
    assert {run.verdict for run in result.changed if run.run in ("lab/rl/low", "lab/rl/zero")} == {"suspect"}
    assert server.alerts == []


def test_levels_that_are_not_asked_for_raise_nothing(server, watch):
    watch.flags["alerts.levels"] = ["broken"]
    add_run(server, "bad")
    add_run(server, "odd", SUSPECT)
    watch.sync()
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]


def test_only_young_runs_and_those_that_still_run_raise_alerts(server, watch):
    add_run(server, "old", hours=25)
    add_run(server, "old-running", hours=25, state="running")
    add_run(server, "young", hours=23)
    watch.sync()
    assert {run for run, _ in watch.delivered()} == {"old-running", "young"}


def test_a_run_that_gets_worse_is_told_again_and_one_that_gets_better_is_not(server, watch):
    add_run(server, "odd", SUSPECT)
    for ratio in (2.0, 1.2, 2.0, 1.2):  # from which on a gap above its range is broken
        watch.flags["ranges.broken_ratio"] = ratio
        watch.sync()
    assert [alert.title for alert in server.alert_attempts] == [
        "Suspect at step 0: odd",
        "Broken at step 0: odd",
    ]


def test_a_run_that_is_fine_before_its_alert_went_out_raises_none(server, watch):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "odd", SUSPECT)
    assert [alert["sent"] for alert in watch.sync().alerts] == [False]
    server.abilities = replace(server.abilities, alerts=True)
    watch.flags["ranges.alpha"] = 1e-9
    assert watch.sync().alerts == ()
    assert server.alert_attempts == []


def test_a_label_keeps_a_run_from_raising_alerts(server, watch):
    for run_id, tag in (("a", "step0-bad"), ("b", "step0-skip"), ("c", "step0-ok")):
        add_run(server, run_id, tags=(tag,))
    watch.sync()
    assert server.alerts == []


def test_a_deleted_run_is_not_told_of_any_more(server, watch):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "bad", state="running")
    assert [alert["sent"] for alert in watch.sync().alerts] == [False]
    server.delete_run("lab", "rl", "bad")
    add_run(server, "later", 0.0152)
    server.abilities = replace(server.abilities, alerts=True)
    assert watch.sync().alerts == ()
    assert server.alerts == []


# ── all clear ────────────────────────────────────────────────────────────────


def calm(watch):
    """Let every run that is suspect be healthy from now on."""
    watch.flags["ranges.alpha"] = 1e-9
    return watch.sync()


def test_a_run_that_is_healthy_after_its_alert_gets_one_all_clear_on_the_same_run(server, watch, hook):
    add_run(server, "odd", SUSPECT)
    watch.sync()
    result = calm(watch)
    assert watch.delivered() == [("odd", "Suspect at step 0: odd"), ("odd", "All clear at step 0: odd")]
    assert server.alerts[1].level == "INFO"
    assert server.alerts[1].text.startswith("odd")
    assert "it is healthy now" in server.alerts[1].text
    assert f"{server.url}/lab/rl/runs/odd" in server.alerts[1].text
    assert [text.splitlines()[0] for text in hook.texts] == [
        "*Suspect at step 0: odd*",
        "*All clear at step 0: odd*",
    ]
    assert {(alert["run"], alert["level"]) for alert in result.alerts} == {("lab/rl/odd", "clear")}
    for alpha in (1e-3, 1e-9):  # suspect, and healthy again
        watch.flags["ranges.alpha"] = alpha
        assert watch.sync().alerts == ()


@pytest.mark.parametrize("tag", ["step0-ok", "step0-skip"])
def test_a_label_that_a_person_gives_after_the_alert_is_an_all_clear(server, watch, tag):
    run = add_run(server, "bad", state="running")
    watch.sync()
    run.tags = (tag,)
    watch.sync()
    assert watch.delivered()[1:] == [("bad", "All clear at step 0: bad")]
    assert "a person labeled it" in server.alerts[1].text


def test_a_label_that_confirms_the_alert_is_no_all_clear(server, watch):
    run = add_run(server, "bad", state="running")
    watch.sync()
    run.tags = ("step0-bad",)
    watch.sync()
    assert len(server.alerts) == 1


def test_there_is_no_all_clear_of_a_muted_setup_until_the_mute_is_over(server, watch):
    add_run(server, "odd", SUSPECT, state="running")
    watch.sync()
    with watch.store() as store:
        store.people.save(Mute(SETUP, NOW + timedelta(days=7), "ada", NOW))
    assert calm(watch).alerts == ()
    watch.wait(days=8)
    watch.sync()
    assert watch.delivered()[1:] == [("odd", "All clear at step 0: odd")]


def test_an_alert_that_never_went_out_needs_no_all_clear(server, watch):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "odd", SUSPECT)
    watch.sync()
    server.abilities = replace(server.abilities, alerts=True)
    assert calm(watch).alerts == ()
    assert server.alerts == []


def test_many_all_clears_become_one_apart_from_alerts(server, watch):
    runs = [add_run(server, f"bad{at}", state="running") for at in range(6)]
    watch.sync()
    for run in runs:
        run.tags = ("step0-skip",)
    add_run(server, "worse")
    watch.sync()
    assert watch.delivered() == [
        ("step0-sync", "Several alerts at step 0, first: bad0"),
        ("worse", "Broken at step 0: worse"),
        ("step0-sync", "All clear for several runs, first: bad0"),
    ]
    assert server.alerts[2].text.startswith("no longer broken or suspect:\n- labeled exclude: bad0")
    assert all(f"{server.url}/lab/rl/runs/bad{at}\n" in server.alerts[2].text for at in range(6))


# ── many at once, and whole setups ──────────────────────────────────────────


def test_more_new_alerts_than_the_settings_allow_become_one_on_the_syncs_own_run(server, watch):
    for at in range(6):
        add_run(server, f"bad{at}", hours=1 + at)
    result = watch.sync()
    (alert,) = server.alerts
    assert (alert.run_id, alert.level, alert.title) == (
        "step0-sync",
        "ERROR",
        "Several alerts at step 0, first: bad5",
    )
    assert all(f"bad{at}" in alert.text for at in range(6))
    assert len(result.alerts) == 6
    own = server.run("lab", "rl", "step0-sync")
    assert (own.job_type, own.rows, own.status) == ("step0-sync", [], "finished")
    assert watch.sync().alerts == ()


def test_as_many_as_the_settings_allow_stay_single(server, watch):
    for at in range(5):
        add_run(server, f"bad{at}")
    watch.sync()
    assert len(server.alerts) == 5


def test_a_digest_lists_runs_and_setups(server, watch):
    for at in range(5):
        add_run(server, f"bad{at}")
    for at in range(3):
        add_run(server, f"new{at}", 0.0220 + at * 1e-4, hours=5 - at)
    result = watch.sync()
    (alert,) = server.alerts
    assert alert.title == "Several alerts at step 0, first: bad0"
    assert alert.text.startswith("6 new alerts:\n- broken: bad0 by ada: gap 0.0461 is 3.0 times")
    assert "- setup miles · Qwen3-0.6B: this setup has moved x1.4" in alert.text
    assert [(alert["run"], alert["setup"]) for alert in result.alerts if alert["setup"]] == [(None, SETUP)]


def test_the_digest_of_a_team_does_not_tell_of_another_teams_runs(server, watch):
    add_healthy(server, entity="ops", project="serving")
    watch.sources.append("ops/serving")
    for at in range(4):
        add_run(server, f"bad{at}")
        add_run(server, f"worse{at}", entity="ops", project="serving")
    watch.sync()
    texts = {alert.entity: alert.text for alert in server.alerts}
    assert len(server.alerts) == 2
    assert "worse" not in texts["lab"]
    assert "bad0" not in texts["ops"]


def test_a_setup_that_moved_is_told_once_and_not_run_by_run(server, watch):
    for at in range(3):
        add_run(server, f"new{at}", 0.0220 + at * 1e-4, hours=5 - at)
    watch.sync()
    (alert,) = server.alerts
    assert (alert.run_id, alert.level) == ("step0-sync", "WARN")
    assert alert.title.startswith("Setup moved: miles · Qwen3-0.6B ")
    assert "this setup has moved x1.4" in alert.text
    assert "step0-wandb accept 'miles · Qwen3-0.6B'" in alert.text
    add_run(server, "new3", 0.0221, hours=0.5)
    watch.sync()
    assert len(server.alerts) == 1


def test_a_setup_that_lies_above_its_ceiling_is_told_once(server, watch):
    for at in range(3):
        add_run(server, f"new{at}", 0.0461, config={"hf_checkpoint": "/models/Qwen3-4B"})
    watch.sync()
    (alert,) = server.alerts
    assert alert.title.startswith("Setup above its ceiling: miles · Qwen3-4B ")
    assert "this whole setup lies above what its framework allows" in alert.text


def test_a_setup_that_moves_again_after_it_was_accepted_is_told_again(server, watch):
    for at in range(3):
        add_run(server, f"new{at}", 0.0220 + at * 1e-4, hours=5 - at)
    watch.sync()
    with watch.store() as store:
        store.people.save(Accept(SETUP, "new image", "ada", watch.now))
    watch.wait(hours=1)
    for at in range(3):
        add_run(server, f"again{at}", 0.0320 + at * 1e-4, hours=0.5 - at * 0.1, now=watch.now)
    watch.sync()
    titles = [alert.title for alert in server.alerts]
    assert len(titles) == len(set(titles)) == 2
    assert all(title.startswith("Setup moved: ") for title in titles)


def test_a_muted_setup_raises_nothing_until_the_mute_is_over(server, watch):
    watch.sync()
    with watch.store() as store:
        store.people.save(Mute(SETUP, NOW + timedelta(days=7), "ada", NOW))
    add_run(server, "bad", state="running")
    assert watch.sync().alerts == ()
    watch.wait(days=6)
    server.run("lab", "rl", "bad").heartbeat_at = watch.now
    assert watch.sync().alerts == ()
    watch.wait(days=1)
    server.run("lab", "rl", "bad").heartbeat_at = watch.now
    watch.sync()
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]


def test_an_alert_that_waits_is_withdrawn_when_its_setup_is_muted(server, watch):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "bad")
    watch.sync()
    with watch.store() as store:
        store.people.save(Mute(SETUP, NOW + timedelta(days=7), "ada", NOW))
    server.abilities = replace(server.abilities, alerts=True)
    watch.sync()
    assert server.alert_attempts == []


# ── where the server says no ────────────────────────────────────────────────


def test_an_alert_that_is_refused_on_a_run_is_raised_on_the_syncs_own_run_with_a_link(server, watch):
    server.abilities = replace(server.abilities, alerts=lambda run_id: run_id != "closed")
    add_run(server, "closed")
    add_run(server, "open")
    watch.sync()
    assert sorted(watch.delivered()) == [
        ("open", "Broken at step 0: open"),
        ("step0-sync", "Broken at step 0: closed"),
    ]
    text = next(alert.text for alert in server.alerts if alert.run_id == "step0-sync")
    assert f"{server.url}/lab/rl/runs/closed" in text
    assert "on the run itself the server does not let this key alert (HTTP 403)" in text


def test_a_refusal_everywhere_is_kept_and_tried_again(server, watch):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "bad")
    (alert,) = watch.sync().alerts
    assert (alert["sent"], "HTTP 403" in alert["error"], "on step0-sync" in alert["error"]) == (
        False,
        True,
        True,
    )
    with watch.store("read") as store:
        assert [queued.failure for queued in store.outbox.unsent()] == [alert["error"]]
        assert store.outbox.sent() == []
    server.abilities = replace(server.abilities, alerts=True)
    assert [alert["sent"] for alert in watch.sync().alerts] == [True]
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]


def test_a_failing_alert_keeps_no_other_from_going_out(server, watch):
    server.faults.next("500", times=3, match=lambda request: request.variables.get("run") == "first")
    add_run(server, "first", hours=2)
    add_run(server, "second")
    sent = {alert["run"]: alert["sent"] for alert in watch.sync().alerts}
    assert sent == {"lab/rl/first": False, "lab/rl/second": True}
    watch.sync()
    assert sorted(run for run, _ in watch.delivered()) == ["first", "second"]


@pytest.mark.parametrize(
    ("fault", "times", "said"),
    [("null-project", 1, "does not confirm"), ("null-data", 3, "context deadline exceeded")],
)
def test_an_answer_that_says_neither_yes_nor_no_is_asked_again_on_the_same_run(
    server, watch, fault, times, said
):
    add_run(server, "bad")
    server.faults.next(fault, times=times, match=lambda request: request.operations == ("Step0Alert",))
    (alert,) = watch.sync().alerts
    assert not alert["sent"]
    assert said in alert["error"]
    assert [alert["sent"] for alert in watch.sync().alerts] == [True]
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]


def test_no_project_is_made_where_the_server_shows_none(server, watch):
    add_run(server, "bad")
    server.abilities = replace(server.abilities, alerts=False)
    server.faults.always("null-project", match=lambda request: request.operations == ("Step0OwnRun",))
    (alert,) = watch.sync().alerts
    assert "project not found" in alert["error"]
    assert ("Step0MakeOwnRun",) not in mutations(server)


def test_an_alert_is_never_sent_to_another_server_than_its_runs(server, watch, monkeypatch):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "bad")
    watch.sync()
    with WandbServer() as other:
        add_healthy(other, project="elsewhere")
        monkeypatch.setenv("WANDB_BASE_URL", other.url)
        monkeypatch.setenv("WANDB_API_KEY", other.api_key)
        watch.sources = ["lab/elsewhere"]
        (alert,) = watch.sync().alerts
        assert "not the W&B server in use" in alert["error"]
        assert mutations(other) == []


def test_a_lost_answer_is_sent_again_in_the_same_words_and_people_get_one(server, watch):
    add_run(server, "bad")
    server.faults.next("lost", times=3, match=lambda request: request.operations == ("Step0Alert",))
    assert [alert["sent"] for alert in watch.sync().alerts] == [False]
    watch.wait(hours=1)
    assert [alert["sent"] for alert in watch.sync().alerts] == [True]
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]
    assert len({(alert.title, alert.text) for alert in server.alert_attempts}) == 1


def test_a_verdict_is_stored_with_its_alert_or_not_at_all(server, watch, monkeypatch):
    add_run(server, "bad")

    def full(*_arguments, **_options):
        raise StoreError("the disk is full")

    with monkeypatch.context() as crash:
        crash.setattr(Outbox, "add", full)
        with pytest.raises(StoreError):
            watch.sync()
    with watch.store("read") as store:
        assert (store.verdicts.runs(), store.notes.stale) == ([], True)
    watch.sync()
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]


def test_every_third_answer_lost_doubles_nothing_and_loses_nothing(server, watch):
    for at in range(4):
        add_run(server, f"bad{at}")
    number = iter(range(1, 1000))
    server.faults.always("lost", match=lambda request: request.is_graphql and next(number) % 3 == 0)
    watch.sync()
    watch.sync()
    assert sorted(run for run, _ in watch.delivered()) == ["bad0", "bad1", "bad2", "bad3"]
    assert len(server.alert_attempts) > 4


def test_what_cannot_be_delivered_is_a_problem_at_every_sync_until_it_is(server, watch):
    add_run(server, "bad")
    server.faults.always("500", match=lambda request: request.operations == ("Step0Alert",))
    for _ in range(2):
        [problem] = watch.sync().problems
        assert problem.where == "alerts in W&B"
        assert problem.what.startswith("1 message not delivered (Broken at step 0: bad): ")
    server.faults.clear()
    assert watch.sync().problems == ()
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]


def test_that_a_key_may_not_alert_is_a_problem_once_and_names_the_setting_that_turns_it_off(server, watch):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "bad")
    [problem] = watch.sync().problems
    assert "use a key that may write, or set alerts.wandb = false" in problem.what
    assert watch.sync().problems == ()
    watch.flags["alerts.wandb"] = False
    server.requests.clear()
    assert watch.sync().alerts == ()
    assert mutations(server) == []
    del watch.flags["alerts.wandb"]
    server.abilities = replace(server.abilities, alerts=True)
    assert watch.sync().problems == ()
    assert watch.delivered() == [("bad", "Broken at step 0: bad")]


# ── the webhook, and runs on disk ───────────────────────────────────────────


def test_the_webhook_gets_the_same_alerts_as_a_channel_of_its_own(server, watch, hook):
    server.abilities = replace(server.abilities, alerts=False)
    add_run(server, "bad", config=ON_64_GPUS, state="running", hours=6)
    result = watch.sync()
    assert {alert["channel"]: alert["sent"] for alert in result.alerts} == {"wandb": False, "webhook": True}
    (text,) = hook.texts
    assert text.startswith(
        "*Broken at step 0: bad*\ngap 0.0461 is 3.0 times the center 0.0152 of 8 healthy runs"
    )
    assert "running: 64 GPUs, 6 h since its start = 384 GPU-h (at 03:12 UTC)" in text
    server.abilities = replace(server.abilities, alerts=True)
    watch.sync()
    assert len(hook.texts) == len(server.alerts) == 1


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_webhook_that_refuses_is_tried_again_and_its_url_is_never_told(server, watch, hook, caplog, status):
    caplog.set_level(logging.DEBUG)
    hook.status = status
    add_run(server, "bad")
    failed = next(alert for alert in watch.sync().alerts if alert["channel"] == "webhook")
    assert "the webhook (from HOOK) re" in failed["error"]
    assert f"HTTP {status}" in failed["error"]
    hook.status = 200
    watch.sync()
    assert hook.paths == [Hook.SECRET, Hook.SECRET]  # no redirect was followed
    assert len(hook.texts) == 1
    assert "not-to-be-told" not in failed["error"] + caplog.text
    assert b"not-to-be-told" not in watch.loaded.store.read_bytes()


@pytest.mark.parametrize("value", ["", "not a url", "ftp://127.0.0.1/x", "http://[broken", "http://"])
def test_a_webhook_without_a_usable_url_is_told_without_its_value(server, watch, monkeypatch, value):
    monkeypatch.setenv("HOOK", value)
    watch.flags["alerts.webhook_env"] = "HOOK"
    add_run(server, "bad")
    alerts = {alert["channel"]: alert for alert in watch.sync().alerts}
    assert alerts["wandb"]["sent"]
    assert alerts["webhook"]["error"].startswith("HOOK ")
    assert not value or value not in alerts["webhook"]["error"]


def test_a_webhook_that_is_gone_is_asked_once_a_sync(server, watch, monkeypatch):
    with Hook() as gone:
        monkeypatch.setenv("HOOK", gone.url)
    watch.flags["alerts.webhook_env"] = "HOOK"
    add_run(server, "a")
    add_run(server, "b")
    errors = {alert["error"] for alert in watch.sync().alerts if alert["channel"] == "webhook"}
    assert len(errors) == 1
    assert "Connection refused" in errors.pop()


def test_runs_on_disk_are_told_in_the_log_and_by_the_webhook_alone(server, watch, hook, tmp_path):
    for at in range(5):
        miles_run(
            tmp_path, f"ok{at}", 0.0150 + at * 1e-4, started=int((NOW - timedelta(days=9)).timestamp()) + at
        )
    miles_run(tmp_path, "bad", BROKEN, started=int((NOW - timedelta(hours=1)).timestamp()))
    watch.sources = [str(tmp_path / "wandb")]
    result = watch.sync()
    assert {(alert["channel"], alert["sent"]) for alert in result.alerts} == {
        ("log", True),
        ("webhook", True),
    }
    assert len(hook.texts) == 1
    assert server.requests == []
    assert watch.sync().alerts == ()


# ── without sending, and travelling ─────────────────────────────────────────


def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(server, watch, hook, capsys):
    add_run(server, "bad")
    result = watch.sync(dry_run=True)
    log.configure(as_json=False, clock=watch.clock)
    print_result(result, Session(dry_run=True))
    said = [line.partition("Z ")[2] for line in capsys.readouterr().err.splitlines()]
    title = "would send to W&B and the webhook: Broken at step 0: bad"
    assert said[0] == title  # the same words go to both, and are printed once
    assert said[1:] == [f"    {line}" for line in str(result.alerts[0]["text"]).splitlines()]
    assert [(alert["channel"], alert["title"], alert["sent"], alert["error"]) for alert in result.alerts] == [
        ("wandb", "Broken at step 0: bad", False, None),
        ("webhook", "Broken at step 0: bad", False, None),
    ]
    assert all("3.0 times the center" in alert["text"] for alert in result.alerts)
    assert mutations(server) == hook.texts == []
    assert not watch.loaded.store.exists()


def test_what_was_alerted_travels_to_an_empty_store(server, watch):
    add_run(server, "bad")
    watch.sync()
    with watch.store("read") as store:
        alerted = store.outbox.sent()
    assert alerted == [
        {"channel": "wandb", "subject": "lab/rl/bad", "level": "broken", "at": "2026-11-30T03:12:00+00:00"}
    ]
    watch.loaded.store.unlink()
    watch.wait(hours=12)
    with watch.store() as store:
        store.outbox.restore(alerted)
        store.outbox.restore(alerted)
        assert store.outbox.sent() == alerted
    add_run(server, "worse", now=watch.now)
    watch.sync()
    assert [alert.run_id for alert in server.alert_attempts] == ["bad", "worse"]


@pytest.mark.parametrize(
    "name",
    [
        "</script><img src=x>|**x**",
        "x" * 5000,
        "\u202eevil\u2066\x1b[31m\x07 run",
        "[a](javascript:x) @channel <!here>",
    ],
)
def test_a_hostile_name_harms_no_alert(server, watch, hook, name):
    add_run(server, "bad", name=name, user=name, config={"note": name})
    watch.sync()
    (alert,) = server.alerts
    for text in (alert.title, alert.text, *hook.texts):
        assert len(text) < 1500
        assert text.replace("\n", "").isprintable()
        assert not {"<", "@", "`"} & set(text)
        assert "](" not in text
    assert len(alert.title) < 64
