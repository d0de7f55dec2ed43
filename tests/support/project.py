"""A project on the double whose report, tables and state a sync writes with the real wandb client."""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from step0_wandb.app.sync import Job, run_sync
from step0_wandb.settings.load import load_settings
from step0_wandb.store import Store
from tests.support.command import Answer
from tests.support.server_source import CONFIG, miles_rows

NOW = datetime(2026, 11, 30, 3, 12, tzinfo=UTC)
HOSTILE = "</script><img src=x>|**x**"
LONG = "qwen3-" + "x" * 5000 + "\u202eend"
GAPS = (0.0150, 0.0151, 0.0152, 0.0153, 0.0154, 0.0149)


class Lab:
    """One folder with a store and settings, and syncs of projects on a server; each in this process."""

    def __init__(self, server, folder: Path, *, sources=("lab/rl",), **flags) -> None:
        self.server = server
        self.folder = folder
        self.sources = sources
        self.now = NOW
        self.flags = {
            "store": str(folder / "step0.db"),
            "report.wandb": "same",
            "server.give_up": "20s",
        } | flags

    @property
    def job(self) -> Job:
        loaded = load_settings(cwd=self.folder, environ={}, flags=self.flags)
        return Job(loaded, tuple(self.sources), clock=lambda: self.now)

    def sync(self, **changes):
        """Run one sync; the server's log of requests then holds those of this sync alone."""
        self.server.requests.clear()
        return run_sync(replace(self.job, **changes))

    def lose_store(self) -> None:
        """Go on as on a machine that has no disk of its own."""
        for file in self.folder.glob("step0.db*"):
            file.unlink()

    def store(self, mode="read") -> Store:
        """Open the store."""
        return Store.open(self.folder / "step0.db", mode=mode)

    @property
    def writes(self) -> list[tuple[str, ...]]:
        """Return what was sent to change something, by operation; uploads and streams by their path."""
        changes = [request for request in self.server.requests if request.mutates]
        return [request.operations or (request.path,) for request in changes]

    def versions(self, project="rl", name="step0-state"):
        """Return the versions of one artifact that are complete, the newest first."""
        collection = self.server.state.collections.get(("lab", project, name))
        return collection.committed if collection else []

    def state(self, project="rl") -> bytes:
        """Return the state that was written last."""
        return self.versions(project)[0].files["step0-state.json"].content

    @property
    def reports(self):
        """Return the reports of all projects, the oldest first."""
        return list(self.server.state.views.values())


def add_miles(server, run_id, gap, *, project="rl", hours=1.0, **given) -> None:
    """Put a Miles run on the server that began some hours before `NOW`; one without a gap logs none."""
    config = CONFIG | {"seed": run_id}
    rows = miles_rows(gap=gap or 0.0)
    if gap is None:
        rows = [{name: value for name, value in row.items() if "diff" not in name} for row in rows]
    created_at = NOW - timedelta(hours=hours)
    server.add_run("lab", project, run_id, config=config, rows=rows, created_at=created_at, **given)


def add_project(server, project="rl") -> None:
    """Put healthy runs on the server, one that logs no gap, and broken ones of hostile names."""
    for at, gap in enumerate(GAPS):
        add_miles(server, f"{project}-ok{at}", gap, project=project, hours=48 - at, user="mia")
    add_miles(server, f"{project}-blind", None, project=project, hours=3)
    add_miles(server, f"{project}-bad", 0.0461, project=project, state="running", name=HOSTILE)
    add_miles(server, f"{project}-long", 0.0462, project=project, hours=2, name=LONG)


def environment(server, folder: Path) -> dict[str, str]:
    """Return where a sync finds the server and its key, and a home that holds nothing."""
    return {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key, "HOME": str(folder)}


def python(code: str, *words: str, cwd: Path, **environ: str) -> Answer:
    """Run some code in a process of its own, with an environment that holds nothing of the user's."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *words],
        cwd=cwd,
        env=kept | {"PYTHONPATH": root} | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
