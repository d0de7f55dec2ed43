"""What the double's server can do: each a thing in which real W&B servers differ, or may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Abilities:
    """Switches of the double; ``server.abilities = replace(server.abilities, alerts=False)``.

    Attributes
    ----------
    nested_history : bool
        Whether `sampledHistory` may be asked inside `runs`; else such a query is an HTTP 400.
    max_page : int
        Most runs in one page of `runs`; a larger `first` is cut down to it, as real servers do.
    cursors : {"offset", "stable"}
        ``offset``: a cursor is a position, so that pages shift when runs appear or go away.
        ``stable``: a cursor is a run, and paging goes on behind it.
    alerts : bool or callable of a run id
        Whether (for which run) `notifyScriptableRunAlert` is accepted; else it is an HTTP 403.
    stop : bool
        Whether `stopRun` is accepted.
    modify_runs : bool
        Whether `modifyRuns`, with which the web page adds a tag on the server, exists.
    resurrect : bool
        Whether a post to the stream of an ended run makes it ``running`` again.
    shared_history : {"append", "offset"}
        What becomes of the rows of a run with several writers: numbered in order of arrival, or
        written at the offset the client says, over other writers' rows.
    heartbeat_timeout_s : float
        A running run that was silent for longer is ``crashed``.
    """

    nested_history: bool = True
    max_page: int = 1000
    cursors: Literal["offset", "stable"] = "offset"
    alerts: bool | Callable[[str], bool] = True
    stop: bool = True
    modify_runs: bool = True
    resurrect: bool = True
    shared_history: Literal["append", "offset"] = "append"
    heartbeat_timeout_s: float = 300.0

    def accepts_alert(self, run_id: str) -> bool:
        """Whether an alert on this run is accepted."""
        return self.alerts(run_id) if callable(self.alerts) else self.alerts
