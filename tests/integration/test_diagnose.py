"""What `doctor` finds on a W&B server, good and bad."""

from __future__ import annotations

import pytest

from step0_wandb.sources.server.diagnose import diagnose
from step0_wandb.wandb_api.address import RemoteAddress
from step0_wandb.wandb_api.client import GraphQLClient
from step0_wandb.wandb_api.credentials import Places
from step0_wandb.wandb_api.http import HttpLimits
from step0_wandb.wandb_api.rate_limit import RateLimiter
from tests.support.server_source import NOWHERE, Lab, SleepyTime, shipped_finder
from tests.support.wandb_server import KINDS, Abilities, WandbServer

PROJECT = RemoteAddress("lab", "rl")


@pytest.fixture
def server():
    with WandbServer() as server:
        lab = Lab(server)
        lab.add("r1")
        lab.add("r2")
        yield server


def connect(account):
    limits = HttpLimits(deadline_s=0.3, give_up_s=3.0)
    return GraphQLClient(account, limiter=RateLimiter(clock=SleepyTime().clock()), environ={}, limits=limits)


def findings(server, *addresses, **environ):
    variables = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key} | environ
    found = diagnose(Places(variables, NOWHERE, NOWHERE), addresses, shipped_finder(), connect=connect)
    assert server.api_key not in repr(found)
    return {finding.name: finding for finding in found}


def test_a_good_server_is_told_with_key_host_projects_and_abilities(server):
    server.project("lab", "sft")
    found = findings(server, PROJECT)
    assert {name: (finding.outcome, finding.what) for name, finding in found.items()} == {
        "server": ("ok", f"{server.url} (from WANDB_BASE_URL)"),
        "key": ("ok", "found in WANDB_API_KEY"),
        "login": ("ok", "the server answers; the key is ada's"),
        "projects of lab": ("ok", "rl, sft"),
        "lab/rl": ("ok", "readable, 2 runs"),
        "lab/rl: nested query": ("ok", "histories come with each page of runs"),
    }


def test_a_server_that_refuses_the_nested_query_is_told_to_cost_more_requests(server):
    server.abilities = Abilities(nested_history=False)
    nested = findings(server, PROJECT)["lab/rl: nested query"]
    assert nested.outcome == "warn"
    assert "with more requests" in nested.what


def test_without_a_key_nothing_is_asked(server):
    found = findings(server, PROJECT, WANDB_API_KEY="")
    assert {name: finding.outcome for name, finding in found.items()} == {"server": "ok", "key": "fail"}
    assert "wandb login" in found["key"].what
    assert server.requests == []


def test_a_refused_key_ends_the_search(server):
    found = findings(server, PROJECT, WANDB_API_KEY="f" * 40)
    assert found["login"].outcome == "fail"
    assert "refuses the key (HTTP 401)" in found["login"].what
    assert "lab/rl" not in found


def test_a_project_that_cannot_be_read_does_not_hide_the_others(server):
    found = findings(server, RemoteAddress("lab", "typo"), PROJECT)
    assert found["lab/typo"].outcome == "fail"
    assert found["lab/rl"].outcome == "ok"


def test_a_run_that_does_not_exist_is_named(server):
    found = findings(server, RemoteAddress("lab", "rl", "nobody"))
    assert (found["lab/rl/nobody"].outcome, found["lab/rl/nobody"].what) == ("fail", "there is no run nobody")


def test_a_wrong_address_is_told_first(server):
    found = findings(server, PROJECT, WANDB_BASE_URL="wandb.example.com")
    assert [(finding.name, finding.outcome) for finding in found.values()] == [("server", "fail")]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_goes_wrong_is_a_finding_and_no_error(server, kind):
    server.faults.hang_s = 0.4
    server.faults.always(kind)
    assert findings(server, PROJECT)["server"].outcome == "ok"


def test_names_of_projects_cannot_steer_a_terminal(server):
    server.project("lab", "red\x1b[31m")
    assert findings(server)["projects of lab"].what == "rl, red"
