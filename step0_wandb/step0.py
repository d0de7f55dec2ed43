"""History rows and config to the step-0 row, the setup and the checks that apply.

The step-0 row is found by the presence of the metric, never by W&B's ``_step`` alone: in shared mode
the server numbers rows in order of arrival, offline each process numbers its own, a critic writes rows
with the same step, and evaluation and rollout rows come first. The rows of one logical step are merged
by the profile's step key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from step0_wandb.records import RunFacts, Step0

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.profiles import Profile, Profiles
    from step0_wandb.records import HistoryRow, Json, RunRecord

NO_METRICS = "no metric of a known framework: not an RL run, or its profile is missing"
NO_STEP = "its metric rows carry no step, so that the first cannot be told"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The rows of the smallest logical step that carries a metric, and what surrounds them."""

    profile: Profile
    first: float
    step: float | None
    rows: tuple[HistoryRow, ...]
    context: tuple[HistoryRow, ...]
    later: HistoryRow | None

    @property
    def is_first(self) -> bool:
        return self.step is not None and self.step <= self.first

    @property
    def complete(self) -> bool:
        names = self.profile.metrics
        wanted = (names.ppo_kl, names.clip_frac, tuple(gap.metric for gap in names.gap[:1]))
        return all(not some or any(_has(self.rows, name) for name in some) for some in wanted)

    def merged(self) -> dict[str, float]:
        """Return the numbers of the step; of two writers the first counts."""
        values: dict[str, float] = {}
        for row in (*self.rows, *self.context):
            for name, value in row.values.items():
                values.setdefault(name, value)
        return values


@dataclass(frozen=True)
class Step0Finder:
    """Finds step 0 among a run's history rows; one for all profiles.

    Attributes
    ----------
    keys : frozenset of str
        The names that make a history row interesting; a row without any of them is never part of
        step 0.
    """

    profiles: Profiles
    keys: frozenset[str] = field(init=False)
    metrics: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        known = self.profiles.by_name.values()
        metrics = frozenset(name for profile in known for name in profile.metrics.names)
        context = frozenset(name for profile in known for name in profile.step.context)
        object.__setattr__(self, "metrics", metrics)
        object.__setattr__(self, "keys", metrics | context)

    def wants(self, values: Mapping[str, float]) -> bool:
        """Return whether a row may be part of step 0 of any profile."""
        if not self.metrics.isdisjoint(values):
            return True
        return any(
            _is_context(profile, values) for profile in self.profiles.by_name.values() if profile.step.context
        )

    def has_metrics(self, rows: Iterable[HistoryRow]) -> bool:
        """Return whether any row carries a metric of any profile."""
        return any(not self.metrics.isdisjoint(row.values) for row in rows)

    def decided(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> bool:
        """Return whether step 0 is there and no later row of the same history can change it."""
        found = self._candidate(rows, config)
        return found is not None and found.is_first and (found.later is not None or found.complete)

    def prune(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> tuple[HistoryRow, ...]:
        """Return the rows that still matter, in their order: a handful, whatever the history's length."""
        found = self._candidate(rows, config)
        if found is None:
            return _first_context(rows)
        kept = [*found.rows, *found.context, *([found.later] if found.later else [])]
        return tuple(sorted(kept, key=lambda row: row.order))

    def find(self, record: RunRecord) -> Step0:
        """Return step 0 of a run, or why there is none."""
        found = self._candidate(record.rows, record.config)
        if found is None:
            return _absent(record, None, NO_METRICS)
        profile = found.profile
        if found.step is None:
            return _absent(record, profile, NO_STEP)
        if not found.is_first:
            note = (
                f"its first row is step {found.step:g}, not {found.first:g}: "
                "the run was resumed, or its first rows are lost"
            )
            return Step0("no-step0", profile.name, note, fit=False)
        values = found.merged()
        gap = profile.gap_of(values)
        resumed = profile.resumed_because(record.config)
        return Step0(
            "found",
            profile.name,
            note=resumed,
            fit=not resumed,
            step=found.step,
            row=values,
            ppo_kl=_first_of(values, profile.metrics.ppo_kl),
            clip_frac=_first_of(values, profile.metrics.clip_frac),
            gap=values[gap.metric] if gap else None,
            gap_metric=gap.metric if gap else None,
        )

    def facts(self, record: RunRecord) -> RunFacts:
        """Return step 0 of a run with its setup and the checks that apply."""
        step0 = self.find(record)
        if step0.status != "found" or step0.profile is None:
            return RunFacts(step0)
        profile = self.profiles.by_name[step0.profile]
        return RunFacts(
            step0,
            setup=profile.setup_label(record.config, step0.gap_metric),
            plan=profile.plan(record.config, step0.gap_metric),
        )

    def _candidate(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> _Candidate | None:
        names = {name for row in rows for name in row.values if name in self.metrics}
        profile = self.profiles.pick(names, config)
        if profile is None:
            return None
        carrying = [row for row in rows if not profile.metrics.names.isdisjoint(row.values)]
        steps = {id(row): profile.step.of(row.values) for row in carrying}
        known = [step for step in steps.values() if step is not None]
        step = min(known, default=None)
        return _Candidate(
            profile,
            profile.first_step(config),
            step,
            rows=tuple(row for row in carrying if steps[id(row)] == step),
            context=tuple(row for row in rows if _is_context(profile, row.values)),
            later=next((row for row in carrying if steps[id(row)] not in (step, None)), None),
        )


def _absent(record: RunRecord, profile: Profile | None, note: str) -> Step0:
    name = profile.name if profile else None
    if record.alive:
        return Step0("pending", name, "step 0 is not logged yet")
    return Step0("no-step0", name, note)


def _is_context(profile: Profile, values: Mapping[str, float]) -> bool:
    if not profile.metrics.names.isdisjoint(values):
        return False
    return any(values.get(key) == 0 for key in profile.step.context)


def _first_context(rows: Sequence[HistoryRow]) -> tuple[HistoryRow, ...]:
    """Return the rows kept before any metric was seen; one logical step has only a few."""
    return tuple(rows[:16])


def _has(rows: Iterable[HistoryRow], name: str) -> bool:
    return any(name in row.values for row in rows)


def _first_of(values: Mapping[str, float], names: Iterable[str]) -> float | None:
    return next((values[name] for name in names if name in values), None)
