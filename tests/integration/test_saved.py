"""What a sync left in a project, read back: by light questions, and with the key for its own host alone."""

import pytest

from step0_wandb.errors import SourceError
from step0_wandb.publish.wandb import saved
from step0_wandb.publish.wandb.saved import Wanted
from step0_wandb.publish.wandb.target import shelf_of
from step0_wandb.wandb_api import download
from step0_wandb.wandb_api.address import RemoteAddress
from step0_wandb.wandb_api.context import Context
from step0_wandb.wandb_api.credentials import Places
from step0_wandb.wandb_api.http import Reply
from tests.support.project import NOW, environment
from tests.support.wandb_server import WandbServer
from tests.support.wandb_server.asking import ask

WANTED = Wanted(None, "Step-0 health", "written by a program (mark/1)", "mark/1")
ELSEWHERE = "https://storage.googleapis.com/state?X-Amz-Signature=1"
ARTIFACT = {"artifactMembership": {"files": {"edges": [{"node": {"directUrl": "/storage/1"}}]}}}


@pytest.fixture
def server():
    with WandbServer() as server:
        server.project("lab", "rl")
        yield server


@pytest.fixture
def shelf(server, tmp_path):
    context = Context(Places.of(environment(server, tmp_path)), lambda: NOW, give_up_s=1.0)
    return shelf_of(RemoteAddress("lab", "rl"), context)


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
def wire(shelf, monkeypatch):
    """Return a function that replaces the network of downloads; the artifact is there."""

    def replace(*replies):
        wire = Wire(*replies)
        monkeypatch.setattr(download, "HttpTransport", wire)
        answer = {"project": {"artifactCollection": ARTIFACT}}
        monkeypatch.setattr(shelf.patient, "ask", lambda *_: answer)
        return wire

    return replace


def test_a_project_without_a_state_has_none(shelf, server):
    assert shelf.state() is None
    [request] = server.requests
    assert request.operations == ("Step0State",)
    assert not request.mutates


@pytest.mark.parametrize("fault", ["404", "null-project"])
def test_a_server_that_calls_a_missing_state_an_error_is_understood(shelf, server, fault):
    server.faults.always(fault)
    assert shelf.state() is None


def test_a_server_in_trouble_is_not_taken_for_one_without_a_state(shelf, server):
    server.faults.always("502")
    with pytest.raises(SourceError, match="is in trouble"):
        shelf.state()


def test_the_key_goes_to_the_server_and_not_to_where_it_sends_us(shelf, server, wire):
    moved = Reply(307, {"location": ELSEWHERE}, b"")
    network = wire(moved, Reply(200, {}, b"{}"))
    assert shelf.state() == b"{}"
    assert network.asked == [(f"{server.url}/storage/1", True), (ELSEWHERE, False)]


def test_redirects_without_end_are_left(shelf, wire):
    moved = Reply(302, {"location": ELSEWHERE}, b"")
    network = wire(*[moved] * 9)
    with pytest.raises(SourceError, match="redirects elsewhere"):
        shelf.state()
    assert len(network.asked) == 3


def test_a_download_that_fails_for_a_while_is_tried_again(shelf, wire):
    network = wire(Reply(503, {}, b""), Reply(200, {}, b"{}"))
    assert shelf.state() == b"{}"
    assert len(network.asked) == 2


def test_a_download_that_is_refused_is_told(shelf, wire):
    wire(Reply(403, {}, b""))
    with pytest.raises(SourceError, match="the state of lab/rl cannot be read: does not let this key in"):
        shelf.state()


def test_the_key_shows_in_no_description_of_the_shelf(shelf, server):
    assert server.api_key not in repr(shelf)


def test_an_artifact_without_its_file_is_told(shelf, monkeypatch):
    empty = {"artifactMembership": {"files": {"edges": []}}}
    monkeypatch.setattr(shelf.patient, "ask", lambda *_: {"project": {"artifactCollection": empty}})
    with pytest.raises(SourceError, match=r"step0-state of lab/rl holds no step0-state\.json"):
        shelf.state()


def test_a_report_is_made_once_and_found_ever_after(shelf, server):
    first = shelf.report(WANTED)
    assert shelf.report(WANTED) == first == shelf.report(Wanted("unknown", "t", "d", "mark/1"))
    assert shelf.report(Wanted(first, "t", "another description", "another mark")) == first
    [view] = server.state.views.values()
    assert (view.id, view.display_name, view.type) == (first, "Step-0 health", "runs")


def test_of_several_reports_with_the_mark_the_oldest_is_ours(shelf, server):
    first = shelf.report(WANTED)
    copy = """mutation C($spec: String!) { upsertView(input: {entityName: "lab", projectName: "rl", type: "runs",
        displayName: "Copy of Step-0 health", description: "a copy (mark/1)", spec: $spec}) { view { id } } }"""
    ask(server, copy, spec="{}")
    assert shelf.report(WANTED) == first


def test_a_report_is_found_on_any_page_of_the_list(shelf, server, monkeypatch):
    first = shelf.report(WANTED)
    monkeypatch.setattr(saved, "_PAGE", 1)
    other = """mutation O($spec: String!) { upsertView(input: {entityName: "lab", projectName: "rl", type: "runs",
        displayName: "notes", description: "ours", spec: $spec}) { view { id } } }"""
    for _ in range(3):
        ask(server, other, spec="{}")
    assert shelf.report(Wanted("gone", "t", "d", "mark/1")) == first


def test_a_project_that_does_not_exist_is_made_for_its_report(server, tmp_path):
    context = Context(Places.of(environment(server, tmp_path)), lambda: NOW, give_up_s=5.0)
    shelf_of(RemoteAddress("lab", "health"), context).report(WANTED)
    [view] = server.state.views.values()
    assert view.project is server.state.projects["lab", "health"]


def test_a_server_that_lets_nobody_make_reports_is_told_at_once(shelf, server):
    server.faults.always("403", match=lambda request: request.mutates)
    with pytest.raises(Exception, match="does not let this key in"):
        shelf.report(WANTED)
    assert sum(request.mutates for request in server.requests) == 1


def test_a_report_that_cannot_be_made_is_given_up_after_three_tries(shelf, server):
    server.faults.always("502", match=lambda request: request.mutates)
    with pytest.raises(SourceError, match="is in trouble"):
        shelf.report(WANTED)
    assert sum(request.mutates for request in server.requests) == 3
