"""What one judgment of all runs has taught, kept so that the next can look at what is new alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from step0_wandb.ranges.taught import Taught, setup_fits, taught_by, variances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from step0_wandb.records import SetupFit
    from step0_wandb.verdicts.judge import Judgment


@dataclass(frozen=True, slots=True)
class Lessons:
    """What is known of the gap metrics.

    Attributes
    ----------
    gaps : mapping of str to Taught
        By gap metric.
    spreads : mapping of str to float
        How far setups scatter in the observables that are compared with those of other runs.
    """

    gaps: Mapping[str | None, Taught]
    spreads: Mapping[str, float]

    @classmethod
    def of(cls, judgment: Judgment) -> Lessons:
        """Return what a judgment of all runs has taught."""
        spreads = {kind: spread for check in judgment.learned for kind, spread in check.spreads.items()}
        return cls(taught_by(judgment.model), spreads)

    def with_fits(self, fits: Iterable[SetupFit]) -> Lessons:
        """Return the same with the levels of some setups, which are not among the runs to be judged."""
        levels = variances(fits)
        empty: tuple[list[float], list[float]] = ([], [])
        gaps = {}
        for metric, taught in self.gaps.items():
            variance, d = levels.get(metric, empty)
            gaps[metric] = replace(taught, variance=np.array(variance), d=np.array(d))
        return replace(self, gaps=gaps)

    def document(self) -> dict[str, Any]:
        """Return them as JSON."""
        gaps = [[metric, taught.document()] for metric, taught in self.gaps.items()]
        return {"gaps": gaps, "spreads": {kind: str(spread) for kind, spread in self.spreads.items()}}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Lessons:
        """Return what `document` made."""
        gaps = {metric: Taught.from_document(one) for metric, one in document["gaps"]}
        # A store of an earlier version has none: the defaults hold until everything is judged again.
        return cls(gaps, {kind: float(spread) for kind, spread in document.get("spreads", {}).items()})


def fits_of(judgment: Judgment) -> list[SetupFit]:
    """Return the levels of every setup of a judgment."""
    return setup_fits(judgment.model)
