"""Observables: every number of the step-0 row for which something must hold.

A profile says under which names its framework logs an observable, and where it does not apply. What must
hold, and the words for it, stand once for all profiles in ``lists/observables.toml``; a profile's
entry may name other limits, or be an observable of its own.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from step0_wandb.profiles import schema
from step0_wandb.profiles.expression import Expression
from step0_wandb.records import BOUND_DEFAULTS, ObservableRule
from step0_wandb.text.formatting import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["interval", "difference", "finite", "learned"]
SEEDS = tuple(map(Expression.parse, ("seed", "rollout_seed", "data.seed")))
"""What frameworks call the seed that decides which prompts a run draws."""


class Limits(schema.ProfileTable):
    """Where a number must lie where `when` holds; the first that holds counts.

    Attributes
    ----------
    low, high : float or None
        Outside of these a run is suspect.
    broken_low, broken_high : float or None
        Outside of these it is broken.
    """

    when: schema.Expr = schema.ALWAYS
    low: float | None = None
    high: float | None = None
    broken_low: float | None = None
    broken_high: float | None = None


class Definition(schema.ProfileTable):
    """What must hold for an observable, whatever the framework.

    Attributes
    ----------
    kind : str
        ``interval``: the number lies within limits; ``difference``: so does its distance to a second
        number; ``finite``: none of the numbers is NaN or infinite; ``learned``: it lies near that of the
        setup's healthy runs.
    title : str
        What it is called in a sentence.
    means : str
        What a value outside usually means, as the end of a sentence.
    or_gap : bool
        Whether the run's own gap is the limit where that is larger.
    scale : str
        Of a learned one: ``log`` for positive numbers, ``share`` for those from 0 to 1.
    factor : float
        Of a learned one: how many times the center, or how far from it on a share, is worth a word.
    prompts : bool
        Of a learned one: whether only runs on the same prompts with the same length limit compare.
    worst : bool
        Whether the largest of the metrics counts, and not the first that a row has.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_:-]*$")
    kind: Kind = "interval"
    title: str
    means: str = ""
    limits: tuple[Limits, ...] = ()
    or_gap: bool = False
    scale: Literal["log", "share"] = "log"
    factor: float = 2.0
    prompts: bool = False
    worst: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Definition:
        if self.kind in ("interval", "difference") and not self.limits:
            raise PydanticCustomError("observable", "an observable of this kind needs limits")
        return self


class Prompts(schema.ProfileTable):
    """Which prompts a run answers, and how long it may: runs that differ in them show other rewards and lengths.

    Attributes
    ----------
    keys : tuple of Expression
        Data set and longest answer.
    seeds : tuple of Expression
        What decides which prompts are drawn.
    count : Expression, optional
        Number of prompts in the step-0 row.
    """

    keys: tuple[schema.Expr, ...] = ()
    seeds: tuple[schema.Expr, ...] = SEEDS
    count: schema.Expr | None = None


class Observable(schema.ProfileTable):
    """An observable as one framework logs it.

    Attributes
    ----------
    name : str
        One of the catalog, or one of the profile's own with `definition`.
    metrics : tuple of str
        Names in order of preference; ``finite`` looks at all of them.
    minus : tuple of str
        The second number of a difference.
    limits : tuple of Limits
        In place of the catalog's.
    skip : tuple of Because
        Where it does not apply, and why.
    lenient : tuple of Because
        Of ``finite``: where a NaN of the last metric alone is suspect and not broken.
    """

    name: str
    metrics: tuple[str, ...] = Field(min_length=1)
    minus: tuple[str, ...] = ()
    limits: tuple[Limits, ...] = ()
    skip: tuple[schema.Because, ...] = ()
    lenient: tuple[schema.Because, ...] = ()
    definition: Definition | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        """Give the definition of the entry the entry's name."""
        if isinstance(data, dict) and isinstance(data.get("definition"), dict):
            return data | {"definition": {"name": data.get("name"), **data["definition"]}}
        return data

    @model_validator(mode="after")
    def _whole(self) -> Observable:
        if self.definition is None and self.name not in catalog():
            known = ", ".join(sorted(catalog()))
            raise PydanticCustomError(
                "observable",
                "{name} is not a known observable: give it a definition, or take one of {known}",
                {"name": self.name, "known": known},
            )
        if (self.what.kind == "difference") != bool(self.minus):
            raise PydanticCustomError(
                "observable", "a difference, and nothing else, has a second number in minus"
            )
        return self

    @property
    def what(self) -> Definition:
        """Return what must hold."""
        return self.definition or catalog()[self.name]

    def value(self, row: Mapping[str, float]) -> tuple[str, float] | None:
        """Return the name of the metric that a row has, and the number that is judged; None without one."""
        what = self.what
        logged = [name for name in self.metrics if name in row]
        if what.kind == "finite":
            odd = [name for name in logged if not math.isfinite(row[name])]
            return (join_words(odd) or "all", float(len(odd))) if logged else None
        if not logged:
            return None
        name = max(logged, key=lambda name: row[name]) if what.worst else logged[0]
        if what.kind == "difference":
            other = schema.first_of(row, self.minus)
            return None if other is None else (f"{name} - {self._other(row)}", row[name] - other)
        return name, row[name]

    def _other(self, row: Mapping[str, float]) -> str:
        return next(name for name in self.minus if name in row)

    def rule(self, row: Mapping[str, float], scope: Mapping[str, Any], prompts: str) -> ObservableRule | None:
        """Return what must hold in a run with this step-0 row; None where it has none of the numbers."""
        found, what = self.value(row), self.what
        if found is None:
            return None
        why = next((entry.why for entry in self.skip if entry.when.holds(scope)), "")
        chosen = next((some for some in self.limits or what.limits if some.when.holds(scope)), None)
        if what.kind == "finite":
            alone = found[0] == self.metrics[-1] and any(entry.when.holds(scope) for entry in self.lenient)
            chosen = Limits(high=0.0, broken_high=2.0 if alone else 0.0)
        return ObservableRule(
            name=self.name,
            metric=found[0],
            kind="skipped" if why or (chosen is None and what.kind != "learned") else what.kind,
            title=what.title,
            why=why or what.means,
            or_gap=what.or_gap,
            scale=what.scale,
            factor=what.factor,
            prompts=prompts if what.prompts else "",
            **(chosen.model_dump(exclude={"when"}) if chosen else {}),
        )


class _ObservableCatalog(schema.ProfileTable):
    observable: tuple[Definition, ...]


@cache
def catalog() -> Mapping[str, Definition]:
    """Return what must hold for each observable, by name."""
    definitions = _ObservableCatalog.model_validate(tomllib.loads(catalog_file().decode())).observable
    return {definition.name: definition for definition in definitions}


@cache
def catalog_file() -> bytes:
    """Return the catalog's file, which is part of the fingerprint of the profiles."""
    return resources.files("step0_wandb").joinpath("profiles", "lists", "observables.toml").read_bytes()


def with_bounds(rule: ObservableRule, bounds: Mapping[str, float]) -> ObservableRule:
    """Return a rule with its limits where the settings want them, by statistic."""
    statistic = rule.name.removeprefix("bound:")
    if statistic not in bounds or statistic == rule.name:
        return rule
    factor = bounds[statistic] / BOUND_DEFAULTS[statistic]
    names = ("low", "high", "broken_low", "broken_high")
    limits = {name: getattr(rule, name) for name in names}
    moved = {name: limit * factor for name, limit in limits.items() if limit is not None}
    return dataclasses.replace(rule, **moved)
