"""One run judged against what the store knows, without writing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.explanation import Explanation, differences, nearest_setup
from step0_wandb.sources import open_source
from step0_wandb.step0 import Step0Finder
from step0_wandb.store import Store, columns_of
from step0_wandb.job import judged_runs, profiles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import pandas as pd

    from step0_wandb.records import FileMark, Json, JudgedRun, Problem, RunRecord
    from step0_wandb.settings import Loaded

PEERS = 50
"""Healthy runs that one run is compared with: the newest of its setup."""


class NothingKnown:
    """What a source is told when nothing was read before."""

    @property
    def marks(self) -> Mapping[str, FileMark]:
        """Return no marks."""
        return {}

    def record(self, _key: str) -> RunRecord | None:
        """Return no run."""
        return None


def read_one(
    text: str, loaded: Loaded, *, clock: Callable[[], datetime]
) -> tuple[RunRecord, tuple[Problem, ...]]:
    """Read the one run that `text` names.

    Raises
    ------
    UsageError
        The source holds more than one run, or the path does not exist.
    SourceError
        The source cannot be read, or holds no run.
    """
    source = open_source(text, Step0Finder(profiles_of(loaded)), clock=clock, single=True)
    readings = list(source.read(NothingKnown()))
    if len(readings) > 1:
        names = ", ".join(reading.record.run_id for reading in readings[:5])
        raise UsageError(
            f"{text} holds {len(readings)} runs ({names} ...), and check judges one",
            "Name one run directory, or use `step0-wandb sync` for all of them.",
        )
    if not readings:
        raise SourceError(f"{text} holds no run yet", "It is empty, or was just begun.")
    return readings[0].record, readings[0].problems


def judge_one(record: RunRecord, loaded: Loaded) -> JudgedRun:
    """Judge one run by the store's ranges; without a store by what the run itself says."""
    import pandas as pd

    from step0_wandb.verdicts import weigh

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
    return pd.concat([stored[~same], row], ignore_index=True)


def explain_run(text: str, loaded: Loaded) -> Explanation:
    """Explain the stored run that `text` names: a key, a bare id, or a display name.

    Raises
    ------
    UsageError
        The store has no such run, or several.
    """
    with Store.open(loaded.store, mode="read") as store:
        run = store.find(text)
        record = store.record(run.run)
        peers = _peers(store, run)
    config = record.config if record else {}
    return Explanation(run, (), tuple(differences(config, peers)), len(peers))


def _peers(store: Store, run: JudgedRun) -> Sequence[Mapping[str, Json]]:
    """Return the configs of the newest healthy runs of the run's setup, else of the nearest one."""
    if run.setup is None:
        return []
    setups = [item.setup for item in store.setups()]
    for setup in (run.setup, nearest_setup(run.setup, setups)):
        healthy = store.judged(setup=setup, verdict=["healthy"]) if setup else []
        keys = [peer.run for peer in healthy if peer.run != run.run and peer.setup == setup][:PEERS]
        if keys:
            return [found.config for key in keys if (found := store.record(key))]
    return []
