"""The double of the W&B server by itself: GraphQL, filters, sampling, paging, time."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import requests

from tests.support.wandb_server import Abilities, WandbServer
from tests.support.wandb_server.asking import ALERT, NESTED, RUNS, START, VIEWER, ask, names, project_of_three
from tests.support.wandb_server.gql import load_schema, snake_case
from tests.support.wandb_server.library import Artifact, Collection, View
from tests.support.wandb_server.paging import Connection, Edge, PageInfo
from tests.support.wandb_server.state import Project, Run, StoredFile, User

ROWS = """
query Rows($specs: [JSONString!]!) {
  project(name: "rl", entityName: "lab") { run(name: "r") { sampledHistory(specs: $specs) } }
}
"""


@pytest.fixture
def server():
    with WandbServer() as server:
        yield server


@pytest.mark.parametrize(
    "query",
    [
        "{ viewer { password } }",
        "{ project(title: 3) { id } }",
        "{ viewer",
        "query Q($x: Nothing) { viewer { id } }",
    ],
)
def test_a_query_that_the_schema_does_not_know_is_a_bad_request(server, query):
    response = ask(server, query)
    assert response.status_code == 400
    assert response.json()["errors"]


def test_several_aliased_selections_and_fragments_work_in_one_query(server):
    project_of_three(server)
    response = ask(
        server,
        'query Two { project(name: "rl", entityName: "lab") { '
        'old: runs(first: 1, order: "+created_at") { ...Names } new: runs(first: 1, order: "-created_at") { ...Names } '
        "} } fragment Names on RunConnection { edges { node { name } } }",
    )
    project = response.json()["data"]["project"]
    assert [project[alias]["edges"][0]["node"]["name"] for alias in ("old", "new")] == ["a", "c"]
    assert server.requests[-1].operations == ("Two",)
    assert server.requests[-1].fields == ("project",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "abcd"),
        ({"createdAt": {"$gte": "2026-10-01T02:00:00Z"}}, "cd"),
        ({"created_at": {"$lt": "2026-10-01T01:00:00"}}, "a"),
        ({"state": "running"}, "d"),
        ({"state": {"$ne": "running"}}, "abc"),
        ({"tags": "step0-ok"}, "b"),
        ({"tags": {"$in": ["step0-ok", "step0-bad"]}}, "bc"),
        ({"tags": {"$exists": False}}, "ad"),
        ({"name": {"$in": ["a", "d"]}}, "ad"),
        ({"name": {"$nin": ["a", "d"]}}, "bc"),
        ({"displayName": {"$regex": "^run-[ab]$"}}, "ab"),
        ({"display_name": {"$not": {"$regex": "a"}}}, "bcd"),
        ({"jobType": {"$ne": "step0-sync"}}, "abc"),
        ({"group": "g1", "username": "bob"}, "b"),
        ({"config.lr": {"$gt": 0.15, "$lte": 0.3}}, "bc"),
        ({"config.model.value.layers": 2}, "b"),
        ({"config.never": {"$exists": True}}, ""),
        ({"$or": [{"name": "a"}, {"$and": [{"state": "running"}, {"name": "d"}]}]}, "ad"),
        ({"$nor": [{"name": "a"}, {"name": "b"}]}, "cd"),
        ({"$not": {"name": "a"}}, "bcd"),
        ({"heartbeatAt": {"$gt": "2026-10-01T00:30:00Z"}}, "bcd"),
        ({"config.lr": {"$lt": "text"}}, ""),
    ],
)
def test_filters_mean_what_they_mean_at_wandb(server, filters, expected):
    server.clock = lambda: START + timedelta(hours=4)
    for number, name in enumerate("abcd"):
        server.add_run(
            "lab",
            "rl",
            name,
            name=f"run-{name}",
            created_at=START + timedelta(hours=number),
            state="running" if name == "d" else "finished",
            tags={"b": ["step0-ok", "x"], "c": ["step0-bad"]}.get(name, []),
            user="bob" if name == "b" else None,
            config={"lr": round(0.1 * (number + 1), 1), "model": {"layers": number + 1}},
            group=f"g{number}",
            job_type="step0-sync" if name == "d" else "train",
        )
    response = ask(server, RUNS, project="rl", filters=json.dumps(filters))
    assert "".join(names(response)) == expected
    assert response.json()["data"]["project"]["runCount"] == len(expected)


@pytest.mark.parametrize(
    "filters", ['{"color": "red"}', '{"name": {"$near": 1}}', "{", '{"createdAt": {"$gt": "soon"}}']
)
def test_a_filter_that_wandb_does_not_have_is_a_bad_request(server, filters):
    project_of_three(server)
    assert ask(server, RUNS, project="rl", filters=filters).status_code == 400


def test_orders_put_runs_without_the_value_last(server):
    for name, loss in (("a", 2), ("b", None), ("c", 1)):
        server.add_run("lab", "rl", name, created_at=START, summary={"loss": loss})
    assert names(ask(server, RUNS, project="rl", order="+summary_metrics.loss")) == ["c", "a", "b"]
    assert names(ask(server, RUNS, project="rl", order="-summary_metrics.loss")) == ["a", "c", "b"]
    assert names(ask(server, RUNS, project="rl", order="+created_at")) == ["a", "b", "c"]


@pytest.mark.parametrize(("cursors", "second"), [("offset", ["c"]), ("stable", ["b", "c"])])
def test_a_deleted_run_shifts_the_pages_behind_it_unless_cursors_are_stable(server, cursors, second):
    project_of_three(server)
    server.add_run("lab", "rl", "z", created_at=START - timedelta(hours=1))
    server.abilities = Abilities(cursors=cursors)
    page = ask(server, RUNS, project="rl", first=2).json()["data"]["project"]["runs"]
    assert page["pageInfo"]["hasNextPage"]
    server.delete_run("lab", "rl", "z")
    assert names(ask(server, RUNS, project="rl", first=2, after=page["pageInfo"]["endCursor"])) == second


def test_a_page_holds_no_more_than_the_server_allows(server):
    project_of_three(server)
    server.abilities = Abilities(max_page=2)
    response = ask(server, RUNS, project="rl", first=500)
    assert names(response) == ["a", "b"]
    assert response.json()["data"]["project"]["runs"]["pageInfo"]["hasNextPage"]


def test_sampled_history_gives_only_rows_that_have_every_key(server):
    rows = [
        {"a": 1},
        {"a": 2, "deep": {"b": float("inf")}},
        {"deep": {"b": 3}},
        {"a": float("nan"), "deep.b": 4},
    ]
    server.add_run("lab", "rl", "r", rows=rows)
    specs = [{"keys": ["_step", "a"]}, {"keys": ["a", "deep.b"]}, {"keys": ["a"], "minStep": 1, "maxStep": 1}]
    found = ask(server, ROWS, specs=[json.dumps(spec) for spec in specs]).json()["data"]["project"]["run"][
        "sampledHistory"
    ]
    assert found == [
        [{"_step": 0, "a": 1}, {"_step": 1, "a": 2}, {"_step": 3, "a": "NaN"}],
        [{"a": 2, "deep.b": "Infinity"}, {"a": "NaN", "deep.b": 4}],
        [{"a": 2}],
    ]


@pytest.mark.parametrize(("samples", "count"), [(100, 100), (99, 99), (7, 7)])
def test_a_sampled_history_loses_its_first_row_as_soon_as_rows_must_go(server, samples, count):
    server.add_run("lab", "rl", "r", rows=[{"a": float(step)} for step in range(100)])
    spec = json.dumps({"keys": ["_step"], "samples": samples})
    (found,) = ask(server, ROWS, specs=[spec]).json()["data"]["project"]["run"]["sampledHistory"]
    steps = [row["_step"] for row in found]
    assert len(steps) == count
    assert steps == sorted(set(steps))
    assert (steps[0] == 0) == (samples == 100)


def test_a_server_may_refuse_histories_inside_a_page(server):
    server.add_run("lab", "rl", "r", rows=[{"a": 1}])
    assert ask(server, NESTED).status_code == 200
    server.abilities = replace(server.abilities, nested_history=False)
    assert ask(server, NESTED).status_code == 400
    assert ask(server, ROWS, specs=['{"keys": ["a"]}']).json()["data"]["project"]["run"][
        "sampledHistory"
    ] == [[{"a": 1}]]


def test_a_running_run_that_goes_silent_has_crashed_until_it_speaks_again(server):
    server.clock = lambda: START
    server.add_run("lab", "rl", "r", state="running")
    state = '{ project(name: "rl", entityName: "lab") { run(name: "r") { state } } }'
    for minutes, expected in ((5, "running"), (6, "crashed")):
        server.clock = lambda now=START + timedelta(minutes=minutes): now
        assert ask(server, state).json()["data"]["project"]["run"]["state"] == expected
    url = f"{server.url}/files/lab/rl/r/file_stream"
    assert requests.post(url, json={}, auth=("api", server.api_key), timeout=10).json()["stopped"] is False
    assert ask(server, state).json()["data"]["project"]["run"]["state"] == "running"


def test_an_alert_is_dropped_within_the_wait_of_the_same_title_and_delivered_after_it(server):
    server.add_run("lab", "rl", "r")
    for seconds, title in ((0, "one"), (59, "one"), (59, "two"), (60, "one")):
        server.clock = lambda now=START + timedelta(seconds=seconds): now
        assert ask(server, ALERT, title=title).json() == {
            "data": {"notifyScriptableRunAlert": {"success": True}}
        }
    assert [alert.title for alert in server.alerts] == ["one", "two", "one"]
    assert len(server.alert_attempts) == 4


def test_a_server_may_refuse_alerts_of_a_run(server):
    server.add_run("lab", "rl", "r")
    server.abilities = Abilities(alerts=lambda run_id: run_id != "r")
    assert ask(server, ALERT, title="t").status_code == 403
    assert ask(server, ALERT.replace('"r"', '"unknown"'), title="t").status_code == 404
    assert server.alerts == []


def test_an_upsert_changes_only_what_it_names(server):
    run = server.add_run("lab", "rl", "r", config={"lr": 1}, tags=["a"], notes="n")
    upsert = (
        'mutation U($id: String!) { upsertBucket(input: {id: $id, tags: ["b"], config: null}) { inserted } }'
    )
    assert ask(server, upsert, id=run.id).json()["data"]["upsertBucket"] == {"inserted": False}
    assert (run.tags, run.notes, run.config_values) == (("b",), "n", {"lr": 1})
    modify = 'mutation M($id: ID!) { modifyRuns(input: {ids: [$id], addTags: ["c"], removeTags: ["b"]}) { runsSQL { tags } } }'
    assert ask(server, modify, id=run.id).json()["data"]["modifyRuns"]["runsSQL"] == [{"tags": ["c"]}]


def test_a_connection_is_kept_for_the_next_request(server):
    address, port = server.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(address, int(port), timeout=10)
    sockets = []
    for _ in range(2):
        connection.request("GET", "/nothing")
        assert connection.getresponse().read()
        sockets.append(connection.sock)
    connection.close()
    assert sockets[0] is sockets[1] is not None


def test_latency_holds_back_every_answer(server):
    server.latency_s = 0.01
    begun = time.perf_counter()
    ask(server, VIEWER)
    assert time.perf_counter() - begun >= 0.01
    assert server.peak_in_flight == 1


def test_no_key_and_a_wrong_key_are_both_unauthorized(server):
    for auth in (None, ("api", "wrong"), ("user", server.api_key)):
        response = requests.post(
            f"{server.url}/graphql", json={"query": "{ viewer { id } }"}, auth=auth, timeout=10
        )
        assert response.status_code == 401
        assert response.json()["data"] == {"viewer": None}
    assert not any(request.authorized for request in server.requests)
    assert server.api_key not in repr(server.requests)


def test_telemetry_and_unknown_paths_are_not_found(server):
    for path in ("/sdk/otel/v1/metrics", "/nothing"):
        response = requests.post(f"{server.url}{path}", data=b"x", auth=("api", server.api_key), timeout=10)
        assert response.status_code == 404


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("Run", Run),
        ("Project", Project),
        ("User", User),
        ("File", StoredFile),
        ("View", View),
        ("Artifact", Artifact),
        ("ArtifactSequence", Collection),
        ("PageInfo", PageInfo),
        ("RunConnection", Connection),
        ("RunEdge", Edge),
        ("VersionedArtifactEdge", Edge),
    ],
)
def test_every_field_of_the_schema_has_an_answer(kind, record):
    fields = load_schema().type_map[kind].fields
    known = set(dir(record)) | set(getattr(record, "__dataclass_fields__", {}))
    missing = [
        name for name, field in fields.items() if field.resolve is None and snake_case(name) not in known
    ]
    assert missing == []
