"""Where the other numbers of the step-0 row are expected: the learned observables, a range a setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from step0_wandb.checks.observables import grouped, names_in, rules_of
from step0_wandb.checks.registry import exact_failed
from step0_wandb.errors import UsageError
from step0_wandb.ranges.table import range_table
from step0_wandb.records import ALPHA, BROKEN_RATIO, LEARNED
from step0_wandb.verdicts.learned import FEWEST, fitted, read_numbers, shares_of_alpha, spreads_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.verdicts.learned import Numbers

COLUMNS = ("setup", "observable", "n", "center", "low", "high", "seen_low", "seen_high")


def observable_ranges(
    runs: pd.DataFrame,
    observable: str | None = None,
    *,
    alpha: float = ALPHA,
    broken_ratio: float = BROKEN_RATIO,
) -> pd.DataFrame:
    """Return where the learned numbers of each setup's next healthy run are expected.

    Parameters
    ----------
    runs : DataFrame
        As `load_runs` returns it.
    observable : str, optional
        The name of one, such as ``entropy``; None: all that some run has.
    alpha : float
        Share of healthy runs that all of them together may flag.

    Returns
    -------
    DataFrame
        One row a setup (where the prompts count, a setup on certain prompts) and observable: ``setup,
        observable, n, center, low, high, seen_low, seen_high``. A run between ``low`` and ``high`` is not
        flagged: they are the range, or what counts as far where that is wider. NaN below three runs.

    Raises
    ------
    UsageError
        No run has an observable of that name.
    """
    if "exact_failed" not in runs:
        runs = runs.assign(exact_failed=exact_failed(runs))
    groups = tuple(grouped(runs))
    names = [name for name in names_in(groups) if name.startswith(LEARNED)]
    chosen = names if observable is None else [_named(observable, names)]
    each = float((alpha / shares_of_alpha(runs, names, groups)).min(initial=alpha))
    tables = [_table(read_numbers(runs, name, groups), runs, each, broken_ratio) for name in chosen]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(COLUMNS))


def placed(runs: pd.DataFrame, observable: str) -> tuple[pd.DataFrame, str]:
    """Return runs with an observable in the place of the gap, as `observable_ranges` has their setups, and its title."""
    name, groups = LEARNED + observable, tuple(grouped(runs))
    of = read_numbers(runs, name, groups)
    title = next(rule.title for rule, _ in rules_of(groups, name))
    return runs.assign(gap=of.value, setup=of.setup), title


def _named(observable: str, names: Sequence[str]) -> str:
    name = LEARNED + observable.removeprefix(LEARNED)
    if name not in names:
        known = [name.removeprefix(LEARNED) for name in names]
        raise UsageError(
            f"No run has an observable {observable!r} that is learned.",
            f"Known here: {', '.join(known)}." if known else "Run step0-wandb sync first.",
        )
    return name


def _table(of: Numbers, runs: pd.DataFrame, alpha: float, broken_ratio: float) -> pd.DataFrame:
    where = np.flatnonzero(np.isfinite(of.scaled) & (of.scaled > 0))
    table = range_table(fitted(of, runs, where, broken_ratio, spreads_of(of, None)), alpha)
    first = pd.DataFrame({"setup": of.setup[where], "factor": of.factor[where], "share": of.share[where]})
    rule = first.drop_duplicates("setup").set_index("setup").loc[table.index]
    share, factor = rule["share"].to_numpy(dtype=bool), rule["factor"].to_numpy(dtype=float)
    shown = {name: table[name].to_numpy(dtype=float) for name in COLUMNS[3:]}
    shown = {name: np.where(share, value / (1 + value), value) for name, value in shown.items()}
    center = shown["center"]
    enough = table["n"].to_numpy() >= FEWEST
    near = {
        "low": np.where(share, np.maximum(center - factor, 0.0), center / factor),
        "high": np.where(share, np.minimum(center + factor, 1.0), center * factor),
    }
    shown["low"] = np.where(enough, np.minimum(shown["low"], near["low"]), np.nan)
    shown["high"] = np.where(enough, np.maximum(shown["high"], near["high"]), np.nan)
    columns = {"setup": table.index, "observable": of.name.removeprefix(LEARNED), "n": table["n"].to_numpy()}
    return pd.DataFrame(columns | shown)[list(COLUMNS)]
