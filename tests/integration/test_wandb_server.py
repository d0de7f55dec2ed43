"""The real, unmodified wandb client writes to the double of the W&B server, and reads it back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import wandb

from tests.support.wandb_server import client_online, detached

WRITES_UNTIL_STOPPED = """
import time, wandb
from wandb.sdk.lib import run_stopping
run_stopping.RunStopChecker.__init__.__kwdefaults__["poll_interval"] = 0.1  # 15 s, as it comes
run = wandb.init(project="stopped", id="live")
while True:
    run.log({"loss": 1.0})
    time.sleep(0.2)
"""
JOINS_THE_RUN = """
import wandb
settings = wandb.Settings(x_primary=False, x_update_finish_state=False, console="off")
run = wandb.init(project="shared", id="both", mode="shared", settings=settings)
run.log({"engine": 1.0})
run.finish()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wandb")
    with client_online(folder) as server:
        yield server


@pytest.fixture(scope="module")
def written(server):  # noqa: ARG001 - the client finds it by its environment
    """One run with everything that people give a run."""
    run = wandb.init(
        project="rl",
        id="first",
        name="a first try",
        config={"lr": 0.1, "model": {"name": "Qwen3-0.6B"}},
        group="sweep-a",
        job_type="train",
        tags=["baseline"],
        notes="by hand",
    )
    for step in range(5):
        run.log({"train/ppo_kl": 0.0, "loss": float("nan") if step == 3 else 1.0 / (step + 1)})
    run.finish()
    return wandb.Api().run("lab/rl/first")


def python(code):
    return subprocess.Popen([sys.executable, "-c", code], env=detached(os.environ), stderr=subprocess.DEVNULL)


def test_a_project_lists_what_the_client_wrote(written):
    (run,) = wandb.Api().runs("lab/rl", lazy=False)
    assert (run.id, run.name, run.state) == ("first", "a first try", "finished")
    assert run.config == {"lr": 0.1, "model": {"name": "Qwen3-0.6B"}}
    assert (run.group, run.job_type, run.tags, run.notes) == ("sweep-a", "train", ["baseline"], "by hand")
    assert run.user.username == "ada"
    assert run.summary["loss"] == 0.2
    assert run.storage_id == written.storage_id


def test_a_history_comes_back_whole_and_by_keys(written):
    assert [row["_step"] for row in written.scan_history()] == [0, 1, 2, 3, 4]
    assert [row["loss"] for row in written.scan_history(keys=["loss"])] == [1, 0.5, 1 / 3, "NaN", 0.2]
    assert written.history(keys=["train/ppo_kl"], pandas=False)[0] == {"_step": 0, "train/ppo_kl": 0}
    assert len(written.history(pandas=False)) == 5
    assert written.lastHistoryStep == 4


def test_the_files_of_a_run_can_be_listed_and_fetched(written, tmp_path):
    assert {"requirements.txt", "wandb-metadata.json"} <= {file.name for file in written.files()}
    fetched = written.file("requirements.txt").download(root=str(tmp_path))
    assert "wandb==" in Path(fetched.name).read_text(encoding="utf-8")
    fetched.close()
    assert written.metadata["python"]


def test_filters_and_orders_of_the_client_are_obeyed(server):
    for number, lr in enumerate((0.1, 0.3, 0.2)):
        server.add_run("lab", "filters", f"r{number}", config={"lr": lr}, tags=["odd"] if number % 2 else [])
    api = wandb.Api()
    assert [run.id for run in api.runs("lab/filters", order="-config.lr.value")] == ["r1", "r2", "r0"]
    assert [run.id for run in api.runs("lab/filters", filters={"tags": "odd"})] == ["r1"]
    assert len(api.runs("lab/filters", filters={"config.lr": {"$gt": 0.15}}, per_page=1)) == 2


def test_a_run_that_fails_is_told_from_one_that_ends_well(server):
    wandb.init(project="ends", id="bad").finish(exit_code=1)
    wandb.init(project="ends", id="good").finish()
    assert {run.id: run.state for run in wandb.Api().runs("lab/ends")} == {
        "bad": "failed",
        "good": "finished",
    }
    assert server.run("lab", "ends", "bad").exit_code == 1


def test_a_resumed_run_goes_on_where_it_ended(server):
    for value in (1, 2):
        with wandb.init(project="resumed", id="again", resume="allow") as run:
            run.log({"value": value})
    assert [(row["_step"], row["value"]) for row in server.run("lab", "resumed", "again").rows] == [
        (0, 1),
        (1, 2),
    ]


def test_two_writers_of_one_shared_run_are_numbered_in_order_of_arrival(server):
    settings = wandb.Settings(x_label="driver")
    run = wandb.init(project="shared", id="both", mode="shared", settings=settings)
    run.log({"driver": 1.0})
    assert python(JOINS_THE_RUN).wait() == 0
    assert server.run("lab", "shared", "both").status == "running"
    run.finish()
    rows = server.run("lab", "shared", "both").rows
    assert sorted(row["_step"] for row in rows) == [0, 1]
    assert {key for row in rows for key in row if not key.startswith("_")} == {"driver", "engine"}
    assert server.run("lab", "shared", "both").status == "finished"


def test_a_tag_added_by_a_reader_stays(server):
    server.add_run("lab", "tags", "r", tags=["old"])
    run = wandb.Api().run("lab/tags/r")
    run.tags.append("step0-ok")
    run.update()
    assert server.run("lab", "tags", "r").tags == ("old", "step0-ok")


def test_an_alert_of_the_client_arrives_once_for_each_title(server):
    with wandb.init(project="alerts", id="loud") as run:
        for _ in range(2):
            run.alert("broken", "the gap is large", level=wandb.AlertLevel.ERROR, wait_duration=3600)
    (alert,) = server.alerts
    assert (alert.run_id, alert.title, alert.text, alert.level) == (
        "loud",
        "broken",
        "the gap is large",
        "ERROR",
    )
    assert len(server.alert_attempts) == 2


def test_a_run_that_is_asked_to_stop_stops(server):
    process = python(WRITES_UNTIL_STOPPED)
    while not server.rows("lab", "stopped", "live"):
        assert process.poll() is None
        time.sleep(0.05)
    wandb.Api().run("lab/stopped/live").stop()
    assert process.wait() != 0
    assert wandb.Api().run("lab/stopped/live").state == "failed"


@pytest.mark.usefixtures("server")
def test_a_table_and_an_artifact_come_back_as_they_were(tmp_path):
    with wandb.init(project="tables", id="sync") as run:
        run.log({"runs": wandb.Table(columns=["run", "gap"], data=[["a", 0.01], ["b", 0.5]])})
        for content in ("old", "new"):
            artifact = wandb.Artifact("step0-state", type="state", metadata={"content": content})
            with artifact.new_file("state.txt") as file:
                file.write(content)
            run.log_artifact(artifact, aliases=["best"])
    api = wandb.Api()
    state = api.artifact("lab/tables/step0-state:best")
    assert (state.version, state.aliases, state.metadata) == ("v1", ["latest", "best"], {"content": "new"})
    assert (Path(state.download(root=str(tmp_path))) / "state.txt").read_text() == "new"
    old = (
        api.artifact("lab/tables/step0-state:v0").get_entry("state.txt").download(root=str(tmp_path / "old"))
    )
    assert Path(old).read_text() == "old"
    table = api.artifact("lab/tables/run-sync-runs:latest").get("runs")
    assert (table.columns, table.data) == (["run", "gap"], [["a", 0.01], ["b", 0.5]])
    assert len(list(api.run("lab/tables/sync").logged_artifacts())) == 3


@pytest.mark.usefixtures("server")
def test_an_artifact_with_equal_content_makes_no_new_version():
    with wandb.init(project="same", id="sync") as run:
        for _ in range(2):
            artifact = wandb.Artifact("state", type="state")
            with artifact.new_file("state.txt") as file:
                file.write("same")
            run.log_artifact(artifact).wait()
    assert [version.version for version in wandb.Api().artifacts("state", "lab/same/state")] == ["v0"]
    with wandb.init(project="same", id="reader") as run:
        run.use_artifact("state:latest")
    assert [user.id for user in wandb.Api().artifact("lab/same/state:v0").used_by()] == ["reader"]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # wandb-workspaces' own
def test_a_report_is_saved_in_place_and_read_back(server):
    import wandb_workspaces.reports.v2 as reports

    server.add_run("lab", "health", "r")
    report = reports.Report(
        entity="lab",
        project="health",
        title="Step-0 health",
        blocks=[
            reports.H1("Broken"),
            reports.PanelGrid(
                runsets=[reports.Runset("lab", "health")], panels=[reports.LinePlot(y=["gap"])]
            ),
        ],
    ).save()
    report.title = "Step-0 health, again"
    report.save()
    (listed,) = wandb.Api().reports("lab/health")
    assert (listed.id, listed.display_name) == (report.id, "Step-0 health, again")
    read = reports.Report.from_url(report.url)
    assert read.title == "Step-0 health, again"
    assert read.blocks[0] == reports.H1("Broken")
    assert read.blocks[1].panels[0].y == [reports.Metric("gap")]
    read.delete()
    assert list(wandb.Api().reports("lab/health")) == []


def test_the_client_gets_over_a_bad_gateway(server):
    server.faults.next("502", times=2)
    with wandb.init(project="faults", id="patient") as run:
        run.log({"loss": 1.0})
    assert server.run("lab", "faults", "patient").status == "finished"
    assert sum(request.fault == "502" for request in server.requests) == 2


def test_a_project_that_the_key_may_not_see_is_missing(server):
    server.project("lab", "secret").hidden = True
    with pytest.raises(ValueError, match="Could not find project secret"):
        next(wandb.Api().runs("lab/secret"))


@pytest.mark.usefixtures("server")
def test_a_wrong_key_is_refused():
    with pytest.raises(wandb.errors.AuthenticationError):
        wandb.Api(api_key="0" * 40)


@pytest.mark.usefixtures("written")
def test_no_request_of_the_client_leaves_its_key_in_the_log(server):
    assert server.requests
    assert all(
        request.authorized for request in server.requests if request.is_graphql and request.status == 200
    )
    assert server.api_key not in repr(server.requests)
