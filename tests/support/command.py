"""The program as a person or a cron job runs it: a process of its own, in a folder of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


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
    kept = {
        name: os.environ[name] for name in ("PATH", "TMPDIR", "OPENBLAS_NUM_THREADS") if name in os.environ
    }
    done = subprocess.run(
        [sys.executable, "-m", "step0_wandb", *map(str, words)],
        cwd=cwd,
        env=kept | {"HOME": str(cwd), "PYTHONPATH": str(Path(__file__).parents[2])} | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
