"""Valid answers without an end, runs that always fail, and single odd values in an answer."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from step0_wandb.errors import SourceError
from step0_wandb.wandb_api import answers
from step0_wandb.wandb_api.batches import FAILING_S
from step0_wandb.wandb_api.control import RunControl
from step0_wandb.wandb_api.http import HttpLimits, Reply
from step0_wandb.wandb_api.paging import Listing
from tests.support.server_source import START, Lab, MemoryStore
from tests.support.wandb_server import ENDLESS, WandbServer

RUNS = 24
"""Of the whole project."""
REQUESTS = 40
"""No sync of it needs so many, whatever the answers say."""


@pytest.fixture
def lab():
    with WandbServer() as server:
        lab = Lab(server)
        for index in range(RUNS):
            lab.add(f"r{index:02}", minutes=index)
        yield lab


def take(lab, pages):
    for page in pages:
        lab.store.take(page)


# --- lists without an end ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(ENDLESS))
def test_a_first_sync_of_a_list_without_an_end_keeps_its_runs_and_is_exit_5(lab, kind):
    lab.server.faults.always(kind)
    with pytest.raises(SourceError, match="does not end") as caught:
        lab.sync()
    assert caught.value.exit_code == 5
    assert len(lab.store.runs) == RUNS
    assert len(lab.server.requests) < 6


@pytest.mark.parametrize("kind", sorted(ENDLESS))
@pytest.mark.parametrize("page_size", [5, 100])
def test_a_later_sync_and_its_listing_end_too(lab, kind, page_size):
    lab.sync()
    lab.add("late", minutes=-9999)  # found only by listing all names
    lab.page_size = page_size
    lab.server.requests.clear()
    lab.server.faults.always(kind)
    with pytest.raises(SourceError, match="does not end"):
        lab.sync()
    assert len(lab.server.requests) < REQUESTS


@pytest.mark.parametrize("kind", sorted(ENDLESS))
def test_a_list_without_an_end_that_is_read_by_name_ends(lab, kind):
    lab.server.faults.always(
        "400", match=lambda request: "Step0Page" in request.query and "$specs" in request.query
    )
    lab.server.faults.always(kind)
    with pytest.raises(SourceError, match="does not end"):
        lab.sync()
    assert len(lab.server.requests) < REQUESTS


@pytest.mark.parametrize("kind", sorted(ENDLESS))
def test_a_gate_does_not_list_new_runs_for_ever(lab, kind):
    source = lab.open()
    lab.server.faults.always(kind)
    with pytest.raises(SourceError, match="does not end"):
        RunControl(source.client, source.address).created_since(START)
    assert len(lab.server.requests) < 6


@pytest.mark.parametrize("kind", sorted(ENDLESS))
def test_a_page_that_came_twice_by_chance_does_no_harm(lab, kind):
    lab.server.faults.next(kind)
    lab.sync()
    assert len(lab.store.runs) == RUNS
    assert lab.store.problems == []


def test_a_list_may_have_one_page_without_anything_new():
    listing = Listing("The runs")
    assert listing.next(["a"], "1") == "1"
    assert listing.next([], "2") == "2"
    assert listing.next(["b"], "3") == "3"
    assert listing.next([], "4") == "4"
    with pytest.raises(SourceError, match="repeats itself after 2 entries"):
        listing.next(["a", "b"], "5")


def test_reading_ends_after_its_hour_even_if_every_page_is_good(lab):
    class Slow:
        def __init__(self, inner):
            self.inner = inner

        def post(self, body):
            lab.time.now += 400
            return self.inner.post(body)

    lab.page_size = 1
    pages = lab.pages()
    lab.source.client._transport = Slow(lab.source.client._transport)
    with pytest.raises(SourceError, match="read for 3600 s, which is the most"):
        take(lab, pages)
    assert 5 < len(lab.store.runs) < 12
    lab.sync()
    assert len(lab.store.runs) == RUNS


# --- runs that always fail --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["502", "html", "null-data"])
def test_a_quarter_of_poisoned_runs_costs_a_bounded_time_and_no_good_run(lab, kind):
    for index in range(96):
        lab.add(f"s{index:02}", minutes=100 + index)
    bad = {f"s{index:02}" for index in range(1, 91, 3)}
    for name in bad:
        lab.server.faults.poison(name, kind, fields=["history"])
    lab.sync()
    assert lab.time.now < 120
    assert lab.store.runs.keys() == {f"r{i:02}" for i in range(RUNS)} | {f"s{i:02}" for i in range(96)} - bad
    assert {problem.where for problem in lab.store.problems} == {f"lab/rl/{name}" for name in bad}


def test_the_minute_for_runs_that_fail_is_one_for_all_sources_of_a_sync(lab):
    bad = {f"r{index:02}" for index in range(1, RUNS, 3)}
    for name in bad:
        lab.server.faults.poison(name, fields=["history"])
    lab.page_size = 6
    requests = {}
    for spent_s in (0.0, FAILING_S + 1):
        lab.store = MemoryStore(lab.finder)
        pages = lab.pages()
        lab.source.client.limiter.spend_on_failing(spent_s)  # by the other sources of the sync
        take(lab, pages)
        requests[spent_s] = lab.source.client.requests
        named = {problem.where.rpartition("/")[2] for problem in lab.store.problems}
        assert bad <= named
        assert lab.store.runs.keys() | named == {f"r{index:02}" for index in range(RUNS)}
    fresh, over = requests.values()
    assert over < fresh / 2


def test_what_was_left_for_the_next_sync_is_read_by_it(lab, monkeypatch):
    monkeypatch.setattr("step0_wandb.wandb_api.batches.FAILING_S", 5.0)
    bad = {"r03", "r04", "r11", "r17", "r20"}
    for name in bad:
        lab.server.faults.poison(name, fields=["history"])
    lab.sync()
    assert lab.time.now < 60
    lab.server.faults.clear()
    lab.sync()
    assert len(lab.store.runs) == RUNS


# --- one odd value ----------------------------------------------------------------------------------


def spoiled(lab, change):
    """Let every answer about run r07 go through `change`."""
    source = lab.open()
    inner = source.client._transport

    class Spoiling:
        def post(self, body):
            reply = inner.post(body)
            answer = json.loads(reply.body)
            for node in nodes(answer):
                if node.get("name") == "r07":
                    change(node)
            text = json.dumps(answer).replace('"HUGE"', "1" + "0" * 400).replace('"INFINITE"', "1e999")
            return Reply(reply.status, reply.headers, text.encode())

    source.client._transport = Spoiling()
    return source


def nodes(value):
    """Yield every object of an answer."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from nodes(part)


ODD = {
    "historyLineCount": ["INFINITE", "many", [1], {}],
    "createdAt": [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00Z",
        "soon",
        7,
    ],
    "heartbeatAt": ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", [1]],
    "config": ["[]", "{", "7", '"text"', "[" * 5000, 7, {"a": 1}],
    "history": [["{"], ["[]"], [7], 7, "x", ['{"_step": "zero", "a": 1' + "0" * 5000 + "}"]],
    "sampledHistory": [[[7]], [["x"]], 7, [[{"_step": "INFINITE"}]], [[{"_step": "x"}]]],
    "tags": [7, True],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in ODD.items() for value in values], ids=repr
)
def test_one_odd_value_costs_its_run_which_is_named(lab, field, value):
    def change(node):
        if field in node:
            node[field] = value

    source = spoiled(lab, change)
    take(lab, source.read(lab.store.memory()))
    assert lab.store.runs.keys() == {f"r{i:02}" for i in range(RUNS)} - {"r07"}
    assert [problem.where for problem in lab.store.problems] == ["lab/rl/r07"]


HARMLESS = {
    "historyLineCount": ["HUGE", None],
    "user": ["ada", 7, [], {"username": None}, None],
    "history": [['{"_step": 0, "a": 1' + "0" * 400 + "}"]],
    "displayName": [7, None],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in HARMLESS.items() for value in values], ids=repr
)
def test_an_odd_value_that_step_0_does_not_need_costs_nothing(lab, field, value):
    def change(node):
        if field in node and field != "history":
            node[field] = value
        elif field in node:
            node["history"] = [*value, *node["history"][1:]]

    source = spoiled(lab, change)
    take(lab, source.read(lab.store.memory()))
    assert len(lab.store.runs) == RUNS
    assert lab.store.problems == []


def test_an_odd_run_among_those_that_are_watched_is_named_too(lab):
    lab.add("r07b", minutes=200, state="running", rows=[])
    lab.sync()

    def change(node):
        if "heartbeatAt" in node:
            node["heartbeatAt"] = "0001-01-01T00:00:00+23:59"

    lab.server.project("lab", "rl").runs["r07"].tags = ("step0-ok",)
    source = spoiled(lab, change)
    take(lab, source.read(lab.store.memory()))
    assert [problem.where for problem in lab.store.problems] == ["lab/rl/r07"]


@pytest.mark.parametrize(
    "value", ["missing", None, [], 7, "runs", {}, {"edges": None}, {"edges": [], "pageInfo": None}]
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_project_without_its_list_of_runs_is_an_error_and_not_an_empty_project(lab, value, synced):
    if synced:
        lab.sync()

    def change(answer):
        if "runs" in (answer.get("project") or {}):
            answer["project"]["runs"] = value
            if value == "missing":
                del answer["project"]["runs"]

    source = lab.open()
    inner = source.client._transport

    class Spoiling:
        def post(self, body):
            reply = inner.post(body)
            answer = json.loads(reply.body)
            change(answer["data"])
            return Reply(reply.status, reply.headers, json.dumps(answer).encode())

    source.client._transport = Spoiling()
    with pytest.raises(SourceError, match="not an answer of W&B") as caught:
        list(source.read(lab.store.memory()))
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    "info",
    [
        {"hasNextPage": "false", "endCursor": "x"},
        {"hasNextPage": True, "endCursor": None},
        {"hasNextPage": True},
        {},
    ],
)
def test_a_page_that_does_not_say_where_the_next_one_begins_is_no_last_page(lab, info):
    source = lab.open()
    inner = source.client._transport

    class Spoiling:
        def post(self, body):
            reply = inner.post(body)
            answer = json.loads(reply.body)
            answer["data"]["project"]["runs"]["pageInfo"] = info
            return Reply(reply.status, reply.headers, json.dumps(answer).encode())

    source.client._transport = Spoiling()
    with pytest.raises(SourceError, match="not an answer of W&B"):
        list(source.read(lab.store.memory()))


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z", "0001-01-01T00:00:00"])
def test_a_time_outside_of_these_centuries_is_no_time(text):
    with pytest.raises(ValueError, match="year"):
        answers.moment(text)


def test_a_limit_of_its_own_holds_for_a_gate():
    with WandbServer() as server:
        lab = Lab(server, limits=HttpLimits(at_most_s=10.0))
        lab.add("r1")
        lab.source = lab.open()
        client = lab.source.client
        client.ask("{ viewer { username } }", {})
        lab.time.now += timedelta(seconds=11).total_seconds()
        with pytest.raises(SourceError, match="read for 10 s"):
            client.ask("{ viewer { username } }", {})


def test_a_run_that_is_always_answered_in_another_shape_is_lost_and_not_asked_for_ever(lab):
    lab.server.faults.always("400", match=lambda request: "$specs:" in request.query)
    source = lab.open()
    inner = source.client._transport

    class Spoiling:
        def post(self, body):
            reply = inner.post(body)
            answer = json.loads(reply.body) if reply.status == 200 else {}
            for name, node in ((answer.get("data") or {}).get("project") or {}).items():
                if name.startswith("r") and isinstance(node, dict) and node.get("name") == "r07":
                    node["name"] = 7
            return Reply(reply.status, reply.headers, json.dumps(answer).encode())

    source.client._transport = Spoiling()
    take(lab, source.read(lab.store.memory()))
    assert lab.store.runs.keys() == {f"r{i:02}" for i in range(RUNS)} - {"r07"}
    assert [problem.where for problem in lab.store.problems] == ["lab/rl/r07"]
