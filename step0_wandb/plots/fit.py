"""How well the fitted distribution describes the healthy runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.plots import drawing
from step0_wandb.plots.runs import need, plain
from step0_wandb.text.formatting import count

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

HEIGHT_IN = 5.0
WIDTH_IN = 5.6
COVERAGE = 0.99
"""Share of fleets that keep a given point inside the shaded band, if the fit is right."""
FEWEST = 3


@dataclass(frozen=True, slots=True)
class Scores:
    """Standard normal scores of healthy runs, ascending, and the setups they come from.

    Attributes
    ----------
    score : ndarray of float, shape (n_runs,)
    """

    score: NDArray[np.float64]
    setups: int


def plot_fit(
    runs: pd.DataFrame,
    ranges: pd.DataFrame | None = None,
    *,
    setup: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Compare the healthy runs with the fitted distribution in a QQ plot.

    Each member of a setup's range is judged by the other members: its residual, ``ln(gap)`` minus their center
    in units of its own standard error, has a probability under the fitted distribution (Student's t
    with the degrees of freedom of its own range, and the fleet's tails). The plot shows these
    probabilities as standard normal scores, so that setups of different size can stand on one line.

    Points on the diagonal: the stated alpha is true. Outer points beyond the band: the tails are heavier
    than fitted, and there are more false alarms than stated.

    Parameters
    ----------
    runs : DataFrame, one row a run
        Needs ``setup`` and ``gap``, as `fit_ranges` does.
    ranges : DataFrame indexed by setup, optional
        As `fit_ranges` returns it; None fits the runs themselves.
    setup : str, optional
        None shows all setups together, which alone have enough runs to tell.
    ax : Axes, optional
        Where to draw; None makes a figure.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        A column is missing, no run belongs to `setup`, or fewer than three runs can be compared.

    Notes
    -----
    The band holds 99 % of each order statistic of as many independent normal scores: the k-th smallest
    of n uniform values follows a beta distribution with k and n - k + 1 (David and Nagaraja 2003, Order
    Statistics, doi:10.1002/0471722162).
    """
    import numpy as np
    from scipy.special import betaincinv, ndtri

    observed = _scores(runs, ranges, setup)
    n = len(observed.score)
    if n < FEWEST:
        raise UsageError(
            f"only {count(n, 'healthy run')} can be compared with others of the same setup",
            f"A QQ plot needs {FEWEST}; leave out setup=, or wait for more runs.",
        )
    place = np.arange(1, n + 1)
    expected, low, high = (
        ndtri(betaincinv(place, n - place + 1, share))
        for share in (0.5, (1 - COVERAGE) / 2, (1 + COVERAGE) / 2)
    )
    ax = drawing.axes(ax, width_in=WIDTH_IN, height_in=HEIGHT_IN)
    look = drawing.LOOKS["healthy"]
    ax.fill_between(expected, low, high, color=drawing.BAND, lw=0)
    ax.plot(expected, expected, color=drawing.CENTER, ls="--", lw=1.2)
    ax.scatter(expected, observed.score, s=look.size, color=look.color, alpha=0.6, lw=0, zorder=3)
    where = count(observed.setups, "setup") if setup is None else plain(setup, 50)
    ax.set_title(f"{count(n, 'healthy run')} of {where}", loc="left", size=10)
    ax.set_xlabel("expected residual (standard normal score)")
    ax.set_ylabel("residual from the other runs of its setup")
    ax.set_aspect("equal", adjustable="datalim")
    drawing.frame(ax, "both")
    return ax


def _scores(runs: pd.DataFrame, ranges: pd.DataFrame | None, setup: str | None) -> Scores:
    """Return each member's leave-one-out residual as the normal score of its probability."""
    import numpy as np
    from scipy.special import ndtri

    from step0_wandb.ranges import judged_by

    need(runs, "setup", "gap")
    if setup is not None and not (runs["setup"] == setup).any():
        raise UsageError(f"no run belongs to the setup {setup!r}")
    own = judged_by(runs)
    by = own if ranges is None else judged_by(runs, ranges)
    p_value = by["p_value"].to_numpy(dtype=float)
    known = own["member"].to_numpy(dtype=bool) & np.isfinite(p_value)
    if setup is not None:
        known &= (runs["setup"] == setup).to_numpy(dtype=bool)
    side = np.sign(by["ratio"].to_numpy(dtype=float)[known] - 1.0)
    score = np.sort(-side * ndtri(p_value[known] / 2))
    return Scores(score, runs["setup"][known].nunique())
