"""The main job: read the sources, store what is new, fit, judge, publish.

This is the only module that knows the whole way of the data.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import Step0Error, UsageError
from step0_wandb.profiles import load_profiles
from step0_wandb.records import JudgedRun, Problem
from step0_wandb.settings import environment, load_settings
from step0_wandb.sources import open_source
from step0_wandb.step0 import Step0Finder
from step0_wandb.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from step0_wandb.verdicts import Judgement
    from step0_wandb.profiles import Profiles
    from step0_wandb.records import Reading, SetupRange
    from step0_wandb.settings import Loaded

BATCH = 200
"""Runs that one transaction stores."""


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What one source gave.

    Attributes
    ----------
    runs_seen, runs_new : int
        Runs in the source, and those that the store did not have.
    requests : int
        Reads sent to a server, retries included; 0 for a directory.
    error : str or None
        Why the source could not be read.
    """

    source: str
    runs_seen: int
    runs_new: int
    requests: int
    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What one sync did.

    Attributes
    ----------
    counts : mapping of str to int
        Runs in the store by verdict.
    changed : tuple of JudgedRun
        Runs whose verdict, values or label differ from the last sync, the gravest first.
    problems : tuple of Problem
        What could not be read; the rest is stored.
    page : Path or None
        The HTML page, where one is kept.
    """

    sources: tuple[SourceResult, ...]
    counts: Mapping[str, int]
    changed: tuple[JudgedRun, ...]
    setups: tuple[SetupRange, ...]
    problems: tuple[Problem, ...]
    alerts: tuple[Mapping[str, object], ...] = ()
    page: Path | None = None
    page_written: bool = False
    runs: tuple[JudgedRun, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Job:
    """What a sync is to do, and what it needs from outside.

    Attributes
    ----------
    loaded : Loaded
        The settings.
    sources : tuple of str
        What to read; empty reads what the settings name.
    html : Path or None
        Where the page goes; None as the settings say.
    dry_run : bool
        Work on a copy of the store and publish nothing.
    progress : callable
        Called with the source and the number of runs read so far.
    """

    loaded: Loaded
    sources: tuple[str, ...] = ()
    html: Path | None = None
    dry_run: bool = False
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    progress: Callable[[str, int], None] = lambda _source, _runs: None


def sync(
    sources: Iterable[str | Path] = (),
    *,
    store: str | Path | None = None,
    settings: str | Path | None = None,
    html: str | Path | None = None,
    dry_run: bool = False,
) -> SyncResult:
    """Run the main job: pull, fit, judge, publish.

    Parameters
    ----------
    sources : iterable of str or Path
        ``entity/project``, or directories of W&B runs; empty takes the settings' sources.
    store : path, optional
        The store; None as the settings say.
    settings : path, optional
        The settings file; None looks for ``step0.toml`` upwards.
    html : path, optional
        Where to write the page.
    dry_run : bool
        Read and judge, but store and publish nothing.

    Raises
    ------
    UsageError, SourceError, StoreError, CredentialsError
        See `step0_wandb.errors`; a source that fails beside others that work is told in the result.
    """
    flags = {"store": str(Path(store).absolute()) if store else None}
    file = Path(settings) if settings else None
    loaded = load_settings(file, cwd=Path.cwd(), environ=environment(), flags=flags)
    job = Job(loaded, tuple(map(str, sources)), Path(html) if html else None, dry_run)
    return run_sync(job)


def run_sync(job: Job) -> SyncResult:
    """Run the main job as `job` says."""
    texts = tuple(dict.fromkeys(job.sources or job.loaded.sources))
    if not texts:
        raise UsageError(
            "No source was given",
            "Name one (`step0-wandb sync entity/project`), or set `sources` in step0.toml.",
        )
    finder = Step0Finder(profiles_of(job.loaded))
    with _working_store(job) as store:
        _refresh(store, finder, job)
        pulled = [_pull(store, finder, text, job) for text in texts]
        if all(part.failure for part in pulled):
            raise next(part.failure for part in pulled if part.failure)
        news = store.stale
        changed = judge_store(store, job.loaded, now=job.clock()) if news else []
        page, written = _page(store, job, news=news)
        return SyncResult(
            sources=tuple(part.result for part in pulled),
            counts=store.counts(),
            changed=tuple(store.judged(keys=changed)) if changed else (),
            setups=tuple(store.setups()),
            problems=tuple(problem for part in pulled for problem in part.problems),
            page=page,
            page_written=written,
        )


def profiles_of(loaded: Loaded) -> Profiles:
    """Return the profiles, with the settings' changes to their setups."""
    changes = {name: change.model_dump() for name, change in loaded.settings.setup.items()}
    return load_profiles(loaded.profile_paths).with_setups(changes)


def judge_store(store: Store, loaded: Loaded, *, now: datetime) -> list[str]:
    """Fit and judge every stored run anew; return the keys of the runs that differ from before."""
    from step0_wandb.verdicts import weigh

    settings = loaded.settings.ranges
    result = weigh(store.frame(), alpha=settings.alpha, broken_ratio=settings.broken_ratio)
    return store.save_judged(judged_runs(result), setup_ranges(result), now=now)


def judged_runs(result: Judgement, *, only: str | None = None) -> list[JudgedRun]:
    """Return the judgement as one record a run; `only` names the one run that is wanted."""
    names = (
        "run",
        "name",
        "url",
        "user",
        "group",
        "created_at",
        "state",
        "profile",
        "setup",
        "gap_metric",
        "label",
    )
    columns = {name: _plain(result.runs[name]) for name in names}
    columns |= {name: _plain(result.by[name]) for name in ("ratio", "p_value")}
    metrics = ("ppo_kl", "clip_frac", "gap")
    return [
        JudgedRun(
            **{name: column[at] for name, column in columns.items()},
            **{metric: result.value(metric, at) for metric in metrics},
            verdict=result.verdict[at],
            reasons=result.reasons(at),
            checks=result.checks(at),
            range=result.range(at),
        )
        for at in range(len(result.runs))
        if only is None or columns["run"][at] == only
    ]


def setup_ranges(result: Judgement) -> list[SetupRange]:
    """Return the fitted ranges as one record a setup."""
    from step0_wandb.verdicts import setup_range

    rows = result.ranges.reset_index().to_dict("records")
    return [setup_range(str(row["setup"]), row, result.alpha) for row in rows]


def _plain(column: Any) -> list[Any]:
    """Return a column as Python values, None where there is none."""
    values = column.astype(object).where(column.notna(), None).tolist()
    return [value.to_pydatetime() if hasattr(value, "to_pydatetime") else value for value in values]


@dataclass(frozen=True, slots=True)
class _Pulled:
    """What reading one source came to."""

    result: SourceResult
    problems: tuple[Problem, ...]
    failure: Step0Error | None = None


def _pull(store: Store, finder: Step0Finder, text: str, job: Job) -> _Pulled:
    """Read one source into the store; its failure does not touch the others."""
    begin = time.monotonic()
    problems: list[Problem] = []
    new = changed = 0
    failure: Step0Error | None = None
    source = None
    try:
        source = open_source(text, finder, clock=job.clock)
        known = store.known(source.name)
        for batch in _batches(source.read(known)):
            new += sum(known.record(reading.record.key) is None for reading in batch)
            changed += len(batch)
            problems += [problem for reading in batch for problem in reading.problems]
            store.save_readings(
                source.name, [(item, finder.facts(item.record)) for item in batch], now=job.clock()
            )
            job.progress(text, changed)
        problems += source.problems
    except Step0Error as error:
        failure = error
        problems.append(Problem(text, error.message))
    seconds = time.monotonic() - begin
    seen = source.runs_seen if source else 0
    result = SourceResult(text, seen, new, 0, seconds, str(failure) if failure else None)
    return _Pulled(result, tuple(problems), failure)


def _batches(readings: Iterable[Reading]) -> Iterator[list[Reading]]:
    iterator = iter(readings)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def _refresh(store: Store, finder: Step0Finder, job: Job) -> None:
    """Bring stored facts up to the profiles and settings of now; what that changes makes the store stale."""
    profiles = finder.profiles.fingerprint
    if store.meta("profiles") != profiles:
        with store.transaction():
            store.save_facts((record.key, finder.facts(record)) for record in store.records())
            store.forget_marks(status="no-step0")
            store.set_meta("profiles", profiles)
    ranges = job.loaded.settings.ranges.model_dump_json()
    if store.meta("ranges") != ranges:
        with store.transaction():
            store.mark_stale()
            store.set_meta("ranges", ranges)


@contextmanager
def _working_store(job: Job) -> Iterator[Store]:
    """Open the store; a dry run works on a copy that is thrown away."""
    path = job.loaded.store
    if not job.dry_run:
        with Store.open(path, mode="write") as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="step0-") as folder:
        copy = Path(folder) / path.name
        if path.exists():
            with Store.open(path, mode="read") as store:
                store.copy_to(copy)
        with Store.open(copy, mode="write") as store:
            yield store


def _page(store: Store, job: Job, *, news: bool) -> tuple[Path | None, bool]:
    text = job.loaded.settings.report.html
    path = job.html or (job.loaded.path(text) if text else None)
    if path is None or (path.exists() and not news and path != job.html) or job.dry_run:
        return path, False
    write_page_of(store, path)
    return path, True


def write_page_of(store: Store, path: Path) -> None:
    """Write the HTML page from the store alone."""
    from step0_wandb.publish.page import render_page, write_page

    changed = store.meta("changed_at")
    as_of = datetime.fromisoformat(changed) if changed else None
    write_page(path, render_page(store.judged(), store.setups(), title="Step-0 health", as_of=as_of))
