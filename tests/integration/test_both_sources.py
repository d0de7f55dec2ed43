"""Runs that the real client logged, read from its directories, from the server, and from both."""

import os
from datetime import UTC, datetime

import pytest
import wandb

from step0_wandb.text.json_documents import plain
from tests.support.project import Lab
from tests.support.server_source import CONFIG
from tests.support.wandb_server import client_online

GAP = "train/train_rollout_logprob_abs_diff"
MAY_DIFFER = {"url", "user", "state", "created_at"}
OKAY = {f"ok{at}": [0.0150 + at * 1e-4] for at in range(4)}
GAPS = OKAY | {"bad": [0.0461], "odd": [float("nan")], "far": [float("inf")], "short": [], "dead": None}
"""By run id, the gap at the first optimizer step; without one a run ends before, or logs nothing."""


def log(run_id, gaps, **given):
    """Log one run with the real client; those of odd ids leave the entity to the server."""
    config = CONFIG | {"seed": run_id, "nested": {"list": [1, "x"]}, "wandb_key": os.environ["WANDB_API_KEY"]}
    settings = wandb.Settings(console="off", x_disable_stats=True)
    run = wandb.init(project="rl", id=run_id, name=f"try {run_id}", config=config, settings=settings, **given)
    if gaps is not None:
        run.log({"rollout/step": 0, "rollout/response_len": {"mean": 512.5, "max": 1024}})
    for gap in gaps or ():
        for step in range(3):
            metrics = {"train/step": step, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: gap + step}
            run.log(metrics)
    run.finish()


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The double and the directories after the client has logged to both."""
    folder = tmp_path_factory.mktemp("logged")
    with client_online(folder, WANDB_DOCKER="radixark/miles:v5") as server:
        for at, (run_id, gaps) in enumerate(GAPS.items()):
            log(run_id, gaps, group="g", tags=["a"], **({} if at % 2 else {"entity": "lab"}))
        yield server, folder


def synced(logged, folder, *sources):
    """Sync a new store; return its runs as documents and their configs, by run id."""
    server, home = logged
    folder.mkdir()
    named = {"server": "lab/rl", "disk": str(home / "wandb")}
    flags = {"report.wandb": "", "report.state": False, "checks.every_rollout": True}
    lab = Lab(server, folder, sources=[named[source] for source in sources], **flags)
    lab.now = datetime.now(UTC)
    result = lab.sync()
    assert not result.problems
    with lab.store() as store:
        runs = [plain(run) for run in store.verdicts.runs()]
        configs = {record.run_id: record.config for record in store.runs.records()}
    assert len(runs) == len(configs) == len(GAPS)
    return {run["run"].rpartition("/")[2]: run for run in runs}, configs


def test_disk_and_server_give_the_same_run_records(logged, tmp_path):
    server, server_configs = synced(logged, tmp_path / "server", "server")
    disk, disk_configs = synced(logged, tmp_path / "disk", "disk")
    assert [server[name]["verdict"] for name in ("ok0", "bad", "short", "dead")] == [
        "healthy",
        "broken",
        "no-step0",
        "no-step0",
    ]
    for name, run in server.items():
        twin = disk[name] | {"run": disk[name]["run"].replace("_/", "lab/")}
        assert {key for key in run if run[key] != twin[key]} <= MAY_DIFFER
        mine, other = server_configs[name], disk_configs[name]
        assert {**mine, "_wandb": None} == {**other, "_wandb": None}


@pytest.mark.parametrize("sources", [("server", "disk"), ("disk", "server")], ids=" then ".join)
def test_both_sources_in_one_store_make_one_run_each_the_servers(logged, tmp_path, sources):
    server, _ = synced(logged, tmp_path / "server", "server")
    both, _ = synced(logged, tmp_path / "both", *sources)
    assert both == server
