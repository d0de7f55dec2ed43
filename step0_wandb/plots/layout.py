"""What the charts of notebooks and of the page share: how a run stands, which comes first, where ticks are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

from step0_wandb.records import FLAGGED, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.records import VerdictName

Standing: TypeAlias = "VerdictName | Literal['excluded']"
STANDINGS: tuple[Standing, ...] = (*VERDICTS, "excluded")

DRAWABLE = (1e-100, 1e100)
"""What lies beyond is drawn at the edge: nobody logs it, and ten decades more must not overflow."""


def standing(verdict: object, label: object) -> Standing | None:
    """Return what counts for a run: a person's label where there is one, else the verdict.

    None where that is not a known verdict, as in a frame that somebody made by hand.

    Examples
    --------
    >>> standing("broken", None), standing("broken", "healthy"), standing("healthy", "exclude")
    ('broken', 'healthy', 'excluded')
    """
    name = "excluded" if label == "exclude" else label if isinstance(label, str) and label else verdict
    return name if name in STANDINGS else None


def gravity(name: Standing | None, ratio: float | None, key: str) -> tuple[int, float, str]:
    """Return the sort key that puts the gravest run first.

    Broken runs come before suspect ones, then those farthest from their center; a run without a ratio
    comes first among its like, since nothing says how far off it is.
    """
    rank = FLAGGED.index(name) if name in FLAGGED else len(FLAGGED)
    far = abs(math.log(ratio)) if ratio and 0 < ratio < math.inf else math.inf
    return rank, -far, key


def log_ticks(low: float, high: float, *, most: int = 5) -> tuple[float, ...]:
    """Return at most so many round values between `low` and `high`, both positive.

    Even steps where the span is narrow, else some of every decade, else decades.

    Examples
    --------
    >>> log_ticks(0.011, 0.021), log_ticks(0.01, 0.12), log_ticks(1e-6, 1.0)
    ((0.012, 0.014, 0.016, 0.018, 0.02), (0.01, 0.02, 0.03, 0.05, 0.1), (1e-06, 0.0001, 0.01, 1.0))
    """
    if high / low <= 4:  # noqa: PLR2004 - closer, even steps read better
        return _even_ticks(low, high, most)
    lowest, highest = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for family in _FAMILIES:
        decades = range(lowest, highest + 1)
        ticks = tuple(x for k in decades for m in family if low <= (x := float(f"{m}e{k}")) <= high)
        if len(ticks) <= most:
            return ticks
    step = math.ceil((highest - lowest + 1) / most)
    decades = range(lowest + -lowest % step, highest + 1, step)
    return tuple(x for k in decades if low <= (x := float(f"1e{k}")) <= high)


_FAMILIES: tuple[Sequence[float], ...] = ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))


def _even_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    power = math.floor(math.log10((high - low) / most))
    for step in (float(f"{m}e{power}") for m in (1, 2, 5, 10, 20)):
        places = range(math.ceil(low / step), math.floor(high / step) + 1)
        if len(places) <= most:
            return tuple(float(f"{place * step:.12g}") for place in places)
    return ()
