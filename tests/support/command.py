"""The program as a person or a cron job runs it, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from unittest.mock import patch

from step0_wandb.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
        surroundings(cwd, environ),
        patch.object(sys, "stdin", nothing),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = app.run([str(word) for word in words])
        return Answer(code, _content(out), _content(err))


@contextlib.contextmanager
def surroundings(cwd: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Work in a folder, with an environment that holds nothing of the user's."""
    with contextlib.chdir(cwd), patch.dict(os.environ, _environment(cwd) | environ, clear=True):
        yield


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


def run_line(line: str, *, cwd: Path, program: Path, **environ: str) -> Answer:
    """Run a line that a person types; in this process where a shell has nothing to do but to start the program.

    Parameters
    ----------
    program
        A directory with the program; see `install`.
    """
    name, *words = shlex.split(line)
    if name == "step0-wandb" and not re.search(r"[|&;<>$`*?~]", line):
        return run(*words, cwd=cwd, **environ)
    kept = _environment(cwd)
    path = {"PATH": f"{program}{os.pathsep}{kept['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", line], cwd=cwd, env=kept | path | environ, capture_output=True, text=True, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def install(folder: Path) -> Path:
    """Put the program into a directory as an installation does, and return the directory."""
    script = folder / "step0-wandb"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m step0_wandb "$@"\n')
    script.chmod(0o755)
    return folder


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _environment(home: Path) -> dict[str, str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "TMPDIR", "OPENBLAS_NUM_THREADS") if name in os.environ
    }
    return kept | {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
