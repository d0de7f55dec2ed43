"""Runs on the same prompts scatter less than runs on others.

The gap of a row is a mean over its prompts: another seed draws other prompts, and moves it. Measured in
bf16, ln(gap) of rows on different prompts has a standard deviation of about 0.28 / sqrt(prompts), where
that of repeats of one row can be a few percent. A setup whose runs share their prompts cannot show the
first part, so it is assumed until the setup's own runs have shown it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Floats, Ints

OF_ONE_PROMPT: Final = 0.28
"""Standard deviation of ln(gap) between rows of one prompt each."""
ASSUMED_DF: Final = 10.0
"""Degrees of freedom of that figure: two runs on other prompts do not refute it, twenty do."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How far each row shares its prompts with the runs that it is compared with; one entry a row.

    Attributes
    ----------
    variance : ndarray of float
        Of ln(gap) between prompt sets, as assumed.
    shown : ndarray of float
        How much of it the scatter of the others has in it already: from 0 (all on the same prompts) to 1
        (each on prompts of its own).
    times : ndarray of float
        How often the variance enters the distance of the row to the mean of the others: 0 where all of
        them are on the row's own prompts.
    """

    variance: Floats
    shown: Floats
    times: Floats


def sharing(prompt_set: Ints, variance: Floats, member: Bools, cell: Ints) -> Sharing | None:
    """Return what each row shares with the members of its cell, itself left out.

    Parameters
    ----------
    prompt_set : ndarray of int, shape (rows,)
        Code of the prompts of each row; equal codes stand in one setup.
    variance : ndarray of float, shape (rows,)
        0 where nothing is to be assumed.
    cell : ndarray of int, shape (rows,)
        Whose members each row is compared with.

    Returns
    -------
    Sharing or None
        None where no row has a variance.
    """
    if not variance.any():
        return None
    base = int(prompt_set.max()) + 1
    codes, pair = np.unique(cell * base + prompt_set, return_inverse=True)
    own = np.bincount(pair[member], minlength=codes.size).astype(np.float64)

    def of_cell(values: Floats) -> Floats:
        return np.bincount(codes // base, values)[cell].astype(np.float64)

    same = own[pair]
    runs, sets, squares = of_cell(own), of_cell((own > 0).astype(np.float64)), of_cell(own * own)
    last = (member & (same == 1)).astype(np.float64)
    squares = squares - np.where(member, 2 * same - 1, 0.0)
    return weigh_sharing(variance, runs - member, sets - last, squares, same - member)


def sharing_so_far(prompt_set: Ints, variance: Floats, counts: Bools, setup: Ints) -> Sharing | None:
    """Return what each row shares with the rows of its setup before it, in time order.

    Parameters
    ----------
    counts : ndarray of bool, shape (rows,)
        Which rows the later ones are compared with.
    """
    if not variance.any():
        return None
    order = np.argsort(prompt_set, kind="stable")
    same = np.zeros(setup.size)
    same[order] = _before(counts[order], prompt_set[order])
    runs, sets = _before(counts, setup), _before(counts & (same == 0), setup)
    squares = _before(np.where(counts, 2 * same + 1, 0.0), setup)
    return weigh_sharing(variance, runs, sets, squares, same)


def _before(values: Floats | Bools, stretch: Ints) -> Floats:
    """Return the sum of the values before each row in its stretch of equal codes."""
    total = np.cumsum(values, dtype=np.float64) - values
    first = np.flatnonzero(np.diff(stretch, prepend=stretch[0] - 1))
    before: Floats = total - np.repeat(total[first], np.diff(first, append=stretch.size))
    return before


def weigh_sharing(variance: Floats, runs: Floats, sets: Floats, squares: Floats, same: Floats) -> Sharing:
    """Return what follows from how the others are spread over prompt sets.

    The mean of the others has their sets' effects in it by the share that each has of the runs.

    Parameters
    ----------
    runs, sets, squares, same : ndarray of float, shape (rows,)
        Number of the others, of the sets among them, sum of the squared numbers of runs a set, and number
        of the others in the row's own set.
    """
    some = np.maximum(runs, 1)
    times = 1 - 2 * same / some + squares / some**2
    shown = (sets - 1) / np.maximum(runs - 1, 1)
    # Many sets have shown their scatter, even where some came more than once.
    shown = 1 - (1 - np.clip(shown, 0, 1)) * ASSUMED_DF / (ASSUMED_DF + np.maximum(sets - 1, 0))
    return Sharing(np.where(runs > 0, variance, 0.0), shown, np.maximum(times, 0.0))
