"""What one judgment of all runs has taught, kept so that the next can look at what is new alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from step0_wandb.ranges.taught import Taught, setup_fits, taught_by, variances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from step0_wandb.records import SetupFit
    from step0_wandb.verdicts.judge import Judgment


@dataclass(frozen=True, slots=True)
class Lessons:
    """What is known of the gap metrics, and of the observables that are compared with those of other runs.

    Attributes
    ----------
    gaps : mapping of str to Taught
        By gap metric.
    observables : mapping of str to Taught
        By name of the check.
    names : int
        Number of checks of that kind, over which alpha is divided.
    """

    gaps: Mapping[str | None, Taught]
    observables: Mapping[str, Taught] = field(default_factory=dict)
    names: int = 0

    @classmethod
    def of(cls, judgment: Judgment) -> Lessons:
        """Return what a judgment of all runs has taught."""
        found = {check.name: check.taught for check in judgment.learned if check.taught}
        return cls(taught_by(judgment.model), found, len(judgment.learned))

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
        return {
            "gaps": [[metric, taught.document()] for metric, taught in self.gaps.items()],
            "observables": {name: taught.document() for name, taught in self.observables.items()},
            "names": self.names,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Lessons:
        """Return what `document` made."""
        return cls(
            {metric: Taught.from_document(one) for metric, one in document["gaps"]},
            {name: Taught.from_document(one) for name, one in document["observables"].items()},
            document["names"],
        )


def fits_of(judgment: Judgment) -> list[SetupFit]:
    """Return the levels of every setup of a judgment."""
    return setup_fits(judgment.model)
