"""A config that contradicts itself: another model on one side than on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from step0_wandb.checks.base import SHARED, text_in
from step0_wandb.checks.columns import numbers, texts
from step0_wandb.checks.gap import OWN_RANGES
from step0_wandb.checks.outcomes import FAIL, PASS, WARN, Level, Outcomes, Why
from step0_wandb.records import CONTRADICTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from step0_wandb.checks.base import Facts, Reference, Sentence


class ConfigCheck:
    """The config names one model for both sides; needs no other runs.

    A run whose config contradicts itself is suspect, and broken where its gap is above what its framework
    allows and no range says otherwise: then two signs agree.
    """

    name = metric = "config"

    _SENTENCES: ClassVar[Mapping[Why, Sentence]] = SHARED | {
        Why.CONTRADICTION: lambda _metric, facts: _sentence(facts)
    }

    def judge(self, runs: pd.DataFrame, reference: Reference) -> Outcomes | None:
        """Judge every run by its config; None where nothing is known of the configs."""
        import numpy as np

        if "contradiction" not in runs:
            return None
        result = Outcomes.blank(len(runs))
        result.why[:] = Why.NOT_ASKED
        result.set(texts(runs, "step0") == "found", PASS, Why.NOTHING)
        found = contradicts(runs)
        result.set(found, WARN, Why.CONTRADICTION, level=Level.SUSPECT)
        has_range = np.isin(reference.by["basis"].to_numpy(dtype=object), OWN_RANGES)
        is_high = numbers(runs, "gap") > numbers(runs, "ceiling")
        result.set(found & is_high & ~has_range, FAIL, Why.CONTRADICTION, level=Level.BROKEN)
        return result

    def sentence(self, why: Why, facts: Facts) -> str:
        """Return what contradicts what."""
        return self._SENTENCES[why](self.name, facts)


def contradicts(runs: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which runs contradict themselves; in a setup that a person has accepted none does."""
    found: NDArray[np.bool_] = texts(runs, "contradiction") != ""
    if "accepted_at" in runs:
        found &= runs["accepted_at"].isna().to_numpy()
    return found


def _sentence(facts: Facts) -> str:
    return CONTRADICTION + text_in(facts, "contradiction")
