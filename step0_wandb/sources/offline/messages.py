"""The few records of ``wandb.proto`` that matter, read into plain values.

The W&B client's own classes take half a second to import, and decode whole records of which a few fields
matter. This schema names those fields; protobuf passes over the rest. A record that is not what the client
writes raises `RecordError`.

Source: ``wandb_internal.proto`` of the W&B client, 0.12 to 0.31.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from step0_wandb.text.nested import collect_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.records import Json

_SCHEMA = {
    "Record": {
        "history": (2, "|History"),
        "config": (5, "|Config"),
        "run": (17, "|Run"),
        "exit": (18, "|Exit"),
        "environment": (26, "|Environment"),
    },
    "History": {"item": (1, "*Item")},
    "Config": {"update": (1, "*Item"), "remove": (2, "*Item")},
    "Item": {
        "key": (1, "string"),
        "nested_key": (2, "*string"),
        "integer": (5, "|sint64"),
        "number": (6, "|double"),
        "json": (8, "|string"),
        "value_json": (16, "string"),
    },
    "Run": {
        "run_id": (1, "string"),
        "entity": (2, "string"),
        "project": (3, "string"),
        "config": (4, "Config"),
        "group": (6, "string"),
        "job_type": (7, "string"),
        "name": (8, "string"),
        "tags": (10, "*string"),
        "start_time": (17, "Timestamp"),
    },
    "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "Exit": {"exit_code": (1, "int32")},
    "Environment": {
        "python": (2, "string"),
        "docker": (4, "string"),
        "git": (9, "Git"),
        "gpu": (18, "string"),
        "gpu_count": (19, "uint32"),
        "cudaVersion": (25, "string"),
        "writer_id": (199, "string"),
    },
    "Git": {"commit": (2, "string")},
}
"""The fields that are read of each message: number and type; ``*`` repeated, ``|`` at most one of these."""

EXIT_TAG = b"\x92\x01"
"""What begins the exit message; a record without these bytes is not an exit record."""

_RUN = _SCHEMA["Record"]["run"][0]
_RUN_TEXTS = tuple(name for name, (_, kind) in _SCHEMA["Run"].items() if kind == "string")
_VARINT, _BYTES = 0, 2  # wire types
_DEEPEST = 100  # levels of nesting; far below what Python's stack takes, far above any config
_LONGEST_VARINT = 10  # bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordError(ValueError):
    """The bytes are not a record as the W&B client writes them."""


@cache
def _message(name: str) -> Any:
    """Return the class of one message of the schema; protobuf is imported when a file is read."""
    # The package has no types of its own, and the classes made here would have none anyway.
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="step0.proto", syntax="proto3")
    for title, parts in _SCHEMA.items():
        message = file.message_type.add(name=title)
        for field_name, (number, kind) in parts.items():
            described = message.field.add(name=field_name, number=number)
            described.label = described.LABEL_REPEATED if kind[0] == "*" else described.LABEL_OPTIONAL
            if kind[0] == "|":
                described.oneof_index = 0
                message.oneof_decl or message.oneof_decl.add(name="kind")
            bare = kind.lstrip("*|")
            if bare in _SCHEMA:
                described.type, described.type_name = described.TYPE_MESSAGE, f".{bare}"
            else:
                described.type = getattr(described, f"TYPE_{bare.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def decode(data: bytes, name: str = "Record") -> Any:
    """Return a record, or a part of one; which message a record holds says ``WhichOneof("kind")``.

    Raises
    ------
    RecordError
        If these bytes are not one.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return _message(name).FromString(data)
    except DecodeError as error:
        raise RecordError("it is not a W&B record") from error


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What one record does to the config: values by their path, and paths that go.

    Attributes
    ----------
    update : mapping of tuple of str to JSON
        A path has one key, or several where a nested value was set.
    """

    update: Mapping[tuple[str, ...], Json] = field(default_factory=dict)
    remove: tuple[tuple[str, ...], ...] = ()

    def apply_to(self, config: dict[str, Json]) -> None:
        """Change `config`; dictionaries inside it are replaced, not changed, as others may hold them."""
        for path, value in self.update.items():
            if len(path) > 1:
                _put(config, path, value)
            elif path[0] == "_wandb" and isinstance(value, dict):  # each writer brings its part of it
                for name, part in value.items():
                    _put(config, (*path, name), part)
            else:
                config[path[0]] = value
        for path in self.remove:
            _remove(config, path)


def _put(config: dict[str, Json], path: tuple[str, ...], value: Json) -> None:
    if len(path) == 1:
        config[path[0]] = value
        return
    below = config.get(path[0])
    inner = dict(below) if isinstance(below, dict) else {}
    _put(inner, path[1:], value)
    config[path[0]] = inner


def _remove(config: dict[str, Json], path: tuple[str, ...]) -> None:
    below = config.get(path[0])
    if len(path) == 1:
        config.pop(path[0], None)
    elif isinstance(below, dict):
        inner = dict(below)
        _remove(inner, path[1:])
        config[path[0]] = inner


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Who a run is, as its run record says; empty where it does not."""

    run_id: str = ""
    entity: str = ""
    project: str = ""
    name: str = ""
    group: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    started_at: datetime | None = None

    def or_else(self, other: RunInfo | None) -> RunInfo:
        """Return these facts, and `other`'s where there is none."""
        if other is None:
            return self
        return RunInfo(*(getattr(self, fact.name) or getattr(other, fact.name) for fact in fields(self)))


def run_info(run: Any) -> RunInfo:
    """Return who a run is by its run message.

    Raises
    ------
    RecordError
        If its start is not a time.
    """
    texts = {name: getattr(run, name) for name in _RUN_TEXTS}
    started_at = _moment(run.start_time) if run.HasField("start_time") else None
    return RunInfo(**texts, tags=tuple(run.tags), started_at=started_at)


def first_run_info(beginning: bytes) -> RunInfo | None:
    """Return who a run is by the beginning of its run record; None where it is not one.

    The texts that name a run come first in the message. Protobuf refuses a message without its end, so
    the last field that is there whole is looked for.
    """
    for number, start, end in _texts_of(beginning):
        if number == _RUN:
            run = beginning[start:end]
            whole = max((last for _, _, last in _texts_of(run) if last <= len(run)), default=0)
            return run_info(decode(run[:whole], "Run"))
    return None


def config_change(config: Any) -> ConfigChange:
    """Return what a config message changes.

    Raises
    ------
    RecordError
        If a value is not JSON or an item has no key.
    """
    items = list(config.update)
    values = _parsed([item.value_json for item in items])
    update = dict(zip(map(_path, items), values, strict=True))
    return ConfigChange(update, tuple(map(_path, config.remove)))


def row(history: Any) -> dict[str, float]:
    """Return the numbers of a history message by their names, nested keys joined with ``.``.

    NaN and infinities are kept, bare or as text. Other text, booleans, lists and media (whose parts
    carry a ``_type``) are left out.

    Raises
    ------
    RecordError
        If a value is not JSON or an item has no key.
    """
    values: dict[str, float] = {}
    media: list[str] = []
    for item in history.item:
        name = ".".join(_path(item))
        value = item.value_json or _typed(item)
        try:
            values[name] = float(value)
        except ValueError:
            if name.endswith("._type") and not item.key:
                media.append(name.removesuffix("_type"))
            collect_numbers(name, _parsed([value])[0], values)
    for prefix in media:
        values = {name: value for name, value in values.items() if not name.startswith(prefix)}
    return values


def environment(message: Any) -> ConfigChange:
    """Return where the run runs, as the part of the config that W&B's server makes of it.

    Newer clients leave ``_wandb.e`` to the server and write this record instead. Only what tells one
    image from another is read: image, commit, GPUs and versions.
    """
    facts: dict[str, Json] = {
        described.name: getattr(message, described.name)
        for described, _ in message.ListFields()
        if described.name not in ("git", "writer_id")
    }
    if message.HasField("git"):
        facts["git"] = {"commit": message.git.commit}
    return ConfigChange({("_wandb", "e", message.writer_id): facts} if facts else {})


def _path(item: Any) -> tuple[str, ...]:
    key = item.key
    path = (key,) if key else tuple(item.nested_key)
    if not path:
        raise RecordError("an item has no key")
    return path


def _typed(item: Any) -> str:
    """Return the value of an item in a field of its own type, which newer clients may use."""
    kind = item.WhichOneof("kind")
    return str(getattr(item, kind)) if kind else ""


def _parsed(values: list[str]) -> list[Json]:
    """Return what the values say; one call of the parser for all is several times as fast."""
    text = f"[{','.join(value or 'null' for value in values)}]"
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError("a value is not JSON") from error
    if not isinstance(parsed, list) or len(parsed) != len(values):
        raise RecordError("a value is not JSON")
    if text.count("[") + text.count("{") > _DEEPEST and _is_deeper(parsed, _DEEPEST):
        raise RecordError("a value is nested too deeply")
    return parsed


def _is_deeper(value: Json, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return bool(level)


def _moment(time: Any) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=time.seconds, microseconds=time.nanos // 1000)
    except OverflowError as error:
        raise RecordError("a time is out of range") from error


def _texts_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the texts and messages that `data` begins with, the last maybe cut."""
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            size, at = _varint(data, at)
            if tag & 7 == _BYTES:
                yield tag >> 3, at, at + size
                at += size
            elif tag & 7 != _VARINT:
                return
    except IndexError:
        return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of variable length at a place, and where it ends."""
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte <= 0x7F:  # noqa: PLR2004 - the highest bit says that more follows
            return value, at + place + 1
    raise IndexError
