"""Where in a run's history step 0 is: look by query, each no wider than what comes back without loss.

The first rows are read whole with the page. Where they do not settle step 0, the metrics are looked
for behind them: first among the next steps, then in the whole rest, which a server may thin out so
that the first rows are lost. What comes back is then an upper bound, and the steps before it are
looked at in turn, until a window has no metric or is narrow enough to come back whole.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from step0_wandb.records import ALIVE, HistoryRow
from step0_wandb.step0.policies import of_policy, prefixes
from step0_wandb.wandb_api.queries import SCANNED, STEP, HistoryQuery, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.records import Json
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.wandb_api.answers import HistoryPart, RunNode

FIRST_ROWS = 8
"""Rows read whole at once. Miles writes 3 to 4 rows before its first optimizer step, verl 1."""
NEXT_STEPS = 32
"""Steps behind them in which the same request looks for metrics."""
SAMPLES = 100
"""Rows a metric, where the rest of a history is searched."""
BEFORE, AFTER = 6, 10
"""Rows read whole around the first metric: rows of the same rollout come before and after it."""
MOST_QUERIES = 8
MOST_POLICIES = 8
"""Policies of one run that are looked for."""
MOST_STARTS = 4
"""Later starts of one run that are read, the newest ones."""


def first_query(metrics: Iterable[str]) -> HistoryQuery:
    """Return what is read of every run's history; `metrics` are looked for behind the first rows."""
    return HistoryQuery(
        whole=Window(0, FIRST_ROWS),
        sparse=Window(FIRST_ROWS, FIRST_ROWS + NEXT_STEPS),
        metrics=tuple(sorted(metrics)),
        samples=NEXT_STEPS,
    )


def later_starts(rows: Sequence[Mapping[str, float]], key: str) -> list[Window]:
    """Return where in a history the first step comes once more: the rows around it, without those before.

    Steps grow within a start, so a start begins where the step key falls back to its smallest value. One
    that falls back to a later step goes on from a checkpoint, and repeated values are one step. Where
    the first step comes behind later ones only, its row arrived late.

    Parameters
    ----------
    rows : sequence of mapping
        Rows with `key` and ``_step``, in order of ``_step``.

    Examples
    --------
    >>> steps = [0, 0, 1, 2, 0, 1]
    >>> later_starts([{"_step": at, "train/step": step} for at, step in enumerate(steps)], "train/step")
    [Window(low=4, high=14)]
    """
    first = min((row[key] for row in rows), default=math.nan)
    return [
        Window(max(int(before[STEP]) + 1, int(row[STEP]) - BEFORE), int(row[STEP]) + AFTER)
        for before, row in pairwise(rows)
        if row[key] == first < before[key]
    ]


class Step0Search:
    """The search for step 0 in one run.

    Parameters
    ----------
    node : RunNode
        The run with what its first query showed.
    query : HistoryQuery
        That query; it may name some of the metrics only.
    config : mapping
        Its config, without secrets.

    Attributes
    ----------
    rows : tuple of HistoryRow
        The rows that step 0 may be made of.
    decided : bool
        Whether step 0 is there and no later row can change it.
    next : Look or None
        What to read next; None when the search is over.
    """

    def __init__(
        self, node: RunNode, query: HistoryQuery, *, config: Mapping[str, Json], finder: Step0Finder
    ) -> None:
        self.node = node
        self.config = config
        self.rows: tuple[HistoryRow, ...] = ()
        self.decided = False
        self.next: HistoryQuery | None = query
        self.later: list[Step0Search] = []
        self._finder = finder
        self._seen: dict[float, HistoryRow] = {}
        self._keys: frozenset[str] = frozenset()
        self._policies: list[str] = []
        self._prefix = ""
        self._queries = 0
        self._searched_to = FIRST_ROWS
        self.add(node.seen)

    def add(self, part: HistoryPart) -> None:
        """Take what the last query showed, and decide on the next."""
        query = self.next
        if query is None:
            raise ValueError("the search is over")
        for row in part.rows:
            self._seen.setdefault(row.values.get(STEP, -1.0 - row.order), row)
        self._keys |= part.keys
        self._note_policies()
        self._read()
        self._queries += 1
        is_over = self._queries >= MOST_QUERIES * (1 + len(self._policies))
        self.next = None if is_over else self._after(query, part)

    @property
    def newest(self) -> Step0Search:
        """Return the search of the newest start."""
        return self.later[-1] if self.later else self

    @property
    def has_lost_rows(self) -> bool:
        """Whether the summary has metrics of a training step, and the history has none."""
        return not (self._finder.has_metrics(self.rows) or self._finder.metrics.isdisjoint(self._keys))

    def scan(self) -> HistoryQuery | None:
        """Return the query that shows whether the run started again; None where there is no step key."""
        row = next((row for row in self.rows if self._finder.has_metrics([row])), None)
        if row is None:
            return None
        policy = min(prefixes(row.values, self._finder.step_keys), default="")
        prefix = f"{policy}/" if policy and self._finder.metrics.isdisjoint(row.values) else ""
        values = of_policy(row.values, policy) if prefix else row.values
        logged = self._finder.metrics & values.keys()
        profile = self._finder.profiles.pick(logged, self.config) if logged else None
        if profile is None:
            return None
        metric = min(logged & profile.metrics.names, default="")
        key = next((key for key in profile.step.keys if key in values and key != STEP), "")
        if not metric or not key:
            return None
        sparse = Window(0, None)
        return HistoryQuery(Window(0, 1), sparse, (prefix + metric,), SCANNED, step_key=prefix + key)

    def start_at(self, query: HistoryQuery, part: HistoryPart) -> None:
        """Add a later start, whose rows `part` has."""
        node = replace(self.node, seen=part, line_count=len(part.rows))
        self.later.append(Step0Search(node, query, config=self.config, finder=self._finder))

    def take_late_rows(self) -> None:
        """Take the rows of the first later start for step 0: they came after those of later steps."""
        late = self.later.pop(0)
        self.rows, self.decided = late.rows, late.decided

    def _read(self) -> None:
        """Go through the rows known so far as through a file: in order, until step 0 is decided."""
        self.rows, self.decided = (), False
        for order, step in enumerate(sorted(self._seen)):
            values = self._seen[step].values
            if not self._finder.wants(values):
                continue
            self.rows = self._finder.prune((*self.rows, HistoryRow(values, order)), self.config)
            self.decided = self._finder.decided(self.rows, self.config)
            if self.decided and not self._policies:
                return

    def _has_step0(self) -> bool:
        """Return whether step 0 is there of what is looked for now."""
        if not self._prefix:
            return self.decided
        rows = [
            HistoryRow(of_policy(row.values, self._prefix[:-1]), order)
            for order, (_, row) in enumerate(sorted(self._seen.items()))
        ]
        return self._finder.decided(rows, self.config)

    def _note_policies(self) -> None:
        """Note whose metrics have a prefix, as far as is known; none where there are some without."""
        names = self._keys.union(*(row.values for row in self._seen.values()))
        if self._finder.metrics.isdisjoint(names):
            found = prefixes(names, self._finder.step_keys) - set(self._policies)
            self._policies = [*self._policies, *sorted(found)][:MOST_POLICIES]

    def _after(self, query: HistoryQuery, part: HistoryPart) -> HistoryQuery | None:
        """Return the next query: for metrics without a prefix, then for those of each policy."""
        found = self._next_look(query, part) if self._prefix or not self._policies else None
        if found is None and self._may_have_lost_rows():
            return HistoryQuery(
                Window(0, 1), Window(0, 1), (), 1
            )  # the names of all that was logged come along
        if found is not None or self._is_all():
            return found
        at = self._policies.index(self._prefix[:-1]) + 1 if self._prefix else 0
        for policy in self._policies[at:]:
            self._prefix, self._searched_to = f"{policy}/", FIRST_ROWS
            if not self._has_step0():
                return HistoryQuery(Window(0, 1), Window(FIRST_ROWS, None), self._metrics(), SAMPLES)
        return None

    def _may_have_lost_rows(self) -> bool:
        """Return whether another process may have written over the rows of step 0, and that was not asked yet."""
        has_several = len(self.node.writers) > 1 and self.node.state not in ALIVE
        return has_several and not (self._keys or self._finder.has_metrics(self.rows))

    def _metrics(self) -> tuple[str, ...]:
        """Return the metrics that are looked for now."""
        return tuple(sorted(self._prefix + name for name in self._finder.metrics))

    def _next_look(self, query: HistoryQuery, part: HistoryPart) -> HistoryQuery | None:
        located = min((step for step in part.steps if step >= self._searched_to), default=math.inf)
        every, context = self._metrics(), tuple(sorted(self._finder.context))
        known = min(
            (step for step, row in self._seen.items() if not row.values.keys().isdisjoint(every)),
            default=math.inf,
        )
        has_step0 = self._has_step0()
        if located < known or (located < math.inf and not has_step0):
            return self._around(query, int(located))
        if has_step0 or self._is_all() or query.metrics == context:
            return None
        if query.sparse.high is None:
            # Without any metric, rows of a first rollout tell a run that died in it from one of no framework.
            self._searched_to = FIRST_ROWS
            rest = HistoryQuery(Window(0, 1), Window(FIRST_ROWS, None), context, SAMPLES)
            has_context = not self._keys or not self._keys.isdisjoint(context)
            return rest if known == math.inf and has_context and not self._policies else None
        if known < math.inf:
            # A first query for other metrics shows nothing: the run is the project's first of its framework.
            return None if query.metrics == every else replace(query, whole=Window(0, 1), metrics=every)
        if query.metrics == every:
            self._searched_to = max(self._searched_to, query.sparse.high)
        return HistoryQuery(Window(0, 1), Window(self._searched_to, None), every, SAMPLES)

    def _around(self, query: HistoryQuery, step: int) -> HistoryQuery | None:
        """Return the query of the rows around the first metric known, and at what lies before it."""
        whole = Window(max(0, step - BEFORE), step + AFTER)
        if query.whole == whole:
            return None
        complete = query.sparse.high is not None and query.sparse.high - query.sparse.low <= query.samples
        low = step if complete else self._searched_to
        return replace(query, whole=whole, sparse=Window(low, max(step, low + 1)))

    def _is_all(self) -> bool:
        """Return whether the history has no more rows than were read."""
        count = self.node.line_count
        return count is not None and count <= len(self._seen)
