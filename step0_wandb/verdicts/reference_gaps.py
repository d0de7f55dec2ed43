"""Published gaps, shown next to a run or a setup of the same model and sampler; never a verdict."""

from __future__ import annotations

import tomllib
from functools import cache, lru_cache
from importlib import resources

from pydantic import Field

from step0_wandb.profiles import schema
from step0_wandb.profiles.model_names import names_with
from step0_wandb.text.formatting import count, number, ratio


class PublishedGap(schema.ProfileTable):
    """A gap at step 0 that somebody published.

    Attributes
    ----------
    profile, model, parts : str, str, tuple of str
        The setup that it belongs to, as labels print it.
    low, high : float
        The smallest and the largest value, in the unit of the profile's first gap metric; a single
        value has no `high`.
    runs : int
        How many runs the values come from.
    source : str
        Where they stand.
    """

    profile: str
    model: str
    parts: tuple[str, ...] = ()
    low: float = Field(gt=0)
    high: float | None = None
    runs: int = 1
    source: str

    def describe(self, gap: float | None) -> str:
        """Return the value in words, and where a gap lies.

        Examples
        --------
        >>> known = PublishedGap(
        ...     profile="miles", model="Qwen3-0.6B", low=0.0148, high=0.0157, runs=17, source="Miles guide 2026.10"
        ... )
        >>> known.describe(0.0151)
        'published: 0.0148 to 0.0157 (17 runs, Miles guide 2026.10): inside'
        >>> known.describe(0.0469)
        'published: 0.0148 to 0.0157 (17 runs, Miles guide 2026.10): x3.0 the largest'
        """
        values = number(self.low) if self.high is None else f"{number(self.low)} to {number(self.high)}"
        runs = f"{count(self.runs, 'run')}, " if self.runs > 1 else ""
        text = f"published: {values} ({runs}{self.source})"
        return text if gap is None else f"{text}: {self._where(gap)}"

    def _where(self, gap: float) -> str:
        if self.high is None:
            return f"x{ratio(gap / self.low)}"
        if gap > self.high:
            return f"x{ratio(gap / self.high)} the largest"
        return f"x{ratio(gap / self.low)} the smallest" if gap < self.low else "inside"


class _PublishedGaps(schema.ProfileTable):
    published: tuple[PublishedGap, ...]


@cache
def _catalog() -> _PublishedGaps:
    text = (
        resources.files("step0_wandb").joinpath("verdicts", "reference_gaps.toml").read_text(encoding="utf-8")
    )
    return _PublishedGaps.model_validate(tomllib.loads(text))


@lru_cache(maxsize=4096)
def published_for(setup: str | None) -> tuple[PublishedGap, ...]:
    """Return what is published for a setup, given by its label.

    Profile, model and every other part of the label must agree; a setup of another gap metric than the
    profile's first one has none.

    Examples
    --------
    >>> [known.low for known in published_for("miles · Qwen3-0.6B · top_p=0.95 top_k=64")]
    [0.0136]
    """
    profile, model, *rest = [*(setup or "").split(" · "), "", ""]
    parts = frozenset(part for text in rest for part in text.split())
    return tuple(
        known
        for known in _catalog().published
        if (known.profile, names_with().family(known.model), frozenset(known.parts))
        == (profile, names_with().family(model), parts)
    )
