"""Noise of `ppo_kl`, where it is known and allowed: how large the next healthy run's may be.

A quantized trainer scatters around 0, so the variance is the mean square of the members' values on n
degrees of freedom, and the next one lies within ``t(1 - alpha; n)`` root mean squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from step0_wandb.checks.exact import PPO_KL

if TYPE_CHECKING:
    from step0_wandb.ranges.cells import Bools, Floats, Ints
    from step0_wandb.ranges.model import Model

AT_LEAST: Final = 3
"""Runs to learn from."""
LOWEST: Final = PPO_KL.limit
HIGHEST: Final = PPO_KL.broken_from


@dataclass(frozen=True, slots=True)
class Noise:
    """The largest |ppo_kl| that is taken for noise, between 1e-9 and 1e-2.

    Attributes
    ----------
    of_run : ndarray of float, shape (runs,)
        By the other runs of its setup; NaN where nothing is learned, or fewer than three others are
        there to learn from.
    of_setup : ndarray of float, shape (setups,)
        By all members; for the next run.
    """

    of_run: Floats
    of_setup: Floats


def learned_noise(model: Model, alpha: Floats) -> Noise:
    """Return what a fitted history says; `alpha` has one entry a setup."""
    history, levels = model.history, model.levels
    exact = np.append(history.setups.exact, False)[history.setup]
    waits = np.append(levels.waits, False)[levels.of_run]
    member = np.where(exact, history.zero, model.member & ~waits)
    return noise_limits(history.ppo_kl, history.setup, member, alpha)


def noise_limits(value: Floats, setup: Ints, member: Bools, alpha: Floats) -> Noise:
    """Learn from the members of each setup.

    A member outside the limit that the others set is not evidence of noise and is left out, until
    nothing changes.

    Parameters
    ----------
    value : ndarray of float, shape (runs,)
        |ppo_kl| where the rule learns, else NaN.
    setup : ndarray of int, shape (runs,)
        Index into the setups; -1 where a run has none.
    member : ndarray of bool, shape (runs,)
        The healthy runs of each setup as far as the gap tells.
    alpha : ndarray of float, shape (setups,)
    """
    row = np.flatnonzero((setup >= 0) & np.isfinite(value))
    of, square = setup[row], value[row] ** 2
    counted = member[row] & (value[row] < HIGHEST)
    while True:
        n = np.bincount(of[counted], minlength=alpha.size)
        total = np.asarray(np.bincount(of[counted], square[counted], alpha.size), dtype=np.float64)
        factor = np.where(counted, _factor(n - 1, alpha)[of], _factor(n, alpha)[of])
        limit = _limit(factor, total[of] - np.where(counted, square, 0.0))
        outside = counted & (value[row] > limit)
        if not outside.any():
            break
        counted &= ~outside
    of_run = np.full(value.size, np.nan)
    of_run[row] = limit
    return Noise(of_run, _limit(_factor(n, alpha), total))


def _factor(n: Ints, alpha: Floats) -> Floats:
    """Return how many roots of the sum of squares of `n` values the next one may reach."""
    some = np.maximum(n, 1)
    return np.where(n < AT_LEAST, np.nan, special.stdtrit(some, 1 - alpha) / np.sqrt(some))


def _limit(factor: Floats, total: Floats) -> Floats:
    limit: Floats = np.clip(factor * np.sqrt(np.maximum(total, 0)), LOWEST, HIGHEST)
    return limit
