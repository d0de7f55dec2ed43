"""Several machines that sync one project at the same moment, each with a store of its own."""

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from step0_wandb.publish.wandb.state_document import read_state
from step0_wandb.store import Label, Mute, Store
from tests.support.project import add_miles, add_project, environment
from tests.support.wandb_server import WandbServer
from tests.support.webhook import Hook

SETTINGS = """
sources = ["lab/rl"]
[report]
wandb = "same"
[alerts]
since = "9999d"
webhook_env = "HOOK"
[server]
give_up = "120s"
"""
ROOT = Path(__file__).parents[2]


class Machines:
    """The machines, the server and the webhook that all of them use."""

    def __init__(self, folder, amount):
        self.server, self.hook = WandbServer(), Hook()
        self.homes = [folder / f"machine{at}" for at in range(amount)]
        for home in self.homes:
            home.mkdir()
            (home / "step0.toml").write_text(SETTINGS)
        self.labels, self.mutes, self.broken = set(), set(), {"rl-bad", "rl-long"}
        self.codes = Counter()

    def __enter__(self):
        self.server.__enter__()
        self.hook.__enter__()
        add_project(self.server)
        return self

    def __exit__(self, *exception):
        self.hook.__exit__(*exception)
        self.server.__exit__(*exception)

    def begin(self, home):
        """Start a sync on one machine."""
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        environ = kept | environment(self.server, home) | {"HOOK": self.hook.url, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-W", "ignore", "-m", "step0_wandb", "sync", "--quiet"]
        with (home / "log.txt").open("ab") as log:
            return subprocess.Popen(command, cwd=home, env=environ, stdout=log, stderr=log)

    def say(self, number):
        """Label a run on each machine, mute a setup on one, and let one more run be broken."""
        now = datetime.now(UTC)
        for at, home in enumerate(self.homes):
            if not (home / "step0.db").exists():
                continue
            with Store.open(home / "step0.db", mode="write") as store:
                key = f"lab/rl/said{number}-{at}"
                store.people.save(Label(key, "healthy", "seen", f"machine {at}", now))
                self.labels.add(key)
                if at == number % len(self.homes):
                    store.people.save(
                        Mute(f"miles · M{number}", now + timedelta(days=9), f"machine {at}", now)
                    )
                    self.mutes.add(f"miles · M{number}")
        add_miles(self.server, f"new{number}", 0.0490)
        self.broken.add(f"new{number}")

    def sync_at_once(self):
        """Sync on every machine at the same moment."""
        started = [self.begin(home) for home in self.homes]
        self.codes.update(process.wait(timeout=600) for process in started)

    def settle(self):
        """Sync on one machine after the other, twice, as the next hours would."""
        for home in (*self.homes, *self.homes):
            self.codes[self.begin(home).wait(timeout=600)] += 1

    def faults(self):
        """Return what is not as it should be, in words."""
        found = []
        for home in self.homes:
            with Store.open(home / "step0.db", mode="read") as store:
                found += [f"{home.name} lacks {key}" for key in self.labels - set(store.people.labels())]
                found += [f"{home.name} lacks {key}" for key in self.mutes - set(store.people.mutes())]
        newest = self.server.state.collections["lab", "rl", "step0-state"].committed[0]
        state = read_state(newest.files["step0-state.json"].content)
        found += [f"the state lacks {key}" for key in self.labels - {label.run for label in state.labels}]
        for name, amounts in (
            ("W&B", Counter(alert.run_id for alert in self.server.alerts)),
            ("webhook", Counter(text.splitlines()[0].rstrip("*").split()[-1] for text in self.hook.texts)),
        ):
            found += [f"{name}: {run} {amounts[run]} times" for run in self.broken if amounts[run] != 1]
        reports = len(self.server.state.views)
        return found + ([f"{reports} reports"] if reports != 1 else [])
