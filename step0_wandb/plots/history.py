"""The chart of one setup over time."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from step0_wandb.plots import drawing
from step0_wandb.plots.runs import chosen_setup, need, plain, read_limits, read_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from step0_wandb.plots.runs import Run

NAMED_OVER_TIME = 8
HEIGHT_IN = 4.4


def plot_history(
    verdicts: pd.DataFrame,
    ranges: pd.DataFrame | None = None,
    *,
    setup: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the gaps of one setup over time, with the range that each run was judged by.

    Parameters
    ----------
    verdicts : DataFrame, one row a run
        As `judge` returns it; needs ``setup, gap, verdict, created_at`` and uses ``low, high`` (the range
        as it was judged), ``epoch``, ``run``, ``name`` and ``label``.
    ranges : DataFrame indexed by setup, optional
        Adds the range that the next run will be judged by, as lines.
    setup : str, optional
        None takes the setup with most runs.
    ax : Axes, optional
        Where to draw; None makes a figure.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        A column is missing, or no run belongs to `setup`.
    """
    need(verdicts, "created_at")
    every = read_runs(verdicts)
    setup = chosen_setup(every, setup)
    runs = [run for run in every if run.setup == setup and not math.isnan(run.day)]
    ax = drawing.axes(ax, height_in=HEIGHT_IN)
    drawing.log_axis(ax, "y", [value for run in runs for value in (run.gap, run.low, run.high)])
    days = [run.day for run in runs]
    ax.fill_between(
        days, [run.low for run in runs], [run.high for run in runs], step="mid", color=drawing.BAND, lw=0
    )
    limits = None if ranges is None else read_limits(ranges).get(setup)
    if limits is not None:
        ax.axhline(limits.center, color=drawing.CENTER, ls="--", lw=1)
        ax.axhline(limits.low, color=drawing.CENTER, ls=":", lw=1)
        ax.axhline(limits.high, color=drawing.CENTER, ls=":", lw=1)
    _mark_epochs(ax, runs)
    heights = drawing.on_axis(runs, ax.get_ylim())
    drawing.scatter(ax, runs, days, heights)
    _date_axis(ax)
    _name_flagged(ax, runs, heights)
    ax.set_title(plain(setup, 70), loc="left", size=10)
    ax.set_ylabel(drawing.gap_label(verdicts))
    drawing.finish(ax, "y", runs)
    return ax


def _date_axis(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator()  # type: ignore[no-untyped-call] # matplotlib.dates has no types
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _name_flagged(ax: Axes, runs: Sequence[Run], heights: Sequence[float]) -> None:
    """Name the gravest flagged runs next to their marks, on the side that has room."""
    from matplotlib.patheffects import withStroke

    flagged = [place for place, run in enumerate(runs) if run.flagged]
    gravest = sorted(flagged, key=lambda place: runs[place].gravity)[:NAMED_OVER_TIME]
    halo = [withStroke(linewidth=2.5, foreground="white")]
    middle = sum(ax.get_xlim()) / 2
    for turn, place in enumerate(sorted(gravest)):
        late = runs[place].day > middle
        ax.annotate(
            runs[place].name,
            (runs[place].day, heights[place]),
            # Neighbours are named above and below in turn, but never below the axis.
            xytext=(-7 if late else 7, 7 if turn % 2 or runs[place].gap <= 0 else -7),
            textcoords="offset points",
            ha="right" if late else "left",
            va="center",
            size=drawing.SMALL_PT,
            color=drawing.INK,
            path_effects=halo,
        )


def _mark_epochs(ax: Axes, runs: Sequence[Run]) -> None:
    """Draw a line before the first run of every epoch but the first, where the frame knows epochs."""
    known = [run for run in runs if not math.isnan(run.epoch)]
    for before, run in pairwise(known):
        if run.epoch != before.epoch:
            start = (before.day + run.day) / 2
            ax.axvline(start, color=drawing.SOFT, lw=1, ls=":")
            text = f" epoch {run.epoch:g}"
            ax.text(
                start,
                0.98,
                text,
                transform=ax.get_xaxis_transform(),
                va="top",
                size=drawing.SMALL_PT,
                color=drawing.SOFT,
            )
