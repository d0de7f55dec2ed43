"""The strip chart of all setups."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from step0_wandb.plots import drawing
from step0_wandb.plots.runs import plain, read_limits, read_runs
from step0_wandb.text.formatting import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from step0_wandb.plots.runs import RangeLimits, Run

ROW_HEIGHT_IN = 0.62
STRIP = 0.36
"""Half the height of a setup's strip; the strips are 1 apart."""
NAMED_PER_SETUP = 4


def plot_gaps(
    verdicts: pd.DataFrame, ranges: pd.DataFrame, *, observable: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the runs of every setup as a strip over the setup's range, gaps on a log axis.

    Within a strip the oldest run is on top. Flagged runs are marked, and named to the right. A gap that
    no log axis can hold stands at its end: zero to the left, NaN and infinities to the right.

    Parameters
    ----------
    verdicts : DataFrame, one row a run
        As `judge` returns it; needs ``setup, gap, verdict`` and uses ``run, name, label, created_at``.
    ranges : DataFrame indexed by setup
        As `fit_ranges` returns it; needs ``center, low, high``.
    observable : str, optional
        Another number in the place of the gap, such as ``entropy``, with its own ranges, which are fitted
        from `verdicts`; where the prompts count, a strip is a setup on certain prompts.
    ax : Axes, optional
        Where to draw; None makes a figure that grows with the number of setups.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        A column is missing, or no run has such an observable.
    """
    title = drawing.gap_label(verdicts)
    if observable is not None:
        verdicts, ranges, title = _of_observable(verdicts, observable)
    limits = read_limits(ranges)
    runs = [run for run in read_runs(verdicts) if run.setup and (not math.isnan(run.gap) or run.flagged)]
    runs.sort(key=lambda run: run.setup)
    strips = {setup: list(members) for setup, members in groupby(runs, key=lambda run: run.setup)}
    bands = [(row, limits[setup]) for row, setup in enumerate(strips) if setup in limits]
    ax = drawing.axes(ax, height_in=1.4 + ROW_HEIGHT_IN * max(len(strips), 1))
    drawing.log_axis(
        ax, "x", [run.gap for run in runs] + [end for _, band in bands for end in (band.low, band.high)]
    )
    ax.set_ylim(len(strips) - 0.4, -0.6)
    for row, band in bands:
        _band(ax, band, row)
    heights = []
    for row, members in enumerate(strips.values()):
        heights += _spread(row, len(members))
        _list_flagged(ax, [run for run in members if run.flagged], row)
    drawing.scatter(ax, runs, drawing.on_axis(runs, ax.get_xlim()), heights)
    ax.set_yticks(range(len(strips)), [plain(setup, 60) for setup in strips])
    ax.set_xlabel(title)
    drawing.finish(ax, "x", runs)
    return ax


def _of_observable(verdicts: pd.DataFrame, observable: str) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return runs and ranges with an observable in the place of the gap, and what it is called."""
    from step0_wandb.verdicts.observable_ranges import observable_ranges, placed

    table = observable_ranges(verdicts, observable).set_index("setup")
    runs, title = placed(verdicts, str(table["observable"].iloc[0]))
    return runs, table, f"{title} at step 0"


def _spread(row: int, amount: int) -> list[float]:
    """Return heights within a strip, the first on top; a lone run stands in the middle."""
    step = 1.5 * STRIP / max(amount - 1, 1)
    return [row + step * (place - (amount - 1) / 2) for place in range(amount)]


def _band(ax: Axes, limits: RangeLimits, row: int) -> None:
    heights = [row - STRIP, row + STRIP]
    if limits.high > 0:
        low = limits.low if limits.low > 0 else ax.get_xlim()[0]
        ax.fill_betweenx(heights, low, limits.high, color=drawing.BAND, lw=0, zorder=1)
    if limits.center > 0:
        ax.plot([limits.center, limits.center], heights, color=drawing.CENTER, lw=1.2, ls="--", zorder=2)


def _list_flagged(ax: Axes, flagged: Sequence[Run], row: int) -> None:
    """Name a strip's flagged runs to its right, in as many lines as it has room for."""
    gravest = sorted(flagged, key=lambda run: run.gravity)
    room = NAMED_PER_SETUP if len(gravest) <= NAMED_PER_SETUP else NAMED_PER_SETUP - 1
    lines = [
        (f"{drawing.LOOKS[run.standing].glyph} {run.name}  {number(run.gap)}", run.standing)
        for run in gravest[:room]
    ]
    if gravest[room:]:
        lines.append((f"and {len(gravest) - room} more", "other"))
    step = 2 * STRIP / NAMED_PER_SETUP
    for place, (line, standing) in enumerate(lines):
        ax.text(
            1.035,
            row + step * (place - (len(lines) - 1) / 2),
            line,
            transform=ax.get_yaxis_transform(),
            va="center",
            size=drawing.SMALL_PT,
            color=drawing.LOOKS[standing].color,
        )
