"""The program on a terminal of a given width, as a person sees it."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from step0_wandb.cli import main
from tests.support.command import Answer, surroundings

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*words: str | Path, cwd: Path, columns: int = 80, **environ: str) -> Answer:
    """Run ``step0-wandb`` with stdin, stdout and stderr on a terminal; `Answer.out` is what it shows.

    It runs in this process, whose standard descriptors are on the terminal meanwhile.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.extend(iter(lambda: _read(ours), b"")))
    reader.start()
    code = None
    with _standard_streams(theirs), surroundings(cwd, {"TERM": "xterm-256color"} | environ):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    reader.join()
    os.close(ours)
    return Answer(code, b"".join(shown).decode().replace("\r\n", "\n"), "")


@contextmanager
def _standard_streams(terminal: int):
    """Put the three standard descriptors and their files on a terminal, which is closed at the end."""
    kept = [os.dup(number) for number in range(3)]
    for number in range(3):
        os.dup2(terminal, number)
    os.close(terminal)
    with (
        open(0, encoding="utf-8", closefd=False) as stdin,
        open(1, "w", encoding="utf-8", closefd=False) as stdout,
        open(2, "w", encoding="utf-8", closefd=False) as stderr,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, stream in {"stdin": stdin, "stdout": stdout, "stderr": stderr}.items():
            patch.setattr(sys, name, stream)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    for number, one in enumerate(kept):
        os.dup2(one, number)
        os.close(one)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux tells the end of a terminal as an input error
        return b""


def plain(text: str) -> str:
    """Return what stays on the terminal: without colors, and each line as it was written last."""
    return "\n".join(line.rsplit("\r", 1)[-1] for line in CONTROL.sub("", text).split("\n"))
