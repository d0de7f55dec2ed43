"""History rows and config to the step-0 row, the setup and the checks that apply.

The step-0 row is found by the presence of the metric, never by W&B's ``_step`` alone: in shared mode
the server numbers rows in order of arrival, offline each process numbers its own, a critic writes rows
with the same step, and evaluation and rollout rows come first. The rows of one logical step are merged
by the profile's step key.

A history is read as it grows, so three things hold: the profile is chosen by the first row that carries
any metric, pruning never changes what is found, and what is decided stays so while steps only grow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from step0_wandb.profiles.causes import contradiction_in
from step0_wandb.records import LOST_ROW, RunFacts, Step0
from step0_wandb.step0.policies import by_policy, of_policy, prefixes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.profiles import Profile, Profiles
    from step0_wandb.records import HistoryRow, Json, RunRecord

NO_METRICS = "no metric of a known framework (`step0-wandb profiles --explain RUN`): not an RL run, or its profile is missing"
ENDED_BEFORE = "it logged its first rollout, and ended before its first optimizer step"
ENDED_AT_ONCE = "it ended before its first row ({title}, by its config)"
ENDED_UNTRAINED = "it ended before its first training row ({title}, by its config)"
ENDED_COMPARING = (
    "it was to compare both sides' weights, and ended before its first rollout: see `step0-wandb weights`"
)
RESUMED_OR_LOST = "the run was resumed, or its first rows are lost"
OVERWRITTEN = (
    "several processes wrote it (W&B's shared mode?), and the rows of step 0 were overwritten or have not "
    "arrived yet"
)
NOT_IN_HISTORY = f"its summary has metrics of a training step and its history has none: {OVERWRITTEN}"
NO_STEP = "its metric rows carry no step, so that the first cannot be told"
CONTEXT_ROWS = 16
"""One rollout logs a few rows around its training step; more than these are not kept."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The rows of the smallest logical step that carries a metric, and what surrounds them.

    Attributes
    ----------
    opening : HistoryRow
        The first row that carries a metric of any profile; it chose the profile.
    later : HistoryRow or None
        A row of another step, which shows that this one is complete.
    """

    profile: Profile
    first: float
    step: float | None
    opening: HistoryRow
    rows: tuple[HistoryRow, ...]
    context: tuple[HistoryRow, ...]
    later: HistoryRow | None

    @property
    def is_first(self) -> bool:
        return self.step is not None and self.step <= self.first

    @property
    def is_late(self) -> bool:
        return self.step is not None and self.step > self.first

    @property
    def complete(self) -> bool:
        names = self.profile.metrics
        wanted = (names.ppo_kl, names.clip_frac, tuple(gap.metric for gap in names.gap[:1]))
        return all(not some or any(_has(self.rows, name) for name in some[:1]) for some in wanted)

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
    metrics : frozenset of str
        Those of them whose presence makes a step.
    context : frozenset of str
        Those that rows of the same rollout carry, before and after the step.
    step_keys : frozenset of str
        Names of more than one part by which the prefix of a policy is known.
    """

    profiles: Profiles
    keys: frozenset[str] = field(init=False)
    metrics: frozenset[str] = field(init=False)
    context: frozenset[str] = field(init=False)
    step_keys: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        profiles = self.profiles.by_name.values()
        metrics = frozenset(name for profile in profiles for name in profile.metrics.names)
        context = frozenset(name for profile in profiles for name in profile.step.context)
        object.__setattr__(self, "metrics", metrics)
        object.__setattr__(self, "context", context - metrics)
        object.__setattr__(self, "keys", metrics | context)
        steps = (name for profile in profiles for name in profile.step.keys)
        object.__setattr__(self, "step_keys", frozenset(name for name in (*steps, *context) if "/" in name))

    def wants(self, values: Mapping[str, float]) -> bool:
        """Return whether a row may be part of step 0 of any profile, and of any policy."""
        if self._wants(values):
            return True
        policies = prefixes(values, self.step_keys)
        return any(self._wants(of_policy(values, policy)) for policy in policies)

    def _wants(self, values: Mapping[str, float]) -> bool:
        if not self.metrics.isdisjoint(values):
            return True
        return any(
            _is_context(profile, values) for profile in self.profiles.by_name.values() if profile.step.context
        )

    def has_metrics(self, rows: Iterable[HistoryRow]) -> bool:
        """Return whether any row carries a metric of any profile, under whatever policy."""
        rows = list(rows)
        if any(not self.metrics.isdisjoint(row.values) for row in rows):
            return True
        parts = by_policy(rows, self.step_keys).values()
        return any(not self.metrics.isdisjoint(row.values) for part in parts for row in part)

    def by_policy(self, rows: Iterable[HistoryRow]) -> dict[str, list[HistoryRow]]:
        """Return the rows of each policy under plain names; nothing where the run has no prefixes."""
        rows = list(rows)
        if any(not self.metrics.isdisjoint(row.values) for row in rows):
            return {}
        parts = by_policy(rows, self.step_keys)
        return parts if any(self.has_metrics(part) for part in parts.values()) else {}

    def decided(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> bool:
        """Return whether no later row of the same history can change what `find` makes of the values.

        That is so when step 0 is there whole, and when the first step is a later one: steps only grow.
        """
        parts = self.by_policy(rows)
        if not parts:
            return _is_decided(self._candidate(rows, config))
        candidates = [self._candidate(part, config) for part in parts.values()]
        # Which policies there are is known when one of them has gone on to its next step.
        all_seen = any(found is not None and (found.later or found.is_late) for found in candidates)
        return bool(all_seen) and all(_is_decided(found) for found in candidates)

    def prune(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> tuple[HistoryRow, ...]:
        """Return the rows that still matter, in their order: a handful, whatever the history's length."""
        if parts := self.by_policy(rows):
            orders = {row.order for part in parts.values() for row in self._kept(part, config)}
        else:
            orders = {row.order for row in self._kept(rows, config)}
        return tuple(row for row in _in_order(rows) if row.order in orders)

    def _kept(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> list[HistoryRow]:
        found = self._candidate(rows, config)
        if found is None:
            return self._context_of_any(_in_order(rows))
        later = [found.later] if found.later and not found.complete else []
        return [found.opening, *found.rows, *found.context, *later]

    def find(self, record: RunRecord) -> Step0:
        """Return step 0 of a run, or why there is none."""
        found = self._candidate(record.rows, record.config)
        if found is None and LOST_ROW in record.rows:
            return _absent(record, self.profiles.known_by(record.config), NOT_IN_HISTORY)
        if found is None and not self._context_of_any(record.rows):
            profile = self.profiles.known_by(record.config)
            if profile and not self.profiles.comparing(record.config):
                note = ENDED_AT_ONCE if record.logged_nothing else ENDED_UNTRAINED
                return _absent(record, profile, note.format(title=profile.title))
        if found is None:
            return _absent(record, None, self._why_nothing(record))
        profile = found.profile
        if found.step is None:
            return _absent(record, profile, NO_STEP)
        if found.is_late:
            why = RESUMED_OR_LOST
            if _writers(record.config) > 1 and not profile.resumed_because(record.config):
                why = OVERWRITTEN
            note = f"its first row is step {found.step:g}, not {found.first:g}: {why}"
            return Step0("no-step0", profile.name, note, fit=False)
        values = found.merged()
        gap = profile.gap_of(values)
        unfit = profile.resumed_because(record.config) or profile.unnamed_because(record.config)
        return Step0(
            "found",
            profile.name,
            note=unfit,
            fit=not unfit,
            step=found.step,
            row=values,
            ppo_kl=profile.metrics.ppo_kl_of(values),
            clip_frac=profile.metrics.clip_frac_of(values),
            gap=gap.of(values) if gap else None,
            gap_metric=gap.metric if gap else None,
        )

    def facts(self, record: RunRecord) -> RunFacts:
        """Return step 0 of a run with its setup and the checks that apply."""
        step0 = self.find(record)
        if step0.status != "found" or step0.profile is None:
            return RunFacts(step0)
        profile = self.profiles.by_name[step0.profile]
        rules, observed = profile.observe(record.config, step0.row, step0.gap_metric)
        plan = replace(
            profile.plan(record.config, step0.gap_metric),
            observables=rules,
            contradiction=contradiction_in(profile, record.config),
        )
        setup = profile.setup_label(record.config, step0.gap_metric)
        covariates = profile.covariates(record.config, step0.row)
        return RunFacts(replace(step0, observed=observed), setup, plan, covariates)

    def _candidate(self, rows: Sequence[HistoryRow], config: Mapping[str, Json]) -> _Candidate | None:
        rows = _in_order(rows)
        opening = next((row for row in rows if not self.metrics.isdisjoint(row.values)), None)
        profile = self.profiles.pick(self.metrics & opening.values.keys(), config) if opening else None
        if profile is None or opening is None:
            return None
        steps = [
            (row, step)
            for row in rows
            if not profile.metrics.names.isdisjoint(row.values)
            and (step := profile.step.of(row.values)) is not None
        ]
        first, expected = min((step for _, step in steps), default=0.0), profile.first_step(config)
        last = max(first, expected) if profile.step.joined else first
        return _Candidate(
            profile,
            expected,
            first if steps else None,
            opening,
            rows=_without_repeats(row for row, step in steps if step <= last),
            context=_context(profile, rows),
            later=next((row for row, step in steps if step > last), None),
        )

    def _why_nothing(self, record: RunRecord) -> str:
        if self._context_of_any(record.rows):
            return ENDED_BEFORE
        return ENDED_COMPARING if self.profiles.comparing(record.config) else NO_METRICS

    def _context_of_any(self, rows: Sequence[HistoryRow]) -> list[HistoryRow]:
        """Return the context rows of every profile: which it is will show later."""
        profiles = self.profiles.by_name.values()
        return [row for profile in profiles if profile.step.context for row in _context(profile, rows)]


def _is_decided(found: _Candidate | None) -> bool:
    return found is not None and (
        found.is_late or (found.is_first and (found.later is not None or found.complete))
    )


def _writers(config: Mapping[str, Json]) -> int:
    """Return how many processes have written a run, by the client's own notes."""
    about = config.get("_wandb")
    writers = about.get("e") if isinstance(about, dict) else None
    return len(writers) if isinstance(writers, dict) else 0


def _in_order(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    return sorted(rows, key=lambda row: row.order)


def _absent(record: RunRecord, profile: Profile | None, note: str) -> Step0:
    name = profile.name if profile else None
    if record.alive:
        return Step0("pending", name, "step 0 is not logged yet")
    return Step0("no-step0", name, note)


def _is_context(profile: Profile, values: Mapping[str, float]) -> bool:
    if not profile.metrics.names.isdisjoint(values):
        return False
    return any(values.get(key) == 0 for key in profile.step.context)


def _without_repeats(rows: Iterable[HistoryRow]) -> tuple[HistoryRow, ...]:
    """Return the rows that say something the ones before them did not; of two writers the first counts."""
    seen: set[str] = set()
    kept = []
    for row in rows:
        if not seen.issuperset(row.values):
            kept.append(row)
            seen.update(row.values)
    return tuple(kept)


def _context(profile: Profile, rows: Iterable[HistoryRow]) -> tuple[HistoryRow, ...]:
    return tuple(islice((row for row in rows if _is_context(profile, row.values)), CONTEXT_ROWS))


def _has(rows: Iterable[HistoryRow], name: str) -> bool:
    return any(name in row.values for row in rows)
