"""The standard streams of the program, which cannot change its exit code: scripts read the verdict there.

A pipe's reader may go (``| head``), the disk of a log may be full, cron may have closed a stream. What
is written then is lost; the command goes on, and what it is to do and its exit code stay what they were.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT, STDERR = 1, 2


class _Lossy(io.FileIO):
    """Bytes to a stream; the first failure is kept in `failure`, and none is raised."""

    failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            return memoryview(data).nbytes


@dataclass(frozen=True, slots=True)
class Streams:
    """Standard output and error of this process."""

    out: _Lossy
    err: _Lossy

    def lost(self) -> str:
        """Write what is left, and return why something of the answer was lost; empty where all is well.

        That nobody reads on is well.
        """
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        failure = self.out.failure
        return str(failure.strerror) if failure and failure.errno != errno.EPIPE else ""


def take_over(*, as_json: bool) -> Streams:
    """Make the standard streams write what they can, in an encoding that has every character.

    Parameters
    ----------
    as_json : bool
        The answer is a JSON document: UTF-8, whatever the terminal's encoding is.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - a device, open to the end
    out, err = _raw(sys.stdout, STDOUT), _raw(sys.stderr, STDERR)
    sys.stdout = _text(out, "utf-8" if as_json or sys.stdout is None else sys.stdout.encoding)
    sys.stderr = _text(err, "utf-8" if sys.stderr is None else sys.stderr.encoding, by_line=True)
    return Streams(out, err)


def _raw(stream: TextIO | None, number: int) -> _Lossy:
    """Return the bytes below a stream; Python gives none for a descriptor that was closed."""
    return _Lossy(os.devnull, "w") if stream is None else _Lossy(number, "w", closefd=False)


def _text(raw: _Lossy, encoding: str, *, by_line: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=by_line or raw.isatty(),
    )
