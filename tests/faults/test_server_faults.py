"""The table of faults, played against the server source: event → error → retried or not → what is kept."""

from __future__ import annotations

import pytest

from step0_wandb.errors import CredentialsError, SourceError, UsageError
from step0_wandb.wandb_api import faults
from step0_wandb.wandb_api.http import HttpLimits
from tests.support.server_source import CONFIG, HASTY, PATIENT, Lab, miles_rows
from tests.support.wandb_server import ENDLESS, KINDS, RETRIABLE, Abilities, Faults, WandbServer

FINAL = {
    "401": (CredentialsError, faults.UNAUTHORIZED),
    "403": (CredentialsError, faults.FORBIDDEN),
    "404": (SourceError, faults.NOT_FOUND),
    "501": (SourceError, faults.REFUSED),
    "redirect": (SourceError, faults.REDIRECT),
    "null-project": (SourceError, faults.NO_PROJECT),
}
"""Asked once, and told; what was read before is kept."""
SMALLER = {"400"}
"""Not asked again as it is, but run by run: a server may refuse histories inside a page."""
RETRIED = {
    "408": faults.TIMEOUT,
    "429": faults.RATE_LIMIT,
    "429-date": faults.RATE_LIMIT,
    "429-ratelimit": faults.RATE_LIMIT,
    "500": faults.SERVER_ERROR,
    "502": faults.SERVER_ERROR,
    "503": faults.SERVER_ERROR,
    "504": faults.SERVER_ERROR,
    "reset": faults.NO_CONNECTION,
    "lost": faults.SERVER_ERROR,
    "lost-reset": faults.NO_CONNECTION,
    "truncated": faults.NO_CONNECTION,
    "hang": faults.TOO_SLOW,
    "slow": faults.TOO_SLOW,
    "slow-close": faults.TOO_SLOW,
    "null-runs": faults.NO_WANDB_ANSWER,
    "html": faults.NO_WANDB_ANSWER,
    "empty": faults.NO_WANDB_ANSWER,
    "malformed": faults.NO_WANDB_ANSWER,
    "null-data": faults.QUERY_ERROR,
    "partial-node": faults.QUERY_ERROR,
    "partial-history": faults.QUERY_ERROR,
}
"""Asked again; everything is kept."""
HARMLESS = {"wrong-type"}
"""The right answer under a wrong name is taken."""

SLOW = {"hang", "slow", "slow-close"}
WHOLE_PROJECT = 24


@pytest.fixture
def server():
    with WandbServer() as server:
        server.faults = Faults(hang_s=0.6, drip_s=0.05)
        yield server


@pytest.fixture
def lab(server):
    """A project of 24 runs, two of them with long evaluations before their first step."""
    lab = Lab(server)
    for index in range(WHOLE_PROJECT):
        rows = miles_rows(at=70 if index % 12 == 5 else 3, gap=0.015 + index * 1e-5)
        lab.add(f"r{index:02}", minutes=index, rows=rows)
    return lab


@pytest.fixture
def clean(lab):
    """What a sync without faults stores."""
    lab.sync()
    expected = dict(lab.store.runs)
    lab.server.requests.clear()
    assert len(expected) == WHOLE_PROJECT
    return expected


def fresh_lab(lab, kind=""):
    """Return the laboratory with an empty store, and little time where the fault takes some."""
    return Lab(lab.server, limits=HASTY if kind in SLOW else PATIENT)


def test_the_table_covers_every_fault_that_the_double_can_play():
    assert {*FINAL, *SMALLER, *RETRIED, *HARMLESS, *ENDLESS} == KINDS
    assert not any(row.retried for _error, row in FINAL.values())
    assert all(row.retried for row in RETRIED.values())


@pytest.mark.parametrize("kind", sorted(RETRIED | dict.fromkeys(HARMLESS)))
def test_a_passing_fault_is_asked_again_and_nothing_is_lost(lab, clean, kind):
    again = fresh_lab(lab, kind)
    lab.server.faults.next(kind)
    again.sync()
    assert lab.server.requests[0].fault == kind
    assert again.store.runs == clean
    assert again.store.problems == []
    assert len(lab.server.requests) == again.source.client.requests


@pytest.mark.parametrize("kind", sorted(FINAL))
def test_a_final_fault_is_asked_once_and_told(lab, kind):
    error, row = FINAL[kind]
    lab.server.faults.always(kind)
    with pytest.raises(error) as caught:
        lab.sync()
    assert len(lab.server.requests) == 1
    assert row.event in caught.value.message
    assert caught.value.hint == row.hint
    assert lab.store.cursor is None


@pytest.mark.parametrize("kind", sorted(FINAL))
def test_what_was_read_before_a_final_fault_is_kept_and_the_next_sync_goes_on_there(lab, clean, kind):
    again = fresh_lab(lab)
    again.page_size = 10
    lab.server.faults.next(kind, match=lambda request: request.variables.get("after") is not None)
    with pytest.raises(FINAL[kind][0]):
        again.sync()
    kept = set(again.store.runs)
    assert len(kept) == 10
    lab.server.requests.clear()
    again.sync()
    assert again.store.runs == clean
    asked = [
        request.variables["filters"] for request in lab.server.requests if "filters" in request.variables
    ]
    assert "createdAt" in asked[0]
    assert again.store.readings == WHOLE_PROJECT  # no run was fetched twice


@pytest.mark.parametrize("kind", sorted(RETRIED.keys() - {"partial-history"}))  # that is a poisoned run
def test_a_dead_server_is_exit_5_within_its_time_and_the_store_is_as_before(lab, clean, kind):
    again = fresh_lab(lab, kind)
    again.store.take_all(clean, cursor=lab.store.cursor)
    lab.add("new", minutes=99)
    lab.server.faults.always(kind)
    with pytest.raises(SourceError, match="given up after 120 s without a good page") as caught:
        again.sync()
    assert caught.value.exit_code == 5
    assert RETRIED[kind].event in caught.value.message
    assert again.time.now <= 120
    assert again.store.runs == clean
    assert again.store.cursor == lab.store.cursor


def test_a_server_that_is_gone_is_exit_5_too(lab):
    lab.server.stop()
    with pytest.raises(SourceError, match="cannot be reached") as caught:
        lab.sync()
    assert "Check WANDB_BASE_URL" in caught.value.hint


def test_a_server_that_lists_runs_and_never_gives_their_histories_is_given_up(lab):
    lab.server.faults.always("502", match=lambda request: "sampledHistory" in request.query)
    with pytest.raises(SourceError, match="given up"):
        lab.sync()
    assert lab.time.now <= 120


def test_random_faults_in_a_fifth_of_the_requests_change_nothing(lab, clean):
    met = set()
    for seed in range(15):
        lab.server.requests.clear()
        lab.server.faults = Faults(rate=0.2, seed=seed, hang_s=0.2, drip_s=0.002)
        again = fresh_lab(lab)
        again.page_size = 2
        again.sync()
        met |= {request.fault for request in lab.server.requests if request.fault}
        lab.server.faults.clear()
        again.sync()
        assert again.store.runs == clean, f"seed {seed}"
        assert again.store.problems == [], f"seed {seed}"
        assert again.store.readings == WHOLE_PROJECT, f"seed {seed}"
    assert met > RETRIABLE - SLOW


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("config", "502"),
        ("history", "502"),
        ("sampledHistory", "502"),
        ("history", "hang"),
        ("history", "malformed"),
        ("history", "null-data"),
        ("config", "truncated"),
    ],
)
def test_one_poisoned_run_is_named_and_the_others_are_read(lab, clean, field, kind):
    lab.server.faults.poison("r07", kind, fields=[field])
    again = fresh_lab(lab, kind)
    again.sync()
    assert set(again.store.runs) == set(clean) - {"r07"}
    assert [problem.where for problem in again.store.problems] == ["lab/rl/r07"]
    assert "the server" in again.store.problems[0].what


def test_a_poisoned_run_is_told_once_and_read_when_it_heals(lab, clean):
    lab.server.faults.poison("r07", fields=["history"])
    again = fresh_lab(lab)
    again.sync()
    again.store.problems.clear()
    again.sync()
    assert again.store.problems == []
    lab.server.faults.clear()
    again.sync()
    assert again.store.runs == clean
    assert again.sync() == 1


def test_several_poisoned_runs_are_all_named(lab, clean):
    poisoned = {"r00", "r11", "r12", "r23"}
    for name in poisoned:
        lab.server.faults.poison(name, fields=["history"])
    again = fresh_lab(lab)
    again.sync()
    assert set(again.store.runs) == set(clean) - poisoned
    assert {problem.where for problem in again.store.problems} == {f"lab/rl/{name}" for name in poisoned}


def test_an_answer_that_is_too_large_is_asked_in_smaller_parts(server):
    large = Lab(server, limits=HttpLimits(deadline_s=5.0, body_bytes=400_000))
    for index in range(30):
        large.add(f"r{index:02}", minutes=index, config=CONFIG | {"notes": "x" * 40_000})
    large.sync()
    assert len(large.store.runs) == 30
    assert large.store.problems == []


def test_a_run_that_is_too_large_by_itself_is_named(server):
    large = Lab(server, limits=HttpLimits(deadline_s=5.0, body_bytes=100_000))
    for index in range(5):
        large.add(f"r{index}", minutes=index, config=CONFIG | {"notes": "x" * (200_000 if index == 2 else 9)})
    large.sync()
    assert sorted(large.store.runs) == ["r0", "r1", "r3", "r4"]
    assert [problem.where for problem in large.store.problems] == ["lab/rl/r2"]


def test_a_server_that_refuses_the_nested_query_is_read_by_name(lab, clean):
    lab.server.abilities = Abilities(nested_history=False)
    again = fresh_lab(lab)
    first = again.sync()
    assert again.store.runs == clean
    assert sum(request.status == 400 for request in lab.server.requests) == 1
    assert first <= 6
    lab.server.requests.clear()
    again.sync()
    assert all(request.status == 200 for request in lab.server.requests)  # it is not tried at every sync


def test_a_server_that_takes_one_run_at_a_time_is_read_run_by_run(lab, clean):
    lab.server.faults.always(
        "400", match=lambda request: "edges" in request.query and "config" in request.query
    )
    lab.server.faults.always("400", match=lambda request: "name1" in request.variables)
    again = fresh_lab(lab)
    again.sync()
    assert again.store.runs == clean


def test_a_server_that_does_not_understand_any_query_is_told_so(lab):
    lab.server.faults.always("400", match=lambda request: "sampledHistory" in request.query)
    with pytest.raises(SourceError, match="does not understand the query"):
        lab.sync()


def test_a_project_that_the_key_may_not_see_is_like_a_missing_one(lab):
    lab.server.project("lab", "rl").hidden = True
    with pytest.raises(SourceError, match="has no such project, or this key has no access to it: lab/rl"):
        lab.sync()


def test_a_single_run_that_does_not_exist_is_a_wrong_name(lab):
    with pytest.raises(UsageError, match="The run lab/rl/nobody does not exist"):
        list(lab.pages("nobody"))


def test_a_single_run_that_cannot_be_read_is_an_unreadable_source(lab):
    lab.server.faults.poison("r07", fields=["history"])
    with pytest.raises(SourceError, match="lab/rl/r07 cannot be read: the server is in trouble: HTTP 502"):
        list(lab.pages("r07"))


def test_a_run_that_the_server_describes_in_an_unknown_way_is_named(lab, clean):
    lab.server.run("lab", "rl", "r03").config_json = '{"lr": '
    again = fresh_lab(lab)
    again.sync()
    assert set(again.store.runs) == set(clean) - {"r03"}
    assert "in an unknown way" in again.store.problems[0].what


def test_the_key_is_in_no_error_no_problem_and_nothing_that_the_double_logs(lab):
    key, told = lab.server.api_key, []
    lab.server.faults.poison("r07", fields=["history"])
    lab.sync()
    told += [
        str(lab.store.problems),
        str(lab.store.cursor),
        repr(lab.source.client),
        repr(lab.source.address),
    ]
    for kind in sorted(KINDS):
        lab.server.faults.clear()
        lab.server.faults.always(kind)
        try:
            Lab(lab.server, limits=HttpLimits(deadline_s=0.2, give_up_s=5.0)).sync()
        except (SourceError, CredentialsError) as error:
            told.append(f"{error!r} {error} {error.__cause__!r} {error.__context__!r}")
    told += [repr(request) for request in lab.server.requests]
    assert key not in " ".join(told)
    assert all(request.path == "/graphql" for request in lab.server.requests)
