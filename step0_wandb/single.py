"""One run judged against what the store knows, without writing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.errors import NoStep0Error, UsageError
from step0_wandb.explanation import explain_judged
from step0_wandb.job import profiles_of, read_into
from step0_wandb.step0 import Step0Finder
from step0_wandb.store import NOWHERE, Store, columns_of

if TYPE_CHECKING:
    import pandas as pd

    from step0_wandb.explanation import Explanation
    from step0_wandb.job import Job
    from step0_wandb.records import JudgedRun, Problem, RunRecord
    from step0_wandb.settings import Loaded


@dataclass(frozen=True, slots=True)
class OneRun:
    """The one run that a source holds, and what could not be read of it."""

    record: RunRecord
    problems: tuple[Problem, ...]


def read_one(text: str, job: Job) -> OneRun:
    """Read the one run that `text` names.

    Raises
    ------
    UsageError
        The source holds more than one run, or the path does not exist.
    NoStep0Error
        The source holds no run yet.
    SourceError, CredentialsError
        The source cannot be read.
    """
    with Store.open(NOWHERE, mode="copy") as store:
        pulled = read_into(store, text, job)
        if pulled.failure:
            raise pulled.failure
        records = list(store.records())
    if len(records) > 1:
        names = ", ".join(record.run_id for record in records[:3])
        raise UsageError(
            f"{text} holds {len(records)} runs ({names}, ...), and check judges one",
            "Name one run directory, or use `step0-wandb sync` for all of them.",
        )
    if not records:
        raise NoStep0Error(
            f"{text} holds no run yet", "Its file is empty, or was just begun: try again soon."
        )
    return OneRun(records[0], pulled.problems)


def judge_one(record: RunRecord, loaded: Loaded) -> JudgedRun:
    """Judge one run by the store's ranges; without a store by what the run itself says."""
    import pandas as pd

    from step0_wandb.verdicts import judged_runs, weigh

    facts = Step0Finder(profiles_of(loaded)).facts(record)
    row = pd.DataFrame([columns_of(record, facts)])
    frame = _beside(row, _stored(loaded))
    settings = loaded.settings.ranges
    result = weigh(frame, alpha=settings.alpha, broken_ratio=settings.broken_ratio)
    return next(run for run in judged_runs(result, only=record.key))


def _stored(loaded: Loaded) -> pd.DataFrame | None:
    if not loaded.store.exists():
        return None
    with Store.open(loaded.store, mode="read") as store:
        return store.frame()


def _beside(row: pd.DataFrame, stored: pd.DataFrame | None) -> pd.DataFrame:
    """Return the stored runs with this one in the place of its stored self; a person's word stays."""
    import pandas as pd

    if stored is None or stored.empty:
        return row
    same = stored["run"] == row["run"].iloc[0]
    for name in ("label", "label_why", "label_who"):
        if same.any() and name in stored:
            row[name] = stored.loc[same, name].iloc[0]
    both: pd.DataFrame = pd.concat([stored[~same], row], ignore_index=True)
    return both


def explain_run(text: str, loaded: Loaded) -> Explanation:
    """Explain the stored run that `text` names: a key, a bare id, or a display name.

    Raises
    ------
    UsageError
        The store has no such run, or several.
    """
    with Store.open(loaded.store, mode="read") as store:
        key = find_run(store, text)
        judged = store.judged()
        run = next(run for run in judged if run.run == key)
        return explain_judged(run, judged, store, profiles_of(loaded))


def find_run(store: Store, text: str) -> str:
    """Return the key of the stored run that a person means.

    Raises
    ------
    UsageError
        The store has no such run, or several.
    """
    keys = store.find_runs(text)
    if len(keys) == 1:
        return keys[0]
    if keys:
        raise UsageError(f"{text!r} names {len(keys)} runs: {', '.join(keys[:5])}", "Give one of these keys.")
    raise UsageError(f"{text!r} is not in the store {store.path}", "`step0-wandb runs` lists what is.")
