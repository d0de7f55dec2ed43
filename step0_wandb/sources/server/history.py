"""Where in a run's history step 0 is: look by look, each no wider than what comes back without loss.

The first rows are read whole with the page. Where they do not settle step 0, the metrics are looked
for behind them: first among the next steps, then in the whole rest, which a server may thin out so
that the first rows are lost. What comes back is then an upper bound, and the steps before it are
looked at in turn, until a window has no metric or is narrow enough to come back whole.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from step0_wandb.records import HistoryRow
from step0_wandb.wandb_api.queries import STEP, Look, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from step0_wandb.records import Json
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.wandb_api.queries import RunNode, Seen

FIRST_ROWS = 8
"""Rows read whole at once. Miles writes 3 to 4 rows before its first optimizer step, verl 1."""
NEXT_STEPS = 32
"""Steps behind them in which the same request looks for metrics."""
SAMPLES = 100
"""Rows a metric, where the rest of a history is searched."""
BEFORE, AFTER = 6, 10
"""Rows read whole around the first metric: rows of the same rollout come before and after it."""
MOST_LOOKS = 8


def first_look(metrics: Iterable[str]) -> Look:
    """Return what is read of every run's history; `metrics` are looked for behind the first rows."""
    return Look(
        whole=Window(0, FIRST_ROWS),
        sparse=Window(FIRST_ROWS, FIRST_ROWS + NEXT_STEPS),
        metrics=tuple(sorted(metrics)),
        samples=NEXT_STEPS,
    )


class Trace:
    """The search for step 0 in one run.

    Parameters
    ----------
    node : RunNode
        The run with what its first look showed.
    look : Look
        That look; it may have looked for some of the metrics only.
    config : mapping
        Its config, without secrets.

    Attributes
    ----------
    rows : tuple of HistoryRow
        The rows that step 0 may be made of.
    decided : bool
        Whether step 0 is there and no later row can change it.
    next : Look or None
        What to look at next; None when the search is over.
    """

    def __init__(self, node: RunNode, look: Look, *, config: Mapping[str, Json], finder: Step0Finder) -> None:
        self.node = node
        self.config = config
        self.rows: tuple[HistoryRow, ...] = ()
        self.decided = False
        self.next: Look | None = look
        self._finder = finder
        self._seen: dict[float, HistoryRow] = {}
        self._looks = 0
        self._searched_to = FIRST_ROWS
        self.add(node.seen)

    def add(self, seen: Seen) -> None:
        """Take what the last look showed, and decide on the next."""
        look = self.next
        if look is None:
            raise ValueError("the search is over")
        for row in seen.rows:
            self._seen.setdefault(row.values.get(STEP, -1.0 - row.order), row)
        self._read()
        self._looks += 1
        self.next = self._after(look, seen) if self._looks < MOST_LOOKS else None

    def _read(self) -> None:
        """Go through the rows known so far as through a file: in order, until step 0 is decided."""
        self.rows, self.decided = (), False
        for order, step in enumerate(sorted(self._seen)):
            values = self._seen[step].values
            if not self._finder.wants(values):
                continue
            self.rows = self._finder.prune((*self.rows, HistoryRow(values, order)), self.config)
            self.decided = self._finder.decided(self.rows, self.config)
            if self.decided:
                return

    def _after(self, look: Look, seen: Seen) -> Look | None:
        located = min((step for step in seen.steps if step >= self._searched_to), default=math.inf)
        known = min(
            (step for step, row in self._seen.items() if self._finder.has_metrics([row])), default=math.inf
        )
        if located < known or (located < math.inf and not self.decided):
            return self._around(look, int(located))
        every, context = (tuple(sorted(names)) for names in (self._finder.metrics, self._finder.context))
        if self.decided or self._is_all() or look.metrics == context:
            return None
        if look.sparse.high is None:
            # Without any metric, rows of a first rollout tell a run that died in it from one of no framework.
            self._searched_to = FIRST_ROWS
            rest = Look(Window(0, 1), Window(FIRST_ROWS, None), context, SAMPLES)
            return rest if known == math.inf else None
        if known < math.inf:
            # A first look for other metrics shows nothing: the run is the project's first of its framework.
            return None if look.metrics == every else replace(look, whole=Window(0, 1), metrics=every)
        if look.metrics == every:
            self._searched_to = max(self._searched_to, look.sparse.high)
        return Look(Window(0, 1), Window(self._searched_to, None), every, SAMPLES)

    def _around(self, look: Look, step: int) -> Look | None:
        """Return the look at the rows around the first metric known, and at what lies before it."""
        whole = Window(max(0, step - BEFORE), step + AFTER)
        if look.whole == whole:
            return None
        complete = look.sparse.high is not None and look.sparse.high - look.sparse.low <= look.samples
        low = step if complete else self._searched_to
        return replace(look, whole=whole, sparse=Window(low, max(step, low + 1)))

    def _is_all(self) -> bool:
        """Return whether the history has no more rows than were read."""
        count = self.node.line_count
        return count is not None and count <= len(self._seen)
