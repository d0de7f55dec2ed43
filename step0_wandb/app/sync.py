"""The main job: read the sources, store what is new, fit, judge, publish.

This is the only module that knows the whole way of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from step0_wandb.app import later_rollouts
from step0_wandb.app.judging import judge_store, unchecked_of
from step0_wandb.app.pull import pull
from step0_wandb.app.regroup import labels_left_behind, refresh
from step0_wandb.errors import UsageError
from step0_wandb.profiles import load_profiles
from step0_wandb.publish import alerts as alerting
from step0_wandb.publish import wandb as write_back
from step0_wandb.publish.wandb.target import targets
from step0_wandb.records import ALIVE, FLAGGED, VERDICTS, Problem
from step0_wandb.settings.load import environment, load_settings
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import Store, kept
from step0_wandb.text.formatting import count
from step0_wandb.text.summary import Line, Summary
from step0_wandb.wandb_api.address import safe_text
from step0_wandb.wandb_api.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from step0_wandb.app.pull import PullResult, SourceResult
    from step0_wandb.profiles import Profiles
    from step0_wandb.publish.wandb.project import Written
    from step0_wandb.records import JudgedRun, SetupRange
    from step0_wandb.settings.load import Loaded

EXPLAINED = 20
"""Flagged runs of which page and report say what to look at first: those that run, of the newest of these."""
_NEWEST_FLAGGED = 200


@dataclass(frozen=True, slots=True, repr=False)
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
        The HTML page that was written, or would be in a dry run; None where nothing changed, or no page
        is kept.
    written : tuple of Written
        What was written to W&B, or would be in a dry run.
    not_checked : tuple of str
        What is not checked in the runs of the store, one line a profile.
    mismatched : tuple of str
        The changed runs in which the framework's own comparison of the weights seems to have failed.
    renamed : tuple of str
        The setups with an accept or a mute whose runs have another setup name from now on.
    """

    sources: tuple[SourceResult, ...]
    counts: Mapping[str, int]
    changed: tuple[JudgedRun, ...]
    setups: tuple[SetupRange, ...]
    problems: tuple[Problem, ...]
    alerts: tuple[Mapping[str, object], ...] = ()
    page: Path | None = None
    written: tuple[Written, ...] = ()
    not_checked: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """Return in one line what the sources showed, and how many stored runs have which verdict."""
        seen = sum(source.runs_seen for source in self.sources)
        new = sum(source.runs_new for source in self.sources)
        counts = ", ".join(f"{self.counts[name]:,} {name}" for name in VERDICTS if self.counts.get(name))
        return f"{count(seen, 'run')} seen, {new:,} new; stored: {counts or 'none'}"

    @property
    def flagged(self) -> tuple[JudgedRun, ...]:
        """Return the changed runs that are broken or suspect."""
        return tuple(run for run in self.changed if run.verdict in ("broken", "suspect"))

    def _summary(self) -> Summary:
        flagged = (
            Line(run.verdict, f"{run.name or run.run}: {'; '.join(run.reasons)}") for run in self.flagged
        )
        problems = (Line("problem", f"{problem.where}: {problem.what}") for problem in self.problems)
        mismatched = (Line("weights", text) for text in self.mismatched)
        not_checked = (Line("not checked:", text) for text in self.not_checked)
        page = [Line("page", str(self.page))] if self.page else []
        renamed = (Line("setup", text) for text in self.renamed)
        return Summary(self.summary, (*flagged, *renamed, *mismatched, *problems, *not_checked, *page))

    def __str__(self) -> str:
        return self._summary().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._summary().html()


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
    refit : bool
        Fit and judge all runs again, not only those of the setups that changed.
    at_most_s : float
        Seconds after which reading a source ends, whatever its server answers.
    progress : callable
        Called with the source, the runs read so far, and the runs of the source where that is known.
    """

    loaded: Loaded
    sources: tuple[str, ...] = ()
    html: Path | None = None
    dry_run: bool = False
    refit: bool = False
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    progress: Callable[[str, int, int | None], None] = lambda _source, _runs, _total: None
    at_most_s: float = 3600.0

    def context(self) -> Context:
        """Return what reading sources needs from outside."""
        from step0_wandb.wandb_api.credentials import Places

        server = self.loaded.settings.server
        return Context(
            Places.of(environment()),
            self.clock,
            server.give_up.total_seconds(),
            at_most_s=self.at_most_s,
            file_hosts=server.file_hosts,
            progress=self.progress,
        )


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
        See `step0_wandb.errors`; a source that fails while others work is in the result.
    """
    job = job_of(store=store, settings=settings)
    page = Path(html) if html else None
    return run_sync(replace(job, sources=tuple(map(str, sources)), html=page, dry_run=dry_run))


def job_of(*, store: str | Path | None = None, settings: str | Path | None = None) -> Job:
    """Return a job with the settings that hold where one stands."""
    flags = {"store": str(Path(store).absolute()) if store else None}
    file = Path(settings) if settings else None
    return Job(load_settings(file, cwd=Path.cwd(), environ=environment(), flags=flags))


def read_into(store: Store, source: str, job: Job) -> PullResult:
    """Read one source into a store."""
    return pull(store, [source], Step0Finder(profiles_of(job.loaded)), job.context())[0]


def run_sync(job: Job) -> SyncResult:
    """Run the main job as `job` says."""
    texts = tuple(dict.fromkeys(map(safe_text, job.sources or job.loaded.sources)))
    if not texts:
        raise UsageError(
            "No source was given",
            "Name one (`step0-wandb sync entity/project`), or set `sources` in step0.toml.",
        )
    context, wanted = job.context(), targets(texts, job.loaded)
    with Store.open(job.loaded.store, mode="copy" if job.dry_run else "write") as store:
        renamed = refresh(store, Step0Finder(profiles_of(job.loaded)), job.loaded.settings)
        labels = store.people.labels()
        pulled = _read_all(store, texts, job, context)
        renamed += labels_left_behind(store, labels)
        unread = [part.result.source for part in pulled if part.failure]
        ready = write_back.restore(store, wanted, context, unread=unread)
        store.people.end_mutes(now=job.clock())
        unfollowed = _follow(store, job, context)
        news = store.notes.stale or job.refit
        profiles = profiles_of(job.loaded)
        changed = judge_store(store, job.loaded, profiles, context, refit=job.refit) if news else ()
        if news:
            _save_findings(store, profiles)
        delivered = alerting.deliver(
            store, job.loaded, context, claim=partial(write_back.claim, ready), dry_run=job.dry_run
        )
        published = write_back.publish(store, ready, dry_run=job.dry_run)
        page = _page(store, job, news=news)
        return SyncResult(
            sources=tuple(part.result for part in pulled),
            counts=store.verdicts.counts(),
            changed=tuple(store.verdicts.runs(keys=changed)) if changed else (),
            setups=tuple(store.verdicts.ranges()),
            problems=(
                *(problem for part in pulled for problem in part.problems),
                *unfollowed,
                *delivered.problems,
                *published.problems,
                *([page] if isinstance(page, Problem) else []),
            ),
            alerts=delivered.alerts,
            page=page if isinstance(page, Path) else None,
            written=published.written,
            not_checked=kept.load_coverage(store),
            mismatched=_mismatched(store, changed),
            renamed=renamed,
        )


def _read_all(store: Store, texts: Sequence[str], job: Job, context: Context) -> list[PullResult]:
    """Read every source into the store.

    Raises
    ------
    Step0Error
        None of them could be read; of several failures the first.
    """
    pulled = pull(store, texts, Step0Finder(profiles_of(job.loaded)), context)
    store.people.follow_tags(now=job.clock())
    failures = [part.failure for part in pulled if part.failure]
    if len(failures) == len(pulled):
        raise failures[0]
    return pulled


def _follow(store: Store, job: Job, context: Context) -> tuple[Problem, ...]:
    """Look at what runs logged after their step 0, where the settings ask for it."""
    if not job.loaded.settings.checks.every_rollout:
        return ()
    from step0_wandb.step0.rollouts import RolloutFinder

    finder = RolloutFinder(profiles_of(job.loaded))
    return later_rollouts.follow(store, finder, context, since=job.clock() - job.loaded.settings.alerts.since)


def profiles_of(loaded: Loaded) -> Profiles:
    """Return the profiles, with the settings' changes to their setups."""
    changes = {name: change.model_dump() for name, change in loaded.settings.setup.items()}
    settings = loaded.settings
    return load_profiles(loaded.profile_paths).with_setups(
        changes, settings.model.generic, settings.bounds.by_statistic()
    )


def _mismatched(store: Store, changed: Sequence[str]) -> tuple[str, ...]:
    failed = (
        entry for entry in kept.load_weight_checks(store) if entry.status == "failed" and entry.run in changed
    )
    return tuple(f"{entry.run} compared {entry.what}: {'; '.join(entry.notes)}" for entry in failed)


def _page(store: Store, job: Job, *, news: bool) -> Path | Problem | None:
    """Write the page where one is kept and something changed; return its path if so, or what went wrong."""
    configured = job.loaded.settings.report.html
    path = job.html or (job.loaded.path(configured) if configured else None)
    if path is None or not (news or job.html or not path.exists()):
        return None
    if not job.dry_run:
        try:
            write_page_of(store, path)
        except UsageError as error:  # everything else is done by now
            return Problem("page", error.message)
    return path


def write_page_of(store: Store, path: Path) -> None:
    """Write the HTML page from the store alone."""
    from step0_wandb.publish.html.page import Extras, render_page, write_page
    from step0_wandb.publish.html.view import LeftOut, newest_each

    ranges = store.verdicts.ranges()
    shown = store.verdicts.for_page(newest_each(len(ranges)))
    judged = store.verdicts.runs(keys=shown.keys)
    as_of = store.notes.changed_at
    extras = Extras(
        kept.load_weight_checks(store),
        fits=[str(fit) for fit in kept.load_goodness(store)],
        findings=kept.load_findings(store),
        left_out=LeftOut(shown.left_out, unchecked_of(store)),
    )
    html = render_page(judged, ranges, title="Step-0 health", as_of=as_of, extras=extras)
    write_page(path, html)


def _save_findings(store: Store, profiles: Profiles) -> None:
    """Keep what to look at first in the runs that page and report show first: each needs its peers' configs."""
    from step0_wandb.explanations.explanation import Explainer

    newest = islice(store.verdicts.iterate(verdict=FLAGGED), _NEWEST_FLAGGED)
    flagged = [run for run in newest if run.label is None]
    flagged.sort(key=lambda run: (run.verdict != "broken", run.state not in ALIVE))
    explainer = Explainer(store, profiles)
    explained = [explainer.explain(run) for run in flagged[:EXPLAINED]]
    kept.save_findings(store, {found.run.run: found.findings[0] for found in explained if found.findings})
