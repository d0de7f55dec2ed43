"""Protobuf's wire format: the fields of a message, without knowing what they mean.

The W&B client's own classes would have to be imported for it, which takes half a second, and would
decode whole records of which a few fields matter.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, BYTES = 0, 2
"""The wire types that are looked at."""

ONE_BYTE = 0x7F
"""The largest number that takes one byte."""

_FIXED_SIZES = {1: 8, 5: 4}


class WireError(ValueError):
    """Bytes that are no protobuf message, or not one of the known shape."""


class Field(NamedTuple):
    """One field: its number, its value where that is a number, and where its bytes lie."""

    number: int
    value: int
    start: int
    end: int

    def text(self, data: bytes) -> str:
        """Return the field's bytes as text."""
        return data[self.start : self.end].decode()


class Varint(NamedTuple):
    """A number of variable length, and where it ends."""

    value: int
    end: int


def fields(data: bytes, start: int, end: int, *, partial: bool = False) -> Iterator[Field]:
    """Yield the fields of the message in ``data[start:end]``.

    Parameters
    ----------
    partial : bool
        Whether the message may go on behind `end`; a field that does is not given.

    Raises
    ------
    WireError
        If there is no message in these bytes.
    """
    at = start
    while at < end:
        tag = varint(data, at)
        kind = tag.value & 7
        value, first = 0, tag.end
        if kind == BYTES:
            size = varint(data, first)
            first = size.end
            stop = first + size.value
        elif kind == VARINT:
            value, stop = varint(data, first)
        elif kind in _FIXED_SIZES:
            stop = first + _FIXED_SIZES[kind]
            value = int.from_bytes(data[first:stop], "little")
        else:
            raise WireError(f"wire type {kind} is not in use")
        if stop > end:
            if partial:
                return
            raise WireError("a field reaches beyond its message")
        yield Field(tag.value >> 3, value, first, stop)
        at = stop


def varint(data: bytes, start: int) -> Varint:
    """Return the number of variable length that begins at `start`.

    Raises
    ------
    WireError
        If it does not end within ten bytes, or with the data.
    """
    value = shift = 0
    for at, byte in enumerate(data[start : start + 10], start + 1):
        value |= (byte & ONE_BYTE) << shift
        if byte <= ONE_BYTE:
            return Varint(value, at)
        shift += 7
    raise WireError("a number has no end")
