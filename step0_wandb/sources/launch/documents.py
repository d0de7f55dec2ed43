"""Config files of a launch: YAML, TOML and JSON as plain tables, with a limit on everything.

A YAML file may name itself in itself, and a few lines of it can stand for gigabytes. So what a parser
returns is copied into plain tables of so many values at most before anything else sees it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import UsageError
from step0_wandb.sources.launch.shell_script import MOST_BYTES
from step0_wandb.sources.launch.shell_values import OPEN, SHUT
from step0_wandb.text.nested import lookup
from step0_wandb.text.paths import is_there

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from step0_wandb.records import Json

SUFFIXES = (".yaml", ".yml", ".toml", ".json")
_MOST_VALUES, _DEEPEST, _MOST_BASES = 20_000, 40, 10
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_TWICE = 4
"""How often references are followed: one may name another."""


def read_document(path: Path) -> tuple[dict[str, Json], list[str]]:
    """Read a config file with the files that it is based on; return it, and what could not be followed.

    Raises
    ------
    UsageError
        The file cannot be read, is too large, or is not what its name says.
    """
    notes: list[str] = []
    config: dict[str, Json] = {}
    for layer in reversed(list(_layers(path, notes))):
        config = _merged(config, layer)
    return _resolved(config), notes


def parse_document(text: str, name: str) -> dict[str, Json]:
    """Return the tables of a config file's text.

    Raises
    ------
    UsageError
        The text is not what the name says, or is too large to be a config.
    """
    suffix = f".{name.rpartition('.')[2].lower()}"
    kind = {".toml": "TOML", ".json": "JSON"}.get(suffix, "YAML")
    try:
        found = _plain(_parsed(text, kind), _Budget())
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deeply to be a config") from error
    except ValueError as error:
        line = str(error).splitlines()
        raise UsageError(
            f"{name} is not valid {kind}: {line[0] if line else 'it cannot be parsed'}"
        ) from error
    if not isinstance(found, dict):
        raise UsageError(
            f"{name} does not hold a table of settings", "lint reads YAML, TOML, JSON, and shell scripts."
        )
    return found


def _parsed(text: str, kind: str) -> Any:
    if kind == "TOML":
        return tomllib.loads(text)
    if kind == "JSON":
        return json.loads(text)
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


class _Budget:
    """How many more values a document may have."""

    left = _MOST_VALUES

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"it stands for more than {_MOST_VALUES:,} values")


def _plain(value: Any, budget: _Budget, levels: int = _DEEPEST) -> Json:
    """Return what a parser gave as plain JSON, whatever refers to itself in it."""
    budget.take()
    if levels == 0:
        raise RecursionError
    if isinstance(value, dict):
        return {str(key): _plain(inner, budget, levels - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner, budget, levels - 1) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _layers(path: Path, notes: list[str]) -> Iterator[dict[str, Json]]:
    """Yield a document, then the one that it names as its base, and so on."""
    for _ in range(_MOST_BASES):
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than a config: {path.stat().st_size:,} bytes")
        document = parse_document(path.read_text(encoding="utf-8", errors="replace"), path.name)
        base = document.pop("defaults", None) if isinstance(document.get("defaults"), str) else None
        if isinstance(document.get("defaults"), list):
            notes.append(f"{path.name} is composed of other files (defaults), which are not read")
        yield document
        if not isinstance(base, str):
            return
        path = path.parent / base
        if path.suffix not in SUFFIXES or not is_there(path) or not path.is_file():
            notes.append(f"{base} is the base of this config and not there: its values are open")
            return


def _merged(base: dict[str, Json], own: dict[str, Json]) -> dict[str, Json]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _resolved(config: dict[str, Json]) -> dict[str, Json]:
    """Return a config whose references to its own values, ``${policy.model_name}``, are followed."""
    whole = config

    def follow(value: Json) -> Json:
        if isinstance(value, dict):
            return {key: follow(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [follow(inner) for inner in value]
        return _followed(value, whole) if isinstance(value, str) and "${" in value else value

    return {key: follow(value) for key, value in config.items()}


def _followed(text: str, config: dict[str, Json]) -> Json:
    for _ in range(_TWICE):
        match = _REFERENCE.fullmatch(text)
        if match and (found := lookup(config, match[1])) is not None and not isinstance(found, str):
            return found if not isinstance(found, dict | list) else text
        named = {name: lookup(config, name) for name in _REFERENCE.findall(text)}
        for name, value in named.items():
            if isinstance(value, str | int | float) and len(text) < _MOST_VALUES:
                text = text.replace(f"${{{name}}}", str(value)[:1000])
    return _REFERENCE.sub(lambda match: f"{OPEN}{match[1]}{SHUT}", text)
