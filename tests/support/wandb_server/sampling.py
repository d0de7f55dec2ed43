"""Rows of a history as the server gives them back: windows, down-sampling, odd numbers."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEFAULT_SAMPLES = 500
WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}


def plain(value: Any) -> Any:
    """Return `value` as JSON can hold it: NaN and infinities become strings, as at W&B."""
    if isinstance(value, float) and not math.isfinite(value):
        return WORDS.get(value, "NaN")
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def to_json(value: Any) -> str:
    """Return strict JSON; walks the value only where it holds a number that JSON lacks."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(plain(value), allow_nan=False)


def look_up(row: dict[str, Any], key: str) -> Any:
    """Return the value of a possibly nested key (``a.b``), None where the row lacks it."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def thin_out(rows: Sequence[Any], samples: int) -> list[Any]:
    """Return at most `samples` rows, evenly spread.

    W&B promises nothing about the first row of a sampled history, so here it never survives:
    code that relies on it fails in a test and not at a user's.
    """
    count = len(rows)
    if count <= samples:
        return list(rows)
    return [rows[1 + index * (count - 1) // samples] for index in range(samples)]


def window(rows: Iterable[dict[str, Any]], low: int | None, high: int | None) -> list[dict[str, Any]]:
    """Return the rows whose step lies between both bounds, both inclusive."""
    if low is None and high is None:
        return list(rows)
    floor = -math.inf if low is None else low
    ceiling = math.inf if high is None else high
    return [row for row in rows if floor <= row["_step"] <= ceiling]


@lru_cache(maxsize=256)
def read_spec(text: str) -> dict[str, Any]:
    """Parse a spec, once for each text."""
    spec = json.loads(text)
    if not isinstance(spec, dict):
        raise ValueError("a spec is a JSON object")  # noqa: TRY004 - one error for bad specs
    return spec


def sampled(rows: Sequence[dict[str, Any]], spec: str) -> list[dict[str, Any]]:
    """Answer one spec of `sampledHistory`.

    Parameters
    ----------
    rows : sequence of dict
        The whole history.
    spec : str
        JSON with ``keys``, ``minStep`` and ``maxStep`` (both inclusive) and ``samples``.
    """
    asked = read_spec(spec)
    keys = asked.get("keys") or []
    found = []
    for row in window(rows, asked.get("minStep"), asked.get("maxStep")):
        values = {key: look_up(row, key) for key in keys} if keys else row
        if None not in values.values():
            found.append(values)
    return [plain(row) for row in thin_out(found, asked.get("samples") or DEFAULT_SAMPLES)]


def key_statistics(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return `historyKeys`: for each key how often it was logged; None for an empty history."""
    if not rows:
        return None
    keys: dict[str, dict[str, Any]] = {}
    for row in rows:
        for key, value in row.items():
            entry = keys.setdefault(key, {"counts": {}, "monotonic": True, "previous": None})
            kind = type_name(value)
            entry["counts"][kind] = entry["counts"].get(kind, 0) + 1
            previous, entry["previous"] = entry["previous"], value
            if kind != "number" or (isinstance(previous, int | float) and value < previous):
                entry["monotonic"] = False
    return {
        "sets": [],
        "keys": {
            key: {
                "typeCounts": [{"type": kind, "count": count} for kind, count in entry["counts"].items()],
                "monotonic": entry["monotonic"],
                "previousValue": plain(entry["previous"]),
            }
            for key, entry in keys.items()
        },
        "lastStep": max(row["_step"] for row in rows),
    }


def type_name(value: Any) -> str:
    """Return W&B's word for the type of a logged value."""
    if isinstance(value, bool) or value is None:
        return "nil" if value is None else "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, dict):
        return str(value.get("_type", "map"))
    return "list" if isinstance(value, list) else "string"
