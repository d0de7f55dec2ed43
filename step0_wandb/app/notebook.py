"""Runs as a DataFrame, for notebooks: from a W&B project, from directories, or from a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from step0_wandb.app.sync import job_of, profiles_of, read_into
from step0_wandb.checks.registry import exact_failed
from step0_wandb.errors import UsageError
from step0_wandb.explanations.explanation import Explainer
from step0_wandb.explanations.installed import Installed
from step0_wandb.profiles.architecture import join
from step0_wandb.publish.wandb import restore
from step0_wandb.publish.wandb.target import targets
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import NOWHERE, Store
from step0_wandb.verdicts.judge import judged_runs, weigh

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from step0_wandb.app.sync import Job
    from step0_wandb.explanations.explanation import Explanation
    from step0_wandb.store.runs import Starts

ORIGIN = "step0_origin"
"""The name in a frame's ``attrs`` under which it remembers where its runs came from."""


_AGAIN = "Pass what `judge` returned for a frame of `load_runs`; merge and concat make frames that forget it."


class Origin(dict[str, str]):
    """Where a frame's runs came from: ``store``, a path, or else ``source``, what was read.

    It is plain JSON to whatever writes frames to files. What was read from a source stays with the frame
    and its copies as an image of a store, which a pickle keeps and any other file loses.
    """

    image: bytes = b""

    def __deepcopy__(self, _memo: dict[int, Any]) -> Origin:
        # pandas copies attrs deeply at every step; what this holds never changes.
        return self


def load_runs(
    source: str | Path | None = None,
    *,
    store: str | Path | None = None,
    config: Sequence[str] = (),
    metrics: Sequence[str] = (),
    starts: Starts = "newest",
) -> pd.DataFrame:
    """Return runs as a DataFrame, one row a run.

    Parameters
    ----------
    source : str or Path, optional
        ``entity/project``, ``entity/project/run_id``, a URL, or a directory of W&B runs; it is read again.
    store : str or Path, optional
        Read the runs of this store instead. With neither, the store that the settings name.
    config : sequence of str
        Config keys to add as columns, as dotted paths.
    metrics : sequence of str
        Numbers of the step-0 row to add as columns, such as ``rollout/response_len/mean``.
    starts : {"newest", "all"}
        ``all``: also the earlier starts of runs that were started again under their id, which are marked
        in the column ``superseded``.

    Returns
    -------
    DataFrame
        Columns ``run, entity, project, run_id, name, url, user, group, created_at`` (UTC), ``state,
        profile, setup, ppo_kl, clip_frac, gap, gap_metric, label``, what `judge` needs to know which
        checks apply, and ``exact_failed``, which keeps a run out of what `fit_ranges` learns. A metric that was logged as NaN is named in ``nan_metrics``; NaN in its own column
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
    origin = Origin(store=str(job.loaded.store)) if source is None else _read(str(source), job)
    with _open(origin) as opened:
        frame = opened.runs.frame(config=config, metrics=metrics, starts=starts)
    frame["setup"] = frame["setup"].replace(join(set(frame["setup"].dropna())))
    frame["exact_failed"] = exact_failed(frame)
    frame.attrs[ORIGIN] = origin
    return frame


def explain(verdicts: pd.DataFrame, run: str) -> Explanation:
    """Explain one run's verdict: the same answer as ``step0-wandb explain``.

    The run is judged with all runs that were loaded, also those that the frame has lost since, to a
    ``query`` say. What was changed in the frame, such as a setup or a label, holds.

    Parameters
    ----------
    verdicts : DataFrame
        What `judge` or `load_runs` returned, or what pandas made of it.
    run : str
        The run's key, its bare id, or its name.

    Raises
    ------
    UsageError
        No run, or several, go by that name; or the frame does not know any more where it comes from,
        after a merge for example.
    """
    frame = verdicts.reset_index() if verdicts.index.name == "run" else verdicts
    key = _key(frame, run)
    job = job_of()
    profiles, settings = profiles_of(job.loaded), job.loaded.settings.ranges
    with _open(frame.attrs.get(ORIGIN)) as store:
        every = _changed(store.runs.frame(starts="all"), frame)
        judged = judged_runs(weigh(every, **settings.model_dump()))
        this = next((item for item in judged if item.run == key), None)
        if this is None:
            raise UsageError(f"{key} is not among the runs that this frame was loaded from", _AGAIN)
        found = Explainer(store, profiles, judged).explain(this)
        return Installed(store, Step0Finder(profiles), job.context()).explained(found)


def _read(source: str, job: Job) -> Origin:
    origin = Origin(source=source)
    with Store.open(NOWHERE, mode="copy") as store:
        failure = read_into(store, source, job).failure
        if failure:
            raise failure
        # What people said from the shell of somebody's store travels with the project.
        restore(store, [target for target in targets([source], job.loaded) if target.texts], job.context())
        origin.image = store.image()
    return origin


def _open(origin: object) -> Store:
    """Open what a frame's runs were loaded from."""
    if isinstance(origin, Origin) and origin.image:
        return Store.of_image(origin.image, path=Path(origin["source"]))
    if not isinstance(origin, dict):
        raise UsageError("This frame does not remember where its runs came from", _AGAIN)
    if "store" in origin:
        return Store.open(Path(origin["store"]), mode="read")
    source = origin.get("source")
    raise UsageError(
        f"The configs of these runs were read from {source}, and the file that held the frame has none",
        f"Load the runs again: load_runs({source!r}).",
    )


def _changed(every: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return all runs, with the values that `frame` has for those that it holds."""
    here = frame.drop_duplicates("run").set_index("run", drop=False)
    every = every.set_index("run", drop=False)
    held = every.index.isin(here.index)
    for name in every.columns.intersection(here.columns):
        every[name] = here[name].reindex(every.index).where(held, every[name])
    return every.infer_objects().reset_index(drop=True)


def _key(frame: pd.DataFrame, run: str) -> str:
    if "run" not in frame:
        raise UsageError("the frame has no column run", _AGAIN)
    for name in ("run", "run_id", "name"):
        hits = frame.loc[frame[name] == run, "run"].unique().tolist() if name in frame else []
        if len(hits) == 1:
            return str(hits[0])
        if hits:
            raise UsageError(f"{run!r} names {len(hits)} runs", f"Give the key of one, such as {hits[0]}.")
    raise UsageError(f"no run {run!r} in the frame", "Give a run's key, its id, or its name.")
