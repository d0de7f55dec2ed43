"""Which models and images the stored runs have compared the weights of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from step0_wandb.store import Wanted
from step0_wandb.verdicts.weight_checks import ComparedRun, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from step0_wandb.profiles import Profiles
    from step0_wandb.store import Store


def compared_runs(store: Store, profiles: Profiles, runs: pd.DataFrame) -> Iterator[ComparedRun]:
    """Yield the runs that the log may be about; of those without a metric the ones that compare.

    Parameters
    ----------
    runs : DataFrame
        As `RunStore.frame` gives them with the config keys of `weight_checks.keys_of`.
    """
    keys = keys_of(profiles)
    rows = runs[["run", "state", "created_at", "profile", "step0", *Wanted(config=keys).names()]]
    for run, state, created_at, profile, step0, *values in rows.itertuples(index=False, name=None):
        known = {key: value for key, value in zip(keys, values, strict=True) if _is(value)}
        created = created_at.to_pydatetime() if _is(created_at) else None
        if _is(profile) and step0 == "found":
            yield ComparedRun(run, state, created, profile, logged=True, config=known)
        elif profiles.comparing(known) and (record := store.runs.record(run)):
            # Rows without a metric are those of its first rollout, which begins after the comparison.
            name = profile if _is(profile) else None
            logged = any(len(each.values) for each in record.rows)
            yield ComparedRun(run, state, created, name, logged=logged, config=record.config)


def _is(value: Any) -> bool:
    """Return whether a cell of a frame holds something; NaN and NaT, which equal nothing, are none."""
    return value is not None and value == value  # noqa: PLR0124
