"""Labels that people give in W&B: a tag on the run, from a browser or a phone.

A tag speaks as long as it is there, and never over a label from the shell, which carries a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlalchemy import select

from step0_wandb.store import people
from step0_wandb.store.codec import parsed
from step0_wandb.store.people import BY_TAG, Label
from step0_wandb.store.schema import runs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from step0_wandb.records import LabelName
    from step0_wandb.store.database import Database

TAGS: dict[str, LabelName] = {"step0-bad": "broken", "step0-skip": "exclude", "step0-ok": "healthy"}
"""What each tag says; of several the first here counts."""


def label_of(tags: Iterable[str]) -> LabelName | None:
    """Return what a run's tags say of it.

    Examples
    --------
    >>> label_of(["baseline", "Step0-OK"])
    'healthy'
    """
    lower = {tag.strip().lower() for tag in tags}
    return next((label for tag, label in TAGS.items() if tag in lower), None)


def follow(database: Database, *, now: datetime) -> None:
    """Make the labels say what the tags of the stored runs say; only what differs is written."""
    tagged = select(runs.c.run, runs.c.tags).where(runs.c.tags.icontains("step0-"))
    with database.transaction() as connection:
        said = people.all_labels(database)
        by_tag = {run: label.label for run, label in said.items() if label.who == BY_TAG}
        wanted = {
            row.run: label
            for row in connection.execute(tagged)
            if (label := label_of(cast("list[str]", parsed(row.tags))))
            and (row.run in by_tag or row.run not in said)
        }
        for run in by_tag.keys() - wanted.keys():
            people.forget_label(database, run)
        for run, label in wanted.items():
            if by_tag.get(run) != label:
                people.say(database, Label(run, label, "", BY_TAG, now))
