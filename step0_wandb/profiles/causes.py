"""Known causes of a broken step 0, and which of them a run's config shows."""

from __future__ import annotations

import math
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from step0_wandb.profiles import schema
from step0_wandb.profiles.expression import Expression
from step0_wandb.profiles.observables import catalog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from step0_wandb.profiles.profile import Profile
    from step0_wandb.records import Json

Contradicts = Literal["", "launch", "run"]
COMMON = 0.5
"""A cause that more than this share of the healthy peers has explains no difference."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something in a run's config that is known to do what its checks show.

    Attributes
    ----------
    text : str
        What the config shows, with its values; an observation, not a verdict.
    advice : str
        What to do about it.
    rank : int
        1: the config contradicts itself; 2: it has what is known to do this; 3: worth a look.
    contradicts : str
        ``run``: the config alone makes a run suspect. ``launch``: a launch should not start with it, and
        the checks of a run show it by themselves. Empty for all other causes.
    """

    name: str
    text: str
    advice: str
    rank: int
    contradicts: Contradicts = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a run and of its healthy peers.

    Attributes
    ----------
    config : mapping
        The run's config.
    failed : collection of str
        The checks that fail or warn, see `checks.registry`.
    values : mapping of str to float
        ``ppo_kl``, ``clip_frac``, ``gap`` and ``ratio``, as far as they are known.
    row : mapping of str to float
        Every number of the step-0 row.
    peers : sequence of mapping
        Configs of healthy runs of the same setup.
    peer_rows : sequence of mapping
        Their step-0 rows.
    differs : collection of str
        Config keys whose value no peer has.
    moved : bool
        Whether the whole setup has moved since an earlier epoch.
    """

    config: Mapping[str, Json]
    failed: Collection[str]
    values: Mapping[str, float | None] = field(default_factory=dict)
    row: Mapping[str, float] = field(default_factory=dict)
    peers: Sequence[Mapping[str, Json]] = ()
    peer_rows: Sequence[Mapping[str, float]] = ()
    differs: Collection[str] = ()
    moved: bool = False


def _check_name(name: str) -> str:
    """Return the name of a check if there is one."""
    if name not in {"ppo_kl", "clip_frac", "gap", "gap-zero", *catalog()}:
        raise PydanticCustomError("check", "{name} is not the name of a check", {"name": name})
    return name


class _Entry(schema.ProfileTable):
    """One cause as the catalog has it."""

    name: str
    profiles: tuple[str, ...] = ()
    shows: tuple[Annotated[str, AfterValidator(_check_name)], ...] = Field(min_length=1)
    when: schema.Expr
    rank: Literal[1, 2, 3]
    contradicts: Contradicts = ""
    unless: schema.Expr = schema.NEVER
    says: str
    do: str

    def is_about(self, profile: Profile) -> bool:
        """Return whether runs of a framework may show it."""
        return not self.profiles or profile.name in self.profiles

    def filled(self, scope: _Scope) -> Cause:
        """Return the cause with what a config says."""
        contradicts = "" if self.unless.holds(scope) else self.contradicts
        return Cause(self.name, _filled(self.says, scope), self.do, self.rank, contradicts)


class _Blind(schema.ProfileTable):
    """Something that step 0 cannot see."""

    name: str
    when: schema.Expr
    says: str


class _CauseCatalog(schema.ProfileTable):
    ratios: dict[str, tuple[str, ...]]
    cause: tuple[_Entry, ...]
    blind: tuple[_Blind, ...]


@cache
def _catalog() -> _CauseCatalog:
    text = (
        resources.files("step0_wandb")
        .joinpath("profiles", "lists", "causes.toml")
        .read_text(encoding="utf-8")
    )
    return _CauseCatalog.model_validate(tomllib.loads(text))


def find_causes(profile: Profile, evidence: Evidence) -> list[Cause]:
    """Return the known causes that a run's config shows, the likeliest first.

    Only causes of a check that fails are named, and none that most healthy peers share. What makes a run
    suspect by its config alone is named whatever its checks say.

    Examples
    --------
    >>> from step0_wandb.profiles import load_profiles
    >>> config = {"attention_dropout": 0.1, "hidden_dropout": 0.1}
    >>> found = find_causes(load_profiles().by_name["miles"], Evidence(config, {"ppo_kl"}))
    >>> found[0].name, found[0].advice
    ('dropout', 'set --attention-dropout 0 --hidden-dropout 0')
    """
    catalog = _catalog()
    scope = _Scope(profile, evidence.config, _about(evidence, catalog.ratios))
    found = []
    for entry, cause in _shown_by(profile, scope):
        is_likely = set(entry.shows) & set(evidence.failed)
        if cause.contradicts == "run" or (is_likely and not _is_common(entry.when, profile, evidence.peers)):
            found.append(cause)
    return sorted(found, key=lambda cause: cause.rank)


def causes_in(profile: Profile, config: Mapping[str, Json], unknown: Collection[str] = ()) -> list[Cause]:
    """Return the known causes that a config shows by itself, without a run: contradictions first.

    Parameters
    ----------
    unknown : collection of str
        Config keys that are set to something that nobody knows yet; what depends on one is not named.

    Examples
    --------
    >>> from step0_wandb.profiles import load_profiles
    >>> config = {"hf_checkpoint": "Qwen/Qwen3-0.6B", "ref_load": "/models/Qwen3-1.7B_torch_dist"}
    >>> causes_in(load_profiles().by_name["miles"], config)[0].contradicts
    'run'
    """
    found = []
    for entry, cause in _shown_by(profile, _Scope(profile, config, {})):
        read = profile.keys_of(entry.when, entry.unless)
        is_set = any(profile.logged(config, key) is not None for key in profile.keys_of(entry.when))
        if is_set and read.isdisjoint(unknown):
            found.append(cause)
    return sorted(found, key=lambda cause: (not cause.contradicts, cause.rank))


def contradiction_in(profile: Profile, config: Mapping[str, Json]) -> str:
    """Return what of a run's config contradicts itself, the gravest first; empty for most."""
    shown = _shown_by(profile, _Scope(profile, config, {}), only="run")
    return next((cause.text for _, cause in shown if cause.contradicts), "")


def _shown_by(profile: Profile, scope: _Scope, only: Contradicts = "") -> Iterator[tuple[_Entry, Cause]]:
    """Yield what a config shows of the catalog, or of one kind of its contradictions."""
    for entry in _catalog().cause:
        if only in ("", entry.contradicts) and entry.is_about(profile) and entry.when.holds(scope):
            yield entry, entry.filled(scope)


def blind_spots(profile: Profile, config: Mapping[str, Json]) -> list[str]:
    """Return what step 0 cannot see in a run with this config, in sentences."""
    scope = _Scope(profile, config, {})
    return [entry.says for entry in _catalog().blind if entry.when.holds(scope)]


def _is_common(when: Expression, profile: Profile, peers: Sequence[Mapping[str, Json]]) -> bool:
    """Return whether most peers show a cause too, judged by their configs alone."""
    if not peers or any(name.startswith("run.") for name in when.names):
        return False
    shared = sum(when.holds(_Scope(profile, peer, {})) for peer in peers)
    return shared > COMMON * len(peers)


def _about(evidence: Evidence, ratios: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return what expressions may ask of the run, under its names."""
    facts: dict[str, Any] = {f"run.{name}": value for name, value in evidence.values.items()}
    facts |= {"run.differs": list(evidence.differs), "run.moved": evidence.moved}
    for name, metrics in ratios.items():
        value, center = _both_sides(evidence, metrics)
        facts[f"run.{name}"] = value / center if center and math.isfinite(value / center) else None
        facts[f"here.{name}"], facts[f"peers.{name}"] = value, center
    return facts


def _both_sides(evidence: Evidence, metrics: Iterable[str]) -> tuple[float, float]:
    """Return a number of the run and its median among the peers, by the first name that both sides have."""
    for metric in metrics:
        others = [row[metric] for row in evidence.peer_rows if metric in row]
        if others and metric in evidence.row:
            return evidence.row[metric], median(others)
    return 0.0, 0.0


class _Scope(Mapping[str, Any]):
    """A run's config, with the profile's named parts and defaults, and what is known of the run."""

    def __init__(self, profile: Profile, config: Mapping[str, Json], about: Mapping[str, Any]) -> None:
        self.model_names = profile.model_names
        self._inner = profile.scope(config)
        self._about = about

    def __getitem__(self, path: str) -> Any:
        return self._about[path] if path in self._about else self._inner[path]

    def __contains__(self, path: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


def _filled(text: str, scope: _Scope) -> str:
    """Fill the expressions in braces into a sentence."""
    parts = []
    for literal, expression, _, _ in string.Formatter().parse(text):
        parts.append(literal)
        if expression is not None:
            parts.append(_shown(Expression.parse(expression).value(scope)))
    return "".join(parts)


def _shown(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)
