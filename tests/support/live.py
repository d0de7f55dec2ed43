"""Runs that are under way: the real client in a process of its own, online against the double."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

from tests.support.wandb_server import client_environment, detached

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from tests.support.wandb_server import WandbServer

_CHILD = """
import json, os, select, sys
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
import wandb
from wandb.sdk.lib import run_stopping
run_stopping.RunStopChecker.__init__.__kwdefaults__["poll_interval"] = 0.1  # 15 s, as it comes
given, swallows = json.loads(sys.argv[1])
settings = wandb.Settings(console="off", x_disable_stats=True, **given.pop("settings", {}))
run = wandb.init(settings=settings, **given)
print("ready", file=answers)
while True:
    asked = False
    try:
        if not select.select([sys.stdin], [], [], 0.1)[0]:
            continue
        asked = True
        what, rows = json.loads(sys.stdin.readline())
        if what == "finish":
            break
        for row in rows:
            run.log(row)
        print("done", file=answers)
    except KeyboardInterrupt:
        if not swallows:
            raise
        open("interrupted", "w").close()
        if asked:
            print("done", file=answers)
run.finish()
print("done", file=answers)
"""


class Live:
    """A process that logs to the double, as a training job does; leaving the ``with`` block kills it.

    Parameters
    ----------
    swallows : bool
        Whether it goes on when it is interrupted, as a Ray worker may.
    **given
        For ``wandb.init``; ``settings`` go into its settings.
    """

    def __init__(
        self, server: WandbServer, folder: Path, run_id: str, *, swallows: bool = False, **given: Any
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        given = {"entity": "lab", "project": "rl", "id": run_id, **given}
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        self.folder, self.run_id = folder, run_id
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _CHILD, json.dumps([given, swallows])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=detached({**kept, "HOME": str(folder), **client_environment(server, folder)}),
            text=True,
            start_new_session=True,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def interrupted(self) -> bool:
        """Whether it swallowed an interrupt."""
        return (self.folder / "interrupted").exists()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def log(self, *rows: Mapping[str, Any]) -> None:
        """Log each row by a call of its own."""
        self._ask("log", rows)

    def finish(self) -> None:
        """End the run well, and the process with it."""
        self._ask("finish", ())
        self._process.wait()

    def kill(self) -> None:
        """Kill the process and the client's helper, as a scheduler does."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def wait(self) -> int:
        """Return the exit code of the process, once it has ended."""
        return self._process.wait()

    def _ask(self, what: str, rows: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps([what, rows]) + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout
        assert self._process.stdout.readline().strip(), "the client died"
