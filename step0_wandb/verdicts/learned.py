"""Observables that are compared with the healthy runs of their setup: gradient norm, entropy, lengths, shares.

The machinery of the ranges does it, on the numbers themselves where they are positive, and on the odds of
shares, whose logarithm is the logit. A number is worth a word where it is outside its range and far from
its center too; that lets nearly every setup be passed over before anything is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from step0_wandb.checks.base import SHARED
from step0_wandb.checks.columns import numbers, texts
from step0_wandb.checks.observables import grouped, names_in, rule_in, rules_of
from step0_wandb.checks.outcomes import PASS, SKIPPED, WARN, Level, Outcomes, Why
from step0_wandb.ranges.cells import Cells, sorted_order
from step0_wandb.ranges.judging import judged_in
from step0_wandb.ranges.model import fit_model
from step0_wandb.ranges.prior import FEW, Prior
from step0_wandb.ranges.screen import MEDIAN_TO_SD, SCREEN_ALPHA, about_median
from step0_wandb.ranges.taught import Taught
from step0_wandb.records import LEARNED, OBSERVED
from step0_wandb.text.formatting import count, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from step0_wandb.checks.base import Facts, Reference, Sentence
    from step0_wandb.checks.observables import Group
    from step0_wandb.ranges.model import Model

    Floats = NDArray[np.float64]

FEWEST = 3
"""Healthy runs that a comparison needs."""
SHARE_SPREAD, STEPS = 0.3, 8
"""What is assumed of the standard deviation: of the logit of a share, and how many of them of a logarithm
are far."""
PRIOR_DF, WIDER = 8.0, 1.5
"""How surely, and by which steps more is assumed where most setups scatter more."""
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
    spreads : mapping of str to float
        Standard deviation of the logarithm that was assumed of a setup, by the rule's name, scale and factor.
    """

    name: str
    outcomes: Outcomes
    center: Floats
    n: Floats
    spreads: Mapping[str, float] = field(default_factory=dict)

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
    runs: pd.DataFrame, *, alpha: float, broken_ratio: float, spreads: Mapping[str, float] | None = None
) -> tuple[LearnedCheck, ...]:
    """Compare every learned observable with the healthy runs of its setup.

    Parameters
    ----------
    runs : DataFrame
        With ``exact_failed``: runs that fail a check teach nothing.
    alpha : float
        The share of healthy runs that any of them may flag; it is divided over those that the run has.
    spreads : mapping of str to float, optional
        What a fit of more runs has found of how far setups scatter, see `LearnedCheck`.
    """
    groups = tuple(grouped(runs))
    names = [name for name in names_in(groups) if name.startswith(LEARNED)]
    each = alpha / shares_of_alpha(runs, names, groups)
    read = (read_numbers(runs, name, groups) for name in names)
    return tuple(_learn(one, runs, each, broken_ratio, spreads_of(one, spreads)) for one in read)


def shares_of_alpha(runs: pd.DataFrame, names: Iterable[str], groups: tuple[Group, ...]) -> Floats:
    """Return over how many learned observables each run has its alpha divided, at least 1."""
    asked = np.zeros(len(runs))
    for name in names:
        value = numbers(runs, OBSERVED + name)
        for rule, where in rules_of(groups, name):
            asked[where] += (rule.kind == "learned") & ~np.isnan(value[where])
    return np.maximum(asked, 1)


@dataclass(frozen=True, slots=True)
class Numbers:
    """One observable of all runs, and by which rule it is compared; one entry a run.

    Attributes
    ----------
    value, scaled : ndarray of float
        As logged, and on the scale of a gap: positive, its logarithm comparable.
    setup : ndarray of object
        Where the prompts count, with these.
    kind : ndarray of object
        Runs of one kind share what is assumed of their spread.
    spread : mapping of str to float
        Standard deviation of the logarithm of `scaled` that is assumed of each kind at least.
    """

    name: str
    value: Floats
    scaled: Floats
    setup: NDArray[np.object_]
    factor: Floats
    share: NDArray[np.bool_]
    kind: NDArray[np.object_]
    spread: Mapping[str, float]
    by_rule: NDArray[np.bool_]


def read_numbers(runs: pd.DataFrame, name: str, groups: tuple[Group, ...]) -> Numbers:
    """Return one observable of all runs."""
    value = numbers(runs, OBSERVED + name).copy()
    setup = texts(runs, "setup").astype(object)
    factor, kind = np.full(len(runs), np.nan), np.full(len(runs), None, dtype=object)
    share, by_rule = np.zeros((2, len(runs)), dtype=bool)
    spread = {}
    for rule, where in rules_of(groups, name):
        if rule.kind == "skipped":
            by_rule[where] = ~np.isnan(value[where])
            value[where] = np.nan
            continue
        factor[where], share[where] = rule.factor, rule.scale == "share"
        kind[where] = text = f"{name} {rule.scale} {rule.factor}"
        spread[text] = SHARE_SPREAD if rule.scale == "share" else float(np.log(rule.factor)) / STEPS
        if rule.prompts:
            setup[where] = setup[where] + f" on {rule.prompts}"
    scaled = np.where(share, _odds(value), value)
    return Numbers(name, value, scaled, setup, factor, share, kind, spread, by_rule)


def spreads_of(of: Numbers, known: Mapping[str, float] | None) -> dict[str, float]:
    """Return how far the runs of a setup usually scatter, by kind, in steps that a few runs do not change.

    So a verdict hardly depends on whether a whole store was judged or a part of it.
    """
    if known is not None:
        return {kind: known.get(kind, least) for kind, least in of.spread.items()}
    found = dict(of.spread)
    for kind, least in of.spread.items():
        at = np.flatnonzero((of.kind == kind) & np.isfinite(of.scaled) & (of.scaled > 0))
        setup, y = pd.factorize(of.setup[at])[0].astype(np.int64), np.log(of.scaled[at])
        order = sorted_order(setup, y)
        cells = Cells.of(setup[order])
        _, distance = about_median(y[order], cells)
        measured = (cells.counts > FEWEST) & (distance > 0)
        if measured.sum() >= FEW:
            times = MEDIAN_TO_SD * float(np.median(distance[measured])) / least
            found[kind] = least * WIDER ** max(int(np.log(times) / np.log(WIDER)), 0)
    return found


def _learn(
    of: Numbers, runs: pd.DataFrame, alpha: Floats, broken_ratio: float, spreads: Mapping[str, float]
) -> LearnedCheck:
    result = Outcomes.blank(len(runs))
    result.why[:] = Why.NOT_ASKED
    result.set(of.by_rule, SKIPPED, Why.BY_RULE)
    usable = np.isfinite(of.scaled) & (of.scaled > 0)
    result.set(usable, SKIPPED, Why.NO_RANGE)
    center, n = np.full(len(runs), np.nan), np.full(len(runs), np.nan)
    at = np.flatnonzero(usable)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.where(of.share, of.value, np.log(of.scaled))[at]
        least = np.where(of.share, of.factor, np.log(of.factor))[at]
    enough, wide = _comparable(pd.factorize(of.setup[at])[0], numbers(runs, "gap")[at], distance, least)
    result.set(at[enough], PASS, Why.NOTHING)
    if wide.any():
        where = at[wide]
        by = judged_in(fitted(of, runs, where, broken_ratio, spreads), None, SCREEN_ALPHA)
        middle, known = by["center"].to_numpy(dtype=float), by["n"].to_numpy(dtype=float) >= FEWEST
        shown = np.where(of.share[where], middle / (1 + middle), middle)
        center[where], n[where] = shown, by["n"]
        far = known & _is_far(of.value[where], shown, of.factor[where], of.share[where])
        far &= by["p_value"].to_numpy(dtype=float) < alpha[where]
        result.set(where[known], PASS, Why.NOTHING)
        result.set(where[far & (of.scaled[where] > middle)], WARN, Why.ABOVE_RANGE, level=Level.SUSPECT)
        result.set(where[far & (of.scaled[where] < middle)], WARN, Why.BELOW_RANGE, level=Level.SUSPECT)
    return LearnedCheck(of.name, result, center, n, spreads)


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


def fitted(
    of: Numbers,
    runs: pd.DataFrame,
    where: NDArray[np.intp],
    broken_ratio: float,
    spreads: Mapping[str, float],
) -> Model:
    """Return the model of some runs, with the observable in the place of the gap."""
    label = texts(runs, "label")[where]
    label[label == ""] = None
    part = pd.DataFrame(
        {
            "setup": of.setup[where],
            "gap": of.scaled[where],
            "gap_metric": of.kind[where],
            "label": label,
            "exact_failed": runs["exact_failed"].to_numpy(dtype=bool)[where],
        }
    )
    assumed: dict[str | None, Taught] = {
        kind: Taught(prior=Prior(PRIOR_DF, spread**2)) for kind, spread in spreads.items()
    }
    return fit_model(part, broken_ratio, assumed, either_side=True)


def _odds(share: Floats) -> Floats:
    inside = np.clip(share, _EDGE, 1 - _EDGE)
    return inside / (1 - inside)


def _is_far(value: Floats, center: Floats, factor: Floats, share: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where a number is far from its center: by a distance on shares, else by a factor."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.abs(np.log(value / center))
        far: NDArray[np.bool_] = np.where(share, np.abs(value - center) >= factor, times >= np.log(factor))
    return far
