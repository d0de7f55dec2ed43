"""Writes the demo's runs with the installed wandb client, in a process of its own.

It reads one JSON document from standard input, ``{"root": DIR, "directories": [...]}`` with the fields
of `scenario.Directory`, and prints the run id of each directory that it has written. Run as a script: it
needs nothing of the package, and its process is the only one that sees a wandb client with another clock.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import wandb

FLUSH_S = 0.1
"""How often the client writes to disk: what a run that still runs has logged must be there at the end."""


class ManualClock:
    """A clock that stands where it is put; the client asks `time.time` when a run begins."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return seconds since 1970, as `time.time` does."""
        return self.now


def write(directory: dict[str, Any], root: str, clock: ManualClock) -> None:
    """Write one run directory."""
    clock.now = directory["start"]
    run = wandb.init(
        settings=_settings(directory, root),
        config=directory["config"],
        reinit="create_new",
    )
    if directory["packages"]:
        # The client would list what is installed here, not where these runs claim to have run.
        packages = [f"{name}=={version}\n" for name, version in sorted(directory["packages"].items())]
        Path(run.dir, "requirements.txt").write_text("".join(packages), encoding="utf-8")
    for pattern, step_metric in directory["step_metrics"].items():
        run.define_metric(step_metric)
        run.define_metric(pattern, step_metric=step_metric)
    for row in directory["rows"]:
        clock.now = row["at"]
        run.log(row["values"], step=row["step"])
    clock.now = directory["end"]
    if directory["exit_code"] is not None:
        run.finish(exit_code=directory["exit_code"])


def _settings(directory: dict[str, Any], root: str) -> wandb.Settings:
    optional = {"x_transaction_log_flush_interval": FLUSH_S}
    return wandb.Settings(
        mode="offline",
        root_dir=root,
        run_id=directory["run_id"],
        entity=directory["entity"],
        project=directory["project"],
        run_name=directory["name"],
        run_group=directory["group"],
        username=directory["user"],
        host="gpu-node-07",
        program="train.py",
        console="off",
        silent=True,
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        x_disable_stats=True,
        x_save_requirements=False,
        # An older client knows no such setting: it writes whole blocks, and an open file ends with one.
        **{name: value for name, value in optional.items() if name in wandb.Settings.model_fields},
    )


def main() -> None:
    """Write the directories that standard input asks for."""
    plan = json.load(sys.stdin)
    # What Amazon SageMaker sets must not reach the runs either.
    wandb.setup(wandb.Settings(sagemaker_disable=True))
    clock = ManualClock(time.time())
    with mock.patch.object(time, "time", clock):
        for directory in plan["directories"]:
            write(directory, plan["root"], clock)
            sys.stdout.write(f"{directory['run_id']}\n")
            sys.stdout.flush()
    time.sleep(10 * FLUSH_S)
    # An ordinary exit would finish the runs that are to look alive.
    os._exit(0)


if __name__ == "__main__":
    main()
