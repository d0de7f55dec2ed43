"""A long log, searched for a few texts about as fast as it can be read.

``bytes.find`` takes 0.4 to 1 s for a gigabyte and one short text; the C library's ``memmem`` takes half
a second for all of them, which is what ``grep`` takes. Where there is none, ``find`` does the same.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHUNK = 1 << 17
"""Bytes read at once; they stay in a processor's own cache while they are searched."""
BACK = 1 << 14
"""Bytes kept before what is searched: where a step begins that is found by a text inside it."""
HEAD = 1 << 20
"""Bytes at the beginning that are kept, to say what log it is when nothing is found."""


class Readable(Protocol):
    """A binary file, or a pipe, that gives what there is without waiting for more."""

    def readinto1(self, buffer: memoryview, /) -> int:
        """Fill the front of `buffer`; return the number of bytes, 0 at the end."""


class Log:
    """A log that is read once, from front to back.

    Parameters
    ----------
    needles : sequence of bytes
        The texts to stop at.

    Attributes
    ----------
    text : bytes
        What is held around the last needle that was found.
    at : int
        Where in `text` it stands.
    head : bytes
        The beginning of the log.
    ended : bool
        Whether the log was read to its end.
    """

    def __init__(self, stream: Readable, needles: Sequence[bytes]) -> None:
        self.text = b""
        self.at = 0
        self.head = b""
        self.ended = False
        self._stream = stream
        self._needles = tuple(needles)
        self._overlap = max(map(len, needles)) - 1
        self._window = bytearray(BACK + CHUNK)
        self._view = memoryview(self._window)
        self._start = BACK
        self._search = _searcher(self._window)

    def find(self, after: int = 0) -> bool:
        """Go on to the next needle at or behind `after` in the text held; return whether there is one."""
        hits = [hit for needle in self._needles if (hit := self.text.find(needle, after)) >= 0]
        if hits:
            self.at = min(hits)
            return True
        self._let_go()
        while size := self._read():
            end = BACK + size
            hit = self._first(max(self._start, BACK - self._overlap), end)
            if hit >= 0:
                self.text, self.at = bytes(self._view[self._start : end]), hit - self._start
                return True
            self._keep(self._view[self._start : end])
        return False

    def more(self) -> bool:
        """Read on and add to the text held; return whether there was more."""
        size = self._read()
        self.text += self._view[BACK : BACK + size]
        return size > 0

    def _read(self) -> int:
        if self.ended:
            return 0
        size = self._stream.readinto1(self._view[BACK:])
        self.ended = not size
        if len(self.head) < HEAD:
            self.head += self._view[BACK : BACK + size]
        return size

    def _first(self, begin: int, end: int) -> int:
        hits = [hit for needle in self._needles if (hit := self._search(needle, begin, end)) >= 0]
        return min(hits, default=-1)

    def _let_go(self) -> None:
        """Hold nothing any more; the end of the text becomes what stands before the next chunk."""
        if self.text:
            self._keep(memoryview(self.text))
            self.text = b""

    def _keep(self, text: memoryview) -> None:
        kept = text[-BACK:]
        self._start = BACK - len(kept)
        self._view[self._start : BACK] = kept


def _searcher(window: bytearray) -> Callable[[bytes, int, int], int]:
    """Return ``find(needle, begin, end)`` for one buffer that stays where it is."""
    try:
        memmem = ctypes.CDLL(None).memmem
    except (OSError, TypeError, AttributeError):
        return window.find
    memmem.restype = ctypes.c_void_p
    memmem.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    address = ctypes.addressof(ctypes.c_char.from_buffer(window))

    def find(needle: bytes, begin: int, end: int) -> int:
        found = memmem(address + begin, end - begin, needle, len(needle))
        return -1 if found is None else found - address

    return find
