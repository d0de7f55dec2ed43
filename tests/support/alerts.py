"""A project on the double with runs to alert about, and the main job on it, at a time that a test sets."""

from datetime import UTC, datetime, timedelta

from step0_wandb.app.sync import Job, run_sync
from step0_wandb.settings.load import load_settings
from step0_wandb.store import Store
from tests.support.server_source import CONFIG, miles_rows

NOW = datetime(2026, 11, 30, 3, 12, tzinfo=UTC)
HEALTHY = (0.0150, 0.0151, 0.0152, 0.0153, 0.0154, 0.0155, 0.0149, 0.0152)
BROKEN, SUSPECT, LOW = 0.0461, 0.0185, 0.0120
"""Gaps that lie three times above the range of `HEALTHY`, a little above it, and below it."""


def add_run(server, run_id, gap=BROKEN, *, hours=1.0, now=NOW, **given):
    """Put a Miles run on the server that began some hours ago; `config` adds to the usual one."""
    entity, project = given.pop("entity", "lab"), given.pop("project", "rl")
    rows = given.pop("rows", None) or miles_rows(gap=gap)
    config = CONFIG | given.pop("config", {})
    created_at = now - timedelta(hours=hours)
    return server.add_run(entity, project, run_id, config=config, rows=rows, created_at=created_at, **given)


def add_healthy(server, *, project="rl", **given):
    """Put healthy runs of the days before on the server, enough for a range."""
    for at, gap in enumerate(HEALTHY):
        add_run(server, f"{project}-ok{at}", gap, hours=72 + at, project=project, **given)


class Watch:
    """The main job on the double, in this process; `flags` are settings by their dotted keys."""

    def __init__(self, server, folder, monkeypatch):
        self.server = server
        self.folder = folder
        self.now = NOW
        self.flags = {"store": str(folder / "step0.db"), "server.give_up": "5s"}
        self.sources = ["lab/rl"]
        server.clock = lambda: self.now
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", server.api_key)
        # What else a sync writes has its own tests, and takes the W&B client seconds.
        monkeypatch.setattr("step0_wandb.app.sync.targets", lambda *_arguments: ())

    @property
    def loaded(self):
        return load_settings(cwd=self.folder, environ={}, flags=self.flags)

    def sync(self, *, dry_run=False):
        """Run one sync and return its result."""
        return run_sync(Job(self.loaded, tuple(self.sources), dry_run=dry_run, clock=self.clock))

    def clock(self):
        """Return the time of a sync."""
        return self.now

    def wait(self, **span):
        """Let time pass."""
        self.now += timedelta(**span)

    def store(self, mode="write"):
        """Open the store."""
        return Store.open(self.loaded.store, mode=mode)

    def delivered(self):
        """Return the run and title of every alert that people received."""
        return [(alert.run_id, alert.title) for alert in self.server.alerts]
