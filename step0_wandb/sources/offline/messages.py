"""The few records of ``wandb.proto`` that matter, read into plain values.

Only the fields named here are read; everything else is passed over by its length. A record whose bytes
are no such message raises a `ValueError`: a `WireError`, or text that is not UTF-8.

Source: ``wandb_internal.proto`` of the W&B client, 0.12 to 0.31.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from step0_wandb.sources.offline.wire import BYTES, ONE_BYTE, VARINT, WireError, fields, varint
from step0_wandb.text.nested import collect_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.records import Json
    from step0_wandb.sources.offline.wire import Field

HISTORY, CONFIG, RUN, EXIT, ENVIRONMENT = 2, 5, 17, 18, 26
"""The field numbers of ``Record`` that say what kind of record it is."""

EXIT_TAG = b"\x92\x01"
"""What begins the exit message; a record without these bytes is no exit record."""

_BESIDE_THE_KIND = frozenset({1, 16, 19, 200})  # num, control, uuid, _info
_NUM = 1 << 3 | VARINT  # the tag of Record.num
_RUN_TEXTS = {1: "run_id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 8: "name"}
_RUN_CONFIG, _RUN_TAGS, _RUN_START = 4, 10, 17
_CONFIG_REMOVE = 2
_ENVIRONMENT_TEXTS = {2: "python", 4: "docker", 18: "gpu", 25: "cudaVersion"}
_GIT, _COMMIT, _GPU_COUNT, _WRITER = 9, 2, 19, 199
_ITEM_TAG = 1 << 3 | BYTES
_KEY_TAGS = b"\x0a\x12"  # key, nested_key
_VALUE_TAG = b"\x82\x01"  # value_json

_DEEPEST = 100  # levels of nesting; far below what Python's stack takes, far above any config
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Body(NamedTuple):
    """What kind of record it is, and where in its bytes the message of that kind lies."""

    kind: int
    start: int
    end: int


class Items(NamedTuple):
    """The items of a config or history record.

    Attributes
    ----------
    paths : list of tuple of str
        The key of each item, as a path of nested keys.
    values : list of bytes
        The value of each, as JSON.
    others : list of Field
        What else is in the record.
    """

    paths: list[tuple[str, ...]]
    values: list[bytes]
    others: list[Field]

    def add(self, data: bytes, part: Field) -> None:
        """Read one item field by field; newer clients may give a number a field of its own type."""
        path: list[str] = []
        value = b""
        for number, small, first, last in fields(data, part.start, part.end):
            if number in (1, 2):  # key, nested_key
                path.append(data[first:last].decode())
            elif number in (16, 8):  # value_json, json
                value = data[first:last]
            elif number == 5:  # noqa: PLR2004 - integer, zigzag
                value = b"%d" % (small >> 1 ^ -(small & 1))
            elif number == 6:  # noqa: PLR2004 - number
                value = repr(struct.unpack("<d", struct.pack("<Q", small))[0]).encode()
        if not path:
            raise WireError("an item has no key")
        self.paths.append(tuple(path))
        self.values.append(value)


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
                _set(config, path, value)
            elif path[0] == "_wandb" and isinstance(value, dict):  # each writer brings its part of it
                for name, part in value.items():
                    _set(config, (*path, name), part)
            else:
                config[path[0]] = value
        for path in self.remove:
            _remove(config, path)


def _set(config: dict[str, Json], path: tuple[str, ...], value: Json) -> None:
    if len(path) == 1:
        config[path[0]] = value
        return
    below = config.get(path[0])
    inner = dict(below) if isinstance(below, dict) else {}
    _set(inner, path[1:], value)
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
        return RunInfo(
            run_id=self.run_id or other.run_id,
            entity=self.entity or other.entity,
            project=self.project or other.project,
            name=self.name or other.name,
            group=self.group or other.group,
            job_type=self.job_type or other.job_type,
            tags=self.tags or other.tags,
            started_at=self.started_at or other.started_at,
        )


def body(data: bytes, *, partial: bool = False) -> Body:
    """Return the kind of a record and where its message lies; kind 0 for a record without one.

    Parameters
    ----------
    partial : bool
        Whether `data` is the beginning of a record only; the message may then end behind it.
    """
    at = 0
    try:
        while at < len(data):  # done for every record of a file, hence without a call a field
            tag = data[at]
            at += 1
            if tag > ONE_BYTE:
                tag, at = varint(data, at - 1)
            if tag == _NUM:
                while data[at] > ONE_BYTE:
                    at += 1
                at += 1
                continue
            size = data[at]
            at += 1
            if size > ONE_BYTE:
                size, at = varint(data, at - 1)
            if tag & 7 != BYTES or (at + size > len(data) and not partial):
                raise WireError("it is no W&B record")
            if tag >> 3 not in _BESIDE_THE_KIND:
                return Body(tag >> 3, at, at + size)
            at += size
    except IndexError:
        raise WireError("it ends inside its first fields") from None
    return Body(0, at, at)


def run_info(data: bytes, message: Body) -> RunInfo:
    """Return who a run is; of a record that is cut off, as far as it goes."""
    texts: dict[str, str] = {}
    tags: list[str] = []
    started_at = None
    for part in fields(data, message.start, min(message.end, len(data)), partial=message.end > len(data)):
        if part.number in _RUN_TEXTS:
            texts[_RUN_TEXTS[part.number]] = part.text(data)
        elif part.number == _RUN_TAGS:
            tags.append(part.text(data))
        elif part.number == _RUN_START:
            started_at = _moment(data, part)
    return RunInfo(**texts, tags=tuple(tags), started_at=started_at)


def run_config(data: bytes, message: Body) -> ConfigChange:
    """Return the config that a run record brings."""
    for part in fields(data, message.start, message.end):
        if part.number == _RUN_CONFIG:
            return config(data, Body(CONFIG, part.start, part.end))
    return ConfigChange()


def config(data: bytes, message: Body) -> ConfigChange:
    """Return what a config record changes."""
    items = _items(data, message)
    removed = Items([], [], [])
    for part in items.others:
        if part.number == _CONFIG_REMOVE:
            removed.add(data, part)
    update = dict(zip(items.paths, _parsed(items.values), strict=True))
    return ConfigChange(update, tuple(removed.paths))


def history(data: bytes, message: Body) -> dict[str, float]:
    """Return the numbers of a history row by their names, nested keys joined with ``.``.

    NaN and infinities are kept, bare or as text. Other text, booleans, lists and media (whose parts
    carry a ``_type``) are left out.
    """
    values: dict[str, float] = {}
    media: list[str] = []
    items = _items(data, message)
    for path, raw in zip(items.paths, items.values, strict=True):
        name = path[0] if len(path) == 1 else ".".join(path)
        try:
            values[name] = float(raw)
        except ValueError:
            if path[-1] == "_type" and len(path) > 1:
                media.append(name.removesuffix("_type"))
            collect_numbers(name, _parsed([raw])[0], values)
    for prefix in media:
        values = {name: value for name, value in values.items() if not name.startswith(prefix)}
    return values


def exit_code(data: bytes, message: Body) -> int:
    """Return the exit code of an exit record; 0 where it names none."""
    codes = [part.value for part in fields(data, message.start, message.end) if part.number == 1]
    return codes[-1] - (codes[-1] >> 63 << 64) if codes else 0  # negative ones are two's complements


def environment(data: bytes, message: Body) -> ConfigChange:
    """Return where the run runs, as the part of the config that W&B's server makes of it.

    Newer clients leave ``_wandb.e`` to the server and write this record instead. Only what tells one
    image from another is read: image, commit, GPUs and versions.
    """
    facts: dict[str, Json] = {}
    writer = ""
    for part in fields(data, message.start, message.end):
        if part.number in _ENVIRONMENT_TEXTS:
            facts[_ENVIRONMENT_TEXTS[part.number]] = part.text(data)
        elif part.number == _GPU_COUNT:
            facts["gpu_count"] = part.value
        elif part.number == _GIT:
            commits = [sub.text(data) for sub in fields(data, part.start, part.end) if sub.number == _COMMIT]
            facts["git"] = {"commit": commits[-1] if commits else ""}
        elif part.number == _WRITER:
            writer = part.text(data)
    return ConfigChange({("_wandb", "e", writer): facts} if facts else {})


def _items(data: bytes, message: Body) -> Items:
    """Return the items of a config or history record, its repeated field 1.

    Nearly all items have one key and a value of less than 128 bytes. They are read in place, ten times
    as fast as field by field; a run can have more than a thousand of them.
    """
    items = Items([], [], [])
    add_path, add_value = items.paths.append, items.values.append
    _, at, end = message
    while at < end:
        if at + 4 < end and data[at] == _ITEM_TAG and data[at + 2] in _KEY_TAGS:
            size = data[at + 1]
            stop = at + 2 + size
            value = at + 4 + data[at + 3]
            if (
                value + 2 < stop <= end
                and size <= ONE_BYTE
                and data[value : value + 2] == _VALUE_TAG
                and data[value + 2] == stop - value - 3
            ):
                add_path(_path(data[at + 4 : value]))
                add_value(data[value + 3 : stop])
                at = stop
                continue
        part = next(fields(data, at, end))
        if part.number == 1:
            items.add(data, part)
        else:
            items.others.append(part)
        at = part.end
    return items


@lru_cache(maxsize=1 << 14)  # the runs of a project have the same few hundred names
def _path(key: bytes) -> tuple[str, ...]:
    return (key.decode(),)


def _parsed(values: list[bytes]) -> list[Json]:
    """Return what the values say; one call of the parser for all is several times as fast."""
    parsed = _parse(b"[" + b",".join(value or b"null" for value in values) + b"]")
    if not isinstance(parsed, list) or len(parsed) != len(values):
        raise WireError("a value is not JSON")
    return parsed


def _parse(raw: bytes) -> Json:
    try:
        value: Json = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise WireError("a value is not JSON") from error
    if raw.count(b"[") + raw.count(b"{") > _DEEPEST and _is_deeper(value, _DEEPEST):
        raise WireError("a value is nested too deeply")
    return value


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


def _moment(data: bytes, part: Field) -> datetime:
    seconds = nanos = 0
    for unit in fields(data, part.start, part.end):
        if unit.number == 1:
            seconds = unit.value
        elif unit.number == 2:  # noqa: PLR2004 - Timestamp.nanos
            nanos = unit.value
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise WireError("a time is out of range") from error
