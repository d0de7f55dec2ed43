"""Causes in the texts that leave: the first one stands before the reasons, one that runs share stands once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from step0_wandb.records import CONTRADICTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.records import JudgedRun


def further_reasons(run: JudgedRun, cause: str) -> tuple[str, ...]:
    """Return the reasons of a run without the one that only repeats its cause."""
    return tuple(reason for reason in run.reasons if not cause or reason != CONTRADICTION + cause)


def shared_causes(runs: Iterable[JudgedRun], causes: Mapping[str, str]) -> dict[str, int]:
    """Return the causes that several of these runs have, and how many have each.

    Parameters
    ----------
    causes : mapping of str to str
        The first cause of a run, by its key.
    """
    amounts = Counter(causes[run.run] for run in runs if causes.get(run.run))
    return {cause: amount for cause, amount in amounts.items() if amount > 1}


def together(runs: Sequence[JudgedRun], causes: Mapping[str, str]) -> list[JudgedRun]:
    """Return the runs in their order, but those that share a cause next to the first of them."""
    first: dict[str, int] = {}
    for at, run in enumerate(runs):
        first.setdefault(causes.get(run.run) or run.run, at)
    return sorted(runs, key=lambda run: first[causes.get(run.run) or run.run])
