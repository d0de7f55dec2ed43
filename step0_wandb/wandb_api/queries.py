"""The GraphQL documents that the server source asks.

The whole first rows come from ``history(minStep, maxStep, samples)``, which is not down-sampled where
it is asked for as many samples as the window has steps. ``sampledHistory`` returns only the keys asked
for and drops a row that lacks one of them, so each metric has a spec of its own; it tells at which
steps a metric was logged beyond the first rows. `maxStep` is exclusive in the one and inclusive in
the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.records import Json


STEP = "_step"
LABEL_TAGS = ("step0-ok", "step0-bad", "step0-skip")
"""The tags with which people label runs in W&B."""
ORDER = "+created_at"
LIGHT_PAGE = 500
"""Runs in a page without config and history."""
NAMED_PAGE = 100
"""Older runs whose names each sync looks at."""

SCANNED = 10_000
"""Rows of a step key in which later starts are looked for; from a longer history the server picks as many."""
_PAGE_INFO = "pageInfo { endCursor hasNextPage }"


@dataclass(frozen=True, slots=True)
class Window:
    """The steps from `low` up to but not including `high`; None has no end."""

    low: int
    high: int | None

    def spec(self, *keys: str, samples: int) -> str:
        """Return a spec of ``sampledHistory``: the rows that have all these keys."""
        asked: dict[str, object] = {"keys": [STEP, *keys], "samples": samples, "minStep": self.low}
        if self.high is not None:
            asked["maxStep"] = self.high - 1
        return json.dumps(asked)


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """What is read of a run's history at one time.

    Attributes
    ----------
    whole : Window
        Steps whose rows are read whole.
    sparse : Window
        Steps in which metrics are looked for.
    metrics : tuple of str
        Which; empty looks for none.
    samples : int
        Most rows a metric; a sparse window of no more steps is read without a loss.
    step_key : str
        A key whose values come with each metric; empty for none.
    scans : tuple of tuple
        Step keys, each with a metric next to which it stands, whose values in the whole history come too.
    """

    whole: Window
    sparse: Window
    metrics: tuple[str, ...]
    samples: int
    step_key: str = ""
    scans: tuple[tuple[str, str], ...] = ()

    def variables(self, suffix: str = "") -> dict[str, object]:
        """Return the variables of a query; the suffix tells apart the runs of a batch."""
        high = self.whole.low if self.whole.high is None else self.whole.high
        keys = (self.step_key,) if self.step_key else ()
        sparse = [self.sparse.spec(*keys, metric, samples=self.samples) for metric in self.metrics]
        return {
            f"specs{suffix}": [
                *sparse,
                *(Window(0, None).spec(*pair, samples=SCANNED) for pair in self.scans),
            ],
            f"low{suffix}": self.whole.low,
            f"high{suffix}": high,
            f"rows{suffix}": max(1, high - self.whole.low),
        }


class Fields(Enum):
    """What is asked of each run of a page."""

    NAME = "name jobType"
    LIGHT = 'name displayName state createdAt heartbeatAt tags group jobType user { username } historyLineCount wandbConfig(keys: ["e"])'
    NAMED = "name displayName state tags createdAt"
    IDENTITY = "name displayName state createdAt heartbeatAt tags group jobType user { username }"
    ALL = "all"


def page_document(fields: Fields, light: Sequence[str] = ()) -> str:
    """Return the query of a page of runs, with how many there are in all, and how many are our own.

    Parameters
    ----------
    light : sequence of str
        Names of further lists of runs, without config and history; each takes its filter from the
        variable of its name.
    """
    variables = "$filters: JSONString, $first: Int, $after: String, $order: String, $own: JSONString"
    extra = "total: runCount own: runCount(filters: $own) "
    if fields is Fields.ALL:
        variables += ", $specs: [JSONString!]!, $low: Int64!, $high: Int64!, $rows: Int!"
    for name in light:
        variables += f", ${name}: JSONString"
        first, kind = (NAMED_PAGE, Fields.NAMED) if name == "named" else (LIGHT_PAGE, Fields.LIGHT)
        # A server that refuses histories inside a page may not know the fields of the client either.
        kind = kind if fields is Fields.ALL else Fields.IDENTITY
        extra += f"{name}: runs(filters: ${name}, first: {first}, order: $order) {_connection(kind.value)} "
    node = _everything() if fields is Fields.ALL else fields.value
    return (
        f"query Step0Page($entity: String!, $project: String!, {variables}) {{ "
        f"project(name: $project, entityName: $entity) {{ {extra}"
        f"runs(filters: $filters, first: $first, after: $after, order: $order) {_connection(node)} }} }}"
    )


def batch_document(size: int, *, whole: bool, keys: bool = False) -> str:
    """Return the query of `size` runs by name, ``r0`` to ``r<size - 1>``, each with windows of its own.

    Parameters
    ----------
    whole : bool
        Whether identity and config come with the rows.
    keys : bool
        Whether the names of everything that was logged come too.
    """
    more = "historyKeys summaryMetrics " if keys else ""
    declared = "".join(
        f", $name{i}: String!, $specs{i}: [JSONString!]!, $low{i}: Int64!, $high{i}: Int64!, $rows{i}: Int!"
        for i in range(size)
    )
    fields = (
        f"r{i}: run(name: $name{i}) {{ {_everything(str(i)) if whole else f'name {more}{_history(str(i))}'} }}"
        for i in range(size)
    )
    return (
        f"query Step0Runs($entity: String!, $project: String!{declared}) {{ "
        f"project(name: $project, entityName: $entity) {{ {' '.join(fields)} }} }}"
    )


def _connection(node: str) -> str:
    return f"{{ edges {{ node {{ {node} }} }} {_PAGE_INFO} }}"


def _everything(suffix: str = "") -> str:
    return f"{Fields.IDENTITY.value} config historyLineCount {_history(suffix)}"


def _history(suffix: str = "") -> str:
    return (
        f"history(minStep: $low{suffix}, maxStep: $high{suffix}, samples: $rows{suffix}) "
        f"sampledHistory(specs: $specs{suffix})"
    )


def to_json(value: Mapping[str, Json]) -> str:
    """Return a filter as W&B takes it."""
    return json.dumps(value)


def names_filter(names: Sequence[str]) -> dict[str, Json]:
    """Return the filter that takes these runs."""
    return {"name": {"$in": list(names)}}
