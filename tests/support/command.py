"""The program as a person or a cron job runs it, in a folder of its own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO
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
    """Run ``step0-wandb`` with an environment that holds nothing of the user's.

    It runs in this process, which saves the second that a start takes. The streams are files, as in a
    job's log: a command that the program starts may write there too.
    """
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        Path(os.devnull).open(encoding="utf-8") as nothing,
        contextlib.chdir(cwd),
        patch.dict(os.environ, _environment(cwd) | environ, clear=True),
        patch.object(sys, "stdin", nothing),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = app.run([str(word) for word in words])
        return Answer(code, _content(out), _content(err))


def run_process(*words: str | Path, cwd: Path, **environ: str) -> Answer:
    """Do the same in a process of its own, where the process is what is tested."""
    done = subprocess.run(
        [sys.executable, "-m", "step0_wandb", *map(str, words)],
        cwd=cwd,
        env=_environment(cwd) | environ,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _environment(home: Path) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "TMPDIR", "OPENBLAS_NUM_THREADS") if name in os.environ
    }
    return kept | {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
