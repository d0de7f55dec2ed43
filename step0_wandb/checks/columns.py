"""Columns of a frame of runs as arrays, whatever of them is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


def numbers(runs: pd.DataFrame, name: str, default: float = np.nan) -> NDArray[np.float64]:
    """Return a column as floats, `default` where the column is missing."""
    if name not in runs:
        return np.broadcast_to(np.float64(default), len(runs))
    import pandas as pd  # the pages of checks are named without it

    return pd.to_numeric(runs[name]).to_numpy(dtype=np.float64, na_value=np.nan)


def texts(runs: pd.DataFrame, name: str, default: str = "") -> NDArray[np.object_]:
    """Return a column as texts, `default` where the column or a value is missing."""
    if name not in runs:
        return np.broadcast_to(np.array(default, dtype=object), len(runs))
    column = runs[name].astype(object)
    return column.where(column.notna(), default).to_numpy(dtype=object)


def flags(runs: pd.DataFrame, name: str, *, default: bool) -> NDArray[np.bool_]:
    """Return a column as booleans, `default` where the column or a value is missing."""
    if name not in runs:
        return np.broadcast_to(np.bool_(default), len(runs))
    column = runs[name].astype(object)
    return column.where(column.notna(), default).to_numpy(dtype=bool)


def non_finite(runs: pd.DataFrame, name: str) -> NDArray[np.bool_]:
    """Return where a metric was logged as NaN or an infinity.

    A NaN in the column alone means "not logged"; ``nan_metrics`` names the metrics of a run that were
    logged as NaN.
    """
    logged = np.isinf(numbers(runs, name))
    if "nan_metrics" in runs:
        said = texts(runs, "nan_metrics")
        some = said != ""
        logged[some] |= np.fromiter((name in text.split() for text in said[some]), bool, int(some.sum()))
    return logged
