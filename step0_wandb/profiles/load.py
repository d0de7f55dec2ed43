"""A profile's file, read and validated, with errors that name file and key and say what is allowed."""

from __future__ import annotations

import difflib
import functools
import tomllib
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from step0_wandb.errors import UsageError
from step0_wandb.profiles.profile import Profile

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails


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
        return Profile.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        detail = _gravest(error)
        raise UsageError(f"The profile {path} is not valid: {_message(detail)}", _allowed(detail)) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too long a number, too deep a list
        raise UsageError(f"The profile {path} is not valid TOML: {error}") from error


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
