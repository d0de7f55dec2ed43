"""The ranges of learned observables, from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from step0_wandb.store import RunSelection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.settings.load import Loaded
    from step0_wandb.store import Store


class ObservedRange(TypedDict):
    """Where one observable of a setup's next healthy run is expected; limits are None below three runs."""

    setup: str
    observable: str
    n: int
    center: float | None
    low: float | None
    high: float | None
    seen_low: float | None
    seen_high: float | None


def observed_ranges(
    store: Store, loaded: Loaded, setups: Sequence[str] | None, observable: str | None
) -> list[ObservedRange]:
    """Return the ranges of one observable, or of all, in some setups or in all; see `observable_ranges`."""
    import pandas as pd

    from step0_wandb.verdicts.observable_ranges import observable_ranges

    only = None if setups is None else RunSelection(setups=list(setups))
    settings = loaded.settings.ranges
    table = observable_ranges(
        store.runs.frame(starts="all", only=only),
        observable,
        alpha=settings.observables_alpha,
        broken_ratio=settings.broken_ratio,
    )
    return cast("list[ObservedRange]", table.astype(object).where(pd.notna(table), None).to_dict("records"))
