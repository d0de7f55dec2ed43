"""How well the healthy runs follow what ranges assume: kept with the verdicts, told without pandas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from step0_wandb.text.formatting import count

if TYPE_CHECKING:
    import pandas as pd


MISFIT: Final = 0.01
"""A p-value up to which the runs are said not to follow the assumption: the smallest there is."""
FEW: Final = 100
"""Of fewer runs not even one is expected in the outermost 1 %."""


@dataclass(frozen=True, slots=True)
class GoodnessOfFit:
    """The fit of one gap metric, as `ranges.goodness_of_fit` says it.

    Attributes
    ----------
    gap_metric : str or None
        None where the runs name none.
    n : int
        Runs that agree with others of their setup, whatever is thought of its level.
    statistic, p_value, beyond_5pct, beyond_1pct : float or None
        None where there is no such run; the shares are of these runs.
    screened : float or None
        Share of the runs with a usable gap that enter no range; None without such a run.
    tail_df, tail_scale : float
        The tail by which ranges are wider; infinite and 1: not at all.
    prior_df, prior_sigma : float
        The prior of the spread of ln(gap) in a setup.
    """

    gap_metric: str | None
    n: int
    statistic: float | None
    p_value: float | None
    beyond_5pct: float | None
    beyond_1pct: float | None
    screened: float | None
    tail_df: float
    tail_scale: float
    prior_df: float
    prior_sigma: float

    def __str__(self) -> str:
        metric = self.gap_metric or "gap"
        if self.p_value is None or self.beyond_1pct is None:
            return (
                f"{metric}: no two runs share a setup yet, so that nothing is known of how their gaps scatter"
            )
        fits = "scatter as ranges assume" if self.p_value > MISFIT else "do not scatter as ranges assume"
        wider = "; ranges are wider for it" if math.isfinite(self.tail_df) else ""
        outermost = f"{round(self.beyond_1pct * self.n):,} of them in the outermost 1 %"
        told = "as far as so few can tell" if self.n < FEW else f"{outermost} (expected: {self.n / 100:.0f})"
        return f"{metric}: the gaps of {count(self.n, 'run')} {fits}, {told}{wider}"


def goodness_rows(table: pd.DataFrame) -> list[GoodnessOfFit]:
    """Return the table of `ranges.goodness_of_fit` as records, one a gap metric."""
    rows = table.reset_index().to_dict("records")
    return [GoodnessOfFit(**{str(name): _known(value) for name, value in row.items()}) for row in rows]


def goodness_from_json(rows: object) -> tuple[GoodnessOfFit, ...]:
    """Return the records that `json_documents.plain` made JSON of; None holds none."""
    known = cast("list[dict[str, Any]]", rows or [])
    return tuple(GoodnessOfFit(**row | {"tail_df": float(row["tail_df"])}) for row in known)


def _known(value: Any) -> Any:
    """Return a cell of a frame, None in place of NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value
