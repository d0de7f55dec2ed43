"""Training steps as frameworks print them, from text to numbers.

Around them stand what Ray, containers and terminals add: prefixes, colors, what is left of a progress
bar, line breaks where a line was too long.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.text.nested import as_float
from step0_wandb.text.python_values import LiteralError, Numeral, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.profiles.schema import Console
    from step0_wandb.text.python_values import Value

TENSOR_DECIMALS = 4
"""What PyTorch prints of a tensor."""
QUOTED_DIGITS = 4
"""Significant digits of the quoted numbers that transformers 5 prints."""
MOST_BRACES = 16
"""Braces before a metric name that are tried as the beginning of its dict."""

_COLOURS = re.compile(r"(?:\x1b|\ufffd)\[[0-9;?]*[A-Za-z]|\x1b.?")
_LINE_PREFIX = re.compile(
    r"(?<=\n)(?:"
    r"\([\w.:\- ]+ (?:pid|ip)=[^)\n]*\) ?"  # Ray, with a worker's process id
    r"|\[?(?:rank|node)_?\d+\]?: ?"  # torchrun
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? "  # a container's clock
    r")+"
)
_REST_OF_KEY = re.compile(rb"[\w/.\-\s]{0,80}['\"]?\s*:"), re.compile(rb"\s*:")
"""What may follow inside and behind a key: of a dict, of a pair. Most mentions of a metric are no key."""
_DASH = re.compile(r"\s-(?:\s+|$)")
_DASHES_STEP = r"(?:^|[\s)])%s:(\d+) - "
_DICT_STEP = r"(?<![\w\-])%s\s+(\d+)\s*[:=]\s*$"
_WHOLE_PAIR = re.compile(r"\S:(?:[-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf|[\w.]+\(.*\))$")
_FORMATTED = re.compile(r"[-+]?\d+(?:\.(\d*))?(?:[eE]([-+]?\d+))?$")


@dataclass(frozen=True, slots=True)
class Printed:
    """One printed step.

    Attributes
    ----------
    step : int or None
        The number that was printed in front of it.
    values : mapping of str to float
        Its numbers, nested keys joined by ``.``.
    resolution : mapping of str to float
        For each number that was rounded in printing: the distance of two neighbouring prints.
    """

    step: int | None
    values: Mapping[str, float]
    resolution: Mapping[str, float]


def is_key(text: bytes, at: int, console: Console) -> bool:
    """Return whether a text that is searched for stands at `at` and is the key of a value there."""
    needle = next((needle for needle in console.find if text.startswith(needle.encode(), at)), None)
    rest = _REST_OF_KEY[console.kind == "dashes"]
    return needle is not None and rest.match(text, at + len(needle.encode())) is not None


class Unfinished(Exception):  # noqa: N818 - a question, not an error: is there more text?
    """The text ends inside a step."""


def clean(text: bytes) -> str:
    """Return a piece of a log without colors and without what stands in front of its lines."""
    plain = _COLOURS.sub("", text.decode("utf-8", errors="replace"))
    return _LINE_PREFIX.sub("", plain.replace("\r\n", "\n").replace("\x00", ""))


def dict_around(before: str, after: str, console: Console, *, at_end: bool) -> Printed | None:
    """Return the step whose dict has begun in `before` and goes on in `after`.

    Parameters
    ----------
    at_end : bool
        Whether no text follows.

    Raises
    ------
    Unfinished
        The dict is not closed yet, and more text may follow.
    """
    text, at = before + after, len(before)
    for _ in range(MOST_BRACES):
        at = text.rfind("{", 0, at)
        if at < 0:
            return None
        try:
            parsed = parse(text, at)
        except LiteralError as error:
            if error.at_end and not at_end:
                raise Unfinished from error
            continue
        if parsed.end > len(before) and isinstance(parsed.value, dict):
            numbers = dict(_numbers(parsed.value))
            return Printed(_step(text[:at], _DICT_STEP, console), _floats(numbers), _resolution(numbers))
    return None


def dashes_around(before: str, after: str, console: Console, *, at_end: bool) -> Printed | None:
    """Return the step of a line ``step:N - key:value - …`` that `before` ends in and `after` begins with.

    A line that breaks off inside a pair goes on in the next.

    Raises
    ------
    Unfinished
        The line is not finished yet, and more text may follow.
    """
    lines = after.split("\n")
    line = _last_line(before) + lines[0].rstrip()
    following = 1
    while following < len(lines) - 1 and not _WHOLE_PAIR.search(line):
        joint = " " if line.endswith(" -") else ""
        line += joint + lines[following].strip()
        following += 1
    if following >= len(lines) and not at_end:
        raise Unfinished
    begin = re.search(_DASHES_STEP % re.escape(console.word), line)
    if begin is None:
        return None
    numbers: dict[str, Value] = {}
    for pair in _DASH.split(line[begin.end() :]):
        key, _, text = pair.rpartition(":")
        value = _value(text)
        if key and isinstance(value, int | float) and not isinstance(value, bool):
            numbers[key.strip()] = value
    return Printed(int(begin[1]), _floats(numbers), _resolution(numbers))


def _value(text: str) -> Value:
    try:
        parsed = parse(text)
    except LiteralError:
        return None
    return parsed.value if parsed.end == len(text) else None


def _last_line(text: str) -> str:
    return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]


def _step(before: str, pattern: str, console: Console) -> int | None:
    found = re.search(pattern % re.escape(console.word), _last_line(before))
    return int(found[1]) if found else None


def _numbers(table: Mapping[str, Value], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Yield every number of a dict, also the quoted ones."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            quoted = _value(value)
            if isinstance(quoted, int | float) and not isinstance(quoted, bool):
                yield f"{prefix}{key}", Numeral.read(value, "quotes")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", value


def _floats(numbers: Mapping[str, Value]) -> dict[str, float]:
    return {key: as_float(value) for key, value in numbers.items() if isinstance(value, int | float)}


def _resolution(numbers: Mapping[str, Value]) -> dict[str, float]:
    """Return how finely each number was printed, where that is coarser than the number itself.

    A step that shows one number otherwise than Python does (``0.000``) was formatted, and so were its
    neighbours with as many decimals: ``0.003`` could be either.
    """
    printed = {
        key: value for key, value in numbers.items() if isinstance(value, Numeral) and math.isfinite(value)
    }
    decimals = {_decimals(value) for value in printed.values() if not value.inside and _is_formatted(value)}
    found = {}
    for key, value in printed.items():
        if value.inside == "tensor" and _decimals(value) <= TENSOR_DECIMALS:
            found[key] = 10.0 ** (_exponent(value) - TENSOR_DECIMALS)
        elif value.inside == "quotes" and value:
            found[key] = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - QUOTED_DIGITS)
        elif not value.inside and _decimals(value) in decimals:
            found[key] = 10.0 ** (_exponent(value) - _decimals(value))
    return found


def _is_formatted(value: Numeral) -> bool:
    return value.text.lstrip("+") != repr(float(value))


def _decimals(value: Numeral) -> int:
    match = _FORMATTED.match(value.text)
    return len(match[1] or "") if match else 0


def _exponent(value: Numeral) -> int:
    match = _FORMATTED.match(value.text)
    return int(match[2] or 0) if match else 0
