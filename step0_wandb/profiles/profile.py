"""A profile: how one framework names its metrics, step and config keys, and which checks apply."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from step0_wandb.errors import UsageError
from step0_wandb.profiles import architecture, observables, schema
from step0_wandb.profiles.expression import Expression
from step0_wandb.profiles.metrics import GapMetric, Metrics  # noqa: TC001 - pydantic reads them
from step0_wandb.profiles.model_names import names_with
from step0_wandb.profiles.scope import Scope
from step0_wandb.records import CheckPlan, Covariates, Rule
from step0_wandb.text.nested import flatten, has, lookup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from step0_wandb.profiles.model_names import ModelNames
    from step0_wandb.records import Json, ObservableRule

ARCHITECTURE = "architecture"
"""The named part of a profile that says how the model is built."""


class Profile(schema.ProfileTable):
    """How one framework names its metrics, step and config keys; see the TOML files next to this one."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    read_from: str = ""
    prefer: schema.Expr | None = None
    known_by: tuple[str, ...] = ()
    generic: frozenset[str] = frozenset()
    bounds: dict[str, float] = Field(default_factory=dict)
    alternatives: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    metrics: Metrics
    step: schema.Step
    let: dict[str, schema.Expr] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    setup: tuple[schema.SetupKey, ...] = Field(min_length=1)
    exact: tuple[schema.ExactRule, ...] = ()
    gap: tuple[schema.GapRule, ...] = ()
    gap_zero: tuple[schema.Because, ...] = ()
    resumed: tuple[schema.Because, ...] = ()
    rollouts: schema.Rollouts | None = None
    gpus: schema.Gpus | None = None
    weights: schema.Weights | None = None
    switch: tuple[schema.Switch, ...] = ()
    launch: schema.LaunchSigns = schema.LaunchSigns()
    console: schema.Console | None = None
    prompts: observables.Prompts = observables.Prompts()
    observable: tuple[observables.Observable, ...] = ()

    @model_validator(mode="after")
    def _ends(self) -> Profile:
        """Refuse named parts that are defined by themselves, which no config could ever end."""
        ready: set[str] = set()
        while waiting := [name for name in self.let if name not in ready]:
            found = {name for name in waiting if not (self.let[name].names & set(self.let)) - ready}
            if not found:
                raise PydanticCustomError("let", "let.{name} is defined by itself", {"name": waiting[0]})
            ready |= found
        return self

    @model_validator(mode="after")
    def _brought(self) -> Profile:
        """Refuse switches that bring what the profile does not have."""
        known = {
            "ppo_kl",
            "clip_frac",
            "gap",
            "exact_zero",
            "weights",
            *(entry.name for entry in self.observable),
        }
        for name in (name for entry in self.switch for name in entry.brings if name not in known):
            context = {"name": name, "known": ", ".join(sorted(known))}
            raise PydanticCustomError("switch", "switch.brings names {name}: take one of {known}", context)
        return self

    @property
    def model_names(self) -> ModelNames:
        """Return what reads the names of models out of paths."""
        return names_with(self.generic)

    def scope(self, config: Mapping[str, Json]) -> Scope:
        """Return what the profile's expressions see: config, then defaults, then the named parts."""
        return Scope(self, config)

    def logged(self, config: Mapping[str, Json], key: str) -> Any:
        """Return a config value under its name or an alternative one; None where there is none."""
        value = lookup(config, key)
        if value is None:
            for path in self._also(key):
                if (value := lookup(config, path)) is not None:
                    break
        return value

    def _also(self, key: str) -> Iterator[str]:
        """Yield the other paths of a key; in `alternatives` a ``*`` stands for the rest of its name."""
        yield from self.alternatives.get(key, ())
        for pattern, paths in self._patterns:
            if key.startswith(pattern):
                yield from (path.replace("*", key[len(pattern) :]) for path in paths)

    @cached_property
    def _patterns(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(name[:-1], paths) for name, paths in self.alternatives.items() if name.endswith("*")]

    def flat(self, config: Mapping[str, Json]) -> dict[str, Json]:
        """Return a config with dotted keys, what stands under an alternative path under its own name."""
        flat = flatten(config)
        return {own if (own := self._own_name(key)) not in flat else key: flat[key] for key in flat}

    def _own_name(self, key: str) -> str:
        for name, paths in self.alternatives.items():
            for path in paths:
                if key == path or (path.endswith("*") and key.startswith(path[:-1])):
                    return name.replace("*", key[len(path) - 1 :])
        return key

    def keys_of(self, *expressions: Expression) -> frozenset[str]:
        """Return the config keys that expressions read, those of the named parts in them too."""
        names = frozenset[str]().union(*(expression.names for expression in expressions))
        parts = [self.let[name] for name in names if name in self.let]
        return (names - self.let.keys()) | (self.keys_of(*parts) if parts else frozenset())

    @cached_property
    def own_keys(self) -> frozenset[str]:
        """Return the config keys that the profile reads."""
        rules = (entry.when for entries in (self.exact, self.gap, self.resumed) for entry in entries)
        expressions = (*(key.value for key in self.setup), *rules, *self.let.values())
        return self.keys_of(*expressions) | {*self.known_by, *self.launch.keys, *self.launch.defaults}

    def paths_of(self, *expressions: Expression) -> frozenset[str]:
        """Return every path under which a config may have what expressions read."""
        keys = self.keys_of(*expressions)
        return keys.union(*(self._also(key) for key in keys))

    def gap_of(self, values: Mapping[str, float]) -> GapMetric | None:
        """Return the gap metric that a row has, the preferred one first."""
        return next((gap for gap in self.metrics.gap if gap.metric in values), None)

    def model(self, config: Mapping[str, Json]) -> str | None:
        """Return the model that a run trains, as its setup names it.

        Its architecture stands behind it where the name does not say it: ``my-model (28 x 1024)``.
        """
        scope = self.scope(config)
        key = next((key for key in self.setup if key.label == "model"), None)
        value = key and key.value.value(scope)
        if value is None:
            return None
        built = scope[ARCHITECTURE] if ARCHITECTURE in self.let else None
        usual = architecture.of_name(_shown(value))
        is_clear = built is None or (usual is not None and architecture.agree(built, usual))
        return _shown(value) if is_clear else f"{_shown(value)} ({built})"

    def unnamed_because(self, config: Mapping[str, Json]) -> str:
        """Return why a run is of no known setup: its config names no model; empty where it does."""
        key = next((key for key in self.setup if key.label == "model"), None)
        if key is None or key.value.value(self.scope(config)) is not None:
            return ""
        return f"its config names no model ({', '.join(sorted(self.keys_of(key.value)))})"

    def silent_on(self, config: Mapping[str, Json]) -> dict[str, tuple[str, ...]]:
        """Return the needed parts of a setup that a config says nothing about, each with its keys."""
        found = {}
        for key in self.setup:
            if key.needed:
                others = self.keys_of(*(other.value for other in self.setup if other is not key))
                own = sorted(self.keys_of(key.value) - others)
                if not any(has(config, path) for name in own for path in (name, *self._also(name))):
                    found[key.label] = tuple(own)
        return found

    def setup_label(self, config: Mapping[str, Json], gap_metric: str | None) -> str:
        """Return the readable label of the setup that a run belongs to.

        The key that is labeled ``model`` stands alone behind the profile's name.
        """
        scope = self.scope(config)
        heads, rest = [self.name], []
        for key in self.setup:
            value = key.value.value(scope)
            if key.label == "model":
                heads.append(self.model(config) or "model?")
            elif value is not None and value != key.default:
                rest.append(f"{key.label}={_shown(value)}")
        label = [*heads, " ".join(rest)]
        if self.metrics.gap and gap_metric not in (None, self.metrics.gap[0].metric):
            label.append(str(gap_metric))
        return " · ".join(part for part in label if part)

    def gpu_count(self, config: Mapping[str, Json]) -> int | None:
        """Return how many GPUs a run uses, or None where its config does not say."""
        value = self.gpus.count.value(self.scope(config)) if self.gpus else None
        return int(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else None

    def plan(self, config: Mapping[str, Json], gap_metric: str | None) -> CheckPlan:
        """Return which checks apply to a run with this config, and how."""
        scope = self.scope(config)
        gap = next((gap for gap in self.metrics.gap if gap.metric == gap_metric), None)
        return CheckPlan(
            ppo_kl=self._exact_rule("ppo_kl", scope),
            clip_frac=self._exact_rule("clip_frac", scope),
            gap=self._gap_rule(gap, scope),
            ceiling=gap.ceiling if gap else None,
            ceiling_from=gap.ceiling_from if gap else "",
            gap_zero=next((entry.why for entry in self.gap_zero if entry.when.holds(scope)), ""),
            switch=self._missing_gap(scope) if gap is None or gap.signed else "",
            gap_spread=gap.spread if gap else None,
        )

    def covariates(self, config: Mapping[str, Json], row: Mapping[str, float]) -> Covariates:
        """Return what explains part of the gap of a run with this step-0 row."""
        scope = self.scope(config)
        seeds = [entry.value(scope) for entry in self.prompts.seeds]
        count = self.prompts.count.value(scope) if self.prompts.count else None
        data = [entry.value(scope) for entry in self.prompts.keys]
        return Covariates(
            entropy=schema.first_of(row, self.metrics.entropy),
            seed=None if all(seed is None for seed in seeds) else repr(seeds),
            data=repr([*data, count]),
            prompts=float(count) if isinstance(count, int | float) and count > 0 else None,
        )

    def switches(self, config: Mapping[str, Json], brings: str) -> tuple[schema.Switch, ...]:
        """Return what a run with this config could still set to get a check or metric."""
        scope = self.scope(config)
        return tuple(entry for entry in self.switch if brings in entry.brings and entry.when.holds(scope))

    def _missing_gap(self, scope: Mapping[str, Any]) -> str:
        """Return what to set to get a gap; where that is set already, that it is."""
        known = [entry for entry in self.switch if "gap" in entry.brings]
        if unset := [entry for entry in known if entry.when.holds(scope)]:
            return "; ".join(entry.sentence(self.title, "the gap") for entry in unset)
        told = " and ".join(entry.set for entry in known if entry.set)
        return f"{told} is set, but this version of {self.title} may not log it" if told else ""

    def observe(
        self, config: Mapping[str, Json], row: Mapping[str, float], gap_metric: str | None
    ) -> tuple[tuple[ObservableRule, ...], dict[str, float]]:
        """Return what must hold for the other numbers of a step-0 row, and these numbers by their check."""
        scope = self.scope(config)
        prompts = " ".join(
            str(value) for entry in self.prompts.keys if (value := entry.value(scope)) is not None
        )
        rules, values = [], {}
        for entry in self.observable:
            rule, found = entry.rule(row, scope, prompts), entry.value(row)
            if rule is not None and found is not None and rule.name not in values:
                rules.append(observables.with_bounds(rule, self.bounds))
                values[rule.name] = found[1]
        gap = next((gap for gap in self.metrics.gap if gap.metric == gap_metric), None)
        if (
            gap is not None
            and gap.bound != "none"
            and self._gap_rule(gap, scope).kind in ("range", "vacuous")
        ):
            rule = gap.bound_rule()
            if rule.name not in values:
                rules.append(observables.with_bounds(rule, self.bounds))
                values[rule.name] = gap.of(row)
        return tuple(rules), values

    def resumed_because(self, config: Mapping[str, Json]) -> str:
        """Return why a run that starts at step 0 may be a resumed one; empty where nothing says so."""
        scope = self.scope(config)
        return next((entry.why for entry in self.resumed if entry.when.holds(scope)), "")

    def first_step(self, config: Mapping[str, Json]) -> float:
        """Return the number of the first optimizer step; 0 where the config does not say."""
        value = self.step.first.value(self.scope(config))
        return float(value) if isinstance(value, int | float) else 0.0

    def with_setup(
        self, *, keys: Sequence[str] | None = None, add: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> Profile:
        """Return the profile with other setup keys.

        Parameters
        ----------
        keys : sequence of str, optional
            What replaces the profile's list: labels of its own keys, or config keys by their value.
        add, drop : sequence of str
            The same, to add and to take away; a config key to drop takes the keys that read it along.

        Raises
        ------
        UsageError
            Something has no effect: a key to drop is not one of the profile's, a key to add is there already,
            or `keys` are the profile's own.
        """
        own = {key.label: key for key in self.setup}
        chosen = list(self.setup) if keys is None else []
        for option, name in (*(("keys", name) for name in keys or ()), *(("add", name) for name in add)):
            key = own.get(name) or _by_value(name, {key.label for key in chosen})
            if any(key.value == other.value for other in chosen):
                raise self._no_effect(f"{option} names {name!r}", "it is a setup key already")
            chosen.append(key)
        if keys is not None and {key.value.text for key in chosen} == {key.value.text for key in self.setup}:
            raise self._no_effect("keys are the profile's own", "leave them out")
        for name in drop:
            kept = [key for key in chosen if name != key.label and name not in self.keys_of(key.value)]
            if len(kept) == len(chosen):
                raise self._no_effect(f"drop names {name!r}", "it is not a setup key")
            chosen = kept
        return self.model_copy(update={"setup": tuple(chosen)})

    def _no_effect(self, what: str, why: str) -> UsageError:
        labels = ", ".join(key.label for key in self.setup)
        return UsageError(f"[setup.{self.name}] {what}, which has no effect: {why}", f"There are: {labels}.")

    def _exact_rule(self, check: Literal["ppo_kl", "clip_frac"], scope: Mapping[str, Any]) -> Rule:
        if not getattr(self.metrics, check):
            return Rule("skipped", why=f"{self.title} does not log it")
        found = next((rule for rule in self.exact if check in rule.checks and rule.when.holds(scope)), None)
        return found.rule(check) if found else Rule("skipped", why="the profile has no rule for it")

    def _gap_rule(self, gap: GapMetric | None, scope: Mapping[str, Any]) -> Rule:
        if gap is None:
            return Rule("skipped", why="no gap was logged")
        found = next((rule for rule in self.gap if rule.when.holds(scope)), None)
        if found is not None:
            return Rule(found.kind, why=found.why)
        if gap.signed:
            return Rule("vacuous", why=f"{gap.metric} is a signed mean: near {gap.perfect:g} proves nothing")
        return Rule("range")


def _by_value(name: str, taken: AbstractSet[str]) -> schema.SetupKey:
    """Return the setup key that is a config key's own value."""
    short = name.rsplit(".", 1)[-1]
    return schema.SetupKey(label=name if short in taken else short, value=Expression.of_key(name))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else str(value)
    return str(value)
