"""The gap after the weights were updated: whether the engine got the new ones.

The trainer computes old and new log-probs by itself, so an engine that keeps the old weights does not show
in ``ppo_kl``. It shows in the gap, but only from the first rollout on before which an optimizer step really
moved the weights: with a learning rate or a gradient norm of 0 nothing has changed yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.checks.answered import Answer
from step0_wandb.checks.outcomes import Level
from step0_wandb.text.formatting import count, number, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.profiles import Profile
    from step0_wandb.records import Json, RunFacts
    from step0_wandb.step0.rollouts import Opening

FIRST_UPDATE = "first-update"
JUMP = 3.0
"""A gap after the first update of so many times step 0's is told. Healthy gaps stayed within 1.5 times
(TRL issue 5312, Miles PR 3098); with stale weights 20 times was seen."""
GROWTH = 2.0
"""So is one that has grown so many times within the first rollouts: a LoRA of which the engine gets nothing
drifts away slowly. In two healthy runs of 8 and 11 rows the gap grew 1.17 times at most."""
EARLY = 10
"""How many rollouts the growth is looked for in; later the policy itself may have changed that much."""
_STALE = "the engine may not have got the new weights"


def judge_update(
    profile: Profile, config: Mapping[str, Json], openings: Sequence[Opening], facts: RunFacts
) -> Answer:
    """Judge the gaps at the openings of a run's rollouts; there is at least one opening."""
    plan, rollouts, scope = facts.plan, profile.rollouts, profile.scope(config)
    if plan and plan.gap.kind in ("vacuous", "skipped"):
        return _skipped(plan.gap.why)
    if rollouts and rollouts.unsynced.holds(scope):
        return _skipped(
            "the engine keeps its first weights by design here, so its gap need not stay where it was"
        )
    metric = next((gap for gap in profile.metrics.gap if gap.metric == facts.step0.gap_metric), None)
    values = {
        opening.rollout: metric.of(opening.values)
        for opening in openings
        if metric and metric.metric in opening.values
    }
    lag = rollouts.staleness.value(scope) if rollouts and rollouts.stale.holds(scope) else 0
    return _Gaps(
        values=values,
        moved={opening.rollout: opening.moved for opening in openings},
        first=openings[0].rollout,
        lag=int(lag) if isinstance(lag, int | float) and 0 <= lag < math.inf else 1,
        synchronous=rollouts is not None and rollouts.synchronous.holds(scope),
    ).judged(must_be_zero=plan is not None and plan.gap.kind == "zero")


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The gaps of a run's rollouts.

    Attributes
    ----------
    values : mapping of int to float
        By rollout, those that are logged.
    moved : mapping of int to bool or None
        Whether the optimizer step before each rollout changed the weights; None where no row says so.
    first : int
        The rollout of step 0.
    lag : int
        How many updates old the weights of a rollout may be by design.
    synchronous : bool
        Whether the engine surely has the new weights.
    """

    values: Mapping[int, float]
    moved: Mapping[int, bool | None]
    first: int
    lag: int
    synchronous: bool

    def judged(self, *, must_be_zero: bool) -> Answer:
        """Return whether the engine seems to have got the new weights."""
        later = {rollout: gap for rollout, gap in self.values.items() if rollout > self.first}
        before = self.values.get(self.first)
        if before is None or not later:
            return _skipped("no gap after the first update is logged")
        odd = next((rollout for rollout, gap in later.items() if not math.isfinite(gap)), None)
        if odd is not None:
            message = f"gap is {later[odd]} after the first update (rollout {odd})"
            return Answer(FIRST_UPDATE, "fail", Level.BROKEN, message, later[odd])
        if must_be_zero:
            return self._zero(before, later)
        if not before > 0:
            return _skipped("the gap of step 0 cannot be compared with later ones")
        return self._compared(later)

    def _compared(self, later: Mapping[int, float]) -> Answer:
        updates = [rollout for rollout in later if self.moved.get(rollout) is not False]
        if not updates:
            message = (
                f"no optimizer step before rollout {max(later)} had a learning rate and a gradient norm above 0: "
                "the weights have not changed yet"
            )
            return Answer(FIRST_UPDATE, "vacuous", Level.FINE, message, later[max(later)])
        start = updates[0] + self.lag
        since = {rollout: gap for rollout, gap in later.items() if rollout >= start}
        if not since:
            message = (
                f"a rollout may use weights that are {count(self.lag, 'update')} old by design here, so the first "
                f"that tells something is rollout {start}"
            )
            return Answer(FIRST_UPDATE, "vacuous", Level.FINE, message, later[max(later)])
        return self._after(min(since), since)

    def _after(self, at: int, since: Mapping[int, float]) -> Answer:
        """Compare the rollout `at` and those since with the ones before the update."""
        base = max((gap, rollout) for rollout, gap in self.values.items() if rollout < at)
        base = base if self.lag else (self.values[self.first], self.first)
        limit = JUMP * base[0]
        message = f"{self._times(at, base)} after the first update"
        if since[at] >= limit:
            level = Level.BROKEN if self.synchronous and not self.lag else Level.SUSPECT
            doubt = "" if self.synchronous or self.lag else " (unless training is asynchronous here)"
            return Answer(FIRST_UPDATE, "fail", level, f"{message}: {_STALE}{doubt}", since[at], limit)
        early = {rollout: gap for rollout, gap in since.items() if rollout - self.first < EARLY}
        grown = next((rollout for rollout, gap in early.items() if gap >= GROWTH * base[0]), None)
        if grown is None:
            return Answer(FIRST_UPDATE, "pass", Level.FINE, message, since[at], limit)
        message = (
            f"{self._times(grown, base)}, and has grown since rollout {self._began(grown)}: {_STALE}, or only "
            "a part of them (LoRA?)"
        )
        return Answer(FIRST_UPDATE, "warn", Level.SUSPECT, message, since[grown], GROWTH * base[0])

    def _times(self, at: int, base: tuple[float, int]) -> str:
        gap, origin = base
        where = "step 0's" if origin == self.first else f"rollout {origin}'s"
        return f"gap {number(self.values[at])} of rollout {at} is {ratio(self.values[at] / gap)} times {where} {number(gap)}"

    def _began(self, grown: int) -> int:
        """Return the first rollout of the rise that leads to the one that has grown too much."""
        rollouts = sorted(self.values)
        at = rollouts.index(grown)
        while at > 1 and self.values[rollouts[at - 1]] > self.values[rollouts[at - 2]]:
            at -= 1
        return rollouts[at]

    def _zero(self, before: float, later: Mapping[int, float]) -> Answer:
        if before != 0:
            return _skipped("the gap fails at step 0 already")
        at = next((rollout for rollout, gap in later.items() if gap != 0), None)
        if at is None:
            return Answer(FIRST_UPDATE, "pass", Level.FINE, "gap is 0 after the first update too", 0.0, 0.0)
        message = (
            f"gap is {number(later[at])} after the first update (rollout {at}), where true-on-policy mode makes "
            f"it 0: {_STALE}"
        )
        return Answer(FIRST_UPDATE, "fail", Level.BROKEN, message, later[at], 0.0)


def _skipped(why: str) -> Answer:
    return Answer(FIRST_UPDATE, "skipped", Level.FINE, why)
