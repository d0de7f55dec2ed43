"""The strip chart of judged runs as a PNG picture, for where no page can be shown."""

from __future__ import annotations

from dataclasses import asdict
from io import BytesIO
from typing import TYPE_CHECKING

from step0_wandb.plots.gaps import ROW_HEIGHT_IN, plot_gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.records import JudgedRun, SetupRange

MOST_SETUPS = 30
"""A higher picture is shown too small to be read."""
_WIDTH_IN = 12.0
_DPI = 110


def draw_gaps(runs: Sequence[JudgedRun], setups: Sequence[SetupRange]) -> bytes | None:
    """Draw the runs of each setup over its range, those of the setups with most runs.

    Draws without pyplot, so that nothing of a user's figures or backend is touched.

    Returns
    -------
    bytes or None
        The picture; None where there is nothing to draw.
    """
    import pandas as pd
    from matplotlib.figure import Figure

    amounts: dict[str, int] = {}
    for run in runs:
        if run.setup and run.gap is not None:
            amounts[run.setup] = amounts.get(run.setup, 0) + 1
    shown = sorted(amounts, key=lambda setup: (-amounts[setup], setup))[:MOST_SETUPS]
    if not shown:
        return None
    names = ("run", "name", "setup", "gap", "gap_metric", "verdict", "label", "created_at")
    frame = pd.DataFrame(
        [[getattr(run, name) for name in names] for run in runs if run.setup in shown], columns=names
    )
    ranges = pd.DataFrame([asdict(item) for item in setups if item.setup in shown], columns=_RANGE)
    figure = Figure(figsize=(_WIDTH_IN, 1.4 + ROW_HEIGHT_IN * len(shown)), layout="constrained")
    plot_gaps(frame, ranges.set_index("setup"), ax=figure.subplots())
    picture = BytesIO()
    figure.savefig(picture, dpi=_DPI, format="png")
    return picture.getvalue()


_RANGE = ["setup", "center", "low", "high"]
