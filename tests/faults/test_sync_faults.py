"""Whole syncs, as a person runs them, against a server that fails: what is stored, said and written."""

import sqlite3
from contextlib import closing

import pytest

from step0_wandb.publish.wandb.state_document import read_state
from step0_wandb.store import Store
from tests.support.command import run
from tests.support.project import add_miles, add_project, environment
from tests.support.wandb_server import Faults, WandbServer

READ_ONLY = '[report]\nstate = false\n[alerts]\nsince = "9999d"\n'
WRITING = '[report]\nwandb = "same"\n[alerts]\nsince = "9999d"\n'


@pytest.fixture
def server():
    with WandbServer() as server:
        add_project(server)
        yield server


class House:
    """A folder with settings and a store, and syncs in it."""

    def __init__(self, server, folder, settings):
        self.server, self.folder = server, folder
        folder.mkdir()
        (folder / "step0.toml").write_text(f'sources = ["lab/rl"]\n{settings}')

    def sync(self):
        """Run one sync; the server's log of requests then holds those of this sync alone."""
        self.server.requests.clear()
        return run("sync", "--json", cwd=self.folder, **environment(self.server, self.folder))

    @property
    def runs(self):
        """Return all that the store keeps of runs: as they were read, and as they were judged."""
        with self.store() as store:
            return list(store.runs.records()), store.verdicts.runs(), store.verdicts.ranges()

    def store(self):
        return Store.open(self.folder / "step0.db", mode="read")

    def dump(self):
        """Return the whole store as text."""
        with closing(sqlite3.connect(self.folder / "step0.db")) as database:
            return list(database.iterdump())

    @property
    def writes(self):
        return [request.operations or request.path for request in self.server.requests if request.mutates]


def random_faults(seed):
    """Return every fault that may pass, in a fifth of all requests."""
    return Faults(rate=0.2, seed=seed, hang_s=0.2, drip_s=0.002)


@pytest.mark.parametrize("seed", [1, 2, 4, 7])
def test_random_faults_change_neither_what_is_stored_nor_what_is_told(server, tmp_path, seed):
    clean, faulty = (House(server, tmp_path / name, READ_ONLY) for name in ("clean", "faulty"))
    expected = clean.sync()
    told = sorted(alert.title for alert in server.alerts)
    server.alerts.clear()
    server.faults = random_faults(seed)
    answer = faulty.sync()
    assert any(request.fault for request in server.requests)
    assert answer.code == expected.code == 0
    assert faulty.runs == clean.runs
    assert (
        answer.document["counts"] == expected.document["counts"] == {"broken": 2, "healthy": 6, "no-range": 1}
    )
    assert sorted(alert.title for alert in server.alerts) == told


def test_what_random_faults_keep_from_being_written_is_named_and_written_by_the_next_sync(server, tmp_path):
    house = House(server, tmp_path / "house", WRITING)
    server.faults = random_faults(seed=5)
    first = house.sync()
    problems = first.document["problems"]
    assert first.code == (7 if problems else 0)
    assert all(problem["where"].startswith("lab/rl") for problem in problems)
    assert all(problem["what"].startswith("not written: ") for problem in problems)
    assert len(house.runs[0]) == 9
    server.faults.clear()
    second = house.sync()
    assert (second.code, second.document["problems"]) == (0, [])
    third = house.sync()
    assert (third.code, third.document["written"], house.writes) == (0, [], [])
    assert len(server.state.views) == 1
    assert len({alert.run_id for alert in server.alerts}) == len(server.alerts) == 2
    state = (
        server.state.collections["lab", "rl", "step0-state"].committed[0].files["step0-state.json"].content
    )
    assert read_state(state).counts == {"broken": 2, "healthy": 6, "no-range": 1}


@pytest.mark.parametrize("kind", ["502", "hang", "reset", "html"])
def test_a_dead_server_is_exit_5_and_the_store_is_as_before(server, tmp_path, kind):
    house = House(server, tmp_path / "house", READ_ONLY + '[server]\ngive_up = "1s"\n')
    assert house.sync().code == 0
    before = house.dump()
    add_miles(server, "new", 0.0150)
    server.faults = Faults(hang_s=30)
    server.faults.always(kind)
    answer = house.sync()
    assert answer.code == 5
    assert answer.document["error"]["message"].endswith("given up after 1 s without a good page")
    assert house.dump() == before
