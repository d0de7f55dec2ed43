"""The tool's own settings: flag > environment > file > default, each value with its origin."""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from step0_wandb.errors import UsageError
from step0_wandb.settings.options import Settings
from step0_wandb.text.paths import is_there, user_path
from step0_wandb.text.redact import looks_like_key, redact_keys

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE_NAME = "step0.toml"
PREFIX = "STEP0_"
STORE_NAME = "step0.db"
_LARGEST = 1_000_000  # characters of a settings file
_ALIKE = 0.8  # of 1: how alike two names are that differ by a typo


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its dotted key, its value, and where that came from."""

    key: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with where they came from.

    Attributes
    ----------
    file : Path or None
        The settings file.
    base : Path
        What relative paths of the settings are relative to.
    origins : mapping of str to str
        Where each value that is not the default came from, by dotted key.
    """

    settings: Settings
    file: Path | None
    base: Path
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        """Return the path of the store."""
        if self.settings.store:
            return self.base / user_path(self.settings.store)
        if self.file is not None:
            return self.file.parent / STORE_NAME
        from platformdirs import user_data_path

        return user_data_path("step0-wandb", appauthor=False) / STORE_NAME

    def path(self, text: str) -> Path:
        """Return a path of the settings, relative to their file."""
        return self.base / user_path(text)

    @property
    def profile_paths(self) -> tuple[Path, ...]:
        """Return the paths of more profiles."""
        return tuple(self.path(text) for text in self.settings.profiles.paths)

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the sources, those that exist as paths relative to the file made absolute."""
        return tuple(self._source(text) for text in self.settings.sources)

    def _source(self, text: str) -> str:
        bare = text.removeprefix("file:")
        if text.startswith("wandb:") or "://" in text:
            return text
        path = self.path(bare)
        is_path = bare != text or bare.startswith((".", "/", "~")) or is_there(path)
        return f"file:{path}" if is_path else text


def environment() -> Mapping[str, str]:
    """Return the process's environment; nothing else in the package reads it."""
    return os.environ


def load_settings(
    file: Path | None = None,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read the settings.

    Parameters
    ----------
    file : Path, optional
        The settings file; None looks for ``step0.toml`` or a ``[tool.step0-wandb]`` table in
        ``pyproject.toml``, upwards from `cwd`.
    flags : mapping of str to object, optional
        Values given on the command line, by dotted key; None values are not given.

    Raises
    ------
    UsageError
        The file is missing or not valid TOML, a key is unknown, a value is not valid, or it contains a
        secret; or an environment variable is nearly named like that of a setting.
    """
    found = file or _find(cwd)
    table = _read(found) if found else {}
    if found:
        _refuse_secrets(table, found)
    origins: dict[str, str] = {key: str(found) for key in _leaves(table)}
    for name, key in _variables().items():
        if name in environ:
            _put(table, key, _split(environ[name]) if _is_list(key) else environ[name])
            origins[key] = name
    for key, value in (flags or {}).items():
        if value is not None:
            _put(table, key, value)
            origins[key] = "command line"
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        raise _wrong(error, origins, found) from error
    _refuse_misspelt(environ, settings.alerts.webhook_env)
    base = found.parent if found else cwd
    if origins.get("store") in (f"{PREFIX}STORE", "command line") and settings.store:
        settings = settings.model_copy(update={"store": str(cwd / user_path(settings.store))})
    return Loaded(settings, found, base.absolute(), origins)


def describe(loaded: Loaded) -> list[Setting]:
    """Return every setting with its value and origin; the store as the path that is used."""
    values = loaded.settings.model_dump(mode="json")
    values["store"] = str(loaded.store)
    values["sources"] = [redact_keys(text) for text in loaded.settings.sources]
    return [Setting(key, value, loaded.origins.get(key, "default")) for key, value in _leaves(values).items()]


def _find(cwd: Path) -> Path | None:
    for folder in (cwd, *cwd.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        project = folder / "pyproject.toml"
        if project.is_file() and _own_table(_toml(project)) is not None:
            return project
    return None


def _read(file: Path) -> dict[str, Any]:
    table = _toml(file)
    if file.name != "pyproject.toml":
        return table
    own = _own_table(table)
    if own is not None and not isinstance(own, dict):
        raise UsageError(f"{file}: tool.step0-wandb is not a table", "Write [tool.step0-wandb].")
    return own or {}


def _own_table(project: Mapping[str, Any]) -> Any:
    """Return this tool's table in a ``pyproject.toml``; None where there is none."""
    tools = project.get("tool")
    return tools.get("step0-wandb") if isinstance(tools, dict) else None


def _toml(file: Path) -> dict[str, Any]:
    try:
        with file.open(encoding="utf-8-sig") as stream:
            text = stream.read(_LARGEST + 1)  # /dev/zero has no end
        table = tomllib.loads(text) if len(text) <= _LARGEST else None
    except OSError as error:
        raise UsageError(f"Cannot read the settings file {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, too long a number, too deep a list
        raise UsageError(f"The settings file {file} is not valid TOML: {error}") from error
    if table is None:
        raise UsageError(f"The settings file {file} is larger than {_LARGEST:,} characters")
    return table


def _refuse_secrets(table: Mapping[str, Any], file: Path) -> None:
    for key, value in _leaves(table).items():
        if any(looks_like_key(str(part)) for part in (value if isinstance(value, list) else [value])):
            raise UsageError(
                f"{file}: {key} contains what looks like a secret",
                "Settings files get shared: keep keys in the environment (WANDB_API_KEY) or in netrc.",
            )


def _refuse_misspelt(environ: Mapping[str, str], webhook: str | None) -> None:
    """Refuse a variable that is nearly named like that of a setting; other names are not ours."""
    known = {name.removeprefix(PREFIX): name for name in _variables()}
    for name in sorted(environ.keys() - known.values() - {webhook}):
        own = name.removeprefix(PREFIX)
        near = difflib.get_close_matches(own, known, n=1, cutoff=_ALIKE) if own != name else ()
        if near:
            raise UsageError(f"unknown setting {name} in the environment", f"Did you mean {known[near[0]]}?")


def _wrong(error: ValidationError, origins: Mapping[str, str], file: Path | None) -> UsageError:
    detail = error.errors()[0]
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        parent, _, name = key.rpartition(".")
        known = _names_in(parent)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = (
            f"Did you mean {'.'.join(filter(None, [parent, near[0]]))}?"
            if near
            else f"Known: {', '.join(known)}."
        )
        return UsageError(f"{origins.get(key, file)}: unknown setting {key}", hint)
    origin = next((origins[name] for name in origins if name == key or key.startswith(f"{name}.")), file)
    message = detail["msg"].removeprefix("Value error, ")
    # What cannot be a variable's name may be the secret itself, and is not repeated.
    shown = "" if key == "alerts.webhook_env" else f" = {detail['input']!r}"
    return UsageError(f"{origin}: {key}{shown} is not valid: {message}", "See `step0-wandb settings`.")


def _names_in(path: str) -> list[str]:
    table: Any = Settings
    for part in path.split(".") if path else []:
        fields = table.model_fields
        table = _table_of(fields[part].annotation) if part in fields else table
    return list(table.model_fields)


def _table_of(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _table_of(part))), None)


def _variables() -> dict[str, str]:
    """Return the environment variable of every setting that is not under a free name."""
    defaults = Settings().model_dump()
    keys = [key for key in _leaves(defaults) if not key.startswith("setup")]
    return {PREFIX + key.replace(".", "_").upper(): key for key in keys}


def _is_list(key: str) -> bool:
    return isinstance(_leaves(Settings().model_dump())[key], tuple)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _leaves(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every value that is not a table, by its dotted key."""
    leaves: dict[str, Any] = {}
    for name, value in table.items():
        if not isinstance(value, dict):
            leaves[f"{prefix}{name}"] = value
        elif value:
            leaves |= _leaves(value, f"{prefix}{name}.")
    return leaves


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    *parents, name = key.split(".")
    for part in parents:
        inner = table.setdefault(part, {})
        table = inner if isinstance(inner, dict) else {}
    table[name] = value
