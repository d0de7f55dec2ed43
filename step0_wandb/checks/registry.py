"""Every check that is asked, in the order in which outputs show them: a new check is an entry here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.checks.answered import AnsweredCheck
from step0_wandb.checks.exact import EXACT_CHECKS
from step0_wandb.checks.gap import GapCheck, GapZeroCheck

if TYPE_CHECKING:
    from step0_wandb.checks.base import Check

CHECKS: tuple[Check, ...] = (
    *EXACT_CHECKS,
    GapCheck(),
    GapZeroCheck(),
    AnsweredCheck("every-rollout"),
    AnsweredCheck("first-update"),
)
BY_NAME = {check.name: check for check in CHECKS}
