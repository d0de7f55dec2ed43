"""Alerts of a sync: what is new goes into the store's outbox, and from there out, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from step0_wandb.pull import Outside
    from step0_wandb.settings import Loaded
    from step0_wandb.store import Store


def queue(store: Store, loaded: Loaded, *, now: datetime) -> None:
    """Put alerts about new verdicts into the outbox; called in the transaction that stores the verdicts."""


def deliver(
    store: Store, loaded: Loaded, outside: Outside, *, dry_run: bool
) -> tuple[dict[str, object], ...]:
    """Send what the outbox holds; return what became of each alert."""
    return ()
