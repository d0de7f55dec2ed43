"""What differs between two runs: step-0 values, the whole config, installed packages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from step0_wandb.app.run_selector import find_run
from step0_wandb.app.sync import job_of, profiles_of
from step0_wandb.errors import Step0Error, UsageError
from step0_wandb.explanations.differences import one_line, varies_by_nature
from step0_wandb.explanations.explanation import Explainer
from step0_wandb.explanations.installed import Installed
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import Store
from step0_wandb.text.formatting import clean, count, key_text
from step0_wandb.text.nested import flatten
from step0_wandb.text.summary import Line, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from step0_wandb.app.sync import Job
    from step0_wandb.records import Json, JudgedRun

About = Literal["run", "step 0", "config", "package"]
OF_RUN = ("verdict", "setup", "state", "user", "group", "created_at")
OF_STEP0 = ("ppo_kl", "clip_frac", "gap", "gap_metric")


@dataclass(frozen=True, slots=True)
class Pair:
    """One thing that both runs may have, and its two values; None where a run lacks it."""

    about: About
    key: str
    a: Json
    b: Json

    @property
    def is_equal(self) -> bool:
        """Whether both runs have the same value; NaN is the same as NaN."""
        both_nan = all(isinstance(value, float) and math.isnan(value) for value in (self.a, self.b))
        return both_nan or self.a == self.b


@dataclass(frozen=True, slots=True, repr=False)
class RunDiff:
    """Two runs side by side.

    Attributes
    ----------
    differs, equal : tuple of Pair
        Step-0 values first, then the config, what differs by nature (seeds, names, paths) last.
    packages_unknown : str
        Why installed packages could not be compared; else empty.
    """

    a: JudgedRun
    b: JudgedRun
    differs: tuple[Pair, ...]
    equal: tuple[Pair, ...]
    packages_unknown: str = ""

    def _summary(self) -> Summary:
        lines = [
            Line(pair.about, f"{pair.key}: {one_line(pair.a)} | {one_line(pair.b)}") for pair in self.differs
        ]
        if self.packages_unknown:
            lines.append(Line("package", f"could not be compared: {self.packages_unknown}"))
        headline = f"{title(self.a)} | {title(self.b)}: {count(len(self.differs), 'difference')}"
        return Summary(headline, tuple(lines))

    def __str__(self) -> str:
        return self._summary().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._summary().html()


def title(run: JudgedRun) -> str:
    """Return how people call a run."""
    return clean(run.name) or key_text(run.run)


def diff(a: str, b: str | None = None, *, store: str | Path | None = None) -> RunDiff:
    """Return what differs between two stored runs: the same answer as ``step0-wandb diff``.

    Parameters
    ----------
    a, b : str
        A run's key, its bare id, or its name; without `b` the nearest healthy run.
    store : path, optional
        The store; None as the settings say.

    Raises
    ------
    UsageError
        No run, or several, go by that name; or there is no healthy run to compare with.
    """
    return diff_runs(a, b, job_of(store=store))


def diff_runs(first: str, second: str | None, job: Job) -> RunDiff:
    """Compare two stored runs, as `diff` does."""
    profiles = profiles_of(job.loaded)
    with Store.open(job.loaded.store, mode="read") as store:
        keys = [find_run(store, text) for text in (first, second) if text is not None]
        judged = store.verdicts.runs(keys=keys)
        by_key = {run.run: run for run in judged}
        if unjudged := [key for key in keys if key not in by_key]:
            raise UsageError(f"{key_text(unjudged[0])} has no verdict yet", "Run `step0-wandb sync` first.")
        a = by_key[keys[0]]
        b = by_key[keys[1]] if second is not None else Explainer(store, profiles).explain(a).nearest
        if b is None:
            raise UsageError(
                f"No healthy run of the setup of {key_text(a.run)}, or of a near one, to compare with",
                f"Name a second run: step0-wandb diff {first} RUN",
            )
        pairs = [*_of_runs(a, b), *_of_configs(store, a, b)]
        installed, unknown = Installed(store, Step0Finder(profiles), job.context()), ""
        try:
            pairs += _pairs("package", installed.of(a.run), installed.of(b.run))
        except Step0Error as error:
            unknown = error.message
    return RunDiff(
        a,
        b,
        tuple(pair for pair in pairs if not pair.is_equal),
        tuple(pair for pair in pairs if pair.is_equal),
        unknown,
    )


def _of_runs(a: JudgedRun, b: JudgedRun) -> Iterator[Pair]:
    for about, names in (("step 0", OF_STEP0), ("run", OF_RUN)):
        yield from _pairs(about, *({name: _plain(run, name) for name in names} for run in (a, b)))  # type: ignore[arg-type]


def _plain(run: JudgedRun, name: str) -> Json:
    value = getattr(run, name)
    return value.isoformat() if hasattr(value, "isoformat") else value  # type: ignore[no-any-return]


def _of_configs(store: Store, a: JudgedRun, b: JudgedRun) -> list[Pair]:
    configs = (flatten(config) for config in store.runs.configs([a.run, b.run]))
    return sorted(_pairs("config", *configs), key=lambda pair: (varies_by_nature(pair.key), pair.key))


def _pairs(about: About, a: Mapping[str, Json], b: Mapping[str, Json]) -> Iterator[Pair]:
    for key in dict.fromkeys((*a, *b)):
        yield Pair(about, key, a.get(key), b.get(key))
