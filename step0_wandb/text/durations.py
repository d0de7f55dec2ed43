"""Durations as people write them, such as ``90s`` or ``7d``."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST = timedelta(days=36500)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def duration(text: object) -> timedelta:
    """Return the duration that a text such as ``90s``, ``60m``, ``24h`` or ``7d`` stands for.

    Raises
    ------
    ValueError
        The text is not a duration.

    Examples
    --------
    >>> duration("36h")
    datetime.timedelta(days=1, seconds=43200)
    """
    if isinstance(text, timedelta):
        return text
    match = _DURATION.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; use 90s, 60m, 24h or 7d")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > _LONGEST.total_seconds():  # datetime cannot subtract more
        raise ValueError(f"{text!r} is longer than {_LONGEST.days:,} days")
    return timedelta(seconds=seconds)


def duration_text(span: timedelta) -> str:
    """Return a duration as `duration` reads it, in the largest unit of which it has two or more.

    Examples
    --------
    >>> duration_text(timedelta(days=1)), duration_text(timedelta(weeks=3)), duration_text(timedelta(minutes=1))
    ('24h', '3w', '60s')
    """
    seconds = span.total_seconds()
    for unit, size in reversed(_UNITS.items()):
        if seconds >= 2 * size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"
