"""Which of two levels of a setup is right: asked once, answered by a label or an accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from step0_wandb.checks.columns import numbers, texts
from step0_wandb.ranges.screen import WINDOW
from step0_wandb.records import Level, Question
from step0_wandb.text.formatting import count, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from step0_wandb.verdicts.judge import Judgment

KEPT: Final = 50
"""Runs of a level that are named: the newest."""


def question_of(setup: str, row: Mapping[str, Any], result: Judgment) -> Question | None:
    """Return what to ask about a setup with two levels; None where a person has answered.

    Parameters
    ----------
    row : mapping
        The setup's row of `fit_ranges`.
    """
    own = texts(result.runs, "setup") == setup
    member = result.by["member"].to_numpy(dtype=bool)
    gap = numbers(result.runs, "gap")
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.abs(np.log(gap / row["other_center"])) <= WINDOW
    other = own & ~member & near & (result.verdict == "suspect")
    if not other.any() or _is_answered(result.runs, other):
        return None
    levels = tuple(
        Level(float(center), _newest(result.runs, chosen))
        for center, chosen in ((row["center"], own & member), (row["other_center"], other))
    )
    sizes = (int(row["n"]), int(row["other_n"]))
    said = " and ".join(
        f"{number(level.center)} ({count(size, 'run')})" for level, size in zip(levels, sizes, strict=True)
    )
    return Question(f"two levels: {said}; which is right? label a run of that level healthy", levels)


def _is_answered(runs: pd.DataFrame, other: NDArray[np.bool_]) -> bool:
    """Whether a person accepted the setup after the newest run of the other level."""
    if "accepted_at" not in runs or "created_at" not in runs:
        return False
    accepted_at, newest = runs["accepted_at"][other].max(), runs["created_at"][other].max()
    return bool(accepted_at >= newest)


def _newest(runs: pd.DataFrame, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    if "run" not in runs:
        return ()
    some = runs[chosen]
    if "created_at" in some:
        some = some.sort_values(["created_at", "run"], ascending=False)
    return tuple(map(str, some["run"].iloc[:KEPT]))
