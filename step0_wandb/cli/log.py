"""Messages on stderr: plain lines on a terminal, with the time elsewhere, or JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC
from typing import TYPE_CHECKING

from step0_wandb.text.formatting import clean
from step0_wandb.text.redact import redact_keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from step0_wandb.errors import Step0Error

LOGGER = logging.getLogger("step0_wandb.cli")
HINT = "hint"
"""The attribute of a log record that holds what to do about it."""


def configure(*, as_json: bool, clock: Callable[[], datetime]) -> None:
    """Set how lines on stderr look.

    Parameters
    ----------
    as_json : bool
        One JSON object a line, ``{"time", "level", "message"}``, on a terminal too.
    clock : callable
        Returns the time that lines carry where no terminal shows them.
    """
    LOGGER.handlers = [_Stderr(as_json=as_json, clock=clock)]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False


def tell(text: str) -> None:
    """Print one line on stderr."""
    LOGGER.info("%s", text)


def warn(text: str) -> None:
    """Print one line on stderr that needs attention."""
    LOGGER.warning("%s", text)


def error(problem: Step0Error) -> None:
    """Print a failure: what failed, then what to do."""
    LOGGER.error("%s", problem.message, extra={HINT: problem.hint})


def stamped(text: str, moment: datetime) -> str:
    """Return a line with the time in front, in UTC.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> stamped("34 runs read", datetime(2026, 11, 30, 6, tzinfo=UTC))
    '2026-11-30T06:00:00Z 34 runs read'
    """
    return f"{_iso(moment)} {text}"


class _Stderr(logging.Handler):
    def __init__(self, *, as_json: bool, clock: Callable[[], datetime]) -> None:
        super().__init__()
        self._as_json = as_json
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        message, hint = (
            clean(redact_keys(text)) for text in (record.getMessage(), getattr(record, HINT, ""))
        )
        if self._as_json:
            _write(self._object(record, message, hint))
        elif sys.stderr.isatty():
            _print(record, message, hint)
        else:
            text = f"error: {message}" if record.levelno >= logging.ERROR else message
            for line in filter(None, (text, hint)):
                _write(stamped(line, self._clock()))

    def _object(self, record: logging.LogRecord, message: str, hint: str) -> str:
        parts = {"time": _iso(self._clock()), "level": record.levelname.lower(), "message": message}
        return json.dumps(parts | ({HINT: hint} if hint else {}), ensure_ascii=False)


def _print(record: logging.LogRecord, message: str, hint: str) -> None:
    """Print on a terminal; rich is imported only where there is something to color."""
    if record.levelno < logging.ERROR:
        _write(message)
        return
    from rich.text import Text

    from step0_wandb.cli.output import console

    out = console(err=True)
    out.print(Text("error: ", style="bold red") + Text(message), soft_wrap=True)
    if hint:
        out.print(Text(hint), soft_wrap=True)


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
