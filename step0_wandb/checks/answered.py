"""Checks whose answer comes with the run, because it needs rows or a config that a frame does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from step0_wandb.checks.base import SHARED
from step0_wandb.checks.columns import numbers, texts
from step0_wandb.checks.outcomes import OUTCOMES, SKIPPED, Outcomes, Why

if TYPE_CHECKING:
    import pandas as pd

    from step0_wandb.checks.base import Facts, Reference
    from step0_wandb.checks.outcomes import Level
    from step0_wandb.records import OutcomeName


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a check of one run.

    Attributes
    ----------
    message : str
        A sentence for people.
    value, limit : float or None
        The gravest value, and the largest that passes.
    """

    check: str
    outcome: OutcomeName
    level: Level
    message: str
    value: float | None = None
    limit: float | None = None

    def columns(self) -> dict[str, float | str | None]:
        """Return the answer as columns of a frame of runs, which `AnsweredCheck` reads."""
        return {
            self.check: self.value,
            f"{self.check}_limit": self.limit,
            f"{self.check}_outcome": self.outcome,
            f"{self.check}_level": int(self.level),
            f"{self.check}_why": self.message,
        }


@dataclass(frozen=True)
class AnsweredCheck:
    """A check that is asked of the runs that bring an `Answer` to it."""

    name: str

    @property
    def metric(self) -> str:
        """Return the column of the value, which is named as the check."""
        return self.name

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes | None:  # noqa: ARG002 - as every check
        """Return the answers; None where no run brings one."""
        if f"{self.name}_outcome" not in runs:
            return None
        answers = texts(runs, f"{self.name}_outcome")
        result = Outcomes.blank(len(runs))
        result.set(answers == "", SKIPPED, Why.NOT_ASKED)
        for outcome, name in enumerate(OUTCOMES):
            result.set(answers == name, outcome, Why.BY_RULE)
        result.level[:] = np.nan_to_num(numbers(runs, f"{self.name}_level"))
        result.limit[:] = numbers(runs, f"{self.name}_limit")
        return result

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return the message of the answer."""
        return SHARED[why](self.name, facts)
