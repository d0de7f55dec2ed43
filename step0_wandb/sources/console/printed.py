"""Training steps as frameworks print them, from text to numbers.

Around them stand what Ray, containers and terminals add: prefixes, colors, what is left of a progress
bar, line breaks where a line was too long.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from step0_wandb.step0.policies import of_policy
from step0_wandb.text.nested import as_float
from step0_wandb.text.python_values import LiteralError, Numeral, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.text.python_values import Value

TENSOR_DECIMALS = 4
"""What PyTorch prints of a tensor."""
QUOTED_DIGITS = 4
"""Significant digits of the quoted numbers that transformers 5 prints."""
BAR_DIGITS = 3
"""Significant digits of the numbers behind a progress bar of tqdm."""
_COLORS = re.compile(r"(?:\x1b|\ufffd)\[[0-9;?]*[A-Za-z]|\x1b.?")
_LINE_PREFIX = re.compile(
    r"(?<=\n)(?:"
    r"\([\w.:\- ]+ (?:pid|ip)=[^)\n]*\) ?"  # Ray, with a worker's process id
    r"|\[?(?:rank|node)_?\d+\]?: ?"  # torchrun
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? "  # a container's clock
    r")+"
)
_DASH = re.compile(r"\s-(?:\s+|$)")
_REPEATED = re.compile(r"\[repeated \d+x across cluster\].*$")
_WHOLE_PAIR = re.compile(r"\S:(?:[-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf|True|False|None|'[^']*'|[\w.]+\(.*\))$")
_LONGEST_PAIR = 400  # characters
_PROGRESS = re.compile(r"(\d{1,18})/\d+$")
_BAR = re.compile(r"(\d{1,18})/\d+ \[[^\]]*?, (?P<pairs>[^\],=]+=[^\]]*)")
_PANEL_LINE = re.compile(r"[│┃]([^│┃\n]*\S[^│┃\n]*)[│┃]")
_FORMATTED = re.compile(r"[-+]?\d+(?:\.(\d*))?(?:[eE]([-+]?\d+))?$")


@dataclass(frozen=True, slots=True)
class Printed:
    """The numbers of one printed step.

    Attributes
    ----------
    values : mapping of str to float
        By their names, nested keys joined by ``.``.
    resolution : mapping of str to float
        For each number that was rounded in printing: the distance of two neighboring prints.
    progress : mapping of str to int
        The 3 of each text ``3/100``.
    """

    values: Mapping[str, float]
    resolution: Mapping[str, float]
    progress: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, Value]) -> Printed:
        """Return what a dict says, and how finely."""
        numbers = dict(_numbers(table))
        texts = ((key, _PROGRESS.match(value)) for key, value in table.items() if isinstance(value, str))
        return cls(
            {key: as_float(value) for key, value in numbers.items()},
            _resolution(numbers),
            {key: int(match[1]) for key, match in texts if match},
        )

    def of_policy(self, policy: str) -> Printed:
        """Return what is printed of one policy, under its plain names."""
        return Printed(of_policy(self.values, policy), of_policy(self.resolution, policy), self.progress)


def clean(text: bytes) -> str:
    """Return a piece of a log without colors and without what stands in front of its lines."""
    plain = _COLORS.sub("", text.decode("utf-8", errors="replace"))
    return _LINE_PREFIX.sub("", plain.replace("\r\n", "\n").replace("\x00", ""))


def bare_line(text: str) -> str:
    """Return a line of pairs without what Ray adds to a line that several workers print."""
    return _REPEATED.sub("", text).strip()


def is_whole(line: str) -> bool:
    """Return whether the last pair of a line ``key:value - key:value`` is there whole."""
    return _WHOLE_PAIR.search(line[max(line.rfind(" - "), len(line) - _LONGEST_PAIR, 0) :]) is not None


def read_pairs(line: str) -> Printed:
    """Return the numbers of a line ``key:value - key:value - …``; a pair that is not one is left out."""
    pairs = (pair.rpartition(":") for pair in _DASH.split(line))
    return Printed.of({key.strip(): _value(text) for key, _, text in pairs if key})


def read_bar(line: str) -> tuple[int, Printed] | None:
    """Return the steps that a progress bar says are done, and the numbers behind it.

    Examples
    --------
    >>> done, printed = read_bar("Step:  2%|2 | 1/50 [01:02<50:38, 62s/it, gap=0.0118, time=31.5]")
    >>> done, dict(printed.values), printed.resolution["gap"]
    (1, {'gap': 0.0118, 'time': 31.5}, 0.0001)
    """
    bar = _BAR.search(line)
    if bar is None:
        return None
    pairs = (pair.strip().rpartition("=") for pair in bar["pairs"].split(", "))
    numbers = dict(_numbers({key: _value(text) for key, _, text in pairs if key}))
    values = {key: as_float(value) for key, value in numbers.items()}
    return int(bar[1]), Printed(
        values, {key: _digits(value, BAR_DIGITS) for key, value in values.items() if value}
    )


def read_panel(text: str) -> Printed:
    r"""Return the numbers of a frame whose lines are a group and its pairs; a long group goes on below.

    Examples
    --------
    >>> panel = "│  debug  gap: 0.01 | max:  │\n│         0.90              │\n│  other  step: 1           │"
    >>> dict(read_panel(panel).values)
    {'debug/gap': 0.01, 'debug/max': 0.9, 'step': 1.0}
    """
    lines = [line.rstrip() for line in _PANEL_LINE.findall(text)]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    groups: list[tuple[str, str]] = []
    for line in lines:
        if line[margin] != " ":
            group, _, rest = line.strip().partition(" ")
            groups.append((group, rest))
        else:
            groups[-1] = (groups[-1][0], f"{groups[-1][1]} {line}")
    pairs = (
        (f"{group}/{key.strip()}".removeprefix("other/"), _value(value.strip()))
        for group, line in groups
        for key, _, value in (pair.partition(":") for pair in line.split(" | "))
    )
    return Printed.of(dict(pairs))


def _value(text: str) -> Value:
    try:
        parsed = parse(text)
    except LiteralError:
        return None
    return parsed.value if parsed.end == len(text) else None


def _numbers(table: Mapping[str, Value], prefix: str = "") -> Iterator[tuple[str, float]]:
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


def _resolution(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return how finely each number was printed, where that is coarser than the number itself.

    A step that shows one number otherwise than Python does (``0.000``) was formatted, and so were its
    neighbors with as many decimals: ``0.003`` could be either.
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
            found[key] = _digits(value, QUOTED_DIGITS)
        elif not value.inside and _decimals(value) in decimals:
            found[key] = 10.0 ** (_exponent(value) - _decimals(value))
    return found


def _digits(value: float, digits: int) -> float:
    """Return the distance of two neighboring prints with so many significant digits."""
    return 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits) if math.isfinite(value) else 0.0


def _is_formatted(value: Numeral) -> bool:
    return value.text.lstrip("+") != repr(float(value))


def _decimals(value: Numeral) -> int:
    match = _FORMATTED.match(value.text)
    return len(match[1] or "") if match else 0


def _exponent(value: Numeral) -> int:
    match = _FORMATTED.match(value.text)
    return int(match[2] or 0) if match else 0
