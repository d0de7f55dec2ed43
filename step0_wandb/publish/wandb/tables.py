"""What the sync's own W&B run logs: tables of setups and runs, and counts over time. Plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.publish.html.chart import gravity, standing
from step0_wandb.records import ALIVE, FLAGGED, VERDICTS
from step0_wandb.text.formatting import clean, shorten, web_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.records import JudgedRun, SetupRange

Cell = str | float | int | bool | None

MOST_RUNS = 1000
"""Rows of the table of runs. Every change uploads it again, and 1,000 rows take about 300 KB."""
MOST_SETUPS = 1000
_FORMULA = ("=", "+", "-", "@")
TEXT_LENGTH = 200
"""Of a cell; longer texts are cut in the middle."""

SETUP_COLUMNS = (
    *("setup", "profile", "gap_metric", "n", "center", "low", "high", "seen_low", "seen_high"),
    *("sigma", "basis", "accepted", "note"),
)
RUN_COLUMNS = (
    *("verdict", "label", "run", "name", "url", "user", "group", "created_at", "state", "setup"),
    *("gap", "ratio", "p_value", "ppo_kl", "clip_frac", "reasons"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes
    ----------
    rows : tuple of tuple
        One value a column; texts are harmless, numbers finite or None, times ISO 8601 in UTC.
    left_out : int
        Rows left out for lack of room.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Tables:
    """What the own run logs in one row: tables by name, and counts.

    Attributes
    ----------
    written : str
        The fingerprint of all of it, which the row holds too, so that it can be looked for.
    """

    tables: Mapping[str, Table]
    metrics: Mapping[str, int]
    written: str = ""

    def document(self) -> dict[str, Any]:
        """Return them as plain JSON."""
        tables = {
            name: {"columns": list(table.columns), "rows": [list(row) for row in table.rows]}
            for name, table in self.tables.items()
        }
        left_out = {
            f"left_out/{name}": table.left_out for name, table in self.tables.items() if table.left_out
        }
        return {"tables": tables, "metrics": {**self.metrics, **left_out}}


def setups_table(setups: Sequence[SetupRange]) -> Table:
    """Return one row a setup, by name."""
    ordered = sorted(setups, key=lambda item: item.setup)
    rows = tuple(tuple(_cell(getattr(item, name)) for name in SETUP_COLUMNS) for item in ordered)
    return Table(SETUP_COLUMNS, rows[:MOST_SETUPS], len(rows[MOST_SETUPS:]))


def runs_table(runs: Sequence[JudgedRun]) -> Table:
    """Return one row a run: flagged ones, then those that people spoke of, then the newest."""
    ordered = sorted(runs, key=_order)
    rows = tuple(_run_row(run) for run in ordered[:MOST_RUNS])
    return Table(RUN_COLUMNS, rows, len(ordered[MOST_RUNS:]))


def count_metrics(runs: Sequence[JudgedRun], setups: Sequence[SetupRange]) -> dict[str, int]:
    """Return the counts that are followed over time; every verdict is there, also without runs."""
    stand = [standing(run) for run in runs]
    return {
        **{f"verdicts/{verdict}": stand.count(verdict) for verdict in VERDICTS},
        "verdicts/excluded": stand.count("excluded"),
        "runs/all": len(runs),
        "runs/labeled": sum(run.label is not None for run in runs),
        "runs/broken_and_running": sum(
            word == "broken" and run.state in ALIVE for word, run in zip(stand, runs, strict=True)
        ),
        "setups/all": len(setups),
        "setups/with_range": sum(item.low is not None for item in setups),
    }


def _order(run: JudgedRun) -> tuple[bool, bool, tuple[int, float, str], float, str]:
    flagged = standing(run) in FLAGGED
    age = -run.created_at.timestamp() if run.created_at else math.inf
    return not flagged, run.label is None, gravity(run) if flagged else (0, 0.0, ""), age, run.run


def _run_row(run: JudgedRun) -> tuple[Cell, ...]:
    values = {
        **{name: getattr(run, name) for name in RUN_COLUMNS},
        "url": web_url(run.url),
        "created_at": run.created_at and run.created_at.isoformat(),
        "reasons": "; ".join(run.reasons),
    }
    return tuple(_cell(values[name]) for name in RUN_COLUMNS)


def _cell(value: Cell) -> Cell:
    if isinstance(value, str):
        text = shorten(clean(value), TEXT_LENGTH - 1)
        # A table is exported to spreadsheets, where these would begin a formula.
        return f"'{text}" if text.startswith(_FORMULA) else text
    if isinstance(value, float) and not math.isfinite(value):
        return None  # a column of numbers can hold nothing else
    return value
