"""The program as a person or a cron job runs it: a process of its own, in a folder of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from step0_wandb.cli import app


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        return json.loads(self.out)


def run(*words: str | Path, cwd: Path, **environ: str) -> Answer:
    """Run ``step0-wandb`` with an environment that holds nothing of the user's."""
    done = subprocess.run(
        [sys.executable, "-m", "step0_wandb", *map(str, words)],
        cwd=cwd,
        env=_environment(cwd) | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def run_here(*words: str | Path, cwd: Path, **environ: str) -> Answer:
    """Do the same in this process, which saves the second that a start takes: where only the answer matters."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        patch.dict(os.environ, _environment(cwd) | environ, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = app.run([str(word) for word in words])
    return Answer(code, out.getvalue(), err.getvalue())


def _environment(home: Path) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "TMPDIR", "OPENBLAS_NUM_THREADS") if name in os.environ
    }
    return kept | {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
