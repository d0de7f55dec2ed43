"""Members, priors and tails of a whole fleet, found together.

Who is a member depends on how far out a run may lie, and that on who is a member; both are found in
turns until neither changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from step0_wandb.ranges.cells import moments_of
from step0_wandb.ranges.prior import prior_of
from step0_wandb.ranges.screen import SCREEN_ALPHA, lowest_window, settle
from step0_wandb.ranges.spread import Spread
from step0_wandb.ranges.tails import NORMAL, fit_tail, residuals_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.ranges.cells import Bools, Ints, Moments
    from step0_wandb.ranges.prior import Prior
    from step0_wandb.ranges.screen import Rows
    from step0_wandb.ranges.spread import Tail

TURNS: Final = 4
"""More change who is a member of hardly any cell."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The members of every cell, and what a group of cells shares.

    Attributes
    ----------
    rows : Rows
    members : ndarray of bool, shape (rows,)
    whole : Moments
        Of the members of each cell.
    spread : Spread
        One entry a group.
    """

    rows: Rows
    members: Bools
    whole: Moments
    spread: Spread


def screen_fleet(rows: Rows, groups: int) -> Fleet:
    """Find the members of every cell and the prior and tail of each of `groups` gap metrics."""
    members, tails = lowest_window(rows), [NORMAL] * groups
    for turn in range(TURNS):
        priors, before = priors_of(rows, members, groups), tails
        if turn:
            tails = fit_tails(rows, members, Spread.of(priors, tails, SCREEN_ALPHA))
        settled = settle(rows, members, Spread.of(priors, tails, SCREEN_ALPHA))
        same = np.array_equal(settled, members) and tails == before
        members = settled
        if turn and same:
            break
    spread = Spread.of(priors_of(rows, members, groups), tails, SCREEN_ALPHA)
    return Fleet(rows, members, moments_of(rows.y, members, rows.cells), spread)


def priors_of(rows: Rows, members: Bools, groups: int) -> list[Prior]:
    """Estimate the prior of each group from the variances of its cells' members."""
    whole = moments_of(rows.y, members, rows.cells)
    d = whole.n - 1
    variance = whole.ss / np.maximum(d, 1)
    return [prior_of(variance[cells], d[cells]) for cells in by_group(rows.group, groups)]


def by_group(group: Ints, groups: int) -> Sequence[Ints]:
    """Return the indices of each group."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.searchsorted(group[order], np.arange(1, groups)))


def fit_tails(rows: Rows, members: Bools, spread: Spread) -> list[Tail]:
    """Fit the tail of each group to the residuals of its members."""
    found = residuals_of(rows, members, spread)
    # Runs that are members by their label alone may lie where the likelihood knows of no run.
    found = found.take(np.abs(found.value) <= found.limit)
    return [fit_tail(found.take(part)) for part in by_group(found.group, spread.df.size)]
