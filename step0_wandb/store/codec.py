"""A document as what differs from a template: how 600 config keys take a few hundred bytes.

The configs of two runs hold the same keys, and nearly always the same values. So a document is taken
apart into its leaves, and of these only the ones that differ from a template's are kept. Leaves are the
same when their JSON texts are: ``1`` is neither ``1.0`` nor ``true``, and NaN is NaN.

The stored form is the deflated text of a JSON array, then a zero byte and the changed floats::

    [gaps, values, gaps_of_removed, [[path, value], ...], gaps_of_floats]

A gap is the distance to the leaf before, so that changed leaves that stand side by side cost one
repeated character. Floats are 8 bytes each, little-endian, all first bytes before all second bytes:
metrics that were 32 bits wide in the trainer end in zeros. Where text is shorter, as it is for the
round numbers of a config, floats stand among the values.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from step0_wandb.records import Json

Path: TypeAlias = tuple[str, ...]
"""Where a leaf stands: the keys from the root down."""
Leaves: TypeAlias = "dict[Path, Json]"
"""The values of a document by where they stand."""

DEEPEST = 16
"""Objects below this depth are kept whole, as one leaf."""
_DOUBLE = 8
_WINDOW = -15
"""The widest window, without header and checksum."""
_dumps = json.JSONEncoder(separators=(",", ":")).encode


_ODD = (zlib.error, struct.error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What reading raises where bytes are not as they were written."""


class DamagedError(sqlite3.DatabaseError):
    """A value in the file is not as it was written; told like the damage that SQLite finds by itself."""

    sqlite_errorname = "SQLITE_CORRUPT"


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Have whatever goes wrong inside told as damage of the file, by what was read.

    A flipped bit, or a record of a later program, shows as nearly any error: an unknown field, a date
    beyond the calendar, text in a column of numbers.

    Raises
    ------
    DamagedError
        Something went wrong.
    """
    try:
        yield
    except _ODD as error:
        raise DamagedError(f"{what} cannot be read: {error}") from error


def parsed(text: str | bytes) -> Json:
    """Return what a JSON text of the store says.

    Raises
    ------
    DamagedError
        It is none.
    """
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        raise DamagedError(f"a value is no JSON: {error}") from error
    return value


@dataclass(frozen=True, slots=True)
class Template:
    """The leaves that many documents share, in an order of their own."""

    leaves: Leaves
    paths: tuple[Path, ...] = field(init=False, repr=False)
    position: Mapping[Path, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        paths = tuple(self.leaves)
        object.__setattr__(self, "paths", paths)
        object.__setattr__(self, "position", {path: index for index, path in enumerate(paths)})

    def under(self, keys: Sequence[str]) -> tuple[int, ...]:
        """Return the positions of the leaves that dotted paths lead to, or whose parents they lead to."""
        wanted = tuple(f"{key}." for key in keys)
        return tuple(at for at, path in enumerate(self.paths) if f"{'.'.join(path)}.".startswith(wanted))

    def body(self) -> bytes:
        """Return the template as it is stored."""
        return _deflate(_dumps([[list(path), value] for path, value in self.leaves.items()]).encode("ascii"))

    @classmethod
    def of_body(cls, body: bytes) -> Template:
        """Return the template that `body` stores.

        Raises
        ------
        DamagedError
            It stores none.
        """
        try:
            return cls({tuple(path): value for path, value in json.loads(_inflate(body))})
        except _ODD as error:
            raise DamagedError(f"a template is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class TemplateDelta:
    """What turns a template into a document.

    Attributes
    ----------
    changed : mapping of int to Json
        New values by position in the template, ascending.
    removed : sequence of int
        Positions in the template, ascending.
    added : sequence of [path, value]
        Leaves that the template does not have.
    words : int
        How many differences are more than another number. Numbers are measurements and differ anyway;
        another word, or another key, speaks of another kind of document.
    """

    changed: Mapping[int, Json]
    removed: Sequence[int]
    added: Sequence[Json]
    words: int

    def __len__(self) -> int:
        return len(self.changed) + len(self.removed) + len(self.added)

    def body(self) -> bytes:
        """Return the difference as it is stored; nothing at all where there is none."""
        if not self:
            return b""
        floats = {at: value for at, value in self.changed.items() if isinstance(value, float)}
        return min((self._body(some) for some in ({}, floats)), key=len)

    def _body(self, floats: Mapping[int, float]) -> bytes:
        """Return the stored form with these of the changed leaves in binary."""
        others = {at: value for at, value in self.changed.items() if at not in floats}
        parts = (_gaps(others), list(others.values()), _gaps(self.removed), list(self.added), _gaps(floats))
        return _deflate(_dumps(parts).encode("ascii") + b"\0" + _planes(floats.values()))


def flatten(document: Mapping[str, Json]) -> Leaves:
    """Return the leaves of a document: everything but objects that hold something."""
    leaves: Leaves = {}
    _flatten(document, (), leaves)
    return leaves


def compare(leaves: Leaves, template: Template) -> TemplateDelta:
    """Return what turns `template` into the document with these leaves."""
    common = template.leaves
    changed: dict[int, Json] = {}
    added: list[Json] = []
    words = 0
    for path, value in leaves.items():
        if path not in common:
            added.append([list(path), value])
        elif not _same(value, old := common[path]):
            changed[template.position[path]] = value
            words += not (_is_number(value) and _is_number(old))
    removed: list[int] = []
    if len(leaves) - len(added) < len(common):
        removed = [at for at, path in enumerate(template.paths) if path not in leaves]
    return TemplateDelta(dict(sorted(changed.items())), removed, added, words + len(removed) + len(added))


def restore(body: bytes, template: Template, only: Iterable[int] | None = None) -> dict[str, Json]:
    """Return the document that `body` stores as what differs from `template`.

    The keys come in the template's order. A value that is a list may be shared with other documents of
    the template: it is to be read, not changed.

    Parameters
    ----------
    only : iterable of int, optional
        Positions of the template's leaves that are wanted; what the template lacks is always there.

    Raises
    ------
    DamagedError
        `body` is not as it was written, or belongs to another template.
    """
    try:
        return _restored(body, template, only)
    except _ODD as error:
        raise DamagedError(f"a document is damaged: {error}") from error


def _restored(body: bytes, template: Template, only: Iterable[int] | None) -> dict[str, Json]:
    values = list(template.leaves.values())
    gone: set[int] = set()
    added: list[tuple[list[str], Json]] = []
    if body:
        text, _, planes = _inflate(body).partition(b"\0")
        gaps, changed, removed, added, float_gaps = json.loads(text)
        for at, value in zip(accumulate(gaps), changed, strict=True):
            values[at] = value
        for at, number in zip(accumulate(float_gaps), _of_planes(planes), strict=True):
            values[at] = number
        gone = set(accumulate(removed))
    document: dict[str, Json] = {}
    paths = template.paths
    for at in range(len(paths)) if only is None else only:
        if at not in gone:
            _place(document, paths[at], values[at])
    for names, value in added:
        _place(document, names, value)
    return document


def _flatten(document: Mapping[str, Json], path: Path, leaves: Leaves) -> None:
    for key, value in document.items():
        if isinstance(value, dict) and value and len(path) < DEEPEST:
            _flatten(value, (*path, key), leaves)
        else:
            leaves[(*path, key)] = value


def _place(document: dict[str, Any], path: Sequence[str], value: Json) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value


def _same(value: Json, other: Json) -> bool:
    """Return whether two values have the same JSON text; most need not be written down for that."""
    if value is other:
        return True
    kind = type(value)
    if kind is not type(other):
        return False
    if kind is float:
        return value == other != 0.0 or repr(value) == repr(other)  # a zero has a sign, and NaN is NaN
    return value == other if kind in (str, int, bool) else _dumps(value) == _dumps(other)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _gaps(positions: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise((0, *positions))]


def _planes(values: Iterable[float]) -> bytes:
    doubles = tuple(values)
    packed = struct.pack(f"<{len(doubles)}d", *doubles)
    return b"".join(packed[at::_DOUBLE] for at in range(_DOUBLE))


def _of_planes(planes: bytes) -> tuple[float, ...]:
    count = len(planes) // _DOUBLE
    packed = b"".join(planes[at::count] for at in range(count))
    return struct.unpack(f"<{count}d", packed)


def _deflate(data: bytes) -> bytes:
    return zlib.compress(data, zlib.Z_BEST_COMPRESSION, _WINDOW)


def _inflate(body: bytes) -> bytes:
    return zlib.decompress(body, _WINDOW)
