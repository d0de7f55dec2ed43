"""Fit and judge what changed in a store, or everything.

A sync costs what is new. The setups that changed are read, fitted and judged whole; the others keep
their verdicts, and their ranges follow from what their fits have left. After a change of settings or
profiles, with ``--refit``, and whenever the store has grown by a tenth, everything is judged again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from step0_wandb.app import later_rollouts
from step0_wandb.app.regroup import join_setups
from step0_wandb.app.weight_log import compared_runs
from step0_wandb.errors import Step0Error
from step0_wandb.explanations.installed import Installed, compared
from step0_wandb.publish import alerts as alerting
from step0_wandb.publish import wandb as write_back
from step0_wandb.records import chunks
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import KeptFit, RunSelection, kept
from step0_wandb.verdicts.weight_checks import WeightLog, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from step0_wandb.profiles import Profiles
    from step0_wandb.publish.alerts.select import Candidate
    from step0_wandb.ranges.model import Model
    from step0_wandb.records import Json, JudgedRun, SetupFit, SetupRange
    from step0_wandb.settings.load import Loaded
    from step0_wandb.store import Store
    from step0_wandb.verdicts.coverage import Unchecked
    from step0_wandb.verdicts.lessons import Lessons
    from step0_wandb.wandb_api.context import Context

FEW = 2_000
"""A store of fewer runs is judged whole: that takes a second."""
BATCH = 10_000
"""Runs that are judged at once where there are more."""
GROWN = 1.1
"""What only a fit of everything can teach is learned again when there are so many times as many runs."""
CONFIGS_COMPARED = 30
"""Runs of a project, the newest, whose configs are searched for what a setup needs."""
LESSONS, WEIGHTS, SILENT = "lessons", "weights:groups", "silent"
"""Notes of the store: what one judgment leaves for the next."""


def judge_store(
    store: Store, loaded: Loaded, profiles: Profiles, context: Context, *, refit: bool = False
) -> tuple[str, ...]:
    """Fit and judge the stored runs that need it; return the keys of those that differ from before.

    Parameters
    ----------
    refit : bool
        Judge everything.
    """
    job = _Job(store, loaded, profiles, context)
    join_setups(store)
    work = _plan(job, refit=refit)
    lessons = work.lessons
    if work.everything and len(work.batches) > 1:
        lessons = _learn(job, work)
    parts = []
    for batch in work.batches:
        part = _judge(job, batch, work, lessons)
        parts.append(part if len(work.batches) == 1 else _saved(job, part))
    return _finish(job, work, parts, lessons)


@dataclass(frozen=True)
class _Job:
    """What every step needs."""

    store: Store
    loaded: Loaded
    profiles: Profiles
    context: Context

    @cached_property
    def installed(self) -> Installed:
        return Installed(self.store, Step0Finder(self.profiles), self.context)

    def frame(self, only: RunSelection | None, *, config: Sequence[str] = ()) -> pd.DataFrame:
        """Return runs as `weigh` takes them, with their earlier verdicts."""
        runs = self.store.runs.frame(config=config, starts="all", only=only)
        runs["verdict"] = runs["run"].map(self.store.verdicts.remembered(only)).astype(object)
        if self.loaded.settings.checks.every_rollout:
            runs = later_rollouts.joined(self.store, runs)
        return runs


@dataclass(frozen=True)
class _Work:
    """What is to be judged.

    Attributes
    ----------
    runs : int
        Starts in the store.
    batches : list of RunSelection or None
        None: all runs at once.
    fits : mapping of str to KeptFit
        Of all setups; brought up to date as they are judged.
    lessons : Lessons or None
        What the last fit of everything has taught.
    weights : WeightLog
        Brought up to date, too.
    """

    everything: bool
    runs: int
    batches: list[RunSelection | None]
    fits: dict[str, KeptFit]
    lessons: Lessons | None
    weights: WeightLog


def _plan(job: _Job, *, refit: bool) -> _Work:
    from step0_wandb.verdicts.lessons import Lessons

    store = job.store
    changed, sizes = store.stale.changed(), store.runs.setup_sizes()
    total = sum(sizes.values())
    note = cast("dict[str, Any] | None", store.notes.get(LESSONS))
    grown = note is None or total > GROWN * note["runs"]
    everything = changed.everything or refit or grown or total < FEW
    if everything and total <= BATCH:
        return _Work(True, total, [None], {}, None, WeightLog(job.profiles))  # noqa: FBT003 - as named
    setups = sizes.keys() - {None} if everything else changed.setups
    without = store.runs.keys_without_setup() if everything else sorted(changed.without_setup)
    batches: list[RunSelection | None] = [
        RunSelection(setups=some) for some in _batches(sorted(map(str, setups)), sizes)
    ]
    batches += [RunSelection(keys=some) for some in chunks(without, BATCH)]
    fits = {} if everything else store.fits.load()
    lessons = Lessons.from_document(note) if note and not everything else None
    log = WeightLog(job.profiles, None if everything else store.notes.get(WEIGHTS))
    return _Work(everything, total, batches, fits, lessons, log)


def _batches(setups: Sequence[str], sizes: Mapping[str | None, int]) -> Iterator[list[str]]:
    """Yield setups with about `BATCH` runs together."""
    batch: list[str] = []
    runs = 0
    for setup in setups:
        if batch and runs + sizes.get(setup, 0) > BATCH:
            yield batch
            batch, runs = [], 0
        batch.append(setup)
        runs += sizes.get(setup, 0)
    if batch:
        yield batch


def _learn(job: _Job, work: _Work) -> Lessons:
    """Fit all runs without judging them."""
    from step0_wandb.ranges.fitness import fitness_table
    from step0_wandb.verdicts.goodness import goodness_rows
    from step0_wandb.verdicts.judge import weigh
    from step0_wandb.verdicts.lessons import Lessons, fits_of

    settings = job.loaded.settings.ranges
    result = weigh(job.frame(None), **settings.model_dump())
    work.fits.update({fit.setup: KeptFit(fit, None) for fit in fits_of(result)})
    kept.save_goodness(job.store, goodness_rows(fitness_table(result.model)))
    return Lessons.of(result)


@dataclass
class _Part:
    """What judging one batch gave.

    Attributes
    ----------
    judged : list of JudgedRun
        All starts; empty once they are saved.
    newest : list of JudgedRun
        The same without earlier starts.
    """

    setups: list[SetupRange]
    fits: list[KeptFit]
    candidates: list[Candidate]
    keys: set[str]
    groups: set[tuple[str, str]]
    lessons: Lessons
    model: Model
    judged: list[JudgedRun] = field(default_factory=list)
    newest: list[JudgedRun] = field(default_factory=list)
    changed: tuple[str, ...] = ()


def _judge(job: _Job, batch: RunSelection | None, work: _Work, lessons: Lessons | None) -> _Part:
    """Fit and judge the runs of one batch, together with what the others have taught."""
    import numpy as np

    from step0_wandb.explanations.moves import with_what_changed
    from step0_wandb.publish.alerts.select import candidates
    from step0_wandb.verdicts.coverage import count_unchecked
    from step0_wandb.verdicts.judge import judged_runs, setup_ranges, weigh
    from step0_wandb.verdicts.lessons import Lessons, fits_of

    settings = job.loaded.settings.ranges
    runs = job.frame(batch, config=keys_of(job.profiles))
    own = set(batch.setups) if batch else set()
    if lessons is not None:
        lessons = lessons.with_fits([one.fit for name, one in work.fits.items() if name not in own])
    result = weigh(runs, **settings.model_dump(), lessons=lessons)
    judged = judged_runs(result)
    is_newest = ~result.runs["superseded"].to_numpy(dtype=bool)
    newest = [run for run, chosen in zip(judged, is_newest, strict=True) if chosen]
    packages = partial(compared, job.installed.on_disk)
    by_setup: dict[str, list[JudgedRun]] = {}
    for run in newest:
        by_setup.setdefault(run.setup or "", []).append(run)
    fits = [KeptFit(fit, count_unchecked(by_setup.get(fit.setup, ())).document()) for fit in fits_of(result)]
    work.fits.update({one.fit.setup: one for one in fits})
    for gone in own - {one.fit.setup for one in fits}:
        work.fits.pop(gone, None)
    known = set() if work.everything else job.store.verdicts.keys(batch)
    for one in compared_runs(job.store, job.profiles, runs):
        work.weights.add(one, is_new=one.run not in known)
    setups = with_what_changed(setup_ranges(result), result, job.store, packages=packages)
    return _Part(
        setups=setups,
        fits=fits,
        candidates=candidates(job.store, result.take(np.flatnonzero(is_newest)), newest, setups),
        keys=set(result.runs["run"]),
        groups={(run.run.rpartition("/")[0], run.profile) for run in newest if run.profile and run.setup},
        lessons=Lessons.of(result),
        model=result.model,
        judged=judged,
        newest=newest,
    )


def _saved(job: _Job, part: _Part) -> _Part:
    """Save the verdicts of a part, and let go of them."""
    changed = job.store.verdicts.save_some(part.judged, now=job.context.clock())
    part.judged, part.newest = [], []
    part.changed = changed
    return part


def _finish(job: _Job, work: _Work, parts: Sequence[_Part], lessons: Lessons | None) -> tuple[str, ...]:
    """Draft the alerts, then write what is not written yet, all of it or nothing."""
    store, now = job.store, job.context.clock()
    setups = {setup.setup: setup for part in parts for setup in part.setups}
    whole = work.batches == [None]
    draft = alerting.draft(
        job.installed,
        job.loaded.settings.alerts,
        alerting.Judged(
            [one for part in parts for one in part.candidates],
            [run for part in parts for run in part.newest],
            setups,
            None if work.everything else {key for part in parts for key in part.keys},
        ),
        clock=job.context.clock,
    )
    changed = [key for part in parts for key in part.changed]
    with store.transaction():
        if whole:
            changed += store.verdicts.save(parts[0].judged, list(setups.values()), now=now)
        else:
            changed += [key for part in parts for key in store.verdicts.save_some(part.judged, now=now)]
            _save_ranges(job, work, setups, lessons)
        _save_lessons(job, work, parts, lessons)
        alerting.queue(store, draft, now=now)
        write_back.mark_unpublished(store)
        store.stale.clear()
    return tuple(sorted(changed))


def _save_ranges(job: _Job, work: _Work, judged: Mapping[str, SetupRange], lessons: Lessons | None) -> None:
    """Write all ranges: their width follows from the spread of all setups, which has changed a little."""
    stored = {one.setup: one for one in job.store.verdicts.ranges()}
    gone = stored.keys() - work.fits.keys()
    current = [judged.get(name) or stored[name] for name in work.fits if name in judged or name in stored]
    alpha = job.loaded.settings.ranges.alpha
    if lessons is not None:
        current = renewed(current, [work.fits[one.setup].fit for one in current], lessons, alpha)
    differ = [one for one in current if stored.get(one.setup) != one]
    job.store.verdicts.save_ranges(differ, now=job.context.clock(), gone=gone)


def renewed(
    setups: Sequence[SetupRange], fits: Sequence[SetupFit], lessons: Lessons, alpha: float
) -> list[SetupRange]:
    """Return ranges with the width that the spread of all setups gives them now."""
    import numpy as np

    from step0_wandb.ranges.table import limits_of
    from step0_wandb.ranges.taught import moments_in_force, spread_of

    taught = lessons.with_fits(fits).gaps
    names = list(taught)
    at = [index for index, one in enumerate(setups) if one.n and one.center and fits[index].metric in taught]
    moments = moments_in_force([fits[index] for index in at])
    group = np.array([names.index(fits[index].metric) for index in at], dtype=np.int64)
    spread = spread_of([taught[name] for name in names], alpha)
    limits = limits_of(moments, spread, group, np.zeros(len(at), dtype=bool))
    found = list(setups)
    for place, index in enumerate(at):
        low, high, sigma, df = (float(limits[name][place]) for name in ("low", "high", "sigma", "df"))
        found[index] = replace(setups[index], low=low, high=high, sigma=sigma, df=df)
    return found


def _save_lessons(job: _Job, work: _Work, parts: Sequence[_Part], lessons: Lessons | None) -> None:
    """Write what this judgment leaves for the next one, and what it says of the store as a whole."""
    from step0_wandb.ranges.fitness import fitness_table
    from step0_wandb.verdicts.coverage import coverage_lines
    from step0_wandb.verdicts.goodness import goodness_rows

    store = job.store
    fits = [one for part in parts for one in part.fits]
    judged = {setup for batch in work.batches if batch for setup in batch.setups}
    if work.everything:
        learned = lessons or parts[0].lessons
        store.notes.put(LESSONS, learned.document() | {"runs": work.runs})
        judged = store.fits.load().keys() | judged
    store.fits.replace(fits, judged)
    if work.batches == [None]:
        kept.save_goodness(store, goodness_rows(fitness_table(parts[0].model)))
    kept.save_coverage(store, (*coverage_lines(unchecked_of(store, work.fits)), *_silent(job, work, parts)))
    _save_weights(job, work.weights)


def unchecked_of(store: Store, fits: Mapping[str, KeptFit] | None = None) -> Unchecked:
    """Return what was not checked in all runs of a store, as of their last verdicts.

    Parameters
    ----------
    fits : mapping of str to KeptFit, optional
        What the store keeps of every setup, where it was read already.
    """
    from step0_wandb.verdicts.coverage import Unchecked

    known = store.fits.load() if fits is None else fits
    unchecked = Unchecked.from_documents(one.coverage for one in known.values())
    unchecked.add(store.runs.counts_without_setup())
    return unchecked


def _silent(job: _Job, work: _Work, parts: Sequence[_Part]) -> list[str]:
    """Return which projects do not say what their setups need, looked up where runs were judged."""
    from step0_wandb.verdicts.coverage import silent_setups

    store = job.store
    known = {} if work.everything else dict(cast("dict[str, Json]", store.notes.get(SILENT) or {}))
    for project, profile in {group for part in parts for group in part.groups}:
        keys = store.runs.newest(project, profile, CONFIGS_COMPARED)
        configs = ((project, profile, config) for config in store.runs.configs(keys))
        known[f"{project} {profile}"] = list(silent_setups(configs, job.profiles))
    store.notes.put(SILENT, known)
    return [str(line) for _, lines in sorted(known.items()) for line in cast("list[Json]", lines)]


def _save_weights(job: _Job, log: WeightLog) -> None:
    def packages(run: str) -> Mapping[str, str]:
        try:
            return job.installed.on_disk.of(run)
        except Step0Error:  # then the model alone counts
            return {}

    kept.save_weight_checks(job.store, log.entries(packages))
    job.store.notes.put(WEIGHTS, log.document())
