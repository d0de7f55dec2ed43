"""Observables that are compared with the healthy runs of their setup: gradient norm, entropy, lengths, shares.

The machinery of the ranges does it, on the numbers themselves where they are positive, and on the odds of
shares, whose logarithm is the logit. A number is worth a word where it is outside its range and far from
its center too; that lets nearly every setup be passed over before anything is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from step0_wandb.checks.base import SHARED
from step0_wandb.checks.columns import numbers, texts
from step0_wandb.checks.observables import LEARNED, grouped, names_in, rule_in, rules_of
from step0_wandb.checks.outcomes import PASS, SKIPPED, WARN, Level, Outcomes, Why
from step0_wandb.ranges.judging import judged_in
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.taught import prior_of_group
from step0_wandb.records import OBSERVED
from step0_wandb.text.formatting import count, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from step0_wandb.checks.base import Facts, Reference, Sentence
    from step0_wandb.checks.observables import Group
    from step0_wandb.ranges.model import Model
    from step0_wandb.ranges.taught import Taught
    from step0_wandb.verdicts.lessons import Lessons

    Floats = NDArray[np.float64]

FEWEST = 3
"""Healthy runs that a comparison needs."""
_EDGE = 1 / 512
"""Shares nearer to 0 or 1 than this are taken as this near: half an answer of a batch of 256."""


def _far(name: str, facts: Facts) -> str:
    rule = rule_in(facts, name)
    return (
        f"{rule.title} is {number(facts[OBSERVED + name])} ({rule.metric}), where {count(int(facts[f'{name}_n']), 'other run')}"
        f" of this setup show{'s' if facts[f'{name}_n'] == 1 else ''} about {number(facts[f'{name}_center'])}: {rule.why}"
    )


@dataclass(frozen=True)
class LearnedCheck:
    """One learned observable, with what the healthy runs of each run's setup show.

    Attributes
    ----------
    outcomes : Outcomes
    center, n : ndarray of float, shape (n_runs,)
        The center of the healthy runs, on the scale of the number, and how many they are; NaN where
        there is nothing to compare with.
    taught : Taught or None
        What the fit has taught; None where there was none.
    """

    name: str
    outcomes: Outcomes
    center: Floats
    n: Floats
    taught: Taught | None = None

    _SENTENCES: ClassVar[Mapping[Why, Sentence]] = SHARED | {
        Why.ABOVE_RANGE: _far,
        Why.BELOW_RANGE: _far,
        Why.NO_RANGE: lambda _name, _facts: f"fewer than {FEWEST} other runs to compare it with",
    }

    @property
    def metric(self) -> str:
        """Return the column of the value."""
        return OBSERVED + self.name

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes:  # noqa: ARG002 - as every check
        """Return the outcomes, which were found for all runs together."""
        return self.outcomes

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return how far the number is from those of the healthy runs."""
        return self._SENTENCES[why](self.name, facts)

    def columns(self) -> dict[str, Floats]:
        """Return what the sentences need of each run."""
        return {f"{self.name}_center": self.center, f"{self.name}_n": self.n}


def learned_checks(
    runs: pd.DataFrame, *, alpha: float, broken_ratio: float, lessons: Lessons | None = None
) -> tuple[LearnedCheck, ...]:
    """Compare every learned observable with the healthy runs of its setup.

    Parameters
    ----------
    runs : DataFrame
        With ``exact_failed``: runs that fail a check teach nothing.
    alpha : float
        The share of healthy runs that any of them may flag; it is divided over those that there are.
    lessons : Lessons, optional
        What other runs have taught.
    """
    groups = tuple(grouped(runs))
    names = [name for name in names_in(groups) if name.startswith(LEARNED)]
    each = alpha / max(len(names), lessons.names if lessons else 0, 1)
    known = lessons.observables if lessons else {}

    def fit(part: pd.DataFrame, name: str) -> Model:
        return fit_model(part, broken_ratio, {None: known[name]} if name in known else None)

    return tuple(_learn(runs, name, each, fit, groups) for name in names)


def _learn(
    runs: pd.DataFrame,
    name: str,
    alpha: float,
    fit: Callable[[pd.DataFrame, str], Model],
    groups: tuple[Group, ...],
) -> LearnedCheck:
    value = numbers(runs, OBSERVED + name).copy()
    setup = texts(runs, "setup").copy()
    factor, share = np.full(len(runs), np.nan), np.zeros(len(runs), bool)
    result = Outcomes.blank(len(runs))
    result.why[:] = Why.NOT_ASKED
    for rule, where in rules_of(groups, name):
        if rule.kind == "skipped":
            result.set(where[~np.isnan(value[where])], SKIPPED, Why.BY_RULE)
            value[where] = np.nan
            continue
        factor[where], share[where] = rule.factor, rule.scale == "share"
        if rule.prompts:
            setup[where] = setup[where] + f" on {rule.prompts}"
    scaled = np.where(share, _odds(value), value)
    usable = np.isfinite(scaled) & (scaled > 0)
    result.set(usable, SKIPPED, Why.NO_RANGE)
    center, n = np.full(len(runs), np.nan), np.full(len(runs), np.nan)
    keys = pd.Series(setup)
    at = np.flatnonzero(usable)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.where(share, value, np.log(scaled))[at]
        least = np.where(share, factor, np.log(factor))[at]
    enough, wide = _comparable(pd.factorize(keys[at])[0], numbers(runs, "gap")[at], distance, least)
    result.set(at[enough], PASS, Why.NOTHING)
    taught = None
    if wide.any():
        where = at[wide]
        model = fit(_part(runs, keys, scaled, where), name)
        taught = prior_of_group(model)
        by = judged_in(model, None, alpha)
        middle, known = by["center"].to_numpy(dtype=float), by["n"].to_numpy(dtype=float) >= FEWEST
        shown = np.where(share[where], middle / (1 + middle), middle)
        center[where], n[where] = shown, by["n"]
        far = _is_far(value[where], shown, factor[where], share[where])
        above = known & far & (scaled[where] > by["high"].to_numpy(dtype=float))
        below = known & far & (scaled[where] < by["low"].to_numpy(dtype=float))
        result.set(where[known], PASS, Why.NOTHING)
        result.set(where[above], WARN, Why.ABOVE_RANGE, level=Level.SUSPECT)
        result.set(where[below], WARN, Why.BELOW_RANGE, level=Level.SUSPECT)
    return LearnedCheck(name, result, center, n, taught)


def _comparable(
    groups: NDArray[np.intp], gap: Floats, distance: Floats, far: Floats
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which runs have enough others to compare with, and which of them may be far from these.

    A center lies between the smallest and the largest number of its setup, so that in a setup that is narrower
    than what counts as far nothing has to be fitted. Runs that agree to the last bit, in their gaps too,
    are copies of one run or repeats of one seed: they count once.
    """
    copies = pd.Series(gap).duplicated(keep=False).to_numpy() & np.isfinite(gap) & (gap != 0)
    alike = pd.DataFrame({"group": groups[copies], "gap": gap[copies], "number": distance[copies]})
    copies[copies] = alike.duplicated().to_numpy()
    count = int(groups.max(initial=-1)) + 1
    enough = (np.bincount(groups[~copies], minlength=count) > FEWEST)[groups]
    low, high, least = np.full(count, np.inf), np.full(count, -np.inf), np.full(count, np.inf)
    np.minimum.at(low, groups, distance)
    np.maximum.at(high, groups, distance)
    np.minimum.at(least, groups, far)
    return enough, enough & (high - low >= least)[groups]


def _part(runs: pd.DataFrame, keys: pd.Series, scaled: Floats, where: NDArray[np.intp]) -> pd.DataFrame:
    """Return some runs as the ranges take them, with the observable in the place of the gap."""
    label = texts(runs, "label")[where]
    label[label == ""] = None
    return pd.DataFrame(
        {
            "setup": keys.to_numpy()[where],
            "gap": scaled[where],
            "label": label,
            "exact_failed": runs["exact_failed"].to_numpy(dtype=bool)[where],
        }
    )


def _odds(share: Floats) -> Floats:
    inside = np.clip(share, _EDGE, 1 - _EDGE)
    return inside / (1 - inside)


def _is_far(value: Floats, center: Floats, factor: Floats, share: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where a number is far from its center: by a distance on shares, else by a factor."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.abs(np.log(value / center))
        far: NDArray[np.bool_] = np.where(share, np.abs(value - center) >= factor, times >= np.log(factor))
    return far
