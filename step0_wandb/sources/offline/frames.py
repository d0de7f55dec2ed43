"""The framing of a ``.wandb`` file: LevelDB's log format with W&B's own header and checksum.

A file begins with seven bytes (``:W&B``, the magic number 0xBEE1, version 0) and is cut into blocks of
32 KiB, these seven bytes included. A record is one FULL frame, or FIRST, MIDDLE ... LAST frames. A frame
is four bytes of checksum, two of length, one of type, all little-endian, and the data; it never crosses
the end of a block, and an end too short for a frame header is padding. The checksum is the plain CRC-32
of type byte and data, not LevelDB's masked CRC-32C.

Source of the format: https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zlib import crc32

from step0_wandb.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    ReadAt: TypeAlias = Callable[[int, int], bytes]

BLOCK = 32 * 1024
FILE_HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
START = len(FILE_HEADER)
"""Where the first record of a file starts."""

LONGEST_RECORD = 64 * 1024 * 1024
"""In bytes; a record that claims more is taken for damage, so that it cannot fill the memory."""

FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_PIECE = 1024 * 1024
_SEARCHES = 8  # of one reader: a file of nothing but damage is not worth more
_LONGEST_SEARCH = 2 * 1024 * 1024  # bytes of checksums to compute
_FRAME_HEADER = struct.Struct("<IHB")
_OVERHEAD = _FRAME_HEADER.size
_KINDS = re.compile(b"[\\x01-\\x04]")
_SEEDS = tuple(crc32(bytes([kind])) for kind in range(LAST + 1))


class Record(NamedTuple):
    """One whole record and the byte where it starts.

    A named tuple like the two below: one is made for every record of a file, at half the cost of a
    frozen dataclass.
    """

    offset: int
    data: bytes


class Damage(NamedTuple):
    """A stretch of the file that cannot be read: where, up to where it was skipped, and why."""

    offset: int
    end: int
    what: str


class Frame(NamedTuple):
    """One sound frame: a record or a piece of one."""

    offset: int
    end: int
    kind: int
    data: bytes


def begins_well(head: bytes) -> bool:
    """Return whether `head` begins with a file header; False where the file ends inside it.

    Raises
    ------
    SourceError
        If these are not the first bytes of a ``.wandb`` file that this version can read.
    """
    head = head[:START]
    if head == FILE_HEADER:
        return True
    if FILE_HEADER.startswith(head):
        return False
    if head[:-1] == FILE_HEADER[:-1]:
        raise SourceError(
            f"version {head[-1]} of the .wandb format, of which only version 0 is known",
            "A newer step0-wandb may read it.",
        )
    raise SourceError(
        "not a .wandb file: it does not begin with ':W&B'",
        "Name a W&B run directory, or the run-ID.wandb file in one.",
    )


class LogReader:
    """Reads the records of one file from a place on, past whatever is damaged.

    A file that ends inside a record was killed or is still being written; so was one that ends in
    zeros. Neither is damage: reading stops in front of it, and may go on there when the file has grown.

    Parameters
    ----------
    read : callable
        ``read(offset, size)`` returns that part of the file, shorter at its end.
    size : int
        Bytes of the file to look at.
    offset : int
        The start of a record, or of a block with ``midway``.
    midway : bool
        Whether `offset` may lie inside a record, whose rest is then passed over in silence.

    Attributes
    ----------
    offset : int
        Where the first record that was not given yet starts.
    """

    __slots__ = ("_midway", "_not_zero", "_read", "_searches", "_size", "offset")

    def __init__(self, read: ReadAt, size: int, *, offset: int = START, midway: bool = False) -> None:
        self._read = read
        self._size = size
        self._midway = midway
        self._searches = _SEARCHES
        self._not_zero = 0  # a place that is known not to be zero, the last one that was found
        self.offset = offset

    def records(self) -> Iterator[Record | Damage]:
        """Yield whole records, and damage where there is some, in the order of the file."""
        pieces: list[bytes] = []
        start = self.offset
        for frame in self.frames():
            if isinstance(frame, Damage):
                pieces = []
                self._midway = True
                self.offset = frame.end
                yield frame
                continue
            offset, end, kind, data = frame
            if kind in (FULL, FIRST):
                if pieces:
                    yield Damage(start, offset, "it has no end")
                self._midway = False
                self.offset = end if kind == FULL else offset
                pieces, start = [data] if kind == FIRST else [], offset
                if kind == FULL:
                    yield Record(offset, data)
            elif pieces and end - start <= LONGEST_RECORD:
                pieces.append(data)
                if kind == LAST:
                    self.offset = end
                    yield Record(start, b"".join(pieces))
                    pieces = []
            else:
                self.offset = end
                if not self._midway:
                    self._midway = True
                    what = "it is too long" if pieces else "it has no beginning"
                    yield Damage(start if pieces else offset, end, what)
                pieces = []

    def frames(self) -> Iterator[Frame | Damage]:
        """Yield single frames, and damage where there is some, from `offset` on."""
        base = self.offset
        while base < self._size:
            room = BLOCK - base % BLOCK
            block = self._read(base, min(room, self._size - base))
            at, end = 0, len(block)
            while room - at >= _OVERHEAD:
                if end - at < _OVERHEAD:
                    return
                checksum, length, kind = _FRAME_HEADER.unpack_from(block, at)
                stop = at + _OVERHEAD + length
                is_possible = FULL <= kind <= LAST and stop <= room
                if is_possible and stop <= end:
                    data = block[at + _OVERHEAD : stop]
                    if crc32(data, _SEEDS[kind]) == checksum:
                        yield Frame(base + at, base + stop, kind, data)
                        at = stop
                        continue
                resume = self._resume(block, at, base)
                if resume is None:
                    return
                what = "its checksum is wrong" if is_possible else "its length or type cannot be right"
                yield Damage(base + at, base + resume, what)
                at = resume
            base += room

    def _resume(self, block: bytes, at: int, base: int) -> int | None:
        """Return where reading goes on behind a bad frame; None if the file just ends here.

        That is the next frame with a right checksum in the block, or else the next block.
        """
        room = BLOCK - base % BLOCK
        stop = _stop(block, at, room)
        if stop and stop <= len(block) and _is_sound(block, stop, room):
            return stop
        if found := self._next_sound(block, at):
            return found
        if stop > len(block) or (not any(block[at : at + _OVERHEAD]) and self._only_zeros(base + at)):
            return None
        is_cut = stop and (len(block) - stop < _OVERHEAD or _stop(block, stop, room) > len(block))
        return stop if is_cut else room

    def _next_sound(self, block: bytes, at: int) -> int:
        """Return where the next frame stands in the rest of a block, by its checksum; 0 if nowhere."""
        if self._searches == 0:
            return 0
        self._searches -= 1
        effort = _LONGEST_SEARCH
        for match in _KINDS.finditer(block, at + _OVERHEAD):
            start = match.start() - _OVERHEAD + 1
            checksum, length, kind = _FRAME_HEADER.unpack_from(block, start)
            data = block[start + _OVERHEAD : start + _OVERHEAD + length]
            if len(data) == length and crc32(data, _SEEDS[kind]) == checksum:
                return start
            effort -= len(data)
            if effort < 0:
                break
        return 0

    def _only_zeros(self, offset: int) -> bool:
        """Return whether nothing but zeros follows, as after a power cut or on a slow network disk."""
        if offset <= self._not_zero:
            return False
        while offset < self._size and (piece := self._read(offset, min(_PIECE, self._size - offset))):
            if zeros := piece.lstrip(b"\0"):
                self._not_zero = offset + len(piece) - len(zeros)
                return False
            offset += len(piece)
        return True


def _stop(block: bytes, at: int, room: int) -> int:
    """Return where the frame at a place ends by its header; 0 if no frame can have that header."""
    _, length, kind = _FRAME_HEADER.unpack_from(block, at)
    stop = at + _OVERHEAD + length
    return stop if FULL <= kind <= LAST and stop <= room else 0


def _is_sound(block: bytes, at: int, room: int) -> bool:
    """Return whether a frame with a right checksum, or the end of the block or file, is at a place."""
    if room - at < _OVERHEAD or at == len(block):
        return True
    if len(block) - at < _OVERHEAD or not 0 < _stop(block, at, room) <= len(block):
        return False
    checksum, length, kind = _FRAME_HEADER.unpack_from(block, at)
    return crc32(block[at + _OVERHEAD : at + _OVERHEAD + length], _SEEDS[kind]) == int(checksum)
