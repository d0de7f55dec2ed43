"""Why a run got its verdict: what its config has that no healthy run of its setup has."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.profiles.expression import as_number, model_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from step0_wandb.records import Json, JudgedRun

_NOISE = re.compile(
    r"(?:^|[._-])(?:seeds?|ports?|addr(?:ess)?|ip|hosts?|hostname|uuid|timestamp|date|rank|pid|user|save|tags?|notes"
    r"|(?:run|exp|experiment|project|group|trial|job)_?(?:name|id|group)|group"
    r"|(?:output|log|logging|save|work|tmp|temp|ckpt|checkpoint|local|default_local|tensorboard|record)_?(?:dir|path|directory))"
    r"(?:$|[._-])|^(?:_wandb|wandb|use_wandb|swanlab|tensorboard)",
    re.IGNORECASE,
)
"""Keys that differ by nature from run to run and never explain a gap."""
_LONGEST_VALUE = 200
PEERS = 50
"""Healthy runs that one run is compared with: the newest of its setup."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One config key whose value no healthy run of the setup has.

    Attributes
    ----------
    value : JSON value
        The run's own value; None where it lacks the key.
    healthy : JSON value
        The value that most healthy runs have.
    share : float
        Share of the healthy runs that have this very value: the nearer to 1, the more telling.
    """

    key: str
    value: Json
    healthy: Json
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """A run with its verdict, what its config shows, and what differs from its healthy peers."""

    run: JudgedRun
    causes: tuple[str, ...]
    differs: tuple[Difference, ...]
    peers: int


def explain_judged(
    run: JudgedRun,
    judged: Iterable[JudgedRun],
    configs: Callable[[Sequence[str]], Iterable[Mapping[str, Json]]],
) -> Explanation:
    """Explain one verdict by comparing the run with the newest healthy runs of its setup.

    Where the setup has none, those of the nearest setup stand in.

    Parameters
    ----------
    judged : iterable of JudgedRun
        All runs.
    configs : callable
        Returns the config of each run whose key it is given.
    """
    peers = _peers(run, [other for other in judged if other.verdict == "healthy" and other.run != run.run])
    config = next(iter(configs([run.run])), {})
    differs = differences(config, list(configs([peer.run for peer in peers])))
    return Explanation(run, (), tuple(differs), len(peers))


def _peers(run: JudgedRun, healthy: Sequence[JudgedRun]) -> list[JudgedRun]:
    near = nearest_setup(run.setup or "", {peer.setup or "" for peer in healthy})
    for setup in (run.setup, near):
        peers = [peer for peer in healthy if setup and peer.setup == setup]
        if peers:
            dated = sorted(peers, key=lambda peer: (str(peer.created_at or ""), peer.run))
            return dated[-PEERS:]
    return []


def differences(config: Mapping[str, Json], peers: Sequence[Mapping[str, Json]]) -> list[Difference]:
    """Return the keys whose value no peer has, the most telling first.

    Left out is what differs by nature: seeds, ports, names, hosts, output paths, paths that end in the
    same model, and keys whose value most peers have for themselves alone.

    Parameters
    ----------
    peers : sequence of mapping
        The configs of the healthy runs of the same setup.
    """
    if not peers:
        return []
    own = flatten(config)
    others = [flatten(peer) for peer in peers]
    found = []
    for key in sorted(own.keys() | {key for other in others for key in other}):
        if _NOISE.search(key):
            continue
        counts = Counter(_comparable(other.get(key)) for other in others)
        if _comparable(own.get(key)) in counts or _is_individual(counts):
            continue
        usual, times = counts.most_common(1)[0]
        healthy = next(other.get(key) for other in others if _comparable(other.get(key)) == usual)
        found.append(Difference(key, _short(own.get(key)), _short(healthy), times / len(others)))
    return sorted(found, key=lambda item: (-item.share, item.key))


def flatten(config: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return a nested config with dotted keys; lists and empty tables are values."""
    flat: dict[str, Json] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nearest_setup(setup: str, others: Iterable[str]) -> str | None:
    """Return the setup that shares profile, model and most parts of the label with `setup`."""
    profile, model, *rest = [*setup.split(" · "), "", ""]
    parts = set(" ".join(rest).split())
    rivals = [other for other in others if other != setup and other.split(" · ")[:2] == [profile, model]]
    return min(
        rivals,
        key=lambda other: (len(parts ^ set(" ".join(other.split(" · ")[2:]).split())), other),
        default=None,
    )


def _comparable(value: Json) -> str:
    """Return a value as what is compared: numbers as numbers, a path as the model that it ends in."""
    if isinstance(value, str):
        value = model_name(value) if "/" in value else value
    return repr(as_number(value))


def _is_individual(counts: Counter[str]) -> bool:
    """Return whether nearly every peer has a value of its own, so that a new one says nothing."""
    return sum(counts.values()) > 2 and len(counts) > sum(counts.values()) / 2  # noqa: PLR2004 - two peers prove nothing


def _short(value: Json) -> Json:
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return value[: _LONGEST_VALUE - 1] + "…"
    return value
