"""What a sync writes to W&B, with the real wandb client and wandb-workspaces, and what it leaves alone."""

import dataclasses
import json
import re
from datetime import timedelta

import pytest

from step0_wandb.app.check import basis_of, judge_one, read_one
from step0_wandb.publish import wandb as write_back
from step0_wandb.publish.wandb import process
from step0_wandb.publish.wandb.process import Login, WriteJob
from step0_wandb.publish.wandb.report import GENERATED, MARK, TITLE
from step0_wandb.publish.wandb.state import State
from step0_wandb.publish.wandb.state_document import read_state
from step0_wandb.publish.wandb.tables import RUN_COLUMNS, SETUP_COLUMNS
from step0_wandb.records import Problem
from step0_wandb.store import Accept, Label, Mute, Retraction
from step0_wandb.wandb_api.address import RemoteAddress
from tests.support import command
from tests.support.project import GAPS, HOSTILE, NOW, Lab, add_miles, add_project, environment, python
from tests.support.server_source import CONFIG, miles_rows
from tests.support.wandb_server import WandbServer
from tests.support.wandb_server.asking import ask

READ_BACK = """
import json, sys
from wandb_workspaces.reports import v2
report = v2.Report.from_url(sys.argv[1])
def text(parts):
    parts = parts if isinstance(parts, list) else [parts]
    return [part if isinstance(part, str) else {"text": part.text, "url": part.url} for part in parts]
found = []
for block in report.blocks:
    kind = type(block).__name__
    if kind == "UnorderedList":
        found.append([kind, [text(item.text if hasattr(item, "text") else item) for item in block.items]])
    elif kind == "PanelGrid":
        found.append([kind, [type(panel).__name__ for panel in block.panels], block.runsets[0].filters])
    else:
        found.append([kind, text(block.text)])
print(json.dumps({"title": report.title, "description": report.description, "blocks": found}))
"""


@pytest.fixture
def server():
    with WandbServer() as server:
        server.clock = lambda: NOW
        yield server


@pytest.fixture
def lab(server, tmp_path, monkeypatch):
    """Return a project whose runs nobody has read yet; only its state is written."""
    for name, value in environment(server, tmp_path).items():
        monkeypatch.setenv(name, value)
    add_project(server)
    return Lab(server, tmp_path, **{"report.wandb": None})


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return a project that was synced with everything on, then twice without news, and what was sent."""
    folder = tmp_path_factory.mktemp("told")
    with WandbServer() as server, pytest.MonkeyPatch.context() as patch:
        server.clock = lambda: NOW
        for name, value in environment(server, folder).items():
            patch.setenv(name, value)
        add_project(server)
        lab = Lab(server, folder)
        lab.first, lab.first_writes = lab.sync(), lab.writes
        lab.second, lab.second_writes = lab.sync(), lab.writes
        lab.lose_store()
        lab.now += timedelta(hours=1)
        lab.third, lab.third_writes = lab.sync(), lab.writes
        yield lab


def whole(result):
    """Return what a sync wrote, after making sure that nothing went wrong."""
    assert result.problems == ()
    return {(item.what, item.where) for item in result.written}


def everything(where="lab/rl"):
    return {(what, where) for what in ("tables", "report", "state")}


def file_of(run, pattern):
    """Return the newest file of a run whose name matches."""
    names = sorted(name for name in run.files if re.search(pattern, name))
    return run.files[names[-1]].content


# ── a project with everything on ─────────────────────────────────────────────


def test_the_first_sync_writes_tables_report_and_state_and_says_so(told):
    assert whole(told.first) == everything()
    [url] = [item.url for item in told.first.written if item.url]
    assert url.startswith(f"{told.server.url}/lab/rl/reports/Step-0-health--")


def test_a_sync_without_news_sends_reads_only(told):
    assert whole(told.second) == set()
    assert told.second_writes == []


def test_a_sync_that_lost_its_store_goes_on_and_sends_reads_only(told):
    assert whole(told.third) == set()
    assert told.third_writes == []
    assert told.third.counts == told.first.counts == {"broken": 2, "no-range": 1, "healthy": 6}
    assert len(told.server.alert_attempts) == 2
    assert len(told.reports) == len(told.versions()) == 1


def test_the_own_run_is_finished_and_says_nothing_of_the_machine(told):
    run = told.server.run("lab", "rl", "step0-sync")
    assert (run.status, run.job_type, run.exit_code) == ("finished", "step0-sync", 0)
    assert (run.host, run.program) == (None, "step0-wandb")
    assert not [name for name in run.files if re.search("requirements|metadata|output|code", name)]
    assert set(run.config) == {"_wandb"}


def test_the_tables_hold_every_setup_and_run_and_the_counts_are_metrics(told):
    [row] = told.server.rows("lab", "rl", "step0-sync")
    run = told.server.run("lab", "rl", "step0-sync")
    runs = json.loads(file_of(run, r"table/runs_0_.*\.table\.json"))
    setups = json.loads(file_of(run, r"table/setups_0_.*\.table\.json"))
    assert (tuple(runs["columns"]), tuple(setups["columns"])) == (RUN_COLUMNS, SETUP_COLUMNS)
    ids = [cells[RUN_COLUMNS.index("run")] for cells in runs["data"]]
    assert ids[:2] == ["lab/rl/rl-long", "lab/rl/rl-bad"]
    assert set(ids[2:]) == {"lab/rl/rl-blind", *(f"lab/rl/rl-ok{at}" for at in range(6))}
    [setup] = setups["data"]
    assert dict(zip(SETUP_COLUMNS, setup, strict=True))["n"] == 6
    assert (row["verdicts/broken"], row["verdicts/healthy"], row["verdicts/suspect"]) == (2, 6, 0)
    assert (row["runs/all"], row["runs/broken_and_running"], row["setups/with_range"]) == (9, 1, 1)


def test_the_chart_is_a_picture_of_the_own_run(told):
    [row] = told.server.rows("lab", "rl", "step0-sync")
    picture = file_of(told.server.run("lab", "rl", "step0-sync"), r"images/gaps_0_")
    assert picture.startswith(b"\x89PNG")
    assert row["gaps"]["_type"] == "image-file"
    assert (row["gaps"]["width"], row["gaps"]["height"]) > (800, 150)


def test_the_report_that_wandb_reads_back_holds_the_blocks(told):
    found = read_back(told)
    assert found["title"] == TITLE
    assert re.fullmatch(
        rf"Written by step0-wandb, .* \({MARK} [0-9a-f]{{8}} [0-9a-f]{{32}}\)", found["description"]
    )
    assert found["blocks"][0] == ["CalloutBlock", [GENERATED]]
    headings = [block[1][0] for block in found["blocks"] if block[0] == "H2"]
    assert headings == [
        "Broken and still running",
        "Flagged in the last 7 days",
        "Ranges",
        "Charts and tables",
        "Weight checks",
        "What is not checked",
        "How to read this",
    ]
    due = f": Qwen3-0.6B, {len(GAPS) + 3} runs; to compare the weights, add to a short run --num-rollout 2"
    assert due in json.dumps(found["blocks"])
    [grid] = [block for block in found["blocks"] if block[0] == "PanelGrid"]
    assert grid[1:] == [
        ["MediaBrowser", "LinePlot", "WeavePanelSummaryTable", "WeavePanelSummaryTable"],
        "Metric(\"JobType\") == 'step0-sync'",
    ]


def test_a_hostile_name_is_plain_text_and_leads_to_its_run_alone(told):
    blocks = read_back(told)["blocks"]
    [[link, verdict, reason, facts]] = next(block[1] for block in blocks if block[0] == "UnorderedList")
    assert link == {"text": HOSTILE, "url": f"{told.server.url}/lab/rl/runs/rl-bad"}
    assert verdict == ": broken."
    assert reason.startswith(" gap 0.0461 is 3.0 times the center 0.0151 of 6 healthy runs")
    assert "running" in facts
    # In the stored description every text is a node of its own; markdown stands in one block alone.
    spec = json.loads(told.reports[0].spec)
    markdown = [block["content"] for block in spec["blocks"] if block["type"] == "markdown-block"]
    assert [HOSTILE in text for text in markdown] == [False]
    assert "\u202e" not in told.reports[0].spec
    assert len(told.reports[0].spec) < 20_000


def test_the_key_is_in_nothing_that_was_written(told):
    run = told.server.run("lab", "rl", "step0-sync")
    kept = [file.content for file in run.files.values() if file.content]
    kept += [told.state(), told.reports[0].spec.encode(), run.config_json.encode()]
    kept += [(told.folder / "step0.db").read_bytes()]
    assert not any(told.server.api_key.encode() in text for text in kept)


def test_nothing_of_the_client_is_left_in_the_folder(told):
    assert not [path for path in told.folder.rglob("*") if "wandb" in path.name]


def read_back(lab):
    [url] = [item.url for item in lab.first.written if item.url]
    home = lab.folder.parent
    done = python(READ_BACK, url, cwd=home, WANDB_SILENT="true", **environment(lab.server, home))
    assert done.code == 0, done.err
    return done.document


# ── when something changes ───────────────────────────────────────────────────


def test_news_resumes_the_own_run_and_saves_the_report_in_place(lab, server):
    lab.flags["report.wandb"] = "same"
    lab.sync()
    before = (lab.reports[0].id, lab.reports[0].spec)
    add_miles(server, "new", 0.0490, hours=0.5)
    assert whole(lab.sync()) == everything()
    assert [row["verdicts/broken"] for row in server.rows("lab", "rl", "step0-sync")] == [2, 3]
    assert len(server.project("lab", "rl").runs) == 11
    [report] = lab.reports
    assert report.id == before[0]
    assert report.spec != before[1]
    assert len(lab.versions()) == 2


def test_a_run_that_ends_changes_what_is_shown_and_a_word_of_a_person_what_travels(lab, server):
    lab.sync()
    with lab.store("write") as store:
        store.people.save(Label("lab/rl/rl-bad", "healthy", "a test of the alarm", "mia", NOW))
    assert whole(lab.sync()) == {("state", "lab/rl")}
    server.run("lab", "rl", "rl-bad").status = "finished"
    assert whole(lab.sync()) == set()  # without tables and report nothing shows it


def test_words_alerts_and_report_survive_the_loss_of_the_store(lab):
    lab.sync()
    with lab.store("write") as store:
        store.people.save(Label("lab/rl/rl-bad", "healthy", "a test of the alarm", "mia", NOW))
        [setup] = [item.setup for item in store.verdicts.ranges()]
        store.people.save(Accept(setup, "new image", "mia", NOW))
    lab.sync()
    lab.lose_store()
    assert whole(lab.sync()) == set()
    with lab.store() as store:
        assert store.people.labels()["lab/rl/rl-bad"].why == "a test of the alarm"
        assert set(store.people.accepts()) == {setup}
        assert {item["subject"] for item in store.outbox.sent()} == {"lab/rl/rl-bad", "lab/rl/rl-long"}
        [run] = store.verdicts.runs(keys=["lab/rl/rl-bad"])
    assert (run.verdict, run.label) == ("healthy", "healthy")
    titles = [alert.title for alert in lab.server.alert_attempts]
    assert len(titles) == len(set(titles))


# ── two machines, each with a store of its own ──────────────────────────────


@pytest.fixture
def other(lab, server, tmp_path):
    """Return a second machine; both have synced the project, and time goes on at the server as well."""
    lab.sync()
    (tmp_path / "other").mkdir()
    other = Lab(server, tmp_path / "other", **{"report.wandb": None})
    assert whole(other.sync()) == set()
    server.clock = lambda: max(lab.now, other.now)
    return other


def test_what_people_said_on_either_machine_and_what_either_has_told_counts_on_both(lab, other, server):
    with lab.store("write") as store:
        store.people.save(Label("lab/rl/rl-bad", "exclude", "a test of the alarm", "mia", NOW))
        [setup] = [item.setup for item in store.verdicts.ranges()]
    assert whole(lab.sync()) == {("state", "lab/rl")}

    other.now += timedelta(days=2)  # long after the server has forgotten the titles of alerts
    add_miles(server, "new", 0.0490, hours=-40)
    with other.store("write") as store:
        store.people.save(Mute(setup, NOW + timedelta(days=9), "leo", NOW))
        store.people.retract(Retraction("mute", setup, NOW))
    assert whole(other.sync()) == {("state", "lab/rl")}
    with other.store() as store:
        assert [run.label for run in store.verdicts.runs(keys=["lab/rl/rl-bad"])] == ["exclude"]

    lab.now += timedelta(days=4)
    with lab.store("write") as store:
        store.people.retract(Retraction("label", "lab/rl/rl-bad", lab.now))
    lab.sync()
    left = read_state(lab.state())
    assert (left.labels, left.mutes) == ((), ())
    assert {word.what for word in left.retractions} == {"label", "mute"}
    titles = [alert.title for alert in server.alert_attempts]
    assert len(titles) == len(set(titles))
    broken = sorted(alert.run_id for alert in server.alert_attempts if alert.level == "ERROR")
    assert broken == ["new", "rl-bad", "rl-long"]


def test_what_the_other_machine_writes_during_a_sync_is_not_written_over(lab, other, server, monkeypatch):
    add_miles(server, "new", 0.0490)
    with lab.store("write") as store:
        store.people.save(Label("lab/rl/rl-ok1", "healthy", "compared by hand", "mia", NOW))
    with other.store("write") as store:
        store.people.save(Label("lab/rl/rl-long", "exclude", "a copy", "leo", NOW))
    publish = write_back.publish

    def sync_meanwhile(*given, **options):
        patch.undo()
        assert whole(other.sync()) == {("state", "lab/rl")}
        return publish(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(write_back, "publish", sync_meanwhile)
        assert whole(lab.sync()) == {("state", "lab/rl")}
    left = read_state(lab.state())
    assert [label.why for label in left.labels] == ["a copy", "compared by hand"]
    assert {item["subject"] for item in left.alerted} == {
        f"lab/rl/{name}" for name in ("new", "rl-bad", "rl-long")
    }
    assert [alert.run_id for alert in server.alerts].count("new") == 1
    with lab.store() as store:
        assert store.people.labels()["lab/rl/rl-long"].why == "a copy"


# ── where it goes ────────────────────────────────────────────────────────────


def test_one_report_for_all_projects_leaves_the_others_with_their_state_alone(lab, server):
    add_project(server, "sft")
    lab.sources, lab.flags["report.wandb"] = ("lab/rl", "lab/sft"), "lab/health"
    assert whole(lab.sync()) == everything("lab/health") | {("state", "lab/rl"), ("state", "lab/sft")}
    states = {project: read_state(lab.state(project)) for project in ("rl", "sft", "health")}
    assert {name: state.runs for name, state in states.items()} == {"rl": 9, "sft": 9, "health": 18}
    alerted = {name: {item["subject"] for item in state.alerted} for name, state in states.items()}
    assert alerted["rl"] == {"lab/rl/rl-bad", "lab/rl/rl-long"}
    assert alerted["health"] == alerted["rl"] | alerted["sft"]
    assert [report.project.name for report in lab.reports] == ["health"]


def test_with_a_home_no_other_project_gets_a_run_of_ours_and_a_new_store_goes_on_from_there(lab, server):
    add_project(server, "sft")
    lab.sources = ("lab/rl", "lab/sft")
    lab.flags |= {"report.home": "lab/step0", "report.wandb": "same", "alerts.digest": "1"}
    assert whole(lab.sync()) == everything("lab/step0")
    assert [alert.run_id for alert in server.alerts] == ["step0-sync"]
    projects = {
        name: {run.name for run in server.project("lab", name).runs.values()}
        for name in ("rl", "sft", "step0")
    }
    assert projects["step0"] == {"step0-sync"}
    assert "step0-sync" not in projects["rl"] | projects["sft"]
    assert read_state(lab.state("step0")).runs == 18
    assert not lab.versions("rl")

    lab.lose_store()
    assert whole(lab.sync()) == set()
    assert lab.writes == []


def test_without_the_state_and_without_a_report_nothing_is_written(lab):
    lab.flags["report.state"] = False
    assert whole(lab.sync()) == set()
    assert {write[0] for write in lab.writes} == {"Step0Alert"}


def test_a_dry_run_says_what_would_be_written_and_sends_reads_only(lab):
    lab.flags["report.wandb"] = "same"
    assert whole(lab.sync(dry_run=True)) == everything()
    assert lab.writes == []


def test_the_report_command_writes_from_the_store_alone(lab, server, tmp_path):
    lab.flags["report.state"] = False
    lab.sync()
    server.requests.clear()
    words = ("report", "--wandb", "lab/other", "--store", tmp_path / "step0.db")
    dry = command.run(*words, "--dry-run", cwd=tmp_path, **environment(server, tmp_path))
    assert (dry.code, lab.writes) == (0, [])
    assert [line.partition("Z ")[2] for line in dry.err.splitlines()] == [
        f"would write the {what} of lab/other" for what in ("report", "state", "tables")
    ]
    answer = command.run(*words, cwd=tmp_path, **environment(server, tmp_path))
    assert answer.code == 0, answer.err
    assert [report.project.name for report in lab.reports] == ["other"]
    assert read_state(lab.state("other")).runs == 9
    assert not any("Step0Page" in request.operations for request in server.requests)


def test_a_report_setting_that_names_no_project_is_refused_before_anything_is_read(server, tmp_path):
    (tmp_path / "step0.toml").write_text('sources = ["lab/rl"]\n[report]\nwandb = "health"\n')
    answer = command.run("sync", cwd=tmp_path, **environment(server, tmp_path))
    assert answer.code == 2
    assert "error: report.wandb = 'health' does not name a W&B project" in answer.err
    assert server.requests == []


# ── one report ───────────────────────────────────────────────────────────────


@pytest.fixture
def reported(lab):
    """Return the project with a report of its own."""
    lab.flags["report.wandb"] = "same"
    lab.sync()
    return lab


def forget(lab):
    """Lose the store and the state, so that the report's id is known nowhere."""
    lab.lose_store()
    del lab.server.state.collections["lab", "rl", "step0-state"]


def test_a_report_whose_id_is_known_nowhere_is_found_again(reported):
    [before] = [report.id for report in reported.reports]
    forget(reported)
    assert whole(reported.sync()) == everything()
    assert [report.id for report in reported.reports] == [before]


def test_a_report_that_somebody_deleted_is_made_again(reported, server):
    server.state.views.clear()
    add_miles(server, "new", 0.0152)
    assert whole(reported.sync()) == everything()
    [report] = reported.reports
    assert MARK in report.description
    assert read_state(reported.state()).report == report.id


def test_a_report_of_the_same_title_that_people_wrote_is_left_alone(lab, server):
    lab.flags["report.wandb"] = "same"
    theirs = {"title": TITLE, "description": "our notes", "spec": '{"blocks": []}'}
    made = ask(server, MAKE_VIEW, **theirs).json()["data"]["upsertView"]["view"]["id"]
    lab.sync()
    [old, new] = lab.reports
    assert (old.id, old.description, old.spec) == (made, "our notes", '{"blocks": []}')
    assert MARK in new.description


MAKE_VIEW = """
mutation V($title: String, $description: String, $spec: String!) {
  upsertView(input: {entityName: "lab", projectName: "rl", type: "runs", displayName: $title,
    description: $description, spec: $spec}) { view { id } }
}
"""


@pytest.mark.parametrize(
    "fault",
    [
        "lost-reset",
        "502",
        *(pytest.param(fault, marks=pytest.mark.full_grid) for fault in ("lost", "truncated", "hang")),
    ],
)
def test_a_lost_answer_makes_no_second_report(lab, server, fault):
    lab.flags["report.wandb"] = "same"
    server.faults.hang_s = 0.2
    server.faults.next(fault, match=lambda request: request.operations == ("Step0NewReport",))
    assert whole(lab.sync()) == everything()
    assert len(lab.reports) == 1


# ── when something fails ─────────────────────────────────────────────────────


def test_a_part_that_the_server_refuses_is_told_and_written_by_the_next_sync(lab, server):
    lab.flags["report.wandb"] = "same"
    server.faults.next("403", times=2, match=lambda request: request.operations == ("upsertView",))
    result = lab.sync()
    assert {(item.what, item.where) for item in result.written} == everything() - {("report", "lab/rl")}
    [problem] = result.problems
    assert problem.where == "lab/rl: report"
    assert problem.what.startswith("not written: WandbApiFailedError")
    assert "report" not in read_state(lab.state()).written
    assert whole(lab.sync()) == {("report", "lab/rl"), ("state", "lab/rl")}


@pytest.mark.parametrize(
    ("operation", "about", "fault"),
    [("upsertView", "", "html"), ("CreateArtifact", "step0-state", "null-data"), ("Viewer", "", "truncated")],
)
def test_a_part_at_which_the_client_got_a_garbled_answer_is_tried_again(lab, server, operation, about, fault):
    def is_meant(request):
        begun = any("CreateArtifact" in other.operations for other in server.requests)
        late = operation != "Viewer" or begun  # the first one belongs to the start of the run
        return late and operation in request.operations and about in repr(request.variables)

    lab.flags["report.wandb"] = "same"
    server.faults.next(fault, match=is_meant)
    assert whole(lab.sync()) == everything()
    assert fault in {request.fault for request in server.requests}
    assert len(lab.versions()) == 1


def test_a_key_that_may_only_read_is_told_once_and_hides_no_verdict(lab, server):
    server.faults.always("403", match=lambda request: request.mutates)
    result = lab.sync()
    assert result.counts == {"broken": 2, "no-range": 1, "healthy": 6}
    assert [problem.where for problem in result.problems] == ["alerts in W&B", "lab/rl"]
    assert all("(this is not said again)" in problem.what for problem in result.problems)
    assert "set alerts.wandb = false" in result.problems[0].what
    assert "set report.state = false" in result.problems[1].what
    assert result.written == ()
    again = lab.sync()
    assert (again.problems, again.written) == ((), ())
    # Alerts are tried all the same, in case that the key may alert now.
    assert set(lab.writes) == {("Step0Alert",), ("Step0MakeOwnRun",)}
    server.faults.clear()
    lab.now += timedelta(hours=25)
    assert whole(lab.sync()) == {("state", "lab/rl")}
    assert len(server.alerts) == 2


def test_a_client_that_takes_too_long_is_ended_at_the_deadline(server):
    job = WriteJob("lab", "rl", state=State("lab/rl", NOW))
    failures = process.write(job, Login(server.url, server.api_key), environ={}, deadline_s=0.2)
    assert failures == {"": "not done within 0.2 s"}


def test_a_server_that_is_not_there_ends_in_one_line(server):
    job = WriteJob("lab", "rl", state=State("lab/rl", NOW))
    login = Login("http://127.0.0.1:9", server.api_key)
    failures = process.write(job, login, environ={}, deadline_s=60)
    assert "connection refused" in failures[""]
    assert server.api_key not in repr((login, failures))


@pytest.mark.parametrize(
    ("document", "says", "written"),
    [
        (b'{"schema": "step0/state/3"}', "later step0-wandb", set()),
        (b'{"schema": "step0/state/1"}', "is damaged", {("state", "lab/rl")}),
        (b"\xff\xfe", "is not JSON", {("state", "lab/rl")}),
    ],
)
def test_a_state_of_a_later_version_is_left_alone_and_a_damaged_one_written_again(
    lab, document, says, written
):
    lab.sync()
    lab.versions()[0].files["step0-state.json"].content = document
    lab.lose_store()
    lab.now += timedelta(hours=1)
    result = lab.sync()
    assert {(item.what, item.where) for item in result.written} == written
    [problem] = result.problems
    assert problem.where == "lab/rl"
    assert says in problem.what
    again = lab.sync()
    assert bool(again.problems) is (not written)  # the one is told until it is solved, the other once
    assert again.written == ()
    assert len(lab.versions()) == 1 + len(written)


def test_a_state_that_cannot_be_fetched_is_not_written_over(lab, server):
    lab.sync()
    with lab.store("write") as store:
        store.people.save(Label("lab/rl/rl-bad", "healthy", "keep me", "mia", NOW))
    lab.sync()
    lab.lose_store()
    lab.flags["server.give_up"] = "1s"
    server.faults.always("502", match=lambda request: request.path.startswith("/storage/"))
    result = lab.sync()
    assert [problem.where for problem in result.problems] == ["lab/rl"]
    assert result.written == ()
    server.faults.clear()
    assert whole(lab.sync()) == set()
    with lab.store() as store:
        assert store.people.labels()["lab/rl/rl-bad"].why == "keep me"


def test_a_project_that_cannot_be_read_gets_nothing_and_the_other_its_state(lab, server):
    add_project(server, "sft")
    lab.sources = ("lab/nothing", "lab/sft")
    result = lab.sync()
    assert {(item.what, item.where) for item in result.written} == {("state", "lab/sft")}
    assert result.problems == (Problem("lab/nothing", result.problems[0].what),)


# ── in a user's process ──────────────────────────────────────────────────────

NOTEBOOK = """
import os, sys, wandb
run = wandb.init(project="mine", mode="offline", settings=wandb.Settings(console="off"))
before = dict(os.environ)
import step0_wandb as s0
result = s0.sync(["lab/rl"], store="step0.db")
assert [item.what for item in result.written] == ["state"], result
assert wandb.run is run
assert dict(os.environ) == before
run.log({"still": "mine"})
run.finish()
print(wandb.run is None)
"""


def test_a_run_of_the_caller_and_its_environment_stay_as_they_are(server, tmp_path):
    add_project(server)
    environ = environment(server, tmp_path) | {
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": "mine",
        "WANDB_SILENT": "true",
    }
    done = python(NOTEBOOK, cwd=tmp_path, **environ)
    assert done.code == 0, done.err
    assert done.out == "True\n"
    assert set(server.state.projects) == {("lab", "rl")}


def test_a_sync_without_news_imports_neither_wandb_nor_pandas(lab, server, tmp_path):
    lab.sync()
    code = (
        "import sys; from step0_wandb.cli.app import run; "
        "code = run(['sync', 'lab/rl', '--quiet', '--store', 'step0.db']); "
        "print(code, {'wandb', 'pandas', 'matplotlib', 'wandb_workspaces'} & set(sys.modules))"
    )
    done = python(code, cwd=tmp_path, **environment(server, tmp_path))
    assert done.out.splitlines()[-1] == "0 set()", done.err


# ── one run without a store ──────────────────────────────────────────────────


def add_quantized(server, run_id, ppo_kl):
    rows = [row | ({"train/ppo_kl": ppo_kl} if "train/ppo_kl" in row else {}) for row in miles_rows()]
    server.add_run("lab", "rl", run_id, config=CONFIG | {"fp8": "e4m3"}, rows=rows, created_at=NOW)


def check(lab, run_id):
    (one,) = read_one(f"lab/rl/{run_id}", lab.job)
    basis = basis_of(one.record, lab.job)
    return judge_one(one.record, lab.job.loaded, basis), basis.origin


def test_without_a_store_a_run_is_judged_by_what_the_last_sync_left(lab, server):
    lab.sync()
    with lab.store("write") as store:
        store.people.save(Label("lab/rl/rl-long", "exclude", "a copy", "mia", NOW))
    lab.sync()
    lab.lose_store()
    lab.now += timedelta(minutes=14)
    server.requests.clear()
    for run_id, gap in (("late", 0.0470), ("fine", 0.0152)):
        add_miles(server, run_id, gap)
    run, said = check(lab, "late")
    assert said == "ranges: lab/rl, 14 min old, 9 runs"
    assert run.verdict == "broken"
    assert "3.1 times the center 0.0151 of 6 healthy runs" in run.reasons[0]
    assert check(lab, "fine")[0].verdict == "healthy"
    assert check(lab, "rl-long")[0].label == "exclude"
    assert not (lab.folder / "step0.db").exists()
    assert lab.writes == []
    assert not any("Step0Page" in request.operations for request in server.requests)


def test_without_store_and_state_the_project_is_read_first(lab):
    run, said = check(lab, "rl-bad")
    assert said == "ranges: lab/rl, just read, 9 runs"
    assert run.verdict == "broken"
    assert not (lab.folder / "step0.db").exists()


@pytest.mark.parametrize("document", [b"{", b'{"schema": "step0/state/9"}'])
def test_a_state_that_cannot_be_used_is_replaced_by_reading_the_project(lab, document):
    lab.sync()
    lab.versions()[0].files["step0-state.json"].content = document
    lab.lose_store()
    run, said = check(lab, "rl-bad")
    assert said == "ranges: lab/rl, just read, 9 runs"
    assert run.verdict == "broken"


def test_a_range_that_travels_judges_as_the_store_it_came_from(lab):
    lab.sync()
    with lab.store() as store:
        [stored] = store.verdicts.ranges()
    left = write_back.shared_ranges(RemoteAddress("lab", "rl"), lab.job.context())
    [row] = left.ranges.reset_index().to_dict("records")
    assert row | {"last_run": stored.last_run} == dataclasses.asdict(stored)


def test_the_noise_that_a_quantized_trainer_has_shown_travels(lab, server):
    for at, ppo_kl in enumerate((1e-5, 2e-5, -1e-5, 3e-5)):
        add_quantized(server, f"known{at}", ppo_kl)
    lab.sync()
    lab.lose_store()
    add_quantized(server, "noisy", 4e-5)
    add_quantized(server, "faulty", 8e-4)
    assert check(lab, "noisy")[0].verdict == "healthy"
    run, said = check(lab, "faulty")
    assert (run.verdict, said) == ("suspect", "ranges: lab/rl, 0 s old, 13 runs")
    # In R, qt(0.999, 4) is 7.173182; the root mean square of the four is 1.936e-5.
    assert run.reasons == ("ppo_kl is 0.000800, above the 0.000139 that this setup's healthy runs allow",)


def test_check_says_by_what_it_judges(lab, server, tmp_path):
    lab.sync()
    lab.lose_store()
    answer = command.run("check", "lab/rl/rl-bad", cwd=tmp_path, **environment(server, tmp_path))
    assert answer.code == 3, answer.err
    assert re.search(r"ranges: lab/rl, .* old, 9 runs$", answer.err, re.MULTILINE)
