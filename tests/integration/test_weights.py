"""The book of weight checks of a project on the server."""

from datetime import timedelta

from step0_wandb.store.kept import load_weight_checks
from tests.support.project import NOW, Lab, environment
from tests.support.server_source import CONFIG, miles_rows
from tests.support.wandb_server import WandbServer

FLAG = CONFIG | {"check_weight_update_equal": True}
COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"
ROLLOUT = {"rollout/step": 0, "rollout/response_len/mean": 812.5}


def in_image(docker=None):
    notes = {"git": {"commit": COMMIT}} | ({"docker": docker} if docker else {})
    return {"_wandb": {"value": {"e": {"x7f3": notes}}}}


def test_runs_on_a_server_tell_image_commit_and_what_became_of_them(tmp_path, monkeypatch):
    with WandbServer() as server:
        server.clock = lambda: NOW
        for name, value in environment(server, tmp_path).items():
            monkeypatch.setenv(name, value)
        for run_id, state, config, rows in (
            ("passed", "finished", FLAG | in_image("miles:v5"), miles_rows()),
            ("plain", "finished", CONFIG | in_image(), miles_rows()),
            ("rolled", "crashed", FLAG | in_image("miles:v6"), [ROLLOUT]),
            ("died", "failed", FLAG | in_image("miles:v7"), []),
        ):
            server.add_run(
                "lab",
                "rl",
                run_id,
                config=config,
                rows=rows,
                state=state,
                created_at=NOW - timedelta(hours=1),
            )
        lab = Lab(server, tmp_path, **{"report.wandb": None, "report.state": False})
        result = lab.sync()
    with lab.store() as store:
        book = load_weight_checks(store)
    assert [(entry.status, entry.image, entry.run) for entry in book] == [
        ("failed", "miles:v7", "lab/rl/died"),
        ("due", COMMIT[:12], None),
        ("passed", "miles:v5", "lab/rl/passed"),
        ("passed", "miles:v6", "lab/rl/rolled"),
    ]
    [told] = result.mismatched
    assert told.startswith("lab/rl/died compared Qwen3-0.6B on miles:v7: the weights differ, or it died")
