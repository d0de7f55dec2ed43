"""Which runs of a dirty history are healthy: the members of each cell, and what a fleet shares.

The start is the lowest window that holds enough runs, because broken gaps are larger; from there on
each run is judged by the range of the others until nothing changes. How far out a run may lie follows
from who is a member, and the other way round: both are found in turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from step0_wandb.ranges.cells import ROUNDING, moments_of, runs_of, sorted_order, take, without_itself
from step0_wandb.ranges.prior import DEFAULT_SPREAD
from step0_wandb.ranges.prompts import sharing
from step0_wandb.ranges.spread import Spread
from step0_wandb.ranges.tails import fit_tail, residuals_of
from step0_wandb.records import ALPHA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.ranges.cells import Bools, Cells, Floats, Ints, Moments
    from step0_wandb.ranges.prior import Prior
    from step0_wandb.ranges.prompts import Sharing
    from step0_wandb.ranges.spread import Tail
    from step0_wandb.ranges.taught import Taught

SCREEN_ALPHA: Final = ALPHA
"""Membership does not depend on the alpha of a range: asking for a narrower range must not shrink
the history that it is estimated from."""

WINDOW: Final = 4 * DEFAULT_SPREAD + ROUNDING
"""Healthy runs of one setup lie this close, in ln(gap). A window of ln 1.4 was tried: two retries of a
launch that is broken by a quarter then acquit each other."""
CENTRAL, MEDIAN_TO_SD = 3.0, 1.4826
"""Standard deviations of normal runs, and what the median distance from the median is of one."""
MOST_ROUNDS: Final = 50


@dataclass(frozen=True, slots=True)
class Rows:
    """The runs that may be members, in cells, sorted by value within each.

    Attributes
    ----------
    index : ndarray of int, shape (rows,)
        Where the run is in the history.
    y : ndarray of float, shape (rows,)
        ln(gap), finite.
    healthy : ndarray of bool, shape (rows,)
        Labeled healthy by a person: always members.
    settled : ndarray of bool, shape (rows,)
        Healthy when they came, so that a later run cannot outvote them: where a cell has such runs,
        they are what the search for members starts from.
    cells : Cells
    group : ndarray of int, shape (cells,)
        The gap metric of each cell.
    prompt_set : ndarray of int, shape (rows,)
    between : ndarray of float, shape (rows,)
        See `history.History`.
    """

    index: Ints
    y: Floats
    healthy: Bools
    settled: Bools
    cells: Cells
    group: Ints
    prompt_set: Ints
    between: Floats

    def sharing(self, members: Bools) -> Sharing | None:
        """Return what each row shares with the members of its cell."""
        if not self.between.any():
            return None
        cell = self.cells.spread_ints(np.arange(self.cells.counts.size))
        return sharing(self.prompt_set, self.between, members, cell)

    def only(self, chosen: Ints, row: Ints) -> Rows:
        """Return the chosen cells; `row` holds their rows."""
        return Rows(
            self.index[row],
            self.y[row],
            self.healthy[row],
            self.settled[row],
            self.cells.only(chosen),
            self.group[chosen],
            self.prompt_set[row],
            self.between[row],
        )


def lowest_window(rows: Rows) -> Bools:
    """Return the members to start from.

    They are the runs in the lowest window that holds a third of the cell's runs (and no fewer than
    were labeled healthy) or a run labeled healthy, and all that were labeled. Where no window holds as
    many, the lowest run starts alone. Where runs were healthy when they came, a third of those counts.
    """
    y, cells = rows.y, rows.cells
    labeled = cells.total(rows.healthy)
    voters = rows.settled | (cells.spread(cells.total(rows.settled)) == 0) | (cells.spread(labeled) > 0)
    voter = np.flatnonzero(voters)
    votes = cells.total(voters).astype(np.int64)
    first_vote = np.cumsum(votes) - votes
    needed = np.maximum(-(-votes // 3), labeled.astype(np.int64))
    of = cells.spread_ints(np.arange(cells.counts.size))[voter]
    at = np.arange(voter.size)
    enough = _within_window(y[voter], at + needed[of] - 1, (first_vote + votes)[of])
    next_labeled = np.minimum.accumulate(np.where(rows.healthy[voter], at, voter.size)[::-1])[::-1]
    enough |= _within_window(y[voter], next_labeled, (first_vote + votes)[of])
    starts = np.full(y.size, np.inf)
    starts[voter[enough]] = voter[enough]
    first = cells.smallest(starts)
    lowest = voter[np.minimum(first_vote, max(voter.size - 1, 0))] if voter.size else cells.starts
    first = np.where(np.isfinite(first), first, lowest).astype(np.int64)
    distance = y - cells.spread(y[first])
    return (distance >= 0) & (distance <= WINDOW) | rows.healthy


def near_median(rows: Rows) -> Bools:
    """Return the members to start from where broken runs may lie on either side: those about the median."""
    away, typical = about_median(rows.y, rows.cells)
    reach = np.maximum(CENTRAL * MEDIAN_TO_SD * typical, WINDOW)
    return (away <= rows.cells.spread(reach)) | rows.healthy


def about_median(y: Floats, cells: Cells) -> tuple[Floats, Floats]:
    """Return the distance of each row from its cell's median, and the median distance of each cell.

    Parameters
    ----------
    y : ndarray of float, shape (rows,)
        Ascending within each cell.
    """
    if not y.size:
        return np.zeros(0), np.zeros(0)
    away = np.abs(y - cells.spread(y[cells.starts + (cells.counts - 1) // 2]))
    order = sorted_order(cells.spread_ints(np.arange(cells.counts.size)), away)
    return away, away[order][cells.starts + cells.counts // 2]


def _within_window(y: Floats, last: Ints, end: Ints) -> Bools:
    """Whether row `last` is of the same cell as each row and no further away than the window."""
    near: Bools = y[np.minimum(last, y.size - 1)] - y <= WINDOW
    return near & (last < end)


def settle(rows: Rows, members: Bools, spread: Spread) -> Bools:
    """Judge every run by the range of the others, again and again, until the members stay.

    A member that is alone has no range to be judged by, and stays. Where all members would go (two
    runs, each outside the range of the other), the lowest stays.
    """
    members = members.copy()
    active = np.arange(rows.cells.counts.size)
    for _ in range(MOST_ROUNDS):
        row = runs_of(rows.cells.starts[active], rows.cells.counts[active])
        part, before = rows.only(active, row), members[row]
        after = _inside(part, before, spread)
        members[row] = after
        active = active[part.cells.total(before != after) > 0]
        if not active.size:
            return members
    # A cell that goes to and fro keeps the runs that belong in both of its states, if there are any.
    both = before & after
    none = part.cells.spread(part.cells.total(both)) == 0
    members[row] = both | (after & none)
    return members


def _inside(rows: Rows, members: Bools, spread: Spread) -> Bools:
    """Whether each run lies in the range of the cell's other members."""
    whole = rows.cells.spread_moments(moments_of(rows.y, members, rows.cells))
    others = without_itself(rows.y, members, whole)
    alone = others.n == 0
    others = others.where_some()
    group = rows.cells.spread_ints(rows.group)
    scale = spread.widened(spread.scale(others, group), group, rows.sharing(members))
    half = spread.half_width(scale, group)
    inside: Bools = (np.abs(rows.y - others.mean) <= half) | alone | rows.healthy
    kept = rows.cells.total(members & inside) > 0
    if not kept.all():
        lowest = rows.cells.smallest(np.where(members, np.arange(members.size), np.inf))
        inside[lowest[~kept].astype(np.int64)] = True
    return inside


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


def screen_fleet(
    rows: Rows, taught: Sequence[Taught], *, known: bool = False, either_side: bool = False
) -> Fleet:
    """Find the members of every cell and the prior and tail of each gap metric.

    Parameters
    ----------
    taught : sequence of Taught
        What is known of each gap metric.
    known : bool
        Whether that was learned from other runs, so that the tails stay.
    either_side : bool
        Whether broken runs may lie lower as well as higher than healthy ones.
    """
    members, tails = near_median(rows) if either_side else lowest_window(rows), [one.tail for one in taught]
    for turn in range(TURNS):
        priors, before = priors_of(rows, members, taught), tails
        if turn and not known:
            tails = fit_tails(rows, members, Spread.of(priors, tails, SCREEN_ALPHA))
        settled = settle(rows, members, Spread.of(priors, tails, SCREEN_ALPHA))
        same = np.array_equal(settled, members) and tails == before
        members = settled
        if turn and same:
            break
    spread = Spread.of(priors_of(rows, members, taught), tails, SCREEN_ALPHA)
    return Fleet(rows, members, moments_of(rows.y, members, rows.cells), spread)


def priors_of(rows: Rows, members: Bools, taught: Sequence[Taught]) -> list[Prior]:
    """Estimate the prior of each group from what is known and the variances of its cells' members."""
    whole = moments_of(rows.y, members, rows.cells)
    d = whole.n - 1
    variance = whole.ss / np.maximum(d, 1)
    return [
        one.prior_with(variance[cells], d[cells])
        for cells, one in zip(by_group(rows.group, len(taught)), taught, strict=True)
    ]


def by_group(group: Ints, groups: int) -> Sequence[Ints]:
    """Return the indices of each group."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.searchsorted(group[order], np.arange(1, groups)))


def fit_tails(rows: Rows, members: Bools, spread: Spread) -> list[Tail]:
    """Fit the tail of each group to the residuals of its members."""
    found = residuals_of(rows, members, spread)
    # Runs that are members by their label alone may lie where the likelihood knows of no run.
    found = take(found, np.abs(found.value) <= found.limit)
    return [fit_tail(take(found, part)) for part in by_group(found.group, spread.df.size)]
