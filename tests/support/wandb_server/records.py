"""What the double keeps for a test to look at: requests and alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(slots=True)
class Request:
    """One request as it came, and what became of it; never with the value of `Authorization`.

    Attributes
    ----------
    operations, fields : tuple of str
        GraphQL operation names, and the fields asked of the query's root.
    mutates : bool
        Whether this may change something: a mutation, a post to a run's stream, an upload.
    status : int or None
        None while it is unanswered, and where the connection was cut instead.
    fault : str or None
        The fault that was played on it.
    bytes_in, bytes_out : int
        Sizes of both bodies; of a cut answer, what was sent.
    in_flight : int
        Requests under way when this one came, itself counted.
    """

    method: str
    path: str
    headers: dict[str, str]
    authorized: bool
    bytes_in: int = 0
    operations: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    query: str = ""
    variables: dict[str, Any] = field(default_factory=dict)
    mutates: bool = False
    status: int | None = None
    bytes_out: int = 0
    seconds: float = 0.0
    fault: str | None = None
    in_flight: int = 1

    @property
    def is_graphql(self) -> bool:
        """Whether this is a GraphQL request."""
        return self.path == "/graphql"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert on a run; `level` is ``INFO``, ``WARN`` or ``ERROR``."""

    entity: str
    project: str
    run_id: str
    title: str
    text: str
    level: str
    wait: timedelta
    at: datetime

    def covers(self, later: Alert) -> bool:
        """Whether `later` is dropped: same run and title, within its wait duration of this one."""
        return self._subject == later._subject and later.at - self.at < later.wait

    @property
    def _subject(self) -> tuple[str, str, str, str]:
        return self.entity, self.project, self.run_id, self.title
