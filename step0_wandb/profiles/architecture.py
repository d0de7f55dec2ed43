"""How a model is built, as a text such as ``28 x 1024, ffn 3072, heads 16``: layers x hidden size, and what else is known."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from step0_wandb.profiles.model_names import name_lists

if TYPE_CHECKING:
    from collections.abc import Collection

_SIZE = "size"
_SEPARATORS = re.compile(r"[-_. ]")
_CUT = re.compile(r"(?<![a-z0-9])\d+[-_]?layers?(?![a-z])")
"""A copy with some of the layers, as tests use it."""
_IN_LABEL = re.compile(r" \((\d+ x \d+[^()]*)\)")


def describe(layers: object, hidden: object, ffn: object, heads: object, experts: object) -> str | None:
    """Return an architecture as text; None where layers or hidden size are not known as numbers.

    Examples
    --------
    >>> describe(28, 1024, 3072, 16, None)
    '28 x 1024, ffn 3072, heads 16'
    """
    if not (_is_size(layers) and _is_size(hidden)):
        return None
    more = {"ffn": ffn, "heads": heads, "experts": experts}
    return ", ".join(
        [f"{layers} x {hidden}", *(f"{name} {more[name]}" for name in more if _is_size(more[name]))]
    )


def agree(one: str | None, other: str | None) -> bool:
    """Return whether two architectures may be one: nothing that both say differs.

    Examples
    --------
    >>> agree("28 x 1024", "28 x 1024, heads 16"), agree("28 x 1024, heads 8", "28 x 1024, heads 16"), agree(None, "")
    (True, False, True)
    """
    mine, theirs = _parts(one), _parts(other)
    return all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())


@lru_cache(maxsize=1024)  # names come from outside
def of_name(name: str) -> str | None:
    """Return the architecture of a well-known model, by its name; None for any other.

    Examples
    --------
    >>> of_name("qwen3-0_6b-math"), of_name("DeepSeek-V3-5layer")
    ('28 x 1024, ffn 3072, heads 16', None)
    """
    lower, known = name.lower(), name_lists()["architectures"]
    found = [] if _CUT.search(lower) else [model for model in known if _names(model).search(lower)]
    return known[max(found, key=len)] if found else None


def join(labels: Collection[str]) -> dict[str, str]:
    """Return which setups are another one: those that say less of an architecture than the only one that fits.

    A config without these keys may be of any architecture. Where several would fit, the setup stays its own;
    so it does where the name of its model says which architecture is meant.

    Examples
    --------
    >>> join(["miles · own", "miles · own (28 x 1024)", "miles · own-2", "miles · Qwen3-0.6B", "miles · Qwen3-0.6B (9 x 9)"])
    {'miles · own': 'miles · own (28 x 1024)'}
    """
    built = {label: "".join(_IN_LABEL.findall(label)[:1]) for label in labels}
    bases = {label: _IN_LABEL.sub("", label, count=1) for label in built}
    rivals: dict[str, list[str]] = defaultdict(list)
    for label, base in bases.items():
        rivals[base].append(label)
    joined: dict[str, str] = {}
    # Setups that say the most come first, so that others can follow to where these have gone.
    for label in sorted(built, key=lambda label: (-len(_parts(built[label])), label)):
        base = bases[label]
        fuller = {
            joined.get(other, other)
            for other in rivals[base]
            if len(_parts(built[other])) > len(_parts(built[label])) and agree(built[other], built[label])
        }
        if len(fuller) == 1 and of_name("".join(base.split(" · ")[1:2])) is None:
            joined[label] = fuller.pop()
    return joined


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value > 0 and not isinstance(value, bool)


def _parts(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    size, *more = text.split(", ")
    return {_SIZE: size, **{name: value for name, _, value in (part.partition(" ") for part in more)}}


@cache
def _names(known: str) -> re.Pattern[str]:
    """Return what finds a well-known model in a name, however its parts are joined."""
    joined = "[-_.]?".join(map(re.escape, _SEPARATORS.split(known)))
    return re.compile(rf"(?<![a-z0-9]){joined}(?![a-z0-9]|\.\d)")
