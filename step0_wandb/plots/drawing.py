"""How the charts look: marks, axes and legend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from step0_wandb.plots.layout import DRAWABLE, log_ticks
from step0_wandb.plots.runs import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from step0_wandb.plots.runs import Run

BAND, CENTER, INK, SOFT, GRID = "#d6e6f4", "#6c9cc6", "#1b1f24", "#59636e", "#dfe3e8"
WIDTH_IN = 10.0
SMALL_PT = 8.0
LEAST_SPAN = 4.0
"""Smallest ratio of the two ends of an axis: less would blow noise up to the height of a failure."""
TICKS_AT_MOST = 8


@dataclass(frozen=True, slots=True)
class Look:
    """How runs of one verdict are drawn: `size` in square points, `glyph` in front of a name."""

    marker: str
    color: str
    size: float
    glyph: str = ""
    hollow: bool = False


LOOKS: Mapping[str, Look] = {
    "healthy": Look("o", "#2b6ea6", 24),
    "no-range": Look("o", "#2b6ea6", 26, hollow=True),
    "other": Look("s", "#6b7580", 26, hollow=True),
    "excluded": Look("X", "#6b7580", 36),
    "suspect": Look("^", "#a85f00", 48, "▲"),
    "broken": Look("D", "#c2261c", 40, "◆"),
}
"""By standing, in the order of the legend and of drawing."""


def axes(ax: Axes | None, *, height_in: float, width_in: float = WIDTH_IN) -> Axes:
    """Return `ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width_in, height_in), layout="constrained")[1]


def log_axis(ax: Axes, which: Literal["x", "y"], values: Iterable[float]) -> None:
    """Scale an axis to all positive values, with plain figures at its ticks."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    smallest, largest = DRAWABLE
    positive = [value for value in values if smallest < value < largest] or [0.01]
    low, high = min(positive), max(positive)
    margin = max((high / low) ** 0.1, (LEAST_SPAN * low / high) ** 0.5)
    ends = low / margin, high * margin
    ax.set(**{f"{which}scale": "log", f"{which}lim": ends})
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(FixedLocator(log_ticks(*ends, most=TICKS_AT_MOST)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def on_axis(runs: Iterable[Run], ends: Sequence[float]) -> list[float]:
    """Return the gaps, with what no log axis can hold moved to its ends."""
    low, high = ends
    return [min(max(run.gap, low), high) if math.isfinite(run.gap) else high for run in runs]


def scatter(ax: Axes, runs: Sequence[Run], x: Sequence[float], y: Sequence[float]) -> None:
    """Draw every run in the look of its verdict, the gravest on top."""
    for above, (name, look) in enumerate(LOOKS.items(), start=3):
        chosen = [place for place, run in enumerate(runs) if run.standing == name]
        if chosen:
            ax.scatter(
                [x[place] for place in chosen],
                [y[place] for place in chosen],
                s=look.size,
                marker=look.marker,
                facecolors="white" if look.hollow else look.color,
                edgecolors=look.color if look.hollow else "white",
                linewidths=1.4 if look.hollow else 0.6,
                zorder=above,
                clip_on=False,
                label=name,
            )


def gap_label(runs: pd.DataFrame) -> str:
    """Name the gap metric where all runs share one."""
    metrics = runs["gap_metric"].dropna().unique().tolist() if "gap_metric" in runs else []
    return f"gap at step 0\n{plain(metrics[0], 60)}" if len(metrics) == 1 else "gap at step 0"


def frame(ax: Axes, grid: Literal["x", "y", "both"]) -> None:
    """Leave of the frame what helps reading."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(visible=True, axis=grid, color=GRID, lw=0.7)
    ax.set_axisbelow(True)


def finish(ax: Axes, which: Literal["x", "y"], runs: Sequence[Run]) -> None:
    """Label the ends of the gap's axis where anything stands there, and add the legend."""
    finite = [math.isfinite(run.gap) for run in runs]
    zero = any(known and run.gap <= 0 for run, known in zip(runs, finite, strict=True))
    for end, text, there in ((0, "0", zero), (1, "nan, inf", not all(finite))):
        x, y, ha, va = (end, 1.01, "center", "bottom") if which == "x" else (1.01, end, "left", "center")
        if there:
            ax.text(x, y, text, transform=ax.transAxes, ha=ha, va=va, size=SMALL_PT, color=SOFT)
    frame(ax, which)
    if runs:
        ax.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1.04),
            ncols=len(LOOKS),
            frameon=False,
            fontsize=SMALL_PT,
            borderaxespad=0,
            handletextpad=0.1,
            columnspacing=1.2,
        )
