"""Names and constants that every part of the package shares, and the key of a run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What a W&B config can hold."""

VerdictName = Literal["broken", "suspect", "no-range", "unchecked", "pending", "no-step0", "healthy"]
LabelName = Literal["healthy", "broken", "exclude"]
OutcomeName = Literal["pass", "fail", "warn", "vacuous", "skipped"]

VERDICTS: tuple[VerdictName, ...] = (
    "broken",
    "suspect",
    "no-range",
    "unchecked",
    "pending",
    "no-step0",
    "healthy",
)
"""In the order in which people want to see them."""

FLAGGED: tuple[VerdictName, ...] = ("broken", "suspect")
"""The verdicts that need a person, the gravest first."""

FOUND_95 = 1.645
"""Standard deviations that 95 % of normal values do not fall short by."""
ALPHA = 0.001
"""Share of healthy runs that may fall outside their range, where nobody asks for another."""
BROKEN_RATIO = 2.0
"""A gap above its range is broken from this many times the center on, where nobody asks for another."""
BOUND_DEFAULTS: dict[str, float] = {
    "mean-abs": 0.5,
    "k3": 0.5,
    "signed-mean": 0.5,
    "probability": 0.1,
    "ratio": 1.0,
    "log-perplexity": 0.3,
    "pearson": 0.9,
    "chi2": 1.0,
    "ess": 0.3,
}
"""By statistic the value from which a run is broken whatever its setup shows, where nobody asks for another.

In nats, as a probability, or above a ratio of 1; a correlation or an effective sample size is broken below.
"""

ALIVE = frozenset({"running", "pending", "preempting"})
"""The states in which a run may still log its step 0."""

OWN_JOB_TYPE = "step0-sync"
"""The job type of the tool's own W&B runs, which are never read."""


LEARNED = "learned:"
"""How the names of the checks begin that need the setup's other runs."""

CONTRADICTION = "its config contradicts itself: "
"""How the reason begins that a config contradicts itself; the cause follows."""

OBSERVED = "observed."
"""What stands before the name of an observable in the columns of a frame of runs."""


def run_key(entity: str, project: str, run_id: str, policy: str | None = None) -> str:
    """Return ``entity/project/run_id``, with ``_`` for what an offline run does not record.

    One policy of a run that trains several is ``entity/project/run_id#policy``.
    """
    return f"{entity or '_'}/{project or '_'}/{run_id}" + (f"#{policy}" if policy else "")


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield items in lists of `size`, the last one shorter.

    Examples
    --------
    >>> list(chunks("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


@dataclass(frozen=True, slots=True)
class RunKey:
    """The parts of a run's key."""

    entity: str
    project: str
    run_id: str
    policy: str | None = None

    @classmethod
    def of(cls, key: str) -> RunKey:
        """Return the parts of ``entity/project/run_id`` or ``entity/project/run_id#policy``."""
        entity, project, rest = key.split("/", 2)
        run_id, _, policy = rest.partition("#")
        return cls(entity, project, run_id, policy or None)
