"""What a sync writes back to W&B: tables, a report, and the state that travels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from step0_wandb.pull import Outside
    from step0_wandb.records import Problem
    from step0_wandb.settings import Loaded
    from step0_wandb.store import Store


def restore(store: Store, loaded: Loaded, outside: Outside) -> None:
    """Start an empty store from the state that an earlier sync left in W&B."""


def publish(store: Store, loaded: Loaded, outside: Outside, *, dry_run: bool) -> tuple[Problem, ...]:
    """Write tables, report and state where the settings ask for them and something changed."""
    return ()
