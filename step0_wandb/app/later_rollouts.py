"""What runs log after their step 0: read where they are, judged, and, of a sync, kept in the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import SourceError, Step0Error
from step0_wandb.records import ALIVE, Problem
from step0_wandb.sources.base import SourceMemory
from step0_wandb.step0.policies import split_policies
from step0_wandb.wandb_api.address import RemoteAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    import pandas as pd

    from step0_wandb.checks.answered import Answer
    from step0_wandb.records import Json, RunRecord
    from step0_wandb.step0.rollouts import RolloutFinder
    from step0_wandb.store import Store
    from step0_wandb.wandb_api.context import Context

NOTE = "afterwards"
"""The store's note of the answers: by run key the columns of each, and whether more is to come."""


def with_server_rows(record: RunRecord, finder: RolloutFinder, context: Context) -> RunRecord:
    """Return a run on a server with every row that carries a metric.

    Raises
    ------
    SourceError, CredentialsError
        The server cannot be asked.
    UsageError
        The run does not exist any more.
    """
    from step0_wandb.sources.server.rollouts import RolloutRows

    name = finder.find(record).profile
    if name is None:
        return record
    address = RemoteAddress(record.entity, record.project, record.run_id)
    profile = finder.profiles.by_name[name]
    rows = RolloutRows(context.client(), address, profile, policy=record.policy).read()
    return replace(record, rows=(*record.rows, *rows))


def follow(store: Store, finder: RolloutFinder, context: Context, *, since: datetime) -> tuple[Problem, ...]:
    """Look at what the runs have logged meanwhile, and keep the answers in the store.

    Looked at are the runs that still run, those that ran at the last look, and those created after
    `since` that were never looked at. What cannot be read is told, and looked at again next time.
    """
    from step0_wandb.step0.rollouts import judge_later

    kept = _kept(store)
    before = dict(kept)
    problems = []
    paths = paths_of(store)
    for key in _due(store.runs.frame(), kept, since):
        record = store.runs.record(key)
        if record is None:
            continue
        try:
            path = paths.get(key.partition("#")[0])
            later = judge_later(finder, _read(record, path, finder, context))
        except Step0Error as error:
            problems.append(Problem(key, f"what it logged after step 0 cannot be read: {error.message}"))
            continue
        kept[key] = {"open": record.state in ALIVE, "answers": _columns(later)}
    if kept != before:
        with store.transaction():
            store.notes.put(NOTE, kept)
            now, then = _answers(kept), _answers(before)
            store.stale.mark_runs(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
    return tuple(problems)


def joined(store: Store, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the answers that the store keeps, as columns."""
    import pandas as pd

    answers = _answers(_kept(store))
    if not answers:
        return runs
    columns = pd.DataFrame([answers.get(key, {}) for key in runs["run"]], index=runs.index)
    return runs.join(columns)


def _kept(store: Store) -> dict[str, Any]:
    """Return the answers that the store keeps; those that are not as they were written are made again."""
    note = store.notes.get(NOTE)
    found = note.items() if isinstance(note, dict) else ()
    return {
        key: value
        for key, value in found
        if isinstance(value, dict) and isinstance(value.get("answers"), dict) and "open" in value
    }


def _due(runs: pd.DataFrame, kept: Mapping[str, Any], since: datetime) -> list[str]:
    """Return the keys of the runs to look at."""
    runs = runs[runs["step0"] == "found"]
    is_open = runs["run"].map(lambda key: kept[key]["open"] if key in kept else None)
    fresh = is_open.isna() & (runs["created_at"] >= since)
    due = runs["state"].isin(ALIVE) | fresh | (is_open == True)  # noqa: E712 - None is neither
    return [str(key) for key in runs.loc[due, "run"]]


def _read(record: RunRecord, path: str | None, finder: RolloutFinder, context: Context) -> RunRecord:
    """Return a stored run as its source has it now, with the rows of its rollouts."""
    if record.url is not None:
        return with_server_rows(record, finder, context)
    from step0_wandb.sources.offline.source import OfflineSource

    if path is None:
        raise SourceError("its directory is not known")
    source = OfflineSource(Path(path), finder, clock=context.clock)
    found = [
        part
        for reading in source.readings(SourceMemory())
        for part in split_policies(reading.record, finder)
        if part.key == record.key
    ]
    if not found:
        raise SourceError(f"{path} does not hold it any more")
    return found[-1]  # the newest start comes last


def paths_of(store: Store) -> dict[str, str]:
    """Return one file of each run that was read from disk, by key."""
    names = [state.source for state in store.sources.states() if state.source.startswith("file:")]
    marks = (mark for name in names for mark in store.sources.memory(name).marks.values())
    return {mark.run: mark.path for mark in marks if mark.run}


def _columns(later: Iterable[Answer]) -> dict[str, Json]:
    """Return the answers that say something, as columns; NaN, which equals nothing, stands in the sentence."""
    said = [answer for answer in later if answer.outcome != "skipped"]
    columns = {name: value for answer in said for name, value in answer.columns().items()}
    return {name: None if value != value else value for name, value in columns.items()}  # noqa: PLR0124


def _answers(kept: Mapping[str, Any]) -> dict[str, Mapping[str, Json]]:
    return {key: note["answers"] for key, note in kept.items() if note["answers"]}
