"""What differs between the configs of runs, the most telling first."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.profiles.expression import as_number
from step0_wandb.profiles.model_names import names_with
from step0_wandb.text.formatting import clean
from step0_wandb.text.nested import flatten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.profiles import Profile
    from step0_wandb.records import Json

_NOISE = re.compile(
    r"(?:^|[._-])(?:seeds?|ports?|addr(?:ess)?|ip|hosts?|hostname|uuid|timestamp|date|rank|pid|user|save|tags?|notes"
    r"|(?:run|exp|experiment|project|group|trial|job)_?(?:name|id|group)|group"
    r"|(?:output|log|logging|save|work|tmp|temp|ckpt|checkpoint|local|default_local|tensorboard|record)_?(?:dir|path|directory))"
    r"(?:$|[._-])|^(?:wandb|use_wandb|swanlab|tensorboard)",
    re.IGNORECASE,
)
"""Keys that differ by nature from run to run and never explain a gap."""
_MODEL_KEY = re.compile(
    r"(?:^|\.)(?:hf_checkpoint|(?:ref_|critic_)?load|_?(?:model_)?name_or_path|model_name|model(?:\.path|\.name)?"
    r"|actor\.path|pretrain|tokenizer(?:_path|_model|_name)?)$"
)
"""Keys that name a checkpoint; every other path is compared by its whole text."""
_LONGEST_VALUE = 200
"""Characters of a value that are kept."""


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


def differences(
    config: Mapping[str, Json], peers: Sequence[Mapping[str, Json]], profile: Profile | None = None
) -> list[Difference]:
    """Return the keys whose value no peer has, the most telling first.

    Left out is what differs by nature: seeds, ports, names, hosts, output paths, copies of the same
    checkpoint in another place, and keys whose value most peers have for themselves alone.

    Parameters
    ----------
    peers : sequence of mapping
        The configs of the healthy runs of the same setup.
    profile : Profile, optional
        Says which keys are one, so that runs that logged their config in another form can be compared.
    """
    if not peers:
        return []
    plain = profile.flat if profile else flatten
    own, others = plain(config), [plain(peer) for peer in peers]
    found = []
    for key in sorted(own.keys() | {key for other in others for key in other}):
        if varies_by_nature(key):
            continue
        counts = Counter(_comparable(key, other.get(key)) for other in others)
        if _comparable(key, own.get(key)) in counts or _is_individual(counts):
            continue
        usual, times = counts.most_common(1)[0]
        healthy = next(other.get(key) for other in others if _comparable(key, other.get(key)) == usual)
        found.append(Difference(key, _short(own.get(key)), _short(healthy), times / len(others)))
    return sorted(found, key=lambda item: (-item.share, item.key))


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


def varies_by_nature(key: str) -> bool:
    """Return whether a key differs from run to run whatever the setup: a seed, a name, a path."""
    return bool(_NOISE.search(key))


def _comparable(key: str, value: Json) -> str:
    """Return a value as what is compared: numbers as numbers, a checkpoint wherever it is stored.

    An empty table is as good as none.
    """
    if value == {}:
        return repr(None)
    if isinstance(value, str) and _MODEL_KEY.search(key):
        return repr(names_with().checkpoint(value))
    return repr(as_number(value))


def _is_individual(counts: Counter[str]) -> bool:
    """Return whether nearly every peer has a value of its own, so that a new one says nothing."""
    return sum(counts.values()) > 2 and len(counts) > sum(counts.values()) / 2  # noqa: PLR2004 - two peers prove nothing


def one_line(value: Json) -> str:
    """Return a config value as one line of text, harmless in a terminal; ``not set`` where there is none."""
    if value is None:
        return "not set"
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _short(value: Json) -> Json:
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return value[: _LONGEST_VALUE - 1] + "…"
    return value
