"""The epochs of all setups as one numbered list of levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from step0_wandb.ranges.cells import Cells, sorted_order
from step0_wandb.ranges.epochs import FOUNDERS, Timeline, cut_epochs
from step0_wandb.ranges.history import NEVER, UNKNOWN
from step0_wandb.ranges.prompts import sharing_so_far

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Ints
    from step0_wandb.ranges.history import History
    from step0_wandb.ranges.spread import Spread


@dataclass(frozen=True, slots=True)
class Levels:
    """Every epoch of every setup: first each setup's epoch 0, then the others.

    Attributes
    ----------
    of_run : ndarray of int, shape (runs,)
        The level that each run belongs to; -1 where it has no setup.
    setup, number : ndarray of int, shape (levels,)
        Whose epoch it is, and which.
    before : ndarray of int, shape (levels,)
        The level that was in force until then; itself for epoch 0.
    since : ndarray of int, shape (levels,)
        When its first run was created, in microseconds since 1970.
    accepted : ndarray of bool, shape (levels,)
        A person accepted this level, or a higher one from which it fell.
    waits : ndarray of bool, shape (levels,)
        A move upwards that nobody accepted: its runs are judged by the level before.
    remembers : ndarray of bool, shape (levels,)
        An earlier judgment called one of its runs healthy.
    joined : ndarray of bool, shape (runs,)
        The run lay inside the level in force when it came, and that level had runs enough.
    current, proposed : ndarray of int, shape (setups,)
        The level in force at the end, and the last one that waits (-1: none).
    """

    of_run: Ints
    setup: Ints
    number: Ints
    before: Ints
    since: Ints
    accepted: Bools
    waits: Bools
    remembers: Bools
    joined: Bools
    current: Ints
    proposed: Ints

    @property
    def judged_by(self) -> Ints:
        """Return for each level the one by whose range its runs are judged."""
        return np.where(self.waits, self.before, np.arange(self.setup.size))


def cut_levels(history: History, spread: Spread, ln_ratio: float) -> Levels:
    """Cut all setups into epochs and number these.

    Parameters
    ----------
    spread : Spread
        One entry a gap metric; its alpha says how far out the runs of a new epoch lie.
    ln_ratio : float
        Logarithm of the ratio to the center from which a run counts as broken.
    """
    setups = history.setups.names.size
    row = _in_time_order(history)
    cells = Cells.of(history.setup[row])
    epochs = cut_epochs(_timeline(history, row, cells), spread, ln_ratio)
    # Epochs of one setup are numbered from 1 without a hole, so that they follow each other here.
    order = np.lexsort((epochs.number, epochs.setup))
    own, others = np.arange(setups), cells.codes[epochs.setup[order]]
    offset = setups - 1 + np.searchsorted(others, own)

    def level(setup: Ints, number: Ints) -> Ints:
        return np.where(number > 0, offset[setup] + number, setup)

    of_run, current, proposed = history.setup.copy(), own.copy(), np.full(setups, -1)
    of_run[row] = level(history.setup[row], epochs.of_row)
    current[cells.codes] = level(cells.codes, epochs.current)
    proposed[cells.codes] = np.where(epochs.proposed > 0, level(cells.codes, epochs.proposed), -1)
    joined = np.zeros(history.setup.size, dtype=bool)
    joined[row] = epochs.joined
    upward = np.append(np.zeros(setups, dtype=bool), epochs.upward[order])
    levels = Levels(
        of_run=of_run,
        setup=np.append(own, others),
        number=np.append(np.zeros_like(own), epochs.number[order]),
        before=np.append(own, level(others, epochs.base[order])),
        since=_earliest(history, of_run, upward.size),
        accepted=np.zeros_like(upward),
        waits=upward,
        remembers=_any(of_run, history.was_healthy & history.candidate, upward.size),
        joined=joined,
        current=current,
        proposed=proposed,
    )
    return _with_acceptance(levels, history)


def accepted_by_time(accepted_at: Ints, created_at: Ints) -> Bools:
    """Whether a person accepted a setup when the run was there; always, where its time is unknown."""
    accepted: Bools = (accepted_at != NEVER) & ((created_at <= accepted_at) | (created_at == UNKNOWN))
    return accepted


def _with_acceptance(levels: Levels, history: History) -> Levels:
    """Let people's words count: acceptances by their time, and labels of the level's runs."""
    accepted = accepted_by_time(history.setups.accepted_at[levels.setup], levels.since)
    accepted[levels.of_run[history.healthy & history.candidate]] = True
    for number in range(1, int(levels.number.max(initial=0)) + 1):
        fell = np.flatnonzero((levels.number == number) & ~levels.waits)
        accepted[fell] |= accepted[levels.before[fell]]
    return replace(levels, accepted=accepted, waits=levels.waits & ~accepted)


def _any(level: Ints, chosen: Bools, levels: int) -> Bools:
    """Whether each level has a chosen run."""
    some: Bools = np.bincount(level[chosen], minlength=levels) > 0
    return some


def _earliest(history: History, level: Ints, levels: int) -> Ints:
    """Return when the first run of each level was created."""
    known = level >= 0
    earliest = np.full(levels, UNKNOWN)
    np.minimum.at(earliest, level[known], history.time[known])
    return earliest


def _timeline(history: History, row: Ints, cells: Cells) -> Timeline:
    accepted_at = history.setups.accepted_at[history.setup[row]]
    return Timeline(
        y=history.y[row],
        usable=history.candidate[row],
        healthy=history.healthy[row] & history.candidate[row],
        accepted=accepted_by_time(accepted_at, history.time[row]),
        starts=cells.starts,
        ends=cells.starts + cells.counts,
        group=history.setups.metric[cells.codes],
        shared=sharing_so_far(
            history.prompt_set[row], history.between[row], history.candidate[row], history.setup[row]
        ),
    )


def _in_time_order(history: History) -> Ints:
    """Return the rows of the setups that can have two epochs, each setup's in time order.

    Runs created at the same moment are in the order of their keys.
    """
    candidates = np.bincount(history.setup[history.candidate], minlength=history.setups.names.size)
    eligible = (candidates >= 2 * FOUNDERS) & (history.setups.last_run != NEVER)
    row = np.flatnonzero(np.append(eligible, False)[history.setup])
    row = row[sorted_order(history.setup[row], history.time[row])]
    setup, time = history.setup[row], history.time[row]
    same = (setup[1:] == setup[:-1]) & (time[1:] == time[:-1])
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if tied.size:
        block = np.cumsum(~np.append(False, same))[tied]
        at = row[tied]
        key = pd.factorize(history.run[at].astype(str), sort=True)[0]
        row[tied] = at[np.lexsort((history.healthy[at], history.candidate[at], history.y[at], key, block))]
    return row
