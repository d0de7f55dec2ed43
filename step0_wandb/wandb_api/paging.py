"""Following a list page by page, also one that a server never ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

_STALE_PAGES = 2


class Listing:
    """Knows what a list has shown so far.

    Every page may be a valid answer while the list as a whole has no end: the same cursor again, or
    pages that show nothing new.

    Parameters
    ----------
    what : str
        What is listed, as the beginning of a sentence.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._cursors: set[str] = set()
        self._ids: set[str] = set()
        self._stale = 0

    def next(self, ids: Iterable[str], end: str | None) -> str | None:
        """Note a page with these ids; return `end`, where the next page begins.

        Raises
        ------
        SourceError
            There is a next page, and the cursor came before, or two pages in a row had nothing new.
        """
        before = len(self._ids)
        self._ids.update(ids)
        self._stale = 0 if len(self._ids) > before else self._stale + 1
        if end is None:
            return None
        if end in self._cursors or self._stale == _STALE_PAGES:
            raise SourceError(
                f"{self._what}: the server's list does not end (it repeats itself after {before:,} entries)",
                "A proxy or a mirror may stand between. What was read before is stored.",
            )
        self._cursors.add(end)
        return end
