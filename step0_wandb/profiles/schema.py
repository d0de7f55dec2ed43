"""The tables of a profile's TOML file; those of its metrics are in `metrics.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from step0_wandb.errors import UsageError
from step0_wandb.profiles.expression import Expression
from step0_wandb.records import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _expression(value: object) -> Expression:
    """Compile an expression; the hint of an error says what is allowed."""
    if isinstance(value, Expression):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("expression", "an expression is a text")
    try:
        return Expression.parse(value)
    except UsageError as error:
        context = {"message": error.message, "hint": error.hint}
        raise PydanticCustomError("expression", "{message}", context) from error


Expr = Annotated[Expression, BeforeValidator(_expression)]
ALWAYS = Expression.parse("1")
NEVER = Expression.parse("0")

PPO_KL_BROKEN_FROM = 1e-2
"""Every PPO-KL from here on has so far been a real fault."""
CLIP_FRAC_LIMIT = 1e-10
"""Miles' own limit of the clip fraction at the first optimizer step."""
CLIP_FRAC_BROKEN_FROM = 5e-2


class ProfileTable(BaseModel):
    """A table that knows its keys and refuses others."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Step(ProfileTable):
    """Where a row carries its step, and which step is the first.

    Attributes
    ----------
    keys : tuple of str
        The first that a row has counts.
    first : Expression
        Number of the first optimizer step, from the config.
    context : tuple of str
        Step keys of other rows of the first rollout (response length, entropy, reward).
    joined : bool
        Whether rows of earlier steps belong to the first one, where parts of it are numbered in another way.
    """

    keys: tuple[str, ...] = Field(min_length=1)
    first: Expr
    context: tuple[str, ...] = ()
    joined: bool = False

    def of(self, values: Mapping[str, float]) -> float | None:
        """Return the step that a row carries, or None."""
        step = first_of(values, self.keys)
        return step if step is not None and math.isfinite(step) else None


class SetupKey(ProfileTable):
    """One part of a setup: a value of the config, and the value that needs no mention.

    Attributes
    ----------
    needed : bool
        Whether a run whose config has none of its keys may belong to another setup than it seems.
    """

    label: str
    value: Expr
    default: int | float | str | None = None
    needed: bool = False


class ExactRule(ProfileTable):
    """How ``ppo_kl`` and ``clip_frac`` apply where `when` holds; the first rule that holds decides.

    Attributes
    ----------
    limit : float or None
        Largest absolute ``ppo_kl`` that passes. A ``vacuous`` rule may have one too: a value above it
        shows that the check could fail after all.
    broken_from : float or None
        From this absolute ``ppo_kl`` on the run is broken; None takes what is so everywhere, 1e-2.
    """

    kind: Literal["exact", "learned", "averaged", "vacuous", "skipped"]
    when: Expr = ALWAYS
    checks: tuple[Literal["ppo_kl", "clip_frac"], ...] = ("ppo_kl", "clip_frac")
    limit: float | None = None
    above: Literal["broken", "suspect"] = "suspect"
    broken_from: float | None = None
    why: str = ""

    def rule(self, check: Literal["ppo_kl", "clip_frac"]) -> Rule:
        """Return the rule as it applies to one of the two checks."""
        is_kl = check == "ppo_kl"
        limited = self.kind in ("exact", "learned") or self.limit is not None
        broken_from = PPO_KL_BROKEN_FROM if self.broken_from is None else self.broken_from
        return Rule(
            kind=self.kind,
            limit=(self.limit if is_kl else CLIP_FRAC_LIMIT) if limited else None,
            above=self.above,
            broken_from=broken_from if is_kl else CLIP_FRAC_BROKEN_FROM,
            why=self.why,
        )

    @model_validator(mode="after")
    def _whole(self) -> ExactRule:
        if self.kind in ("exact", "learned") and self.limit is None and "ppo_kl" in self.checks:
            raise PydanticCustomError("rule", "a rule of this kind needs a limit")
        if self.kind in ("averaged", "vacuous", "skipped") and not self.why:
            raise PydanticCustomError("rule", "a rule of this kind says why")
        return self


class GapRule(ProfileTable):
    """How the gap applies where `when` holds."""

    kind: Literal["range", "zero", "vacuous", "skipped"]
    when: Expr = ALWAYS
    why: str = ""


class Because(ProfileTable):
    """A sentence that is true of a run where `when` holds."""

    when: Expr
    why: str


class Rollouts(ProfileTable):
    """Where rollouts begin among the optimizer steps.

    Attributes
    ----------
    steps : Expression
        Optimizer steps of one rollout; None where the config does not say.
    stale : Expression
        Whether a rollout may use older weights by design.
    staleness : Expression
        By how many updates they may be older then.
    unsynced : Expression
        Whether the engine keeps its first weights by design.
    synchronous : Expression
        Whether every rollout surely uses the weights of the update before it.
    learning_rate, grad_norm : tuple of str
        Metrics of an optimizer step that changes nothing where one of them is 0.
    """

    steps: Expr
    stale: Expr = NEVER
    staleness: Expr = ALWAYS
    unsynced: Expr = NEVER
    synchronous: Expr = NEVER
    learning_rate: tuple[str, ...] = ()
    grad_norm: tuple[str, ...] = ()


class Gpus(ProfileTable):
    """How many GPUs a run uses."""

    count: Expr


class More(ProfileTable):
    """A flag that a comparison of the weights needs too where `when` holds."""

    when: Expr
    add: str


class Weights(ProfileTable):
    """How the framework itself compares the weights of trainer and engine, before the first rollout.

    Attributes
    ----------
    flag : Expression
        Whether a run compares them.
    add : tuple of str
        What to add to a short run, in each form that launchers take; ``{more}`` stands where the
        flags of `more` go.
    weaker : tuple of Because
        Why a comparison proves less.
    long : Expression
        Whether the run is a long one; comparing once is enough.
    """

    flag: Expr
    add: tuple[str, ...]
    more: tuple[More, ...] = ()
    weaker: tuple[Because, ...] = ()
    long: Expr = NEVER

    def flags(self, scope: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what to add to a short run with this config, in each form that launchers take."""
        more = "".join(entry.add for entry in self.more if entry.when.holds(scope))
        return tuple(text.format(more=more) for text in self.add)


class Switch(ProfileTable):
    """What a user can set so that a check applies or a metric is logged.

    Attributes
    ----------
    brings : tuple of str
        ``ppo_kl``, ``clip_frac``, ``gap``, ``exact_zero`` (the mode in which the gap is exactly 0),
        ``weights`` (their comparison), or names of observables.
    kind : str
        ``flag`` of the command line, ``key`` of the config, or ``default``: nothing needs to be set.
    set : str
        What to type, as the framework's launcher takes it; empty for a ``default``.
    when : Expression
        Where setting it would change something: it is not set yet.
    why : str
        The whole sentence for people, where more is to be said than "X logs the gap with Y".
    """

    brings: tuple[str, ...] = Field(min_length=1)
    kind: Literal["flag", "key", "default"]
    set: str = ""
    when: Expr = ALWAYS
    why: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Switch:
        if bool(self.set) == (self.kind == "default"):
            raise PydanticCustomError("switch", "a flag or key says what to set, and a default does not")
        if self.kind == "default" and not self.why:
            raise PydanticCustomError("switch", "a default says why")
        return self

    def sentence(self, title: str, what: str) -> str:
        """Return what to do, for a person: ``verl logs the gap with X=True``."""
        return self.why or f"{title} logs {what} with {self.set}"


class LaunchSigns(ProfileTable):
    """How a launch of the framework is known before it has logged anything.

    Attributes
    ----------
    commands : tuple of str
        Texts that only its command lines have.
    keys : tuple of str
        Config keys that only its config files have.
    words : tuple of str
        Words that its launch scripts use; they decide where several frameworks have the same flags.
    defaults : mapping of str to value
        What holds where a launch does not say it, and a run's config would show, where `defaults_when` does.
    """

    commands: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    defaults: dict[str, Any] = Field(default_factory=dict)
    defaults_when: Expr = ALWAYS


class Console(ProfileTable):
    """How the framework prints a training step to its log.

    Attributes
    ----------
    kind : str
        ``dict``: a Python dict that names its step, in it or as ``word N:`` before it; ``dashes``:
        ``step:N - key:value - …``; ``bare-dict``: a dict without a step; ``bar``: the end of a progress
        bar, ``N/100 [..., key=value]``, where N steps are done; ``panel``: a frame around lines
        ``group  key: value | key: value``; ``none``: what it prints is not enough for a verdict, and
        `why` says so.
    find : tuple of str
        Texts of which every such step holds one; what a long log is searched for.
    word : str
        What stands before the step's number.
    prefix : str
        What W&B's names have in front of the printed ones.
    step_in : tuple of str
        Keys of the dict whose text ``3/100`` says the step; only this framework's dicts have one.
    leave_out : tuple of str
        Printed names whose value is not that of the first optimizer step.
    config : mapping
        What the config of a run surely has whose log looks like this.
    signs : tuple of str
        Texts by which the framework's log is known when it shows no step 0, so that `why` can be said.
    """

    kind: Literal["dict", "dashes", "bare-dict", "bar", "panel", "none"]
    find: tuple[str, ...] = ()
    word: str = "step"
    prefix: str = ""
    step_in: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    config: dict[str, Any] = Field(default_factory=dict)
    signs: tuple[str, ...] = ()
    why: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Console:
        if self.kind != "none" and not (self.find and all(self.find)):
            raise PydanticCustomError("console", "a log of this kind needs texts to find, none of them empty")
        if (self.kind == "none" or self.signs) and not (self.signs and self.why):
            raise PydanticCustomError("console", "a log that shows no step 0 needs signs, and a why")
        return self


def first_of(values: Mapping[str, float], names: Iterable[str]) -> float | None:
    """Return the value of the first name that a row has, or None."""
    return next((values[name] for name in names if name in values), None)
