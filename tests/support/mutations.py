"""Answers of a server with something odd in them: one value of the JSON changed, or some of its bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

ODD = (
    None,
    True,
    False,
    0,
    -1,
    7,
    1e308,
    10**400,
    -(10**400),
    "",
    "x",
    "NaN",
    "Infinity",
    "[",
    "{}",
    "\x00\x1b[31m",
    "\ud800",
    "²",
    "9" * 5000,
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    [],
    [None],
    [[]],
    {},
    {"a": None},
    {"_type": "table-file"},
)
"""What a field may suddenly hold."""
RAW = (b"1e999", b"-1e999", b"NaN", b"Infinity", b"1" * 5000, b"[" * 3000 + b"]" * 3000, b'"\\ud800"')
"""The same, as bytes that are not all JSON of every reader."""
_MARK = "@@raw@@"


def mutated(body: bytes, chance: random.Random) -> bytes:
    """Return a GraphQL answer with one to three changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        body = chance.choice((_odd_value, _odd_value, _odd_value, _raw_value, _inner, _bytes))(body, chance)
    return body


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container below a value with each of its keys."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = [(value, key) for key, _ in items]
    for _, part in items:
        if isinstance(part, dict | list):
            found += _places(part)
    return found


def _odd_value(body: bytes, chance: random.Random) -> bytes:
    return _changed(body, chance, lambda _old: chance.choice(ODD))


def _raw_value(body: bytes, chance: random.Random) -> bytes:
    marked = _changed(body, chance, lambda _old: _MARK)
    return marked.replace(json.dumps(_MARK).encode(), chance.choice(RAW))


def _inner(body: bytes, chance: random.Random) -> bytes:
    """Change a text that holds JSON itself, such as a config or a history row."""

    def change(old: Any) -> Any:
        if not isinstance(old, str) or not old.startswith("{"):
            return old
        return _odd_value(old.encode("utf-8", "surrogatepass"), chance).decode("utf-8", "surrogatepass")

    return _changed(body, chance, change)


def _bytes(body: bytes, chance: random.Random) -> bytes:
    at, size = chance.randrange(len(body) + 1), chance.choice((0, 1, 1, 7, 300))
    new = chance.choice((b"", b"\x00", b"\xff", b'"', b"}", b",", b"\\", chance.randbytes(9)))
    return body[:at] + new + body[at + size :]


def _changed(body: bytes, chance: random.Random, change: Any) -> bytes:
    try:
        answer = json.loads(body)
        places = _places(answer)
    except (ValueError, RecursionError, AttributeError, TypeError):
        return body
    if not places:
        return body
    container, key = chance.choice(places)
    what = chance.random()
    if what < 0.15:
        del container[key]
    elif what < 0.2 and isinstance(container, list):
        container.insert(key, container[key])
    else:
        container[key] = change(container[key])
    return json.dumps(answer).encode()
