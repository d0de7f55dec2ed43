"""The program on a terminal of a given width, as a person sees it."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests.support.command import Answer

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*words: str | Path, cwd: Path, columns: int = 80, **environ: str) -> Answer:
    """Run ``step0-wandb`` with stdin, stdout and stderr on a terminal; `Answer.out` is what it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {
        name: os.environ[name] for name in ("PATH", "TMPDIR", "OPENBLAS_NUM_THREADS") if name in os.environ
    }
    given = {"HOME": str(cwd), "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "step0_wandb", *map(str, words)],
        cwd=cwd,
        env=kept | given | environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return Answer(process.returncode, shown.decode().replace("\r\n", "\n"), "")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux tells the end of a terminal as an input error
        return b""


def plain(text: str) -> str:
    """Return what stays on the terminal: without colors, and each line as it was written last."""
    return "\n".join(line.rsplit("\r", 1)[-1] for line in CONTROL.sub("", text).split("\n"))
