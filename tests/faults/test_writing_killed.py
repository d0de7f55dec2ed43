"""One report and one line of states, whatever dies and whenever: a sync is killed around each of its writes.

A sync that was killed after its request number n was executed leaves the server as one that was killed
before its request n + 1. So each state that a kill can leave is met by killing after every request, and
once before the first. The next sync finds the store in every second case, and in the others none; from
one request to the next hardly anything changes, so that both happen at every stage. Uploads go out side
by side, so that the number of a request is not always the same request's; any is a good moment to die.
"""

from itertools import count

import pytest

from step0_wandb.publish.wandb.state_document import read_state
from step0_wandb.store import Store
from tests.support.processes import Program
from tests.support.project import add_project, environment
from tests.support.waiting import until
from tests.support.wandb_server import WandbServer

WRITES = 42
"""Requests by which the first sync of the project changes something."""
EVERY = 14
"""By default a write of the report, of the tables and of the state is cut off; all need a quarter of an hour."""
KILLS = [(0, "reset", "kept"), (0, "reset", "lost")] + [
    pytest.param(
        number,
        "lost-reset",
        "kept" if number % 2 else "lost",
        marks=[pytest.mark.full_grid] if number % EVERY else [],
    )
    for number in range(WRITES)
]
EXPECTED = {
    "ok0": "healthy",
    "ok1": "healthy",
    "ok2": "healthy",
    "ok3": "healthy",
    "ok4": "healthy",
    "ok5": "healthy",
    "blind": "no-range",
    "bad": "broken",
    "long": "broken",
}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Return a server and the program, once for all cases: its start takes as long as a case."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "step0.toml").write_text(
        'sources = ["lab/rl"]\n[report]\nwandb = "same"\n[alerts]\nsince = "9999d"\n[server]\ngive_up = "20s"\n'
    )
    (folder / "tmp").mkdir()
    environ = {"TMPDIR": str(folder / "tmp")}
    with WandbServer() as server, Program(folder, **environment(server, folder), **environ) as program:
        yield server, program


@pytest.fixture
def server(house):
    """Return the server as nobody has written to it yet."""
    server, _ = house
    state = server.state
    for kept in (state.projects, state.collections, state.views, state.files, server.requests):
        kept.clear()
    for alerts in (server.alerts, server.alert_attempts):
        alerts.clear()
    server.faults.clear()
    add_project(server)
    return server


@pytest.fixture
def program(house):
    """Return the program without a store."""
    _, program = house
    lose_store(program)
    return program


def lose_store(program):
    for file in program.folder.glob("step0.db*"):
        file.unlink()


def writes(server):
    return [request for request in server.requests if request.mutates]


def kill_at(server, program, number, fault):
    """Kill the program around its write of this number, counted from 0."""
    numbers = count()

    def match(request):
        if not request.mutates or next(numbers) != number:
            return False
        program.kill()
        return True

    server.faults.next(fault, match=match)


def assert_whole(server, program):
    """Check what people find: every verdict, one alert each, one report, and a state that says the same."""
    with Store.open(program.folder / "step0.db", mode="read") as store:
        assert {run.run.rpartition("-")[2]: run.verdict for run in store.verdicts.runs()} == EXPECTED
        alerted = store.outbox.sent()
    assert sorted(alert.run_id for alert in server.alerts) == ["rl-bad", "rl-long"]
    [report] = server.state.views.values()
    assert "Broken and still running" in report.spec
    states = [key for key in server.state.collections if key[2] == "step0-state"]
    assert states == [("lab", "rl", "step0-state")]
    latest = server.state.collections["lab", "rl", "step0-state"].aliases["latest"]
    state = read_state(latest.files["step0-state.json"].content)
    assert (state.report, list(state.alerted)) == (report.id, alerted)
    assert sorted(state.written) == ["report", "tables"]
    assert server.run("lab", "rl", "step0-sync").summary["verdicts/broken"] == 2


def test_an_undisturbed_sync_sends_the_writes_that_are_disturbed_below(server, program):
    assert program.run("sync").code == 0
    assert abs(len(writes(server)) - WRITES) <= 2  # a stream is posted in one piece or in two
    assert server.run("lab", "rl", "step0-sync").status == "finished"
    assert_whole(server, program)


@pytest.mark.parametrize(("number", "fault", "store"), KILLS)
def test_a_killed_sync_and_the_next_write_everything_once(server, program, number, fault, store):
    kill_at(server, program, number, fault)
    assert program.run("sync").code in {-9, 0}
    # The client's process outlives the program for a moment, and takes its folder with it.
    until(lambda: not list((program.folder / "tmp").glob("step0-wandb-*")))
    if store == "lost":
        lose_store(program)
    again = program.run("sync")
    assert again.code == 0, again.err
    assert_whole(server, program)
    server.requests.clear()
    assert program.run("sync").code == 0
    assert writes(server) == []
