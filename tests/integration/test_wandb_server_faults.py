"""The double of the W&B server plays its faults as its table says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import requests

from tests.support.wandb_server import FINAL, KINDS, RETRIABLE, Faults, WandbServer
from tests.support.wandb_server.asking import ALERT, NESTED, RUNS, VIEWER, ask, names, project_of_three


@pytest.fixture
def server():
    with WandbServer() as server:
        yield server


@pytest.mark.parametrize(
    "kind", ["400", "401", "403", "404", "408", "429", "500", "501", "502", "503", "504"]
)
def test_a_refusing_fault_is_played_as_often_as_asked_and_executes_nothing(server, kind):
    server.add_run("lab", "rl", "r")
    server.faults.next(kind, times=2)
    responses = [ask(server, ALERT, title="t") for _ in range(3)]
    assert [response.status_code for response in responses] == [int(kind), int(kind), 200]
    assert len(server.alert_attempts) == 1


def test_a_server_that_slows_its_clients_down_says_for_how_long(server):
    server.faults = Faults(retry_after_s=7)
    for kind in ("429", "429-ratelimit", "429-date"):
        server.faults.next(kind)
    plain, ratelimit, date = (ask(server, VIEWER).headers for _ in range(3))
    assert plain["Retry-After"] == "7"
    assert (ratelimit["RateLimit-Remaining"], ratelimit["RateLimit-Reset"]) == ("0", "7")
    assert datetime.strptime(date["Retry-After"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)


@pytest.mark.parametrize("kind", ["lost", "lost-reset", "truncated", "malformed"])
def test_a_lost_answer_leaves_the_work_done(server, kind):
    server.add_run("lab", "rl", "r")
    server.faults.next(kind)
    with pytest.raises((requests.RequestException, AssertionError)):
        assert ask(server, ALERT, title="t").json()["data"]
    assert len(server.alerts) == 1


@pytest.mark.parametrize("kind", ["reset", "hang"])
def test_a_cut_connection_executes_nothing(server, kind):
    server.faults = Faults(hang_s=0.01)
    server.add_run("lab", "rl", "r")
    server.faults.next(kind)
    with pytest.raises(requests.ConnectionError):
        ask(server, ALERT, title="t")
    assert server.alerts == []
    assert ask(server, ALERT, title="t").status_code == 200


@pytest.mark.parametrize(
    ("kind", "content_type", "start"),
    [
        ("html", "text/html", "<!doctype html>"),
        ("empty", "application/json", ""),
        ("null-data", "application/json", '{"errors": '),
        ("null-project", "application/json", '{"data": {"project": null}}'),
        ("wrong-type", "text/html; charset=utf-8", '{"data": {"project": {"runs": '),
        ("slow", "application/json", '{"data": {"project": {"runs": '),
    ],
)
def test_an_answer_that_is_none_has_status_200_all_the_same(server, kind, content_type, start):
    server.faults = Faults(drip_s=0.001)
    project_of_three(server)
    server.faults.next(kind)
    response = ask(server, NESTED)
    assert (response.status_code, response.headers["Content-Type"]) == (200, content_type)
    assert response.text.startswith(start)
    assert bool(response.text) == bool(start)


def test_partial_data_lack_one_run_and_say_which(server):
    project_of_three(server)
    server.faults.next("partial-node")
    server.faults.next("partial-history")
    no_run, no_history = ask(server, NESTED).json(), ask(server, NESTED).json()
    assert [edge["node"] and edge["node"]["name"] for edge in no_run["data"]["project"]["runs"]["edges"]] == [
        "a",
        None,
        "c",
    ]
    assert no_run["errors"][0]["path"] == ["project", "runs", "edges", 1, "node"]
    histories = [edge["node"]["sampledHistory"] for edge in no_history["data"]["project"]["runs"]["edges"]]
    assert histories == [[[{"_step": 0}]], None, [[{"_step": 0}]]]
    assert no_history["errors"][0]["path"] == ["project", "runs", "edges", 1, "node", "sampledHistory"]


def test_a_redirect_leads_to_another_host_where_a_follower_is_seen(server):
    server.faults.next("redirect")
    response = ask(server, VIEWER)
    assert (response.status_code, response.headers["Location"].split(":")[1]) == (302, "//localhost")
    requests.get(response.headers["Location"], timeout=10)
    assert server.requests[-1].path == "/elsewhere"
    assert server.requests[-1].headers["host"].startswith("localhost:")


def test_a_poisoned_run_spoils_every_query_that_reads_it(server):
    project_of_three(server)
    server.faults.poison("b", fields=["sampledHistory"])
    assert names(ask(server, RUNS, project="rl")) == ["a", "b", "c"]
    assert ask(server, NESTED).status_code == 502
    server.faults.poison("b", "500")
    assert ask(server, RUNS, project="rl").status_code == 500
    assert names(ask(server, RUNS, project="rl", first=1)) == ["a"]
    server.faults.clear()
    assert names(ask(server, RUNS, project="rl")) == ["a", "b", "c"]


def test_random_faults_are_the_same_for_the_same_seed(server):
    def played(seed):
        server.faults = Faults(rate=0.5, seed=seed, kinds=["502", "html"])
        server.requests.clear()
        for _ in range(20):
            ask(server, VIEWER)
        return [request.fault for request in server.requests]

    assert played(1) == played(1) != played(2)
    assert {None, "502", "html"} == set(played(1))


def test_a_dead_server_can_be_limited_to_some_requests(server):
    server.faults.always("503", match=lambda request: request.mutates)
    server.add_run("lab", "rl", "r")
    assert [ask(server, ALERT, title="t").status_code for _ in range(3)] == [503, 503, 503]
    assert ask(server, VIEWER).status_code == 200


def test_every_fault_is_either_worth_another_try_or_final():
    assert RETRIABLE | FINAL == KINDS
    with pytest.raises(ValueError, match="unknown faults"):
        Faults(kinds=["418"])
