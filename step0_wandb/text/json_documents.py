"""The JSON documents of the contract: records in, plain JSON out."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from step0_wandb.text.redact import redact_keys

if TYPE_CHECKING:
    from step0_wandb.errors import Step0Error
    from step0_wandb.records import Json


_UNSAFE = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls beyond ASCII, marks that turn or hide text, line separators, surrogates; JSON escapes the rest."""


def document(name: str, /, **parts: object) -> dict[str, Json]:
    """Return one document: its schema ``step0/NAME/1`` and its parts.

    Examples
    --------
    >>> document("runs", runs=[float("nan")])
    {'schema': 'step0/runs/1', 'runs': ['nan']}
    """
    return {"schema": f"step0/{name}/1", **{part: plain(value) for part, value in parts.items()}}


def error_document(error: Step0Error) -> dict[str, Json]:
    """Return the document of a failure."""
    return document(
        "error",
        error={"kind": error.kind, "message": redact_keys(error.message), "hint": redact_keys(error.hint)},
    )


def dumps(value: dict[str, Json]) -> str:
    r"""Return a document as text: keys sorted, UTF-8, no bare NaN.

    What could steer a terminal or the order of reading, and lone surrogates, which no encoding has,
    are written as JSON's escapes: a parser reads the same text.

    Examples
    --------
    >>> print(dumps({"name": "a\u202eb · c"}))
    {
      "name": "a\u202eb · c"
    }
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False)
    return _escaped(text)


def compact(value: Any) -> str:
    r"""Return a value as `dumps` would, but on one line: what there are many of is written like that.

    Examples
    --------
    >>> print(compact({"gap": float("nan"), "a": 1}))
    {"a": 1, "gap": "nan"}
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=plain)
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(plain(value), sort_keys=True, ensure_ascii=False)
    return text if text.isascii() and "\x7f" not in text else _escaped(text)


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(value: Any) -> Json:
    """Return records, times and numbers as plain JSON; non-finite numbers become texts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if is_dataclass(value):
        shown: dict[str, str | None] = {field.name: field.name for field in fields(value)}
        shown |= {name: name for name in getattr(value, "DERIVED", ())} | getattr(value, "SHOWN_AS", {})
        return {name: plain(getattr(value, source)) for name, source in shown.items() if source}
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    raise TypeError(f"{type(value).__name__} has no place in a JSON document")
