"""A profile: how one framework names its metrics, step and config keys, and which checks apply."""

from __future__ import annotations

import math
import tomllib
from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from step0_wandb.errors import UsageError
from step0_wandb.profiles.expression import Expression, lookup
from step0_wandb.records import CheckPlan, Rule

if TYPE_CHECKING:
    from pathlib import Path

    from step0_wandb.records import Json

PPO_KL_BROKEN_FROM = 1e-2
"""Every PPO-KL from here on has so far been a real fault."""
CLIP_FRAC_LIMIT = 1e-10
"""Miles' own limit of the clip fraction at the first optimizer step."""
CLIP_FRAC_BROKEN_FROM = 5e-2


def _expression(value: object) -> Expression:
    if not isinstance(value, str):
        raise ValueError("an expression is a text")  # noqa: TRY004 - pydantic reports ValueError
    try:
        return Expression.parse(value)
    except UsageError as error:
        raise ValueError(error.message) from error


Expr = Annotated[Expression, BeforeValidator(_expression)]
ALWAYS = Expression.parse("1")
NEVER = Expression.parse("0")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class GapMetric(_Table):
    """One metric that measures the gap.

    Attributes
    ----------
    statistic : str
        What it is, for people: two statistics are never compared.
    perfect : float
        The value of two sides that agree: 0 for differences, 1 for ratios.
    signed : bool
        Whether positive and negative differences cancel, so that 0 proves nothing.
    ceiling : float or None
        The gap that the framework itself allows; `ceiling_from` says who does, as the end of a
        sentence "above what ...".
    """

    metric: str
    statistic: str
    perfect: float = 0.0
    signed: bool = False
    ceiling: float | None = None
    ceiling_from: str = ""


class Metrics(_Table):
    """The metric names of the checks; the first name that a row has counts."""

    ppo_kl: tuple[str, ...] = ()
    clip_frac: tuple[str, ...] = ()
    gap: tuple[GapMetric, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Return every metric name."""
        return frozenset((*self.ppo_kl, *self.clip_frac, *(gap.metric for gap in self.gap)))


class Step(_Table):
    """Where a row carries its step, and which step is the first.

    Attributes
    ----------
    keys : tuple of str
        The first that a row has counts.
    first : Expression
        Number of the first optimizer step, from the config.
    context : tuple of str
        Step keys of other rows of the first rollout (response length, entropy, reward).
    """

    keys: tuple[str, ...]
    first: Expr
    context: tuple[str, ...] = ()

    def of(self, values: Mapping[str, float]) -> float | None:
        """Return the step that a row carries, or None."""
        return next((values[key] for key in self.keys if key in values), None)


class SetupKey(_Table):
    """One part of a setup: a value of the config, and the value that needs no mention."""

    label: str
    value: Expr
    default: int | float | str | None = None


class ExactRule(_Table):
    """How ``ppo_kl`` and ``clip_frac`` apply where `when` holds; the first rule that holds decides."""

    kind: Literal["exact", "learned", "averaged", "vacuous", "skipped"]
    when: Expr = ALWAYS
    checks: tuple[Literal["ppo_kl", "clip_frac"], ...] = ("ppo_kl", "clip_frac")
    limit: float | None = None
    above: Literal["broken", "suspect"] = "suspect"
    why: str = ""


class GapRule(_Table):
    """How the gap applies where `when` holds."""

    kind: Literal["range", "zero", "vacuous", "skipped"]
    when: Expr = ALWAYS
    why: str = ""


class Because(_Table):
    """A sentence that is true of a run where `when` holds."""

    when: Expr
    why: str


class Gpus(_Table):
    """How many GPUs a run uses."""

    count: Expr


class Switch(_Table):
    """What to set so that a missing metric is logged."""

    gap: str = ""
    ppo_kl: str = ""


class Profile(_Table):
    """How one framework names its metrics, step and config keys; see the TOML files beside this one."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    read_from: str = ""
    prefer: Expr | None = None
    metrics: Metrics
    step: Step
    let: dict[str, Expr] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    setup: tuple[SetupKey, ...]
    exact: tuple[ExactRule, ...] = ()
    gap: tuple[GapRule, ...] = ()
    gap_zero: tuple[Because, ...] = ()
    resumed: tuple[Because, ...] = ()
    gpus: Gpus | None = None
    switch: Switch = Switch()

    def scope(self, config: Mapping[str, Json]) -> Mapping[str, Any]:
        """Return what the profile's expressions see: config, then defaults, then the named parts."""
        return _Scope(self, config)

    def gap_of(self, values: Mapping[str, float]) -> GapMetric | None:
        """Return the gap metric that a row has, the preferred one first."""
        return next((gap for gap in self.metrics.gap if gap.metric in values), None)

    def setup_label(self, config: Mapping[str, Json], gap_metric: str | None) -> str:
        """Return the readable label of the setup that a run belongs to."""
        scope = self.scope(config)
        model, *rest = [(key, key.value.value(scope)) for key in self.setup]
        parts = [
            f"{key.label}={_shown(value)}"
            for key, value in rest
            if value is not None and value != key.default
        ]
        label = [self.name, _shown(model[1] or f"{model[0].label}?"), " ".join(parts)]
        if self.metrics.gap and gap_metric not in (None, self.metrics.gap[0].metric):
            label.append(str(gap_metric))
        return " · ".join(part for part in label if part)

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
            switch=self.switch.gap if gap is None else "",
        )

    def resumed_because(self, config: Mapping[str, Json]) -> str:
        """Return why a run that starts at step 0 may be a resumed one; empty where nothing says so."""
        scope = self.scope(config)
        return next((entry.why for entry in self.resumed if entry.when.holds(scope)), "")

    def first_step(self, config: Mapping[str, Json]) -> float:
        """Return the number of the first optimizer step; 0 where the config does not say."""
        value = self.step.first.value(self.scope(config))
        return float(value) if isinstance(value, int | float) else 0.0

    def _exact_rule(self, check: Literal["ppo_kl", "clip_frac"], scope: Mapping[str, Any]) -> Rule:
        is_kl = check == "ppo_kl"
        if not (self.metrics.ppo_kl if is_kl else self.metrics.clip_frac):
            return Rule("skipped", why=f"{self.title} does not log it")
        found = next((rule for rule in self.exact if check in rule.checks and rule.when.holds(scope)), None)
        if found is None:
            return Rule("skipped", why="the profile has no rule for it")
        return Rule(
            kind=found.kind,
            limit=(found.limit if is_kl else CLIP_FRAC_LIMIT) if found.kind in ("exact", "learned") else None,
            above=found.above,
            broken_from=PPO_KL_BROKEN_FROM if is_kl else CLIP_FRAC_BROKEN_FROM,
            why=found.why,
        )

    def _gap_rule(self, gap: GapMetric | None, scope: Mapping[str, Any]) -> Rule:
        if gap is None:
            return Rule("skipped", why="no gap was logged")
        found = next((rule for rule in self.gap if rule.when.holds(scope)), None)
        if found is not None:
            return Rule(found.kind, why=found.why)
        if gap.signed:
            return Rule("vacuous", why=f"{gap.metric} is a signed mean: near {gap.perfect:g} proves nothing")
        return Rule("range")


class _Scope(Mapping[str, Any]):
    """A config as expressions see it; named parts are worked out when asked for."""

    def __init__(self, profile: Profile, config: Mapping[str, Json]) -> None:
        self._let = profile.let
        self._config = config
        self._defaults = profile.defaults

    def __getitem__(self, path: str) -> Any:
        if path in self._let:
            return self._let[path].value(self)
        value = lookup(self._config, path)
        return self._defaults.get(path) if value is None else value

    def __contains__(self, path: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(ChainMap(dict(self._config)))

    def __len__(self) -> int:
        return len(self._config)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else str(value)
    return str(value)


def load_profile(path: Path) -> Profile:
    """Read and validate one profile.

    Raises
    ------
    UsageError
        The file cannot be read, is no TOML, or a key is unknown, missing or of the wrong kind; the
        message names file and key.
    """
    try:
        return Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"The profile {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The profile {path} is no TOML file: {error}") from error
    except ValidationError as error:
        raise UsageError(f"The profile {path} is not valid: {_first(error)}", _allowed(error)) from error


def _first(error: ValidationError) -> str:
    detail = error.errors()[0]
    return f"{'.'.join(str(part) for part in detail['loc'])}: {detail['msg']}"


def _allowed(error: ValidationError) -> str:
    """Return which keys the table has in which the first error lies."""
    table: Any = Profile
    for part in error.errors()[0]["loc"][:-1]:
        if isinstance(part, str) and isinstance(table, type) and issubclass(table, BaseModel):
            table = _tables_in(table.model_fields[part].annotation)
    if isinstance(table, type) and issubclass(table, BaseModel):
        return f"Allowed here: {', '.join(table.model_fields)}."
    return ""


def _tables_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in getattr(annotation, "__args__", ()) if (found := _tables_in(part))), None)
