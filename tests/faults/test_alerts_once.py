"""Exactly one alert, whatever dies and whenever: the program is killed around its requests in turn.

A W&B server drops an alert whose title it had within the wait duration; the double does the same, and
keeps what people received apart from what it was sent.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

import pytest

from step0_wandb.store import Store
from tests.support.alerts import BROKEN, SUSPECT, add_healthy, add_run
from tests.support.processes import Program
from tests.support.wandb_server import Abilities, WandbServer
from tests.support.webhook import Hook

REQUESTS = {
    "single": (
        "Page",
        "State",
        *["RunFile"] * 3,
        "Alert",
        "OwnRun",
        "MakeOwnRun",
        *["Alert"] * 3,
        "State",
        "State",
    ),
    "digest": ("Page", "State", "OwnRun", "MakeOwnRun", "Alert", "State", "State"),
}
"""What a sync asks of the server itself; the server takes no alert on the run `closed`."""
FLAGGED = {
    "single": {"bad": "broken", "closed": "broken", "odd": "suspect"},
    "digest": {f"bad{at}": "broken" for at in range(6)},
}
DELIVERED = {
    "single": [
        ("bad", "Broken at step 0: bad"),
        ("odd", "Suspect at step 0: odd"),
        ("step0-sync", "Broken at step 0: closed"),
    ],
    "digest": [("step0-sync", "Several alerts at step 0, first: bad5")],
}
"""Where people find which alert."""


AROUND = [
    pytest.param("reset", id="before", marks=pytest.mark.full_grid),
    pytest.param("lost-reset", id="after"),
]
"""Killed after a request was executed leaves what killed before the next one leaves: by default once is enough."""


def at_each(case):
    """Yield each moment of a case; by default those of the first request of each kind alone."""
    for number, asked in enumerate(REQUESTS[case], start=1):
        is_first = REQUESTS[case].index(asked) == number - 1
        # A store knows nothing of these questions, so that one of them stands for the others.
        if is_first or asked != "RunFile":
            seen = case == "digest" and asked in REQUESTS["single"] and asked != "Alert"
            marks = [pytest.mark.full_grid] if seen or not is_first else []
            yield pytest.param(case, number, marks=marks)


@dataclass
class Lab:
    """A server, a webhook, and the program; every test has a project and a store of its own."""

    server: WandbServer
    hook: Hook
    program: Program
    numbers: count = field(default_factory=lambda: count(1))

    def begin(self, case):
        """Take a new project with runs to alert about."""
        self.project = f"rl{next(self.numbers)}"
        self.server.requests.clear()
        self.server.faults.clear()
        self.hook.clear()
        now = datetime.now(UTC)
        add_healthy(self.server, now=now, project=self.project)
        for hours, (run_id, verdict) in enumerate(FLAGGED[case].items(), start=1):
            gap = BROKEN if verdict == "broken" else SUSPECT
            add_run(self.server, run_id, gap, now=now, hours=hours, project=self.project)

    @property
    def path(self):
        return self.program.folder / f"{self.project}.db"

    @property
    def words(self):
        return ("sync", f"lab/{self.project}", "--store", str(self.path))

    def delivered(self):
        alerts = self.server.alerts
        return sorted((alert.run_id, alert.title) for alert in alerts if alert.project == self.project)

    def asked(self):
        """Return what the program itself asked of the server; the W&B client has other names."""
        names = [request.operations[0] for request in self.server.requests if request.operations]
        return tuple(name.removeprefix("Step0") for name in names if name.startswith("Step0"))

    def kill_at(self, number, fault):
        """Kill the program as its request of this number arrives."""
        numbers = count(1)

        def match(request):
            own = any(name.startswith("Step0") for name in request.operations)
            if not own or next(numbers) != number:
                return False
            self.program.kill()
            return True

        self.server.faults.next(fault, match=match)

    def mutations(self):
        return [request.operations for request in self.server.requests if request.mutates]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alerts")
    (folder / "step0.toml").write_text('[server]\ngive_up = "5s"\n')
    (folder / "hooked.toml").write_text('[alerts]\nwebhook_env = "HOOK"\n')
    abilities = Abilities(alerts=lambda run_id: run_id != "closed")
    with WandbServer(abilities=abilities) as server, Hook() as hook:
        environ = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key, "HOOK": hook.url}
        with Program(folder, **environ) as program:
            yield Lab(server, hook, program)


@pytest.fixture
def lab(laboratory, request):
    laboratory.begin(request.getfixturevalue("case"))
    return laboratory


@pytest.fixture
def case():
    """Name the case of a test that is not about several."""
    return "single"


@pytest.mark.parametrize("case", REQUESTS)
def test_an_undisturbed_sync_asks_what_is_disturbed_below(lab, case):
    assert lab.program.run(*lab.words).code == 0
    assert lab.asked() == REQUESTS[case]
    assert lab.delivered() == DELIVERED[case]


@pytest.mark.parametrize("fault", AROUND)
@pytest.mark.parametrize(("case", "number"), [*at_each("single"), *at_each("digest")])
def test_killed_around_a_request_a_sync_and_the_next_deliver_each_alert_once(lab, case, number, fault):
    lab.kill_at(number, fault)
    assert lab.program.run(*lab.words).code == -9
    assert lab.program.run(*lab.words).code == 0
    assert lab.delivered() == DELIVERED[case]
    with Store.open(lab.path, mode="read") as store:
        verdicts = {run.run.rsplit("/", 1)[-1]: run.verdict for run in store.verdicts.runs()}
        assert len(store.outbox.sent()) == len(FLAGGED[case])
        assert store.outbox.unsent() == ()
    assert verdicts.items() >= FLAGGED[case].items()
    assert len(verdicts) == 8 + len(FLAGGED[case])
    lab.server.requests.clear()
    assert lab.program.run(*lab.words).code == 0
    assert lab.mutations() == []


@pytest.mark.parametrize("fault", AROUND)
@pytest.mark.parametrize(
    ("case", "number"),
    [
        pytest.param("single", 6, marks=pytest.mark.full_grid),
        ("single", 11),
        pytest.param("digest", 5, marks=pytest.mark.full_grid),
    ],
)
def test_a_store_that_is_lost_with_the_killed_sync_doubles_nothing(lab, case, number, fault):
    lab.kill_at(number, fault)
    assert lab.program.run(*lab.words).code == -9
    for file in lab.path.parent.glob(f"{lab.path.name}*"):
        file.unlink()
    assert lab.program.run(*lab.words).code == 0
    assert lab.delivered() == DELIVERED[case]


@pytest.mark.parametrize("fate", ["cut", "lose"], ids=["before", "after"])
@pytest.mark.parametrize(
    "number", [pytest.param(1, marks=pytest.mark.full_grid), 2, pytest.param(3, marks=pytest.mark.full_grid)]
)
def test_killed_around_a_webhook_post_people_read_each_message_at_least_once(lab, number, fate):
    words = (*lab.words, "--settings", "hooked.toml")

    def kill(request):
        if request != number:
            return "take"
        lab.program.kill()
        return fate

    lab.hook.seen = kill
    assert lab.program.run(*words).code == -9
    assert lab.program.run(*words).code == 0
    titles = [text.splitlines()[0] for text in lab.hook.texts]
    assert set(titles) == {f"*{title}*" for _, title in DELIVERED["single"]}
    # A webhook confirms by its answer alone: what it took just before the kill is told again.
    assert len(titles) == 3 + (fate == "lose")
    assert lab.delivered() == DELIVERED["single"]
    assert lab.program.run(*words).code == 0
    assert len(lab.hook.texts) == len(titles)


def test_of_two_syncs_at_once_one_works_and_the_other_says_so_in_one_line(lab):
    environ = {"WANDB_BASE_URL": lab.server.url, "WANDB_API_KEY": lab.server.api_key}
    second = []
    with Program(lab.program.folder, **environ) as other:

        def sync_meanwhile(request):
            if request.operations == ("Step0Alert",) and not second:
                second.append("begun")  # the first holds the store while it waits for this answer
                second.append(other.run(*lab.words))
            return False

        lab.server.faults.next("reset", match=sync_meanwhile)
        assert lab.program.run(*lab.words).code == 0
    answer = second[1]
    assert (answer.code, answer.out) == (6, "")
    assert "busy" in answer.err
    assert answer.err.count("\n") == 1
    assert lab.delivered() == DELIVERED["single"]
    attempts = [alert for alert in lab.server.alert_attempts if alert.project == lab.project]
    assert len(attempts) == 3
