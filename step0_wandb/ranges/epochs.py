"""Where a setup moved to another level: its epochs, cut in time order.

An image or an engine changes, and from then on all runs of a setup lie elsewhere. Three runs in a
row that lie outside the range on the same side, agree with each other, and are not broken begin a
new epoch. Downwards it is adopted; upwards it is proposed, and the old level stays in force until a
person accepts the new one.

All setups go through their runs together: each round takes from every setup as many runs as the
range in force can judge before it has to be learned again, so that there are few rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from step0_wandb.ranges.cells import ROUNDING, Moments, runs_of, take

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.prompts import Sharing
    from step0_wandb.ranges.spread import Spread

FOUNDERS: Final = 3
"""Runs in a row that begin an epoch; a level of fewer runs cannot be left."""

WINDOW: Final = float(np.log(1.4)) + ROUNDING
"""Runs that begin an epoch lie this close, in ln(gap)."""

OUTVOTED: Final = 2 * FOUNDERS
"""A level of no more runs than this, followed by three a broken ratio lower, was that of a broken
launch: three then hold the third that the screening asks for, and the lower level is right."""

REFRESH: Final = 4
"""A range is learned again when its members have grown by a quarter."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Runs in time order, those of one setup together.

    Attributes
    ----------
    y : ndarray of float, shape (rows,)
        ln(gap); not read where the run is not usable.
    usable : ndarray of bool, shape (rows,)
        Whether the run may be a member.
    healthy : ndarray of bool, shape (rows,)
        Labeled healthy.
    accepted : ndarray of bool, shape (rows,)
        Whether a person accepted the setup after this run was created.
    starts, ends, group : ndarray of int, shape (setups,)
        First row, row after the last, and gap metric of each setup.
    shared : Sharing or None
        How far each run shares its prompts with those before it.
    """

    y: Floats
    usable: Bools
    healthy: Bools
    accepted: Bools
    starts: Ints
    ends: Ints
    group: Ints
    shared: Sharing | None = None


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs after the first ones, one entry an epoch, in the order in which they were found.

    Attributes
    ----------
    setup : ndarray of int
        Index into the timeline's setups.
    number : ndarray of int
        1 for the first move of the setup; runs of the level before are in epoch 0.
    base : ndarray of int
        Number of the epoch that was in force before.
    first : ndarray of int
        The row that begins the epoch.
    upward : ndarray of bool
    of_row : ndarray of int, shape (rows,)
        Number of the epoch that each run belongs to.
    joined : ndarray of bool, shape (rows,)
        The run lay inside the level in force when it came, which is one of `FOUNDERS` runs or more and
        was not given up for a lower one.
    current, proposed : ndarray of int, shape (setups,)
        Number of the epoch in force at the end, and of the one that waits for a person (-1: none).
    """

    setup: Ints
    number: Ints
    base: Ints
    first: Ints
    upward: Bools
    of_row: Ints
    joined: Bools
    current: Ints
    proposed: Ints


def cut_epochs(timeline: Timeline, spread: Spread, ln_ratio: float) -> Epochs:
    """Go through the runs of every setup in time order and find where its level moved.

    Parameters
    ----------
    spread : Spread
        By gap metric; its alpha says how far out a run must lie.
    ln_ratio : float
        Logarithm of the ratio to the center from which a run counts as broken.
    """
    walk = _Walk.begin(timeline, spread, ln_ratio)
    active = np.arange(timeline.starts.size)
    while active.size:
        walk.step(active)
        active = active[walk.at[active] < timeline.ends[active]]
    return walk.epochs()


@dataclass(slots=True)
class _Level:
    """The members of one level so far, an entry a setup; `n` is 0 where there is none."""

    n: Floats
    mean: Floats
    ss: Floats
    number: Ints

    @classmethod
    def none(cls, setups: int) -> _Level:
        return cls(np.zeros(setups), np.zeros(setups), np.zeros(setups), np.full(setups, -1))

    def half_width(self, chosen: Ints, walk: _Walk, row: Ints, owner: Ints) -> Floats:
        """Return half the width of the range of each `row`, whose setup is ``chosen[owner]``."""
        runs = Moments(self.n[chosen], self.mean[chosen], self.ss[chosen]).where_some()
        group = walk.line.group[chosen]
        scale, shared = walk.spread.scale(runs, group), walk.line.shared
        if shared is None:
            return walk.spread.half_width(scale, group)[owner]
        wider = walk.spread.widened(take(scale, owner), group[owner], take(shared, row))
        return walk.spread.half_width(wider, group[owner])

    def add(self, owner: Ints, y: Floats) -> None:
        """Take in the runs `y`, each belonging to the setup `owner`."""
        count = np.bincount(owner, minlength=self.n.size)
        some = np.flatnonzero(count)
        mean = np.bincount(owner, y, self.n.size)[some] / count[some]
        within = np.zeros(self.n.size)
        within[some] = mean
        ss = np.bincount(owner, (y - within[owner]) ** 2, self.n.size)[some]
        total, away = self.n[some] + count[some], mean - self.mean[some]
        self.ss[some] += ss + away**2 * self.n[some] * count[some] / total
        self.mean[some] += away * count[some] / total
        self.n[some] = total

    def set(self, chosen: Ints, runs: Moments, number: Ints) -> None:
        self.n[chosen], self.mean[chosen], self.ss[chosen] = runs.n, runs.mean, runs.ss
        self.number[chosen] = number


@dataclass(slots=True)
class _Found:
    """The epochs found in one round; see `Epochs`."""

    setup: Ints
    number: Ints
    base: Ints
    first: Ints
    upward: Bools


@dataclass(slots=True)
class _Walk:
    """Where every setup stands.

    Attributes
    ----------
    at : ndarray of int
        The next run.
    force, waiting : _Level
        The level in force, and the one that waits for a person.
    vouched : ndarray of bool
        A person stands behind the level in force.
    chain : ndarray of int, shape (setups, 2)
        The last runs in a row that lay outside on the same `side`.
    length : ndarray of int
        How many they are.
    last : ndarray of int
        Number of the newest epoch.
    of_row, joined : ndarray, shape (rows,)
        The epoch of each run so far, and whether it lies inside the level that was in force.
    tried, tried_of : ndarray of int, shape (setups,) and (rows,)
        How often a setup gave up a level for a lower one, and that number when each run came.
    """

    line: Timeline
    spread: Spread
    ln_ratio: float
    at: Ints
    force: _Level
    waiting: _Level
    vouched: Bools
    chain: Ints
    length: Ints
    side: Floats
    last: Ints
    of_row: Ints
    joined: Bools
    tried: Ints
    tried_of: Ints
    found: list[_Found] = field(default_factory=list)

    @classmethod
    def begin(cls, line: Timeline, spread: Spread, ln_ratio: float) -> _Walk:
        """Stand behind the first usable run of each setup, which is its level so far."""
        count = line.starts.size
        index = np.where(line.usable, np.arange(line.y.size), line.y.size)
        first = np.minimum.reduceat(index, line.starts) if count else line.starts
        return cls(
            line=line,
            spread=spread,
            ln_ratio=ln_ratio,
            at=first + 1,
            force=_Level(np.ones(count), line.y[first], np.zeros(count), np.zeros(count, dtype=np.int64)),
            waiting=_Level.none(count),
            vouched=line.accepted[first] | line.healthy[first],
            chain=np.zeros((count, 2), dtype=np.int64),
            length=np.zeros(count, dtype=np.int64),
            side=np.zeros(count),
            last=np.zeros(count, dtype=np.int64),
            of_row=np.zeros(line.y.size, dtype=np.int64),
            joined=np.isin(np.arange(line.y.size), first),
            tried=np.zeros(count, dtype=np.int64),
            tried_of=np.zeros(line.y.size, dtype=np.int64),
        )

    def step(self, active: Ints) -> None:
        """Take the next runs of each active setup, up to the first that may begin an epoch."""
        line = self.line
        size = np.minimum(
            1 + self.force.n[active].astype(np.int64) // REFRESH, line.ends[active] - self.at[active]
        )
        row, owner = runs_of(self.at[active], size), np.repeat(np.arange(active.size), size)
        setup, usable, healthy = active[owner], line.usable[row], line.healthy[row]
        away = np.where(usable, line.y[row], 0.0) - self.force.mean[setup]
        inside = usable & (np.abs(away) <= self.force.half_width(active, self, row, owner))
        waits = usable & ~inside & self._inside_waiting(active, row, owner)
        broken = (away >= self.ln_ratio - ROUNDING) & ~healthy
        stop = usable & ~inside & np.where(waits, healthy, ~broken)
        start = np.cumsum(size) - size
        offset = np.arange(row.size) - start[owner]
        length = np.minimum.reduceat(np.where(stop, offset, size[owner]), start)
        taken = offset < length[owner]
        self._take(row[taken], setup[taken], inside[taken], waits[taken])
        self.at[active] += length
        event = np.flatnonzero(length == 0)
        self._event(active[event], row[start[event]], waits[start[event]])
        self.at[active[event]] += 1

    def _inside_waiting(self, active: Ints, row: Ints, owner: Ints) -> Bools:
        has = np.flatnonzero(self.waiting.n[active[owner]] > 0)
        half = self.waiting.half_width(active, self, row[has], owner[has])
        near = np.zeros(row.size, dtype=bool)
        near[has] = np.abs(self.line.y[row[has]] - self.waiting.mean[active[owner[has]]]) <= half
        return near

    def _take(self, row: Ints, setup: Ints, inside: Bools, waits: Bools) -> None:
        """Let runs join the level that they lie in; runs in neither end nothing and begin nothing."""
        self.of_row[row] = np.where(waits, self.waiting.number[setup], self.force.number[setup])
        self.joined[row[inside]] = True
        self.tried_of[row] = self.tried[setup]
        self.force.add(setup[inside], self.line.y[row[inside]])
        self.waiting.add(setup[waits], self.line.y[row[waits]])
        self.length[setup[inside | waits]] = 0
        self.vouched[setup[inside & self.line.healthy[row]]] = True

    def _event(self, setup: Ints, row: Ints, waits: Bools) -> None:
        """Treat one run of each `setup` that lies outside, or that a person called healthy."""
        self._accept(setup[waits], row[waits])
        setup, row = setup[~waits], row[~waits]
        self.of_row[row] = self.force.number[setup]
        side = np.sign(self.line.y[row] - self.force.mean[setup])
        length = np.where(self.side[setup] == side, self.length[setup], 0)
        third = length == FOUNDERS - 1
        self.side[setup] = side
        trio = np.column_stack([self.chain[setup], row])
        agree = np.zeros(setup.size, dtype=bool)
        agree[third] = self._agree(setup[third], trio[third])
        self._begin_epoch(setup[agree], trio[agree])
        # A third run that does not agree pushes the oldest of the three out.
        shift = third & ~agree
        self.chain[setup[shift]] = trio[shift, 1:]
        short = ~third
        self.chain[setup[short], length[short]] = row[short]
        self.length[setup] = np.where(agree, 0, np.minimum(length + 1, FOUNDERS - 1))

    def _accept(self, setup: Ints, row: Ints) -> None:
        """Put the waiting level in force, because a person called one of its runs healthy."""
        self.waiting.add(setup, self.line.y[row])
        self.force.set(setup, _moments(self.waiting, setup), self.waiting.number[setup])
        self.of_row[row] = self.force.number[setup]
        self.waiting.n[setup], self.length[setup], self.vouched[setup] = 0, 0, True

    def _agree(self, setup: Ints, trio: Ints) -> Bools:
        """Whether three runs are near each other, and each lies inside the range of the other two."""
        agree: Bools = np.ptp(self.line.y[trio], axis=1) <= WINDOW
        group = self.line.group[setup]
        for judged in range(FOUNDERS):
            others = self.line.y[np.delete(trio, judged, axis=1)]
            pair = _moments_of_rows(others)
            half = self.spread.half_width(self.spread.scale(pair, group), group)
            agree &= np.abs(self.line.y[trio[:, judged]] - pair.mean) <= half
        return agree

    def _begin_epoch(self, setup: Ints, trio: Ints) -> None:
        """Let three runs that agree be a level of their own."""
        runs = _moments_of_rows(self.line.y[trio])
        move, labeled = runs.mean - self.force.mean[setup], self.line.healthy[trio].any(axis=1)
        vouched, small = self.vouched[setup], self.force.n[setup]
        outvoted = (move <= ROUNDING - self.ln_ratio) & (small <= OUTVOTED)
        new = vouched | ((small >= FOUNDERS) & ~outvoted)
        upward = new & (move > 0)
        accepted = labeled | self.line.accepted[trio[:, 0]]
        adopted = ~upward | accepted
        self.last[setup] += new
        self.tried[setup[~new]] += 1
        self.joined[trio] = True
        self.tried_of[trio] = self.tried[setup][:, None]
        number = np.where(new, self.last[setup], self.force.number[setup])
        self.of_row[trio] = number[:, None]
        # Runs in between that could not be founders are of the new level's time as well.
        length = np.where(adopted, trio[:, -1] - trio[:, 0], 0)
        self.of_row[runs_of(trio[:, 0], length)] = np.repeat(number, length)
        self.found.append(
            _Found(setup[new], number[new], self.force.number[setup[new]], trio[new, 0], upward[new])
        )
        self.waiting.set(setup, runs, number)
        goes = setup[adopted]
        self.force.set(goes, _moments(self.waiting, goes), number[adopted])
        self.waiting.n[goes] = 0
        # Who accepted a level accepted every lower one that follows.
        self.vouched[goes] = (labeled | np.where(upward, accepted, vouched))[adopted]

    def epochs(self) -> Epochs:
        """Return what was found."""
        none = np.zeros(0, dtype=np.int64)
        found = self.found or [_Found(none, none, none, none, none.astype(bool))]
        return Epochs(
            setup=np.concatenate([part.setup for part in found]),
            number=np.concatenate([part.number for part in found]),
            base=np.concatenate([part.base for part in found]),
            first=np.concatenate([part.first for part in found]),
            upward=np.concatenate([part.upward for part in found]),
            of_row=self.of_row,
            joined=self._settled(),
            current=self.force.number,
            proposed=np.where((self.waiting.n > 0) & ~self._lapsed(), self.waiting.number, -1),
        )

    def _settled(self) -> Bools:
        setup = np.repeat(np.arange(self.at.size), self.line.ends - self.line.starts)
        joined = self.joined & (self.tried_of == self.tried[setup])
        level = setup * (1 + int(self.last.max(initial=0))) + self.of_row
        enough = np.bincount(level[joined], minlength=int(level.max(initial=0)) + 1) >= FOUNDERS
        settled: Bools = joined & enough[level]
        return settled

    def _lapsed(self) -> Bools:
        """Whether so many runs at the level in force followed that the waiting one is over."""
        setup = np.repeat(np.arange(self.at.size), self.line.ends - self.line.starts)
        row = np.arange(setup.size)
        waits = self.of_row == self.waiting.number[setup]
        newest = np.full(self.at.size, -1)
        np.maximum.at(newest, setup[waits], row[waits])
        after = self.joined & (row > newest[setup])
        lapsed: Bools = np.bincount(setup[after], minlength=self.at.size) >= FOUNDERS
        return lapsed


def _moments(level: _Level, chosen: Ints) -> Moments:
    return Moments(level.n[chosen], level.mean[chosen], level.ss[chosen])


def _moments_of_rows(y: Floats) -> Moments:
    """Return the moments along the last axis of `y`."""
    mean = y.mean(axis=-1)
    return Moments(np.full(mean.shape, float(y.shape[-1])), mean, ((y - mean[..., None]) ** 2).sum(axis=-1))
