"""What a sync left in a project, read back: by light requests, and with the key for its own host alone."""

from datetime import timedelta

import pytest

from step0_wandb.errors import SourceError
from step0_wandb.publish.wandb import remote
from step0_wandb.publish.wandb.project import remote_project
from step0_wandb.publish.wandb.remote import described
from step0_wandb.publish.wandb.report import MARK, TITLE
from step0_wandb.publish.wandb.state_document import DamagedStateError
from step0_wandb.wandb_api import download
from step0_wandb.wandb_api.address import RemoteAddress
from step0_wandb.wandb_api.context import Context
from step0_wandb.wandb_api.credentials import Places
from step0_wandb.wandb_api.faults import TOO_LARGE, RequestFailed
from step0_wandb.wandb_api.http import Reply
from tests.support.project import NOW, environment
from tests.support.wandb_server import WandbServer
from tests.support.wandb_server.asking import ask

ELSEWHERE = "https://storage.googleapis.com/state?X-Amz-Signature=1"
FILES = {"edges": [{"node": {"directUrl": "/storage/1"}}]}
ARTIFACT = {"artifacts": {"edges": [{"node": {"id": "a", "versionIndex": 0, "files": FILES}}]}}


@pytest.fixture
def server():
    with WandbServer() as server:
        server.clock = lambda: NOW
        server.project("lab", "rl")
        yield server


@pytest.fixture
def project(server, tmp_path):
    context = Context(Places.of(environment(server, tmp_path)), lambda: NOW, give_up_s=4.0)
    return remote_project(RemoteAddress("lab", "rl"), context)


def latest(project):
    """Return the newest state; None where there is none."""
    versions = project.versions()
    return project.document(versions[0]) if versions else None


class Wire:
    """Stands for the network of downloads: answers in turn, and remembers who was asked with which key."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.asked = []

    def __call__(self, url, headers, **_given):
        self.asked.append((url, "Authorization" in headers))
        return self

    def get(self):
        return self.replies.pop(0)

    def close(self):
        pass


@pytest.fixture
def wire(project, monkeypatch):
    """Return a function that replaces the network of downloads; the artifact is there."""

    def replace(*replies):
        wire = Wire(*replies)
        monkeypatch.setattr(download, "HttpTransport", wire)
        answer = {"project": {"artifactCollection": ARTIFACT}}
        monkeypatch.setattr(project.patient, "ask", lambda *_: answer)
        return wire

    return replace


def test_a_project_without_a_state_has_none(project, server):
    assert latest(project) is None
    [request] = server.requests
    assert request.operations == ("Step0State",)
    assert not request.mutates


@pytest.mark.parametrize("fault", ["404", "null-project"])
def test_a_server_that_calls_a_missing_state_an_error_is_understood(project, server, fault):
    server.faults.always(fault)
    assert latest(project) is None


def test_a_server_in_trouble_is_not_taken_for_one_without_a_state(project, server):
    server.faults.always("502")
    with pytest.raises(SourceError, match="is in trouble"):
        latest(project)


def test_the_key_goes_to_the_server_and_not_to_where_it_sends_us(project, server, wire):
    moved = Reply(307, {"location": ELSEWHERE}, b"")
    network = wire(moved, Reply(200, {}, b"{}"))
    assert latest(project) == b"{}"
    assert network.asked == [(f"{server.url}/storage/1", True), (ELSEWHERE, False)]


def test_redirects_without_end_are_left(project, wire):
    moved = Reply(302, {"location": ELSEWHERE}, b"")
    network = wire(*[moved] * 9)
    with pytest.raises(SourceError, match="redirects elsewhere"):
        latest(project)
    assert len(network.asked) == 3


def test_a_download_that_fails_for_a_while_is_tried_again(project, wire):
    network = wire(Reply(503, {}, b""), Reply(200, {}, b"{}"))
    assert latest(project) == b"{}"
    assert len(network.asked) == 2


def test_a_download_that_is_refused_is_told(project, wire):
    wire(Reply(403, {}, b""))
    with pytest.raises(SourceError, match="the state of lab/rl cannot be read: does not let this key in"):
        latest(project)


def test_the_key_shows_in_no_description_of_the_project(project, server):
    assert server.api_key not in repr(project)


@pytest.mark.parametrize("files", [{"edges": []}, None, {"edges": [{"node": None}]}])
def test_an_artifact_without_its_file_is_a_damaged_state(project, monkeypatch, files):
    node = {"id": "a", "versionIndex": 0, "files": files}
    answer = {"project": {"artifactCollection": {"artifacts": {"edges": [{"node": node}]}}}}
    monkeypatch.setattr(project.patient, "ask", lambda *_: answer)
    with pytest.raises(DamagedStateError, match=r"step0-state does not hold step0-state\.json"):
        latest(project)


def test_a_state_of_many_megabytes_is_a_damaged_one(project, wire, monkeypatch):
    def too_large(*_arguments):
        raise RequestFailed(TOO_LARGE)

    wire()
    monkeypatch.setattr(download.Download, "read", too_large)
    with pytest.raises(DamagedStateError, match="larger than 4 MB"):
        latest(project)


def add_report(server, description, title=TITLE, *, minutes=0):
    """Put a report on the server some minutes after `NOW`; return its id."""
    server.clock = lambda: NOW + timedelta(minutes=minutes)
    document = """mutation V($title: String, $description: String, $spec: String!) {
      upsertView(input: {entityName: "lab", projectName: "rl", type: "runs", displayName: $title,
        description: $description, spec: $spec}) { view { id } } }"""
    answer = ask(server, document, title=title, description=description, spec="{}")
    return answer.json()["data"]["upsertView"]["view"]["id"]


def reports(server):
    return [view.id for view in server.state.views.values()]


def test_a_report_is_made_once_and_found_ever_after(project, server):
    first = project.report(None)
    assert project.report(None) == first == project.report("unknown") == project.report(first)
    [view] = server.state.views.values()
    assert (view.id, view.display_name, view.type) == (first, "Step-0 health", "runs")


def test_a_report_is_ours_by_its_mark_alone_whatever_id_is_known(project, server):
    theirs = add_report(server, "our notes")
    mine = project.report(theirs)
    assert mine != theirs
    assert reports(server) == [theirs, mine]


def test_a_copy_that_a_person_made_stays_and_is_not_written_to(project, server):
    first = project.report(None)
    [view] = server.state.views.values()
    copies = [
        add_report(server, view.description, minutes=1),
        add_report(server, view.description, "Copy of Step-0 health", minutes=2),
        add_report(server, described("0badcafe", ""), "Copy of Step-0 health", minutes=3),
    ]
    assert project.report(None) == project.report(first) == first
    assert reports(server) == [first, *copies]


def test_of_reports_that_several_machines_made_at_once_the_oldest_stays_alone(project, server):
    made = [add_report(server, described(f"0000000{at}", ""), minutes=at) for at in range(3)]
    notes = add_report(server, "our notes", minutes=4)
    assert project.report(made[2]) == made[0]
    assert reports(server) == [made[0], notes]


def test_a_report_made_long_after_the_first_is_no_twin_and_stays(project, server):
    first = add_report(server, described("00000001", ""))
    later = add_report(server, described("00000002", ""), minutes=90)
    assert project.report(None) == first
    assert project.report(later) == later
    assert reports(server) == [first, later]


def test_a_report_without_a_token_is_one_of_an_earlier_version_and_is_taken_on(project, server):
    old = add_report(server, f"Written by step0-wandb. ({MARK})")
    assert project.report(None) == old
    assert "0123" in project.describe(old, "0123")
    assert not project.has_report(old, "0123")


def test_a_report_is_found_on_any_page_of_the_list(project, server, monkeypatch):
    first = project.report(None)
    monkeypatch.setattr(remote, "_PAGE", 1)
    for _ in range(3):
        add_report(server, "ours", "notes")
    assert project.report("gone") == first


def test_a_project_that_does_not_exist_is_made_for_its_report(server, tmp_path):
    context = Context(Places.of(environment(server, tmp_path)), lambda: NOW, give_up_s=5.0)
    remote_project(RemoteAddress("lab", "health"), context).report(None)
    [view] = server.state.views.values()
    assert view.project is server.state.projects["lab", "health"]


def test_a_server_that_lets_nobody_make_reports_is_told_at_once(project, server):
    server.faults.always("403", match=lambda request: request.mutates)
    with pytest.raises(Exception, match="does not let this key in"):
        project.report(None)
    assert sum(request.mutates for request in server.requests) == 1


def test_a_report_that_cannot_be_made_is_given_up_after_three_tries(project, server):
    server.faults.always("502", match=lambda request: request.mutates)
    with pytest.raises(SourceError, match="is in trouble"):
        project.report(None)
    assert sum(request.mutates for request in server.requests) == 3
