"""Written means read back: what the client sent and the server does not show is a problem, and written again."""

import pytest

from step0_wandb.publish.wandb import project
from step0_wandb.publish.wandb.remote import RemoteProject
from step0_wandb.publish.wandb.state_document import read_state
from tests.support.project import NOW, Lab, add_project, environment
from tests.support.wandb_server import WandbServer

NOT_SHOWN = "not written: it was sent, but the server does not show it"


@pytest.fixture
def server():
    with WandbServer() as server:
        server.clock = lambda: NOW
        yield server


@pytest.fixture
def lab(server, tmp_path, monkeypatch):
    for name, value in environment(server, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(project, "READ_BACK_S", (0.0,))
    add_project(server)
    return Lab(server, tmp_path)


def parts(result):
    return {item.what for item in result.written}


def is_stream(request):
    return request.path.endswith("/file_stream")


@pytest.mark.parametrize("fault", ["403", "html"])
def test_tables_whose_row_the_server_refused_are_a_problem_and_written_by_the_next_sync(lab, server, fault):
    server.faults.always(fault, match=is_stream)
    result = lab.sync()
    assert [(problem.where, problem.what) for problem in result.problems] == [("lab/rl: tables", NOT_SHOWN)]
    assert parts(result) == {"report", "state"}
    assert "tables" not in read_state(lab.state()).written
    server.faults.clear()
    again = lab.sync()
    assert (again.problems, parts(again)) == ((), {"tables", "state"})
    assert server.run("lab", "rl", "step0-sync").summary["verdicts/broken"] == 2
    assert lab.sync().written == ()


def test_a_table_file_that_the_server_does_not_have_is_a_problem(lab, server):
    server.faults.always("403", match=lambda request: request.operations == ("CreateRunFiles",))
    [problem] = lab.sync().problems
    assert problem.where == "lab/rl: tables"
    server.faults.clear()
    assert parts(lab.sync()) == {"tables", "state"}


def test_a_state_whose_manifest_was_refused_is_a_problem_and_written_by_the_next_sync(lab, server):
    lab.flags["report.wandb"] = None

    def is_its_manifest(request):
        return "CreateArtifactManifest" in request.operations

    server.faults.always("null-data", match=is_its_manifest)
    result = lab.sync()
    assert [problem.where for problem in result.problems] == ["lab/rl: state"]
    assert result.written == ()
    server.faults.clear()
    assert parts(lab.sync()) == {"state"}


def test_a_report_that_was_not_saved_is_a_problem_whatever_the_client_says(lab, server, monkeypatch):
    monkeypatch.setattr(RemoteProject, "has_report", lambda *_arguments: False)
    result = lab.sync()
    assert [(problem.where, problem.what) for problem in result.problems] == [("lab/rl: report", NOT_SHOWN)]
    monkeypatch.undo()
    for name, value in environment(server, lab.folder).items():
        monkeypatch.setenv(name, value)
    assert parts(lab.sync()) == {"report", "state"}
