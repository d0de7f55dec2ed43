"""Values in nested tables, by dotted paths: the one lookup, the one flattening, the one number parser."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from step0_wandb.text.python_values import fields

if TYPE_CHECKING:
    from step0_wandb.records import Json

# Expressions ask one text for many keys, and the runs of a project have the same texts.
_fields = functools.lru_cache(maxsize=256)(fields)
_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})


def lookup(config: Mapping[str, Any], path: str) -> Any:
    """Return the value under a dotted path, or None where there is none.

    A key that holds the dots itself beats a nested one, the longest first. Frameworks give W&B objects,
    which it stores as texts, ``"namespace(batch_size=128, ...)"``; the path goes into those too.

    Examples
    --------
    >>> lookup({"actor": {"model.path": "a"}, "args": "namespace(lr=1e-6)"}, "actor.model.path")
    'a'
    >>> lookup({"a.b": {"c": 1}}, "a.b.c")
    1
    """
    if path in config:
        return config[path]
    at = len(path)
    while (at := path.rfind(".", 0, at)) >= 0:
        inner = config.get(path[:at])
        if isinstance(inner, str):
            inner = _fields(inner)
        if isinstance(inner, Mapping) and (found := lookup(inner, path[at + 1 :])) is not None:
            return found
    return None


def has(config: Mapping[str, Any], path: str) -> bool:
    """Return whether a config has a dotted path, whatever its value.

    Examples
    --------
    >>> has({"actor": {"fp8": None}}, "actor.fp8"), has({"actor": {}}, "actor.fp8")
    (True, False)
    """
    if path in config:
        return True
    head, _, last = path.rpartition(".")
    inner = lookup(config, head) if head else None
    if isinstance(inner, str):
        inner = _fields(inner)
    return isinstance(inner, Mapping) and last in inner


def flatten(config: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return a nested config with dotted keys, objects that were stored as texts included.

    Lists and empty tables are values. What the W&B client notes of each writing process stands under
    ``_wandb.e`` and a random name, which is left out.
    """
    flat: dict[str, Json] = {}
    for key, value in config.items():
        inner = (_fields(value) or value) if isinstance(value, str) else value
        if prefix == "_wandb.e." and isinstance(inner, dict):
            flat.update(flatten(inner, prefix))
        elif isinstance(inner, dict) and inner:
            flat.update(flatten(inner, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def collect_numbers(name: str, value: Json, into: dict[str, float]) -> None:
    """Add the numbers of one logged value, nested keys joined by dots.

    NaN and infinities are kept, also as texts, for JSON has no numbers for them. Other texts, booleans,
    lists and media (which carry a ``_type``) are left out.
    """
    if isinstance(value, dict):
        if "_type" not in value:
            for key, inner in value.items():
                collect_numbers(f"{name}.{key}", inner, into)
    elif isinstance(value, str):
        if value in _NOT_FINITE:
            into[name] = float(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        into[name] = as_float(value)


def as_float(value: float) -> float:
    """Return a number as a float; an integer of more than 308 digits is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
