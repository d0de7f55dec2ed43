"""The first rows of a history, whatever they hold: what a framework without a profile logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.step0.finder import Step0Finder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.records import HistoryRow, Json

MOST_ROWS = 64
"""Rows; the metrics of a framework have all been logged by then."""


@dataclass(frozen=True)
class EveryRow(Step0Finder):
    """Takes every row of a history, up to `MOST_ROWS`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "keys", frozenset({""}))  # which every record of a file holds

    def wants(self, values: Mapping[str, float]) -> bool:
        """Return whether a row has anything in it."""
        return bool(values)

    def has_metrics(self, rows: Iterable[HistoryRow]) -> bool:
        """Return whether any row has anything in it."""
        return any(row.values for row in rows)

    def by_policy(self, rows: Iterable[HistoryRow]) -> dict[str, list[HistoryRow]]:  # noqa: ARG002 - as the base
        """Return nothing: rows stay as they were logged."""
        return {}

    def decided(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> bool:  # noqa: ARG002 - as the base
        """Return whether enough rows are there."""
        return len(rows) >= MOST_ROWS

    def prune(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> tuple[HistoryRow, ...]:  # noqa: ARG002 - as the base
        """Return the first rows."""
        return tuple(sorted(rows, key=lambda row: row.order)[:MOST_ROWS])
