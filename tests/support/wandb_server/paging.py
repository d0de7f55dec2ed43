"""Relay connections: edges, cursors and page info."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class PageInfo:
    """Where a page lies."""

    has_next_page: bool
    has_previous_page: bool
    start_cursor: str | None
    end_cursor: str | None


@dataclass(frozen=True, slots=True)
class Edge:
    """One item of a page; `version` is asked of artifacts only."""

    node: Any
    cursor: str

    @property
    def version(self) -> str:
        """Return ``v3`` for the fourth version of an artifact."""
        return f"v{self.node.version_index}"


@dataclass(frozen=True, slots=True)
class Connection:
    """One page of a list."""

    total_count: int
    edges: list[Edge]
    page_info: PageInfo

    @property
    def nodes(self) -> list[Any]:
        """Return the page's items."""
        return [edge.node for edge in self.edges]


def encode_cursor(text: object) -> str:
    """Return an opaque cursor."""
    return base64.urlsafe_b64encode(f"cursor:{text}".encode()).decode()


def decode_cursor(cursor: str) -> int:
    """Return the number inside a cursor; raise ValueError for anything else."""
    return int(base64.urlsafe_b64decode(cursor).decode().removeprefix("cursor:"))


def paginate(
    items: Sequence[Any], first: int | None, after: str | None, *, stable: bool = False
) -> Connection:
    """Return the page of `first` items behind the cursor `after`.

    Parameters
    ----------
    stable : bool
        Whether a cursor names the item (its ``serial``) rather than a position. Behind a
        cursor whose item is gone there is nothing.
    """
    start = 0
    if after and stable:
        last = decode_cursor(after)
        start = next((i + 1 for i, item in enumerate(items) if item.serial == last), len(items))
    elif after:
        start = decode_cursor(after)
    page = items[start : start + (50 if first is None else first)]
    edges = [
        Edge(item, encode_cursor(item.serial if stable else index))
        for index, item in enumerate(page, start=start + 1)
    ]
    info = PageInfo(
        has_next_page=start + len(page) < len(items),
        has_previous_page=start > 0,
        start_cursor=edges[0].cursor if edges else None,
        end_cursor=edges[-1].cursor if edges else None,
    )
    return Connection(len(items), edges, info)
