"""Python values as programs print them, read without ``eval``.

What ``repr`` writes is read, and what numbers look like around it: bare ``nan`` and ``inf``,
``tensor(2.0, device='cuda:0')``, ``np.float64(0.5)``, ``<Mode.FAST: 'fast'>``; and objects with named
fields as argparse, dataclasses and pydantic print them. Anything else that has a name or angle brackets
becomes `OPAQUE`, so that its neighbors can still be read. Time grows with the length of the text alone.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | Opaque | None"


class Opaque(Enum):
    """Stands for something that was printed but is not a value."""

    OPAQUE = "…"


OPAQUE = Opaque.OPAQUE
_DEEPEST = 40
"""Nesting beyond this is neither a metrics dict nor a config."""

_LONGEST_INTEGER = 400
"""Digits; Python refuses to read integers of several thousand."""

_NUMBER = re.compile(
    r"[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|[+-]?(?:nan|inf(?:inity)?)(?!\w)",
    re.ASCII,
)
_STRING = re.compile(r"[rRbBuU]{0,2}('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_FIELD = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_OBJECT = re.compile(r"\{|[A-Za-z_][\w.]*\s*[(=]")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00[0-9a-fA-F]{6})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_ENUM = re.compile(r"<[\w.]+: (?=['\"\d+-])")
_CUT = re.compile(r"[\w.+\-]+")
_SPACE = re.compile(r"[\s\\]*")
_ELLIPSIS = "..."
_CONSTANTS: dict[str, Value] = {
    "True": True,
    "False": False,
    "None": None,
    "null": None,
    "true": True,
    "false": False,
}
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_LONGEST_OBJECT = 1 << 17
"""Characters; a tree of settings has some ten thousand. More takes too long to read in one go."""


class LiteralError(ValueError):
    """The text is not a value, or ends inside one (`at_end`)."""

    def __init__(self, message: str, *, at_end: bool = False) -> None:
        super().__init__(message)
        self.at_end = at_end


class Numeral(float):
    """A number with a fraction, an exponent or no finite value, as it was printed.

    Attributes
    ----------
    text : str
        Its digits.
    inside : str
        The name of the call that it stood in, such as ``tensor``; else empty.
    """

    __slots__ = ("inside", "text")
    text: str
    inside: str

    @classmethod
    def read(cls, text: str, inside: str = "") -> Numeral:
        """Return the number that `text` stands for, with the text."""
        number = cls(text)
        number.text = text
        number.inside = inside
        return number


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value, and the position behind it."""

    value: Value
    end: int


def parse(text: str, start: int = 0) -> Parsed:
    """Read the one value that begins at `start`; what stands behind it does not matter.

    Raises
    ------
    LiteralError
        There is no value there, or it is not finished; then `LiteralError.at_end` is true.

    Examples
    --------
    >>> parse("{'train/ppo_kl': tensor(0.), 'gap': np.float64(nan)} and more").value
    {'train/ppo_kl': 0.0, 'gap': nan}
    """
    return _LiteralReader(text).value(start, 0)


def fields(text: str) -> dict[str, Value] | None:
    """Return the fields of an object that was stored as its text, or None where the text is another.

    Read are ``Name(field=value, ...)``, pydantic's ``field=value field=value`` and a printed dict. What
    is not a literal in it is left out.

    Examples
    --------
    >>> fields("namespace(rank=8, path='org/model', fn=<function f at 0x7f>)")
    {'rank': 8, 'path': 'org/model'}
    >>> fields("trainers=[] base_args={'fp8': 'e4m3'}")
    {'trainers': [], 'base_args': {'fp8': 'e4m3'}}
    """
    if len(text) > _LONGEST_OBJECT or not _OBJECT.match(text):
        return None
    reader = _LiteralReader(text)
    try:
        found = reader.value(0, 0) if not _FIELD.match(text) else reader.spaced_fields()
    except LiteralError:
        return None
    if not isinstance(found.value, dict) or text[found.end :].strip():
        return None
    return _without_opaque(found.value)


def _without_opaque(value: dict[str, Value]) -> dict[str, Value]:
    return {
        key: _without_opaque(inner) if isinstance(inner, dict) else inner
        for key, inner in value.items()
        if inner is not OPAQUE
    }


class _LiteralReader:
    """A recursive-descent reader; every method takes the position that it starts at."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> Parsed:  # noqa: PLR0911 - one line a kind of value
        at = self._skip(at)
        if depth > _DEEPEST:
            raise LiteralError("nested too deeply")
        if at >= len(self._text):
            raise LiteralError("the text ends where a value should stand", at_end=True)
        if match := _NUMBER.match(self._text, at):
            return Parsed(_number(match[0]), match.end())
        if match := _STRING.match(self._text, at):
            return self._string(match)
        char = self._text[at]
        if char == "{":
            return self._braces(at, depth)
        if char in "[(":
            return self._list(at, depth)
        if char == "<":
            return self._bracketed(at)
        if self._text.startswith(_ELLIPSIS, at):
            return Parsed(OPAQUE, at + len(_ELLIPSIS))
        if match := _NAME.match(self._text, at):
            return self._named(match, depth)
        cut = char in "'\"" or _CUT.fullmatch(self._text, at) is not None
        raise LiteralError(f"{char!r} does not begin a value", at_end=cut)

    def _string(self, match: re.Match[str]) -> Parsed:
        """Return a string; a line break inside it was made by a terminal and is taken out."""
        text = match[1][1:-1].replace("\r", "").replace("\n", "")
        return Parsed(_ESCAPE.sub(_unescaped, text), match.end())

    def _braces(self, at: int, depth: int) -> Parsed:
        items: dict[str, Value] = {}
        at = self._skip(at + 1)
        while not self._closes("}", at):
            key = self.value(at, depth + 1)
            at = self._skip(key.end)
            if self._text.startswith(":", at):
                value = self.value(at + 1, depth + 1)
                at = value.end
                if isinstance(key.value, str | int | float):
                    items[str(key.value)] = value.value
            at = self._separator("}", at)
        return Parsed(items, at + 1)

    def _list(self, at: int, depth: int) -> Parsed:
        closing = _CLOSING[self._text[at]]
        items: list[Value] = []
        at = self._skip(at + 1)
        while not self._closes(closing, at):
            item = self.value(at, depth + 1)
            items.append(item.value)
            at = self._separator(closing, item.end)
        return Parsed(items, at + 1)

    def spaced_fields(self) -> Parsed:
        """Return the fields of ``field=value field=value``, as pydantic prints an object."""
        found: dict[str, Value] = {}
        at = self._skip(0)
        while field := _FIELD.match(self._text, at):
            item = self.value(field.end(), 1)
            found[field[1]] = item.value
            at = self._skip(item.end)
            if at == item.end:
                break
        return Parsed(found, at)

    def _named(self, match: re.Match[str], depth: int) -> Parsed:
        """Return a constant, a call's content, or something opaque."""
        name = match[0]
        if name in _CONSTANTS:
            return Parsed(_CONSTANTS[name], match.end())
        if not self._text.startswith("(", match.end()):
            return Parsed(OPAQUE, match.end())
        first: Value = OPAQUE
        found: dict[str, Value] = {}
        at = self._skip(match.end() + 1)
        while not self._closes(")", at):
            if field := _FIELD.match(self._text, at):
                item = self.value(field.end(), depth + 1)
                found[field[1]] = item.value
            elif self._text.startswith("**{", at):  # argparse: names that are not identifiers
                item = self._braces(at + 2, depth + 1)
                found.update(item.value if isinstance(item.value, dict) else {})
            else:
                item = self.value(at, depth + 1)
                first = item.value if first is OPAQUE else first
            at = self._separator(")", item.end)
        return Parsed(found if found and first is OPAQUE else _content(first, name), at + 1)

    def _bracketed(self, at: int) -> Parsed:
        """Return the value of ``<Mode.FAST: 'fast'>``, or skip ``<object at 0x7f…>``."""
        if match := _ENUM.match(self._text, at):
            item = self.value(match.end(), 1)
            if self._text.startswith(">", item.end):
                return Parsed(item.value, item.end + 1)
        depth = 0
        for end in range(at, len(self._text)):
            depth += {"<": 1, ">": -1}.get(self._text[end], 0)
            if not depth:
                return Parsed(OPAQUE, end + 1)
        raise LiteralError("the text ends inside angle brackets", at_end=True)

    def _closes(self, closing: str, at: int) -> bool:
        if at >= len(self._text):
            raise LiteralError(f"the text ends before {closing!r}", at_end=True)
        return self._text[at] == closing

    def _separator(self, closing: str, at: int) -> int:
        at = self._skip(at)
        if self._closes(closing, at):
            return at
        if self._text[at] != ",":
            raise LiteralError(f"{self._text[at]!r} stands where a comma should")
        return self._skip(at + 1)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at


def _number(text: str) -> Value:
    plain = text.replace("_", "")
    whole = plain.lstrip("+-").isdecimal() and len(plain) <= _LONGEST_INTEGER
    return int(plain) if whole else Numeral.read(plain)


def _unescaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits:
        code = int(digits, 16)
        return chr(code) if code <= sys.maxunicode else match[0]
    return _ESCAPES.get(match[4], match[4])


def _content(value: Value, name: str) -> Value:
    """Return what a call such as ``tensor([0.5])`` holds: its one number, else nothing to use."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, Numeral):
        return Numeral.read(value.text, name)
    return value if isinstance(value, bool | int | float | str) else OPAQUE
