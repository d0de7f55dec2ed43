"""Text for people: untrusted names made harmless, and figures, times and counts in one style.

Names, groups and URLs come from W&B and may hold anything. What is printed goes through `clean`
first; escaping for HTML or Markdown is the job of the code that writes that format.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

MISSING = "-"
"""The text for a missing value."""

# ECMA-48: control sequences (CSI), control strings (OSC, DCS, SOS, PM, APC) and single escapes,
# each in its 7-bit and its 8-bit form. No two neighboring parts share a character: linear time.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
_THREE_DIGITS_ARE_WHOLE = 99.95, 1e9


def clean(text: str) -> str:
    r"""Return `text` without anything that could steer a terminal or the order of reading.

    Escape sequences, control characters and invisible format characters (bidi overrides, zero-width
    characters) go; any white space becomes a blank; lone surrogates, which cannot be encoded,
    become U+FFFD.

    Examples
    --------
    >>> clean("run\x1b[31m-7\u202e\n")
    'run-7 '
    """
    if text.isprintable():
        return text
    return "".join(_harmless(char) for char in _ESCAPES.sub("", text))


def _harmless(char: str) -> str:
    if char.isspace():
        return " "
    category = unicodedata.category(char)
    if category in {"Cc", "Cf"}:
        return ""
    return "\ufffd" if category == "Cs" else char


def key_text(key: str) -> str:
    """Return a run's key as people read it: without the entity, or the project, that a run on disk lacks.

    Examples
    --------
    >>> key_text("my-team/rl/aa11"), key_text("_/rl/aa11"), key_text("_/_/aa11")
    ('my-team/rl/aa11', 'rl/aa11', 'aa11')
    """
    return clean(key.removeprefix("_/").removeprefix("_/"))


def shorten(text: str, limit: int = 80) -> str:
    """Return `text` in at most `limit` characters, cut in the middle.

    Run names differ at both ends: the experiment in front, the random id behind.

    Examples
    --------
    >>> shorten("qwen3-0.6B-gsm8k-a-very-long-name-7f3a", 20)
    'qwen3-0.6B…name-7f3a'
    """
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def apart(*values: float) -> tuple[str, ...]:
    """Return figures with as many digits as it takes to tell apart those that differ; three at least.

    Examples
    --------
    >>> apart(0.0133, 0.0150), apart(0.013321, 0.013329)
    (('0.0133', '0.0150'), ('0.01332', '0.01333'))
    """
    texts = tuple(map(number, values))
    for digits in range(4, 18):
        if len(set(texts)) == len(set(values)):
            break
        texts = tuple(f"{value:.{digits}g}" for value in values)
    return texts


def number(value: float | None) -> str:
    """Return a figure with three significant digits, whole numbers as they are.

    Trailing zeros stay in decimals, so that limits line up, and go before an exponent.

    Examples
    --------
    >>> [number(x) for x in (0.015234, 0.014, 3.6612e-05, 1e-9, 0.0, 17, 1234.5, float("nan"), None)]
    ['0.0152', '0.0140', '3.66e-05', '1e-09', '0', '17', '1234', 'nan', '-']
    """
    if value is None:
        return MISSING
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    lowest, too_long = _THREE_DIGITS_ARE_WHOLE
    if abs(value) < too_long and (value.is_integer() or abs(value) >= lowest):
        return str(round(value))
    text = f"{value:#.3g}"
    return f"{value:.3g}" if "e" in text else text


def ratio(value: float | None) -> str:
    """Return how many times a center a gap is; finer close to 1, where the digits decide.

    Examples
    --------
    >>> [ratio(x) for x in (0.5512, 1.184, 3.03, 13.2, 42750.3, None)]
    ['0.55', '1.18', '3.0', '13.2', '42,750', '-']
    """
    if value is None or not math.isfinite(value):
        return number(value)
    size = abs(value)
    if size < 0.1:  # noqa: PLR2004 - two decimals would leave one digit or none
        return number(value)
    decimals = 2 if size < 2 else 1 if size < 100 else 0  # noqa: PLR2004 - about three digits
    return f"{value:,.{decimals}f}"


def count(amount: int, noun: str) -> str:
    """Return an amount and its noun, in the plural where it is not one.

    Examples
    --------
    >>> count(1, "run"), count(5000, "healthy run")
    ('1 run', '5,000 healthy runs')
    """
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def join_words(texts: Sequence[str]) -> str:
    """Return several texts as people list them.

    Examples
    --------
    >>> join_words(["a"]), join_words(["a", "b"]), join_words(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *others, last = texts or [""]
    return f"{', '.join(others)} and {last}" if others else last


def when(moment: datetime | None) -> str:
    """Return a time to the minute, in UTC.

    Raises
    ------
    ValueError
        If `moment` has no time zone.

    Examples
    --------
    >>> from datetime import datetime, timedelta, timezone
    >>> when(datetime(2026, 11, 30, 1, 5, tzinfo=timezone(timedelta(hours=8))))
    '2026-11-29 17:05 UTC'
    """
    if moment is None:
        return MISSING
    if moment.tzinfo is None:
        raise ValueError(f"a time without a time zone: {moment}")
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def web_url(url: str | None) -> str | None:
    """Return `url` if it is safe to link to (plain http or https), else None.

    Anything that hides where it leads is refused: other schemes, blanks, control and invisible
    characters, and a user name in front of the host.

    Examples
    --------
    >>> web_url("https://wandb.ai/team/project/runs/7f3a"), web_url("javascript:alert(1)")
    ('https://wandb.ai/team/project/runs/7f3a', None)
    """
    if not url or clean(url) != url or " " in url:
        return None
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:  # such as a bracket that is not closed
        return None
    safe = parts.scheme in {"http", "https"} and host and "@" not in parts.netloc
    return url if safe else None


def span_text(span: timedelta) -> str:
    """Return a time span as people say it, in one unit.

    Examples
    --------
    >>> from datetime import timedelta
    >>> span_text(timedelta(minutes=90)), span_text(timedelta(days=3)), span_text(timedelta(seconds=45))
    ('1.5 h', '3 d', '45 s')
    """
    seconds = span.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
