"""A run as a source gives it, and its step 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - dataclasses
from typing import TYPE_CHECKING, Literal

from step0_wandb.records.names import ALIVE, run_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.records.names import Json


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """The numbers of one row of a run's history.

    Attributes
    ----------
    values : mapping of str to float
        Every number of the row; nested keys are joined with ``.`` as W&B does. Text, media and
        booleans are left out; NaN and infinities are kept.
    order : int
        Position in the order of reading, for rows that carry no step of their own.
    """

    values: Mapping[str, float]
    order: int = 0


NOTHING_LOGGED = (HistoryRow({}),)
"""The rows of a run whose history is known to be empty: one without values."""
LOST_ROW = HistoryRow({"_lost": 1.0}, -1)
"""Stands for the rows of a step that is in a run's summary and not in its history; W&B's own names begin so."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as a source gives it: who it is, its config, and the history rows that matter.

    Attributes
    ----------
    entity, project, run_id : str
        Identity; ``_`` where an offline run records none.
    state : str
        W&B's state (``running``, ``finished``, ``failed``, ``crashed`` ...). On disk it comes from
        the exit record; without one it is ``running`` for 24 h after the last write, then ``crashed``.
    created_at : datetime or None
        In UTC.
    config : mapping
        The run's W&B config, nested as logged, secrets already dropped.
    rows : tuple of HistoryRow
        The rows that step 0 may be made of, in reading order; `NOTHING_LOGGED` where the history has no
        row at all, as far as a source can tell.
    policy : str or None
        The policy that the rows belong to, where the run trains several; their metric names carry no
        prefix then.
    start : int
        Which of the starts under one run id this is, the first is 1.
    """

    entity: str
    project: str
    run_id: str
    name: str = ""
    url: str | None = None
    user: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    state: str = "running"
    config: Mapping[str, Json] = field(default_factory=dict)
    rows: tuple[HistoryRow, ...] = ()
    policy: str | None = None
    start: int = 1

    @property
    def key(self) -> str:
        """Return the run's key, ``entity/project/run_id`` or ``entity/project/run_id#policy``."""
        return run_key(self.entity, self.project, self.run_id, self.policy)

    @property
    def logged_nothing(self) -> bool:
        """Whether the history is known to have no row at all."""
        return bool(self.rows) and not any(row.values for row in self.rows)

    @property
    def alive(self) -> bool:
        """Whether the run may still log its step 0."""
        return self.state in ALIVE


@dataclass(frozen=True, slots=True)
class Step0:
    """What step 0 of a run says, or why there is none.

    Attributes
    ----------
    status : {"found", "pending", "no-step0"}
    profile : str or None
        The framework whose metric names the run has.
    note : str
        Why the run has no step 0, or what to know about it (a hidden resume); else empty.
    fit : bool
        Whether the run may enter a range; a resumed run may not.
    step : float or None
        The value of the profile's step key.
    row : mapping of str to float
        Every number of the step-0 row, merged from the history rows of that logical step.
    gap_metric : str or None
        The metric that `gap` was read from.
    observed : mapping of str to float
        The number of each observable that the row has, by the name of its check.
    """

    status: Literal["found", "pending", "no-step0"]
    profile: str | None = None
    note: str = ""
    fit: bool = True
    step: float | None = None
    row: Mapping[str, float] = field(default_factory=dict)
    ppo_kl: float | None = None
    clip_frac: float | None = None
    gap: float | None = None
    gap_metric: str | None = None
    observed: Mapping[str, float] = field(default_factory=dict)
