"""One run judged against what the store knows, without writing anything."""

from __future__ import annotations

import select
import sys
import time
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from step0_wandb.app.later_rollouts import with_server_rows
from step0_wandb.app.pull import pull
from step0_wandb.app.run_selector import find_run, find_setup
from step0_wandb.app.sync import profiles_of, read_into
from step0_wandb.errors import NoStep0Error, SourceError, Step0Error, UsageError
from step0_wandb.explanations.explanation import Explainer
from step0_wandb.explanations.installed import Installed
from step0_wandb.profiles.architecture import join
from step0_wandb.publish.wandb import shared_ranges
from step0_wandb.publish.wandb.target import home_of
from step0_wandb.records import VERDICTS, EarlierStart
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.step0.rollouts import RolloutFinder, judge_later
from step0_wandb.store import NOWHERE, Store, columns_of, store_exists
from step0_wandb.text.formatting import clean, count
from step0_wandb.text.paths import is_there, user_path
from step0_wandb.wandb_api.address import RemoteAddress, parse_address, safe_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from step0_wandb.app.sync import Job
    from step0_wandb.checks.answered import Answer
    from step0_wandb.explanations.explanation import Explanation
    from step0_wandb.records import JudgedRun, Problem, RunFacts, RunRecord
    from step0_wandb.settings.load import Loaded
    from step0_wandb.sources.console.scan import Readable
    from step0_wandb.store import Label


STDIN = "-"
RUN_FILE = ".wandb"
QUIET_S = 0.5
"""Seconds: a pipe that gives nothing for so long once step 0 is known is read no further."""
MOST_S = 10.0
"""Seconds that a pipe is read on at most for a later launch, once step 0 is known."""


@dataclass(frozen=True, slots=True)
class OneRun:
    """The one run that a source holds, or one policy of it; what is made of it, and what could not be read.

    Attributes
    ----------
    later : tuple of Answer
        What it logged after step 0, judged; empty where nobody asked.
    earlier : tuple of OneRun
        Its starts before this one, the oldest first.
    """

    record: RunRecord
    facts: RunFacts
    problems: tuple[Problem, ...] = ()
    later: tuple[Answer, ...] = ()
    earlier: tuple[OneRun, ...] = ()


def read_one(
    text: str, job: Job, *, every_rollout: bool = False, setup: str | None = None
) -> tuple[OneRun, ...]:
    """Read the one run that `text` names, each of its policies; ``-`` is a console log on standard input.

    A bare id or name of a run in the store will do, too.

    Parameters
    ----------
    setup : str, optional
        The label of the setup of a console log, which cannot say it itself, or a unique part of it.
    every_rollout : bool
        Read on to the end, and judge the first step of every rollout.

    Raises
    ------
    UsageError
        The source holds more than one run, or the path does not exist.
    NoStep0Error
        The source holds no run yet.
    SourceError, CredentialsError
        The source cannot be read.
    """
    text, profiles = safe_text(text), profiles_of(job.loaded)
    finder = RolloutFinder(profiles) if every_rollout else Step0Finder(profiles)
    logged = _console_log(text, finder)
    if setup is not None and logged is None:
        raise UsageError("--setup is for console logs", "The setup of a run is made of its config.")
    if logged and setup is not None:
        logged = [_in_setup(log, setup, job) for log in logged]
    policies = logged or _stored_run(text, finder, job) or _run_of(text, finder, job)
    if isinstance(finder, RolloutFinder):
        return tuple(_with_later(one, finder, job) for one in policies)
    return tuple(policies)


def _in_setup(log: OneRun, text: str, job: Job) -> OneRun:
    """Return a log's run and its earlier launches as runs of the stored setup that a text names."""
    with Store.open(job.loaded.store, mode="read") as store:
        label = find_setup(store, text)
    profile = log.facts.step0.profile
    if profile and not label.startswith(f"{profile} · "):
        raise UsageError(f"The log is of {profile}, but the setup is {clean(label)!r}")
    parts = (replace(one, facts=replace(one.facts, setup=label)) for one in (log, *log.earlier))
    newest, *earlier = parts
    return replace(newest, earlier=tuple(earlier))


def _stored_run(text: str, finder: Step0Finder, job: Job) -> list[OneRun] | None:
    """Return the stored run that a bare id or name means; None where `text` names something else."""
    is_bare = "/" not in text and ":" not in text and not is_there(user_path(text))
    if not is_bare or not store_exists(job.loaded.store):
        return None
    with Store.open(job.loaded.store, mode="read") as store:
        if not store.runs.find(text):
            return None
        record = store.runs.record(find_run(store, text))
    return [OneRun(record, finder.facts(record))] if record else None


def _with_later(one: OneRun, finder: RolloutFinder, job: Job) -> OneRun:
    if one.record.url is not None:
        one = replace(one, record=with_server_rows(one.record, finder, job.context()))
    return replace(one, later=judge_later(finder, one.record, one.facts))


def _run_of(text: str, finder: Step0Finder, job: Job) -> list[OneRun]:
    """Read a run of W&B; of one on a server its step 0 alone, whatever the finder looks for."""
    if isinstance(parse_address(text), RemoteAddress):
        finder = Step0Finder(finder.profiles)
    with Store.open(NOWHERE, mode="copy") as store:
        (pulled,) = pull(store, [text], finder, job.context())
        if pulled.failure:
            raise pulled.failure
        starts = list(store.runs.records(starts="all"))
    newest = {one.key: one.start for one in sorted(starts, key=attrgetter("start"))}
    records = [one for one in starts if one.start == newest[one.key]]
    names = sorted({record.run_id for record in records})
    if len(names) > 1:
        raise UsageError(
            f"{text} holds {len(names)} runs ({', '.join(names[:3])}, ...), and check judges one",
            "Name one run directory, or use `step0-wandb sync` for all of them.",
        )
    if not records and pulled.problems:
        first = pulled.problems[0]
        raise SourceError(
            f"{text} holds no run that can be read: {first.where}: {first.what}",
            "Copy it again from where it was written, if it is whole there.",
        )
    if not records:
        raise _no_run(text)
    return [
        OneRun(
            record,
            finder.facts(record),
            pulled.problems,
            earlier=tuple(
                OneRun(one, finder.facts(one))
                for one in sorted(starts, key=attrgetter("start"))
                if one.key == record.key and one.start < record.start
            ),
        )
        for record in records
    ]


def _no_run(text: str) -> NoStep0Error:
    path = user_path(text.removeprefix("file:"))
    if path.is_dir() and not any(path.rglob(f"*{RUN_FILE}")):
        return NoStep0Error(
            f"{text} has no .wandb file: nothing was written to it",
            "The client writes it when the run begins. Look at the job's own log, and at logs/debug-internal.log.",
        )
    return NoStep0Error(f"{text} holds no run yet", "Its file is empty, or was just begun: try again soon.")


def _console_log(text: str, finder: Step0Finder) -> list[OneRun] | None:
    """Read a console log, each policy in it; None where `text` names something else."""
    path = user_path(text.removeprefix("file:"))
    if text != STDIN and (path.suffix == RUN_FILE or not is_there(path) or path.is_dir()):
        return None
    from step0_wandb.sources.console.log import read_console, read_stream

    log = (
        read_stream(
            cast("Readable", sys.stdin.buffer), finder, name="stdin", enough=_quiet_after(QUIET_S, MOST_S)
        )
        if text == STDIN
        else read_console(path, finder)
    )
    before = [OneRun(*part) for launch in log.earlier for part in launch.parts(finder)]
    return [
        OneRun(*part, earlier=tuple(one for one in before if one.record.policy == part[0].policy))
        for part in log.parts(finder)
    ]


def _quiet_after(quiet_s: float, most_s: float) -> Callable[[], bool]:
    """Return whether standard input is read up to now, asked once step 0 is known.

    A pipe may hold a whole log with a later launch in it, or one that still grows: where nothing comes for
    a moment, nobody has written more yet.
    """
    began: list[float] = []

    def is_quiet() -> bool:
        began.append(time.monotonic())
        ready, _, _ = select.select([sys.stdin], [], [], quiet_s)
        return not ready or began[-1] - began[0] > most_s

    return is_quiet


@dataclass(frozen=True, slots=True)
class Basis:
    """What single runs are judged by.

    Attributes
    ----------
    runs : DataFrame or None
        The runs that one run is judged with, whose ranges are fitted; as `store.runs.frame` gives them.
    ranges : DataFrame or None
        Ranges that are used as they stand, where the runs are not at hand.
    labels : mapping of str to Label
        What people said of runs, by key, where `runs` does not say it.
    origin : str
        Where this comes from, where that is not the store: ``ranges: my-team/rl, 14 min old, 212 runs``.
    """

    runs: pd.DataFrame | None = None
    ranges: pd.DataFrame | None = None
    labels: Mapping[str, Label] = field(default_factory=dict)
    origin: str = ""


def basis_of(record: RunRecord, job: Job) -> Basis:
    """Return what to judge a run by: the store; without one, for a run on a server, its project.

    The last sync of a project has left its ranges there. Where none has, the project is read.
    """
    loaded = job.loaded
    if store_exists(loaded.store) or record.url is None:
        return Basis(_stored(loaded))
    project = RemoteAddress(record.entity, record.project)
    try:
        left = shared_ranges(home_of(loaded) or project, job.context())
    except Step0Error:
        left = None  # damaged, or of a later version: the project itself says the same
    if left is not None:
        return Basis(ranges=left.ranges, labels=left.labels, origin=left.origin)
    with Store.open(NOWHERE, mode="copy") as store:
        failure = read_into(store, f"wandb:{project}", job).failure
        store.people.follow_tags(now=job.clock())
        frame = store.runs.frame(starts="all")
    if failure is not None:
        return Basis(origin=f"no ranges: {failure.message}")
    return Basis(frame, origin=f"ranges: {project}, just read, {count(len(frame), 'run')}")


def judge_one(
    record: RunRecord,
    loaded: Loaded,
    basis: Basis | None = None,
    *,
    facts: RunFacts | None = None,
    later: Sequence[Answer] = (),
) -> JudgedRun:
    """Judge one run by the store's ranges, or by another basis; without any by what the run itself says.

    Parameters
    ----------
    facts : RunFacts, optional
        What profiles make of the run; None works it out again.
    later : sequence of Answer
        Further checks, answered already.
    """
    import pandas as pd

    from step0_wandb.verdicts.judge import judged_runs, weigh

    facts = facts or Step0Finder(profiles_of(loaded)).facts(record)
    basis = basis or Basis(_stored(loaded))
    answers = {name: value for answer in later for name, value in answer.columns().items()}
    row = pd.DataFrame([{**columns_of(record, facts), **answers}])
    if label := basis.labels.get(record.key):
        row = row.assign(label=label.label, label_why=label.why, label_who=label.who)
    settings = loaded.settings.ranges
    ranged = () if basis.ranges is None else map(str, basis.ranges.index)
    joined = join({str(facts.setup), *ranged, *_setups_of(basis.runs)})
    frame = _joined(row, basis.runs)
    frame["setup"] = frame["setup"].replace(joined)
    result = weigh(frame, basis.ranges, **settings.model_dump())
    return next(run for run in judged_runs(result, only=record.key))


def judge_start(one: OneRun, loaded: Loaded, basis: Basis) -> JudgedRun:
    """Judge the start of a run that was read, and those before it."""
    record, known = _numbered(one, loaded)
    run = judge_one(record, loaded, basis, facts=one.facts, later=one.later)
    earlier = []
    for before in one.earlier:
        judged = judge_one(before.record, loaded, basis, facts=before.facts)
        start, created_at = before.record.start, before.record.created_at
        earlier.append(EarlierStart(start, created_at, judged.verdict, judged.gap))
    return replace(run, start=record.start, starts=record.start, earlier=tuple(earlier) or known)


def _numbered(one: OneRun, loaded: Loaded) -> tuple[RunRecord, tuple[EarlierStart, ...]]:
    """Return a run with the number of its start, and the starts before it that the store knows."""
    record, step0 = one.record, one.facts.step0
    stored = []
    if store_exists(loaded.store):
        with Store.open(loaded.store, mode="read") as store:
            stored = store.verdicts.runs(keys=[record.key])
    if not stored:
        return record, ()
    (old,) = stored
    pairs = ((old.ppo_kl, step0.ppo_kl), (old.clip_frac, step0.clip_frac), (old.gap, step0.gap))
    if all(before is None or repr(before) == repr(now) for before, now in pairs):
        return replace(record, start=max(record.start, old.start)), old.earlier
    number = (
        record.start if record.url is None else max(record.start, old.start + 1)
    )  # started since the sync
    known = (*old.earlier, EarlierStart(old.start, old.created_at, old.verdict, old.gap))
    return replace(record, start=number), tuple(start for start in known if start.start < number)


def _stored(loaded: Loaded) -> pd.DataFrame | None:
    if not store_exists(loaded.store):
        return None
    with Store.open(loaded.store, mode="read") as store:
        return store.runs.frame(starts="all")


def _joined(row: pd.DataFrame, stored: pd.DataFrame | None) -> pd.DataFrame:
    """Return the stored runs with this one in the place of its stored self; a person's word on that start stays."""
    import pandas as pd

    if stored is None or stored.empty:
        return row
    key, start = row["run"].iloc[0], row["start"].iloc[0]
    is_before = (stored["run"] == key) & (stored["start"] < start)
    stored = stored.assign(
        run=stored["run"].where(~is_before, key + "@" + stored["start"].astype(str)),
        superseded=stored["superseded"] | is_before,
    )
    same = stored["run"] == key
    for name in ("label", "label_why", "label_who"):
        if same.any() and name in stored:
            row[name] = stored.loc[same, name].iloc[0]
    both: pd.DataFrame = pd.concat([stored[~same], row], ignore_index=True)
    return both


def _setups_of(runs: pd.DataFrame | None) -> set[str]:
    return set() if runs is None else set(runs["setup"].dropna())


def gravest_first(runs: Iterable[JudgedRun]) -> list[JudgedRun]:
    """Return judged policies, the gravest verdict first."""
    return sorted(runs, key=lambda run: (VERDICTS.index(run.verdict), run.run))


def explain_run(text: str, job: Job) -> Explanation:
    """Explain the stored run that `text` names: a key, a bare id, or a display name.

    Of a flagged run the installed packages are compared too; those of runs on a server are asked of it.

    Raises
    ------
    UsageError
        The store has no such run, or several.
    """
    profiles = profiles_of(job.loaded)
    with Store.open(job.loaded.store, mode="read") as store:
        key = find_run(store, text)
        (run,) = store.verdicts.runs(keys=[key])
        found = Explainer(store, profiles).explain(run)
        return Installed(store, Step0Finder(profiles), job.context()).explained(found)
