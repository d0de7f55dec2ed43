"""The installed packages of two runs, compared: they name what a config hides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE: Final = "requirements.txt"
"""What the wandb client calls the list of a run's packages."""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*"
    r"(?:===?\s*(?P<version>[^\s;#]+)|@\s*(?P<url>\S+))"
)
_EDITABLE = re.compile(r"(?:-e|--editable)[\s=]+(?P<url>\S+)#(?:\S*&)?egg=(?P<name>[A-Za-z0-9._-]+)")
_LONGEST: Final = 60
_RANKED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"sglang|vllm|torch|transformers",
        r"(?:sgl|vllm|torch|megatron|mbridge|transformer-engine|flash-?attn|flashinfer|triton|xformers|deep-?gemm|deep-?ep).*",
        r"nvidia-.*|cuda-.*|apex|bitsandbytes|peft|accelerate|deepspeed|verl|trl|miles|slime|openrlhf",
    )
)
"""Packages that compute the log-probs of either side, those below them, those around them."""
_MISSING: Final = "not installed"


def read_requirements(text: str) -> dict[str, str]:
    r"""Return the version of each package in a ``requirements.txt``, by its normalized name.

    A package installed from an address has the end of that address as its version, a commit or a file
    name; the rest, which may hold a password, is left out. Lines that name no version are left out.

    Examples
    --------
    >>> read_requirements("Flash_Attn==2.8.3\nsglang @ git+https://x:y@host/sglang.git@v0.5.9")
    {'flash-attn': '2.8.3', 'sglang': 'v0.5.9'}
    """
    found = {}
    for line in text.splitlines():
        match = _EDITABLE.match(line.strip()) or _REQUIREMENT.match(line.strip())
        if match:
            parts = match.groupdict()
            version = parts.get("version") or _end_of(parts["url"])
            found[normalized(parts["name"])] = version[:_LONGEST]
    return found


def normalized(name: str) -> str:
    """Return a package's name as PEP 503 writes it.

    Examples
    --------
    >>> normalized("Transformer_Engine")
    'transformer-engine'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages that differ, those first that matter most for the gap.

    Examples
    --------
    >>> changes({"numpy": "2.1", "sglang": "0.5.9"}, {"numpy": "2.2", "sglang": "0.5.16"})
    ('sglang 0.5.9 -> 0.5.16', 'numpy 2.1 -> 2.2')
    """
    differ = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return tuple(
        f"{name} {before.get(name, _MISSING)} -> {after.get(name, _MISSING)}"
        for name in sorted(differ, key=lambda name: (_rank(name), name))
    )


def telling(moved: Iterable[str]) -> tuple[str, ...]:
    """Return those of the `changes` that can move a gap: what computes log-probs, and what is below it.

    Examples
    --------
    >>> telling(("sglang 0.5.9 -> 0.5.16", "tqdm 4.66 -> 4.67"))
    ('sglang 0.5.9 -> 0.5.16',)
    """
    return tuple(change for change in moved if _rank(change.partition(" ")[0]) < len(_RANKED))


def _rank(name: str) -> int:
    return next((rank for rank, pattern in enumerate(_RANKED) if pattern.fullmatch(name)), len(_RANKED))


def _end_of(url: str) -> str:
    """Return the commit, tag or file that an address ends in, without whom it was fetched as."""
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        return "from an address"
    return path.rstrip("/").rpartition("/")[2].rpartition("@")[2] or "from an address"
