"""Where the documentation explains a check."""

from __future__ import annotations

from step0_wandb.checks.registry import CHECKS
from step0_wandb.profiles.metrics import BOUNDS
from step0_wandb.profiles.observables import catalog

DOCS = "docs"
"""Where the pages are: a folder of the source tree; the address of the site once there is one."""


def documented_checks() -> tuple[str, ...]:
    """Return the name of every check that comes with the package; a profile may define more."""
    bounds = [f"bound:{statistic}" for statistic in BOUNDS]
    return tuple(dict.fromkeys([*(check.name for check in CHECKS), *catalog(), *bounds]))


def page_of(check: str) -> str | None:
    """Return the page about a check, as a path in the source tree; None for a check of a user's profile.

    A family such as ``learned:...`` has one page with a section for each of its checks.

    Examples
    --------
    >>> page_of("ppo_kl"), page_of("learned:entropy")
    ('docs/checks/ppo_kl.md', 'docs/checks/learned.md#entropy')
    """
    if check not in documented_checks():
        return None
    family, _, name = check.partition(":")
    return f"{DOCS}/checks/{family}.md" + (f"#{name}" if name else "")
