"""Values of a shell script, as far as they are known without running it."""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OPEN, SHUT = "\ue000", "\ue001"
"""What stands around the name of a value that is not known; no script has these characters."""
EXTRA = f"{OPEN}@{SHUT}"
"""A word that stands for arguments that are not known."""
MOST_CHARS, MOST_WORDS = 20_000, 20_000
"""Of one value, and of one array; what is longer is open, or cut."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command; `maybe` where only a branch of the script adds it."""

    text: str
    maybe: bool = False


Value: TypeAlias = str | tuple[Word, ...]
"""A variable, or an array."""


def is_open(text: str) -> bool:
    """Return whether a text holds a value that is not known."""
    return OPEN in text


def shown(text: str) -> str:
    """Return a text as people write it: what is not known as ``${NAME}``."""
    return text.replace(OPEN, "${").replace(SHUT, "}")


def arithmetic(text: str, values: Mapping[str, Value]) -> str:
    """Return the value of whole-number arithmetic over what is known."""
    names = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda match: str(values.get(match[1], "?")), text)
    try:
        value = _number(ast.parse(names.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return opened("...")
    return str(value)


_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right),
    ast.Mod: operator.mod,
}


def _number(node: ast.expr) -> int:
    """Return the value of an arithmetic expression of small whole numbers."""
    match node:
        case ast.Constant(value=int(value)) if abs(value) < 1 << 53:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_number(inner)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            value = _ARITHMETIC[type(sign)](_number(left), _number(right))
            if abs(value) < 1 << 53:
                return value
    raise ValueError


def opened(name: str) -> str:
    """Return the text that stands for a value that is not known."""
    return f"{OPEN}{name}{SHUT}"


def added(value: Value, more: Value) -> Value:
    """Return a value with what ``+=`` adds to it."""
    if isinstance(value, str) and isinstance(more, str):
        return (value + more)[:MOST_CHARS]
    words = [*((Word(value),) if isinstance(value, str) else value)]
    words += (Word(more),) if isinstance(more, str) else more
    return tuple(words[:MOST_WORDS])


def either(name: str, before: Value | None, values: Sequence[Value | None]) -> Value:
    """Return what is known of a variable that the arms of a branch leave with different values."""
    start = before if isinstance(before, tuple) else ()
    is_longer = all(
        isinstance(value, tuple) and value[: len(start)] == start for value in values if value is not None
    )
    if not is_longer or (isinstance(before, str) and before):
        return opened(name)
    more = [word for value in values if isinstance(value, tuple) for word in value[len(start) :]]
    return (*start, *(Word(word.text, maybe=True) for word in more))


def cut(value: str | None, sign: str, rest: str) -> str | None:
    """Return a value with what a common pattern cuts off; None where that is not known."""
    if value is None or is_open(value):
        return None
    if sign == "##" and rest == "*/":
        return value.rpartition("/")[2]
    if sign == "%" and rest == "/*":
        return value.rpartition("/")[0]
    if sign == "%" and rest and not set(rest) & set("*?["):
        return value.removesuffix(rest)
    return None
