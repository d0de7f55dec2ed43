"""A profile's file, read and validated, with errors that name file and key and say what is allowed."""

from __future__ import annotations

import difflib
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
        The file cannot be read, is no TOML, or a key is unknown, missing or of the wrong kind; the
        message names file and key.
    """
    try:
        return Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"The profile {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The profile {path} is no TOML file: {error}") from error
    except ValidationError as error:
        raise UsageError(f"The profile {path} is not valid: {_first(error)}", _allowed(error)) from error


def _first(error: ValidationError) -> str:
    detail = error.errors()[0]
    where = ".".join(str(part) for part in detail["loc"])
    what = "there is no such key" if detail["type"] == "extra_forbidden" else detail["msg"]
    return f"{where}: {what}" if where else what


def _allowed(error: ValidationError) -> str:
    """Return what is allowed where the first error lies."""
    detail = error.errors()[0]
    hint = detail.get("ctx", {}).get("hint")
    if hint:
        return str(hint)
    table = _table_of(detail)
    if table is None:
        return ""
    names = list(table.model_fields)
    near = difflib.get_close_matches(str(detail["loc"][-1]), names, n=1) if detail["loc"] else []
    meant = f"Did you mean {near[0]}? " if near and detail["type"] == "extra_forbidden" else ""
    return f"{meant}Allowed here: {', '.join(names)}."


def _table_of(detail: ErrorDetails) -> type[BaseModel] | None:
    """Return the table that the key of an error belongs to."""
    table: Any = Profile
    for part in detail["loc"][:-1]:
        if isinstance(part, str) and isinstance(table, type) and issubclass(table, BaseModel):
            field = table.model_fields.get(part)
            table = _table_in(field.annotation) if field else None
    return table if isinstance(table, type) and issubclass(table, BaseModel) else None


def _table_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _table_in(part))), None)
