"""The program in processes that a test may kill at any moment, without paying for their imports.

One process loads everything and forks itself for every command.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.command import Answer

_PARENT = """
import importlib, json, os, pkgutil, sys
import alembic.command, scipy.stats, step0_wandb
for module in pkgutil.walk_packages(step0_wandb.__path__, "step0_wandb."):
    if not module.name.endswith("__main__") and ".migrations." not in module.name:
        importlib.import_module(module.name)
from step0_wandb.cli.app import run
print("ready", flush=True)
for line in sys.stdin:
    words = json.loads(line)
    child = os.fork()
    if not child:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Program:
    """Runs one command after the other in `folder`; `kill` ends the one under way as SIGKILL does."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self._pid = 0
        self._started = threading.Event()
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        root = str(Path(__file__).parents[2])
        self._parent = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=kept | {"HOME": str(folder), "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1"} | environ,
            text=True,
        )
        if self._line() != "ready":
            self.__exit__()
            pytest.fail("The program does not load; its error is above.")

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self._parent.kill()
        self._parent.communicate()

    def start(self, *words: str) -> None:
        """Begin a command."""
        self._parent.stdin.write(json.dumps(words) + "\n")
        self._parent.stdin.flush()
        self._pid = int(self._line())
        self._started.set()

    def end(self) -> Answer:
        """Wait for the command's end; its code is negative where a signal ended it."""
        code = int(self._line())
        self._started.clear()
        out, err = ((self.folder / name).read_text(encoding="utf-8") for name in ("out", "err"))
        return Answer(code, out, err)

    def run(self, *words: str) -> Answer:
        """Run a command from beginning to end."""
        self.start(*words)
        return self.end()

    def kill(self) -> None:
        """End the command under way at once; from any thread."""
        assert self._started.wait()
        os.kill(self._pid, signal.SIGKILL)

    def _line(self) -> str:
        return self._parent.stdout.readline().strip()
