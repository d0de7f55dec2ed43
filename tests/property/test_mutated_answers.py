"""One odd answer among good ones: no traceback, no run that vanishes without a word, and bounded time."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime

import pytest

from step0_wandb.app.pull import pull
from step0_wandb.store import NOWHERE, Store
from step0_wandb.wandb_api import http
from step0_wandb.wandb_api.context import Context
from step0_wandb.wandb_api.credentials import Places
from tests.support.mutations import mutated
from tests.support.server_source import CONFIG, miles_rows, shipped_finder
from tests.support.server_source import NOWHERE as NO_PLACE
from tests.support.wandb_server import WandbServer

RUNS = 12
NAMES = {f"r{index:02}" for index in range(RUNS)}
NOW = datetime(2026, 11, 30, tzinfo=UTC)
WRITERS = {"_wandb": {"e": {"one": {"os": "Linux"}, "two": {"os": "Linux"}}}}


def project_server():
    """Return a server that is not started, with runs of each kind."""
    server = WandbServer()
    for index in range(RUNS):
        rows = miles_rows(at=70 if index == 5 else 3, gap=0.015 + index * 1e-5)
        config = {**CONFIG, **(WRITERS if index == 3 else {})}
        state = "running" if index == 7 else "finished"
        server.add_run("lab", "rl", f"r{index:02}", rows=rows, config=config, state=state)
    return server


@pytest.fixture(scope="module")
def project():
    with project_server() as server:
        yield server


class Attack:
    """Two syncs of a project; one of the answers goes through mutations.

    Parameters
    ----------
    replies : dict
        What the good server has answered, by the question.
    """

    def __init__(self, server, seed, replies):
        self.chance = random.Random(seed)  # noqa: S311 - the same mutations each time
        self.replies = replies
        self.number, self.odd_one = 0, self.chance.randrange(4)
        self.mutation = b""
        environ = {"WANDB_API_KEY": server.api_key, "WANDB_BASE_URL": server.url}
        self.context = Context(Places(environ, NO_PLACE, NO_PLACE), lambda: NOW, give_up_s=60.0)

    def __call__(self, transport, body):
        if body not in self.replies:
            self.replies[body] = POST(transport, body)
        reply = self.replies[body]
        self.number += 1
        if self.number - 1 != self.odd_one:
            return reply
        self.mutation = mutated(reply.body, self.chance)
        return http.Reply(reply.status, reply.headers, self.mutation)

    def run(self):
        """Return the ids that are stored, and all that was told."""
        told = []
        with Store.open(NOWHERE, mode="copy") as store:
            for _ in range(2):
                (result,) = pull(store, ["wandb:lab/rl"], shipped_finder(), self.context)
                told += [f"{problem.where}: {problem.what}" for problem in result.problems]
            return {record.run_id for record in store.runs.records()}, told


POST = http.HttpTransport.post
PER_TEST = 50


@pytest.mark.parametrize(
    "group",
    [pytest.param(group, marks=[pytest.mark.full_grid] if group >= 2 else []) for group in range(100)],
)
def test_one_odd_answer_ends_no_sync_without_a_word_and_loses_no_run_in_silence(project, group, monkeypatch):
    replies = {}
    for seed in range(group * PER_TEST, (group + 1) * PER_TEST):
        attack = Attack(project, seed, replies)
        monkeypatch.setattr(http.HttpTransport, "post", lambda *asked, attack=attack: attack(*asked))
        stored, told = attack.run()
        assert silently_lost(stored, told) == [] or is_another_name(attack.mutation), (seed, told)
        assert attack.number < 60, seed


def silently_lost(stored, told):
    """Return the runs that are not stored, and that nothing tells of."""
    everything = " ".join(told)
    return [name for name in NAMES - stored if name not in everything and "wandb:lab/rl: " not in everything]


def is_another_name(answer):
    """Return whether a mutation gave a run the name of none, which no reader can know."""
    try:
        edges = json.loads(answer)["data"]["project"]["runs"]["edges"]
        names = {edge["node"]["name"] for edge in edges}
    except (ValueError, LookupError, TypeError):
        return False
    return bool(names - NAMES)
