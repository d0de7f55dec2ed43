"""The first optimizer step of every rollout: where a run lost what it had at step 0.

A rollout is generated with the weights of that moment, so at its first optimizer step the policy has not
moved again: what must be 0 at step 0 must be 0 there too, as Miles asserts. An engine that did not get
the new weights does not show there, for the trainer computes old and new log-probs by itself; it shows in
the gap of the first row after the first update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.checks.answered import Answer
from step0_wandb.checks.outcomes import Level
from step0_wandb.profiles.schema import first_of
from step0_wandb.records import HistoryRow
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.step0.first_update import FIRST_UPDATE, judge_update
from step0_wandb.text.formatting import count, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from step0_wandb.profiles import Profile
    from step0_wandb.records import Json, Rule, RunFacts, RunRecord

EVERY_ROLLOUT = "every-rollout"
_PRUNED_FROM = 1024
"""Rows are thinned out when there are so many, then twice as many, and so on: it goes through all of them."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The first optimizer step of one rollout.

    Attributes
    ----------
    rollout : int
        Its number; the first counts as the framework counts.
    step : float
        The value of the profile's step key.
    values : mapping of str to float
        The numbers of its rows; of two writers the first counts.
    moved : bool or None
        Whether an optimizer step since the opening before it changed the weights: one with a learning
        rate and a gradient norm above 0. None where no row says so.
    """

    rollout: int
    step: float
    values: Mapping[str, float]
    moved: bool | None = None


@dataclass(frozen=True)
class RolloutFinder(Step0Finder):
    """Finds the openings of rollouts next to step 0; sources take it in the place of a `Step0Finder`.

    Attributes
    ----------
    until : int or None
        Reading ends when the openings of so many rollouts are there; None reads to the end.
    """

    until: int | None = None

    def openings(self, record: RunRecord) -> tuple[Opening, ...]:
        """Return the openings that a run has logged, in their order; none where they cannot be told."""
        return self._openings(record.rows, record.config)

    def decided(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> bool:
        """Return whether `until` openings are there whole, or none will come."""
        if self.until is None:
            return False
        parts = self.by_policy(rows) or {"": [*rows]}
        return all(self._is_whole(part, self.until, config) for part in parts.values())

    def _is_whole(self, rows: Sequence[HistoryRow], until: int, config: Mapping[str, Json]) -> bool:
        """Return what `decided` does for one policy, or a run that has but one."""
        found = self._candidate(rows, config)
        if found is None or found.is_late or _steps(found.profile, config) is None:
            return super().decided(rows, config)
        openings = self._openings(rows, config)
        if not found.is_first or len(openings) < until:
            return False
        first, last = openings[0], openings[until - 1]
        names = found.profile.metrics.names & first.values.keys()
        return names <= last.values.keys() or any(
            (found.profile.step.of(row.values) or 0.0) > last.step for row in rows
        )

    def prune(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> tuple[HistoryRow, ...]:
        """Return the rows of step 0 and of all openings, these without numbers that no check needs."""
        if len(rows) < _PRUNED_FROM or len(rows).bit_count() > 1:
            return tuple(rows)
        kept = {row.order: row for row in super().prune(rows, config)}
        names, orders = set[str](), set[int]()
        for policy, part in (self.by_policy(rows) or {"": [*rows]}).items():
            found = self._candidate(part, config)
            if found is not None:
                names |= {f"{policy}/{name}" if policy else name for name in _needed(found.profile)}
                openings = (row for row, _ in _opening_rows(found.profile, part, config))
                orders |= {row.order for row in (*openings, *_first_moves(found.profile, part, config))}
        kept |= {
            row.order: _slim(row, names) for row in rows if row.order in orders and row.order not in kept
        }
        return tuple(kept[order] for order in sorted(kept))

    def _openings(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> tuple[Opening, ...]:
        found = self._candidate(rows, config)
        steps = _steps(found.profile, config) if found else None
        if found is None or steps is None:
            return ()
        merged: dict[float, dict[str, float]] = {}
        for row, step in _opening_rows(found.profile, rows, config):
            values = merged.setdefault(step, {})
            for name, value in row.values.items():
                values.setdefault(name, value)
        moves = _moves(found.profile, rows)
        openings: list[Opening] = []
        for step in sorted(merged):
            since = openings[-1].step if openings else step
            told = [moved for at, moved in moves.items() if since <= at < step]
            openings.append(Opening(int(step // steps), step, merged[step], any(told) if told else None))
        return tuple(openings)


def judge_later(
    finder: RolloutFinder, record: RunRecord, facts: RunFacts | None = None
) -> tuple[Answer, ...]:
    """Judge what a run has logged after its step 0; nothing where it has none.

    Parameters
    ----------
    record : RunRecord
        With the rows that `finder` keeps.
    facts : RunFacts, optional
        What is made of its step 0; None computes it again.
    """
    facts = facts or finder.facts(record)
    if facts.step0.profile is None or facts.plan is None:
        return ()
    openings = finder.openings(record)
    if not openings:
        message = "the config does not say how many optimizer steps a rollout has"
        return tuple(Answer(check, "skipped", Level.FINE, message) for check in (EVERY_ROLLOUT, FIRST_UPDATE))
    profile = finder.profiles.by_name[facts.step0.profile]
    exact = (
        _exact("ppo_kl", facts.plan.ppo_kl, _values(openings, profile.metrics.ppo_kl_of)),
        _exact("clip_frac", facts.plan.clip_frac, _values(openings, profile.metrics.clip_frac_of)),
    )
    update = judge_update(profile, record.config, openings, facts)
    return max(exact, key=lambda later: (later.level, later.outcome != "skipped")), update


def _values(
    openings: Sequence[Opening], of: Callable[[Mapping[str, float]], float | None]
) -> dict[int, float]:
    """Return a metric at the openings that have it, by rollout."""
    found = ((opening.rollout, of(opening.values)) for opening in openings)
    return {rollout: value for rollout, value in found if value is not None}


def _exact(check: str, rule: Rule, values: Mapping[int, float]) -> Answer:
    """Judge ``ppo_kl`` or ``clip_frac`` at every opening after step 0."""
    first, *later = values or (0,)
    if rule.limit is None or rule.kind not in ("exact", "learned"):
        return _skipped(EVERY_ROLLOUT, rule.why)
    if not later:
        return _skipped(EVERY_ROLLOUT, f"no {check} of a rollout after the first is logged")
    over = [rollout for rollout in values if not abs(values[rollout]) <= rule.limit]
    if first in over:
        return _skipped(EVERY_ROLLOUT, f"{check} fails at step 0 already")
    if not over:
        message = f"{check} stays within {number(rule.limit)} at the first step of each rollout, up to rollout {later[-1]}"
        return Answer(EVERY_ROLLOUT, "pass", Level.FINE, message, max(map(abs, values.values())), rule.limit)
    value = values[over[0]]
    is_broken = rule.above == "broken" or not abs(value) < rule.broken_from
    level = Level.BROKEN if is_broken else Level.SUSPECT
    return Answer(EVERY_ROLLOUT, "fail", level, _lost(check, rule.limit, values, over), value, rule.limit)


def _lost(check: str, limit: float, values: Mapping[int, float], over: Sequence[int]) -> str:
    """Say where a property was lost, and whether for good."""
    before = [rollout for rollout in values if rollout < over[0]]
    after = [rollout for rollout in values if rollout > over[0]]
    was = "within the limit" if any(values[rollout] for rollout in before) else "0"
    text = (
        f"{check} is {number(values[over[0]])} at the first step of rollout {over[0]}, where it must be 0 "
        f"(limit {number(limit)}): it was {was} until rollout {before[-1]}"
    )
    if after:
        text += f", and is over the limit in {len(over) - 1 or 'none'} of the {count(len(after), 'rollout')} since"
    return text


def _skipped(check: str, why: str) -> Answer:
    return Answer(check, "skipped", Level.FINE, why)


def _steps(profile: Profile, config: Mapping[str, Json]) -> int | None:
    """Return the optimizer steps of one rollout; None where they are not known."""
    value = profile.rollouts.steps.value(profile.scope(config)) if profile.rollouts else None
    return int(value) if isinstance(value, int | float) and math.isfinite(value) and value >= 1 else None


def _opening_rows(
    profile: Profile, rows: Sequence[HistoryRow], config: Mapping[str, Json]
) -> Iterator[tuple[HistoryRow, float]]:
    """Yield the rows of openings with their step, in their order."""
    steps, first = _steps(profile, config), profile.first_step(config)
    if steps is None:
        return
    for row in sorted(rows, key=lambda row: row.order):
        if not profile.metrics.names.isdisjoint(row.values):
            step = profile.step.of(row.values)
            if step is not None and step >= first and (step - first) % steps == 0:
                yield row, step


def _moves(profile: Profile, rows: Iterable[HistoryRow]) -> dict[float, bool]:
    """Return, by step, whether the optimizer step changed the weights; steps whose rows do not say are left out."""
    if profile.rollouts is None:
        return {}
    found: dict[float, bool] = {}
    for row in rows:
        step = profile.step.of(row.values)
        names = (profile.rollouts.learning_rate, profile.rollouts.grad_norm)
        values = [value for some in names if (value := first_of(row.values, some)) is not None]
        if step is not None and values:
            # NaN, of which a scaler skips the step, changes nothing either.
            found[step] = found.get(step, True) and all(value > 0 for value in values)
    return found


def _first_moves(
    profile: Profile, rows: Sequence[HistoryRow], config: Mapping[str, Json]
) -> Iterator[HistoryRow]:
    """Yield of each rollout the row of its first step that changed the weights."""
    steps, moves, seen = _steps(profile, config) or 1, _moves(profile, rows), set()
    for row in sorted(rows, key=lambda row: row.order):
        step = profile.step.of(row.values)
        if step is not None and moves.get(step) and step // steps not in seen:
            seen.add(step // steps)
            yield row


def _needed(profile: Profile) -> set[str]:
    """Return the names that the checks of later rollouts read."""
    names = {*profile.metrics.names, *profile.step.keys}
    if profile.rollouts:
        names |= {*profile.rollouts.learning_rate, *profile.rollouts.grad_norm}
    return names


def _slim(row: HistoryRow, names: set[str]) -> HistoryRow:
    if names.issuperset(row.values):
        return row
    return HistoryRow({name: value for name, value in row.values.items() if name in names}, row.order)
