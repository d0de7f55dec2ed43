"""Rows in cells: a cell is one epoch of one setup, and its rows stand together.

Everything here works on all cells at once; nothing loops over setups.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    _Arrays = TypeVar("_Arrays", bound=DataclassInstance)

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


ROUNDING: Final = 1e-9
"""Two ln(gap) this close are equal: a gap of exactly twice another counts as that."""


def runs_of(starts: Ints, counts: Ints) -> Ints:
    """Return ``starts[0], starts[0] + 1, ... , starts[1], ...``: `counts[i]` indices from each start."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    offset: Ints = np.repeat(starts - (ends - counts), counts)
    return np.arange(total) + offset


def sorted_order(codes: Ints, values: Floats | Ints) -> Ints:
    """Return the order by `codes`, and by `values` where these are equal (twice as fast as lexsort)."""
    order = np.argsort(values)
    return order[np.argsort(codes[order], kind="stable")]


def take(arrays: _Arrays, index: Ints | Bools) -> _Arrays:
    """Return a dataclass of equally long arrays with their entries at `index`."""
    return type(arrays)(*(getattr(arrays, field.name)[index] for field in fields(arrays)))


@dataclass(frozen=True, slots=True)
class Cells:
    """Consecutive stretches of rows; none is empty.

    Attributes
    ----------
    codes : ndarray of int, shape (cells,)
        What each cell is the stretch of, ascending.
    starts, counts : ndarray of int, shape (cells,)
        First row and number of rows.
    """

    codes: Ints
    starts: Ints
    counts: Ints

    @classmethod
    def of(cls, sorted_codes: Ints) -> Cells:
        """Return the stretches of equal values in `sorted_codes`, shape (rows,)."""
        if not sorted_codes.size:
            none = np.zeros(0, dtype=np.int64)
            return cls(none, none, none)
        starts = np.flatnonzero(np.diff(sorted_codes, prepend=sorted_codes[0] - 1))
        counts = np.diff(starts, append=sorted_codes.size)
        return cls(sorted_codes[starts], starts, counts)

    def only(self, chosen: Ints) -> Cells:
        """Return the chosen cells as they stand once their rows (`runs_of`) are moved together."""
        counts = self.counts[chosen]
        return Cells(self.codes[chosen], np.cumsum(counts) - counts, counts)

    def total(self, values: npt.NDArray[np.number] | Bools) -> Floats:
        """Return the sum of `values`, shape (rows,), over each cell."""
        if not self.starts.size:
            return np.zeros(0)
        return np.add.reduceat(values, self.starts, dtype=np.float64)

    def smallest(self, values: Floats) -> Floats:
        """Return the smallest of `values`, shape (rows,), in each cell."""
        return np.minimum.reduceat(values, self.starts) if self.starts.size else np.zeros(0)

    def spread(self, values: Floats) -> Floats:
        """Give each row its cell's value."""
        return np.repeat(values, self.counts)

    def spread_ints(self, values: Ints) -> Ints:
        """Give each row its cell's whole number."""
        return np.repeat(values, self.counts)

    def spread_moments(self, of: Moments) -> Moments:
        """Give each row its cell's moments."""
        return Moments(self.spread(of.n), self.spread(of.mean), self.spread(of.ss))


@dataclass(frozen=True, slots=True)
class Moments:
    """Number, mean and sum of squared deviations of ln(gap) over some runs.

    Attributes
    ----------
    n, mean, ss : ndarray of float
        One entry a cell or a row; where `n` is 0 the others mean nothing.
    """

    n: Floats
    mean: Floats
    ss: Floats

    def where_some(self) -> Moments:
        """Return the same with one run instead of none, for formulas that divide by `n`."""
        return Moments(np.maximum(self.n, 1), self.mean, self.ss)


def moments_of(y: Floats, members: Bools, cells: Cells) -> Moments:
    """Return the moments of each cell's members.

    Parameters
    ----------
    y : ndarray of float, shape (rows,)
        ln(gap), a finite number in every row.
    """
    n = cells.total(members)
    mean = cells.total(np.where(members, y, 0.0)) / np.maximum(n, 1)
    deviation = np.where(members, y - cells.spread(mean), 0.0)
    return Moments(n, mean, cells.total(deviation * deviation))


def without_itself(y: Floats, members: Bools, whole: Moments) -> Moments:
    """Return what each row is compared with: the members of its cell, itself left out.

    A row that is not a member is compared with all of them. `n` is 0 where nothing is left.

    Parameters
    ----------
    whole : Moments
        One entry a row: those of all members of the row's cell.
    """
    left = whole.n - members
    deviation = np.where(members, y - whole.mean, 0.0)
    shift = deviation / np.maximum(left, 1)
    # What the row adds to the sum of squares is deviation^2 n / (n - 1); rounding may take more.
    return Moments(left, whole.mean - shift, np.maximum(whole.ss - shift * deviation * whole.n, 0.0))
