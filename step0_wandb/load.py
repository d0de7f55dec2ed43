"""Runs as a DataFrame, for notebooks: from a W&B project, from directories, or from a store."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import UsageError
from step0_wandb.explanation import explain_judged
from step0_wandb.job import job_of, profiles_of, read_into
from step0_wandb.store import NOWHERE, Store
from step0_wandb.verdicts import judged_runs, weigh

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pandas as pd

    from step0_wandb.explanation import Explanation
    from step0_wandb.job import Job

ORIGIN = "step0_origin"
"""The name in a frame's ``attrs`` under which it remembers where its runs came from."""


@dataclass(frozen=True)
class Origin:
    """Where a frame's runs came from: a store on disk, or one in memory that lives as long as the frame."""

    path: Path | None = None
    memory: Store | None = None

    def open(self) -> AbstractContextManager[Store]:
        """Open the store."""
        if self.memory is not None:
            return nullcontext(self.memory)
        if self.path is not None:
            return Store.open(self.path, mode="read")
        raise UsageError(
            "This frame does not remember where its runs came from",
            "Pass what `judge` returned for a frame of `load_runs`, without building a new DataFrame.",
        )

    def __deepcopy__(self, _memo: dict[int, Any]) -> Origin:
        # pandas copies attrs deeply at every step; what this holds never changes.
        return self


def load_runs(
    source: str | Path | None = None,
    *,
    store: str | Path | None = None,
    config: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> pd.DataFrame:
    """Return runs as a DataFrame, one row a run.

    Parameters
    ----------
    source : str or Path, optional
        ``entity/project``, ``entity/project/run_id``, a URL, or a directory of W&B runs; it is read anew.
    store : str or Path, optional
        Read the runs of this store instead. With neither, the store that the settings name.
    config : sequence of str
        Config keys to add as columns, as dotted paths.
    metrics : sequence of str
        Numbers of the step-0 row to add as columns, such as ``rollout/response_len/mean``.

    Returns
    -------
    DataFrame
        Columns ``run, entity, project, run_id, name, url, user, group, created_at`` (UTC), ``state,
        profile, setup, ppo_kl, clip_frac, gap, gap_metric, label``, and what `judge` needs to know which
        checks apply. A metric that was logged as NaN is named in ``nan_metrics``; NaN in its own column
        means that it was not logged.

    Raises
    ------
    UsageError
        Both a source and a store were given, or the source does not exist.
    SourceError, StoreError, CredentialsError
        See `step0_wandb.errors`.
    """
    if source is not None and store is not None:
        raise UsageError("load_runs takes a source or a store, not both")
    job = job_of(store=store)
    origin = Origin(job.loaded.store) if source is None else Origin(memory=_read(str(source), job))
    with origin.open() as opened:
        frame = opened.frame(config=config, metrics=metrics)
    frame.attrs[ORIGIN] = origin
    return frame


def explain(verdicts: pd.DataFrame, run: str) -> Explanation:
    """Explain one run's verdict: the same answer as ``step0-wandb explain``.

    Parameters
    ----------
    verdicts : DataFrame
        What `judge` or `load_runs` returned.
    run : str
        The run's key, its bare id, or its name.

    Raises
    ------
    UsageError
        No run, or several, go by that name; or the frame does not come from `load_runs`.
    """
    key = _key(verdicts, run)
    judged = judged_runs(weigh(verdicts.drop(columns=["ratio", "p_value", "low", "high"], errors="ignore")))
    with verdicts.attrs.get(ORIGIN, Origin()).open() as store:
        this = next(item for item in judged if item.run == key)
        return explain_judged(this, judged, store, profiles_of(job_of().loaded))


def _read(source: str, job: Job) -> Store:
    store = Store.open(NOWHERE, mode="copy")
    failure = read_into(store, source, job).failure
    if failure:
        raise failure
    return store


def _key(verdicts: pd.DataFrame, run: str) -> str:
    for name in ("run", "run_id", "name"):
        hits = verdicts.loc[verdicts[name] == run, "run"].tolist() if name in verdicts else []
        if len(hits) == 1:
            return str(hits[0])
        if hits:
            raise UsageError(f"{run!r} names {len(hits)} runs", f"Give the key of one, such as {hits[0]}.")
    raise UsageError(f"{run!r} names no run of the frame", "Give a run's key, its id, or its name.")
