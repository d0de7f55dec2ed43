"""Which run or setup a person means, and which run a launch script, whose id it cannot know."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.records import ALIVE
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from datetime import datetime

    from step0_wandb.store import Store

_SILENT = timedelta(seconds=90)
"""A run that was killed shows as running for minutes; the client gives a sign of life every 30 s."""


@dataclass(frozen=True, slots=True)
class Newest:
    """Which run is meant, where a launch script cannot know its id: the newest of those that match.

    Attributes
    ----------
    since : datetime
        It was created then or later.
    group, name : str or None
        The run's group or name is this, or begins with it and ``_``.
    over : bool
        Whether it may have ended before the gate was called: such a run is of an earlier launch, and a
        script that stops its job by the verdict would stop the wrong one.
    """

    since: datetime
    group: str | None = None
    name: str | None = None
    over: bool = False

    def matches(self, group: str | None, name: str, created_at: datetime | None) -> bool:
        """Return whether a run with this group and name, created then, is meant."""
        young = created_at is not None and created_at >= self.since
        wanted = [(self.group, group), (self.name, name)]
        return young and all(_begins(value or "", text) for text, value in wanted if text is not None)

    def was_over(
        self, state: str, created_at: datetime | None, heartbeat_at: datetime | None, *, call: datetime
    ) -> bool:
        """Return whether a run had ended, or fallen silent, before the gate was called."""
        if self.over or created_at is None or created_at >= call:
            return False
        return state not in ALIVE or (heartbeat_at is not None and call - heartbeat_at > _SILENT)

    def __str__(self) -> str:
        parts = [("group", self.group), ("name", self.name)]
        return " and ".join(f"{what} {text}" for what, text in parts if text)


def _begins(value: str, text: str) -> bool:
    return value == text or value.startswith(f"{text}_")


def find_setup(store: Store, text: str) -> str:
    """Return the label of the one setup that a text matches.

    Raises
    ------
    UsageError
        The store has no such setup, or several.
    """
    names, wanted = [item.setup for item in store.verdicts.ranges()], text.strip("\"'").lower()
    hits = (
        [name for name in names if name == text]
        or [name for name in names if name.lower().partition(" · ")[2] == wanted]  # all but the profile
        or [name for name in names if wanted in name.lower()]
    )
    if len(hits) == 1:
        return hits[0]
    if hits:
        shown = "; ".join(clean(name) for name in hits)
        raise UsageError(f"{text!r} matches {len(hits)} setups: {shown}", "Use the full label of one.")
    raise UsageError(f"No setup matches {text!r}", "`step0-wandb ranges` lists them.")


def find_run(store: Store, text: str) -> str:
    """Return the key of the stored run that a person means.

    Raises
    ------
    UsageError
        The store has no such run, or several.
    """
    keys = store.runs.find(text)
    if len(keys) == 1:
        return keys[0]
    if keys:
        raise UsageError(f"{text!r} names {len(keys)} runs: {', '.join(keys)}", "Give one of these keys.")
    raise UsageError(f"{text!r} is not in the store {store.path}", "`step0-wandb runs` lists what is.")
