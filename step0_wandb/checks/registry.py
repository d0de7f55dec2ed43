"""Every check that is asked, in the order in which outputs show them: a new check is an entry here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.checks import exact
from step0_wandb.checks.answered import AnsweredCheck
from step0_wandb.checks.contradiction import ConfigCheck, contradicts
from step0_wandb.checks.exact import EXACT_CHECKS
from step0_wandb.checks.gap import GapCheck, GapZeroCheck
from step0_wandb.checks.observables import history_free
from step0_wandb.checks.outcomes import FAIL

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from step0_wandb.checks.base import Check

CHECKS: tuple[Check, ...] = (
    *EXACT_CHECKS,
    GapCheck(),
    GapZeroCheck(),
    ConfigCheck(),
    AnsweredCheck("every-rollout"),
    AnsweredCheck("first-update"),
)


def exact_failed(runs: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which runs fail a check that needs no other runs, and so may not enter a range."""
    failed = exact.exact_failed(runs) | contradicts(runs)
    for check in history_free(runs):
        failed |= check.outcomes(runs).outcome == FAIL
    return failed
