"""What the charts need from a frame of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.plots.layout import gravity, standing
from step0_wandb.records import FLAGGED
from step0_wandb.text.formatting import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

DRAWN_APART = ("healthy", "no-range", "excluded", "suspect", "broken")
"""The standings that have a mark of their own; all others share one."""
NAME_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Run:
    """One run; NaN where the frame says nothing.

    Attributes
    ----------
    standing : str
        One of `DRAWN_APART`, else ``other``.
    name : str
        Cleaned and shortened; the run's key where it has no name.
    day : float
        When it was created, in matplotlib's days since 1970.
    low, high : float
        The range that it was judged by.
    """

    setup: str
    gap: float
    ratio: float
    standing: str
    name: str
    day: float
    low: float
    high: float
    epoch: float

    @property
    def flagged(self) -> bool:
        """Whether the run is broken or suspect."""
        return self.standing in FLAGGED

    @property
    def gravity(self) -> tuple[int, float, str]:
        """What puts the gravest run first when sorted."""
        return gravity(standing(self.standing, None), self.ratio, self.name)


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """A range; NaN where there is none."""

    low: float
    center: float
    high: float


def read_runs(verdicts: pd.DataFrame) -> list[Run]:
    """Return the runs in time order."""
    import numpy as np
    import pandas as pd
    from matplotlib.dates import date2num

    need(verdicts, "setup", "gap", "verdict")
    frame = verdicts
    if "created_at" in frame:
        moments = pd.to_datetime(frame["created_at"], utc=True).dt.tz_convert(None)
        # As datetime64, of which NaT becomes NaN; one with a time zone would be taken apart as objects.
        days = date2num(moments.to_numpy())  # type: ignore[no-untyped-call] # matplotlib.dates has no types
        frame = frame.assign(day=days).sort_values("day", kind="stable")
    blank = np.full(len(frame), np.nan)
    figures = [
        frame[name].to_numpy(dtype=float, na_value=np.nan).tolist() if name in frame else blank.tolist()
        for name in ("gap", "ratio", "day", "low", "high", "epoch")
    ]
    texts = [
        frame[name].tolist() if name in frame else [None] * len(frame)
        for name in ("setup", "verdict", "label", "name", "run")
    ]
    return [
        Run(
            setup if isinstance(setup, str) else "",
            *(gap, ratio),
            name if (name := standing(verdict, label)) in DRAWN_APART else "other",
            _name(title, run),
            *(day, low, high, epoch),
        )
        for gap, ratio, day, low, high, epoch, setup, verdict, label, title, run in zip(
            *figures, *texts, strict=True
        )
    ]


def _name(*texts: object) -> str:
    names = (plain(text, NAME_LENGTH).strip() for text in texts if isinstance(text, str))
    return next((name for name in names if name), "")


def plain(text: str, limit: int) -> str:
    """Return an untrusted text as matplotlib may draw it."""
    # Between two dollar signs matplotlib reads a formula.
    return shorten(clean(text), limit).replace("$", r"\$")


def read_limits(ranges: pd.DataFrame) -> dict[str, RangeLimits]:
    """Return the range of every setup."""
    need(ranges, "low", "center", "high")
    columns = [ranges[name].astype(float).tolist() for name in ("low", "center", "high")]
    return {
        str(setup): RangeLimits(low, center, high)
        for setup, low, center, high in zip(ranges.index, *columns, strict=True)
    }


def need(frame: pd.DataFrame, *columns: str) -> None:
    """Raise UsageError for columns that a frame lacks."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise UsageError(
            f"the frame has no column {', '.join(missing)}",
            "Give what step0_wandb.judge and step0_wandb.fit_ranges return.",
        )


def chosen_setup(runs: Sequence[Run], setup: str | None) -> str:
    """Return the setup to draw: the one that is named, else the one with most runs."""
    known = sorted({run.setup for run in runs} - {""})
    if setup is None and known:
        amounts = [sum(run.setup == name for run in runs) for name in known]
        return known[amounts.index(max(amounts))]
    if setup is None or setup not in known:
        raise UsageError(f"no run belongs to the setup {setup!r}", f"There are: {'; '.join(known) or 'none'}")
    return setup
