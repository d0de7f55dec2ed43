"""What profiles make of a run: which checks apply to it, and how."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from step0_wandb.records.runs import Step0


@dataclass(frozen=True, slots=True)
class Rule:
    """How one check applies to one run.

    Attributes
    ----------
    kind : str
        ``exact`` (|value| <= limit), ``learned`` (as exact until three healthy runs, then by the
        setup's own history), ``averaged`` (skipped, but a large value is suspect), ``range`` (the
        gap's range), ``zero`` (exactly 0, true on-policy), ``vacuous`` or ``skipped`` (with `why`).
    limit : float or None
        Largest absolute value that passes.
    above : str
        The verdict of a value above the limit: ``broken`` or ``suspect``.
    broken_from : float
        From this absolute value on the verdict is ``broken`` (``averaged``: ``suspect``).
    why : str
        A sentence for people: why the check proves nothing or does not apply.
    """

    kind: Literal["exact", "learned", "averaged", "range", "zero", "vacuous", "skipped"]
    limit: float | None = None
    above: Literal["broken", "suspect"] = "broken"
    broken_from: float = math.inf
    why: str = ""


@dataclass(frozen=True, slots=True)
class ObservableRule:
    """What must hold for one number of a run's step-0 row.

    Attributes
    ----------
    name : str
        The check, such as ``ref_kl``, ``bound:k3`` or ``learned:entropy``.
    metric : str
        Where the number was read.
    kind : str
        ``interval``, ``difference`` and ``finite`` lie between `low` and `high`, else the run is suspect,
        and broken from `broken_low` or `broken_high` on; ``learned`` ones are compared with the setup's
        healthy runs; ``skipped`` (with `why`).
    title, why : str
        What the number is called in a sentence, and what a value outside usually means.
    or_gap : bool
        Whether the run's own gap is the limit where that is larger.
    scale : str
        ``log`` for positive numbers, ``share`` for those from 0 to 1.
    factor : float
        Of a learned one: how many times the center, or how far from it on a share, is worth a word.
    prompts : str
        Which prompts, where only runs on the same ones compare; else empty.
    """

    name: str
    metric: str
    kind: Literal["interval", "difference", "finite", "learned", "skipped"]
    title: str
    why: str = ""
    low: float | None = None
    high: float | None = None
    broken_low: float | None = None
    broken_high: float | None = None
    or_gap: bool = False
    scale: Literal["log", "share"] = "log"
    factor: float = 2.0
    prompts: str = ""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """Which checks apply to a run, and how; decided by its profile and config alone.

    Attributes
    ----------
    ceiling : float or None
        The gap that the framework itself allows; what there is before a range exists.
    ceiling_from : str
        Who allows it, as the end of a sentence "above what ...".
    gap_zero : str
        Why a gap of exactly 0 was not measured, where the config shows it; else empty.
    switch : str
        What to set so that a missing metric is logged.
    observables : tuple of ObservableRule
        What must hold for the other numbers of the row, one for each that it has.
    contradiction : str
        What of the config contradicts itself, such as another model on one side; else empty.
    gap_spread : float or None
        Standard deviation of ln(gap) that is assumed of the gap metric at first; None as ranges assume.
    """

    ppo_kl: Rule
    clip_frac: Rule
    gap: Rule
    ceiling: float | None = None
    ceiling_from: str = ""
    gap_zero: str = ""
    switch: str = ""
    observables: tuple[ObservableRule, ...] = ()
    contradiction: str = ""
    gap_spread: float | None = None


@dataclass(frozen=True, slots=True)
class Covariates:
    """What explains part of a run's gap; None where it is not known.

    Attributes
    ----------
    entropy : float or None
        Mean entropy of the step-0 row, in nats a token.
    seed : str or None
        What decides which prompts the run drew, as text.
    data : str or None
        Which prompts there were to draw from, and how many were drawn.
    prompts : float or None
        Number of prompts in the row.
    """

    entropy: float | None = None
    seed: str | None = None
    data: str | None = None
    prompts: float | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What profiles and settings make of a stored run; computed again when they change.

    Attributes
    ----------
    setup : str or None
        The readable label of the run's setup; None without a profile or a step 0.
    plan : CheckPlan or None
        None without a step 0.
    """

    step0: Step0
    setup: str | None = None
    plan: CheckPlan | None = None
    covariates: Covariates = Covariates()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read, in one line: where it is, and what is wrong with it."""

    where: str
    what: str
