"""A profile's file, read and validated, with errors that name file and key and say what is allowed."""

from __future__ import annotations

import difflib
import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from step0_wandb.errors import UsageError
from step0_wandb.profiles.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

SHIPPED = Path(__file__).parent


def load_profile(path: Path) -> Profile:
    """Read and validate one profile.

    Raises
    ------
    UsageError
        The file cannot be read, is not valid TOML, or a key is unknown, missing or of the wrong kind;
        the message names file and key.
    """
    return parse_profile(path, read_file(path))


def read_file(path: Path) -> bytes:
    """Return what a profile's file holds; a `UsageError` says why it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"The profile {path} cannot be read: {error.strerror}") from error


@functools.lru_cache(maxsize=64)  # several parts of a sync ask for the same files
def parse_profile(path: Path, content: bytes) -> Profile:
    """Validate what a profile's file holds; raises as `load_profile` does."""
    try:
        return Profile.model_validate(_whole(path, tomllib.loads(content.decode())))
    except ValidationError as error:
        detail = _gravest(error)
        raise UsageError(f"The profile {path} is not valid: {_message(detail)}", _allowed(detail)) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too long a number, too deep a list
        raise UsageError(f"The profile {path} is not valid TOML: {error}") from error


def _whole(path: Path, own: dict[str, Any]) -> dict[str, Any]:
    """Return a profile's tables on top of those of the shipped profile that it extends."""
    name = own.pop("extends", None)
    if name is None:
        return own
    base = SHIPPED / f"{name}.toml"
    if not base.is_file() or base.stem == path.stem:
        known = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
        raise UsageError(
            f"The profile {path} is not valid: extends names {name!r}, which is not a shipped profile",
            f"There are: {known}.",
        )
    return _merged(_whole(base, tomllib.loads(base.read_text("utf-8"))), own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables merged key by key, and lists of tables with the variant's own entries first.

    Rules are tried in order, so those of the variant decide; only setup keys go behind the base's, as a
    label reads. An entry with the label, name or metric of one of the base takes its place; an empty
    list takes all of the base's away. What a variant's own switches bring, the base's do not bring there.
    """
    merged = dict(base)
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merged(base[key], value)
        elif key == "switch" and value:
            brought = {name for entry in value for name in entry.get("brings", ())}
            merged[key] = [
                *value,
                *(entry for entry in base.get(key, ()) if not brought.issuperset(entry["brings"])),
            ]
        elif key in base and value and isinstance(value, list) and isinstance(value[0], dict):
            replaced = {name: entry for entry in value if (name := _identity(entry)) is not None}
            kept = [replaced.pop(_identity(entry), entry) for entry in base[key]]
            new = [entry for entry in value if _identity(entry) is None or _identity(entry) in replaced]
            merged[key] = [*kept, *new] if key == "setup" else [*new, *kept]
        else:
            merged[key] = value
    return merged


def _identity(entry: Mapping[str, Any]) -> object:
    return next((entry[key] for key in ("label", "name", "metric") if key in entry), None)


def _gravest(error: ValidationError) -> ErrorDetails:
    """Return the error to tell: an unknown key, which is often a missing one mistyped, else the first."""
    details = error.errors()
    return next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])


def _message(detail: ErrorDetails) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    what = "there is no such key" if detail["type"] == "extra_forbidden" else detail["msg"]
    return f"{where}: {what}" if where else what


def _allowed(detail: ErrorDetails) -> str:
    """Return what is allowed where an error lies."""
    hint = detail.get("ctx", {}).get("hint")
    if hint:
        return str(hint)
    if not detail["loc"]:
        return ""
    names = list(_table_of(detail).model_fields)
    near = difflib.get_close_matches(str(detail["loc"][-1]), names, n=1)
    meant = f"Did you mean {near[0]}? " if near and detail["type"] == "extra_forbidden" else ""
    return f"{meant}Allowed here: {', '.join(names)}."


def _table_of(detail: ErrorDetails) -> type[BaseModel]:
    """Return the table that the key of an error belongs to."""
    table: type[BaseModel] = Profile
    for part in detail["loc"][:-1]:
        field = table.model_fields.get(part) if isinstance(part, str) else None
        table = (field and _table_in(field.annotation)) or table
    return table


def _table_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _table_in(part))), None)
