"""What a check says of every run: an outcome, how grave it is, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from step0_wandb.records import OutcomeName

OUTCOMES: tuple[OutcomeName, ...] = ("pass", "fail", "warn", "vacuous", "skipped")
PASS, FAIL, WARN, VACUOUS, SKIPPED = range(5)


class Level(IntEnum):
    """How grave an outcome is."""

    FINE = 0
    SUSPECT = 1
    BROKEN = 2


class Why(IntEnum):
    """What an outcome rests on; each check has its own sentence for it."""

    NOTHING = 0
    NOT_LOGGED = 1
    BY_RULE = 2
    NON_FINITE = 3
    OVER_LIMIT = 4
    OVER_LEARNED = 5
    LARGE_FOR_AVERAGE = 6
    IN_RANGE = 7
    ABOVE_RANGE = 8
    BELOW_RANGE = 9
    OVER_CEILING = 10
    NOT_BELIEVED = 11
    MOVED = 12
    NOT_ZERO = 13
    NEGATIVE = 14
    ZERO = 15
    NO_RANGE = 16
    NOT_ASKED = 17
    REFUTED = 18
    CONTRADICTION = 19


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of one check for every run.

    Attributes
    ----------
    outcome, level, why : ndarray of int8, shape (n_runs,)
        Index into `OUTCOMES`, a `Level`, a `Why`.
    limit : ndarray of float64, shape (n_runs,)
        Largest absolute value that passes; NaN where there is none.
    """

    outcome: NDArray[np.int8]
    level: NDArray[np.int8]
    why: NDArray[np.int8]
    limit: NDArray[np.float64]

    @classmethod
    def blank(cls, n_runs: int) -> Outcomes:
        """Return outcomes that say ``skipped: not logged`` for every run."""
        return cls(
            np.full(n_runs, SKIPPED, np.int8),
            np.zeros(n_runs, np.int8),
            np.full(n_runs, Why.NOT_LOGGED, np.int8),
            np.full(n_runs, np.nan),
        )

    def take(self, positions: NDArray[np.intp]) -> Outcomes:
        """Return the outcomes of some runs, by their positions."""
        return Outcomes(
            self.outcome[positions], self.level[positions], self.why[positions], self.limit[positions]
        )

    def set(
        self,
        where: NDArray[np.bool_] | NDArray[np.intp],
        outcome: int,
        why: Why,
        *,
        level: int | NDArray[np.int8] = Level.FINE,
    ) -> None:
        """Set the outcome of the runs in `where`, a mask or positions; a later call beats an earlier one."""
        self.outcome[where] = outcome
        self.why[where] = why
        self.level[where] = level if isinstance(level, int) else level[where]
