"""Secrets are dropped from a run's config where it is read, before anything else sees it.

Miles logs ``wandb_key``, OpenRLHF keeps the key in ``use_wandb``, and the W&B client records the command
line. What goes, goes with its name: a placeholder would still say that there was a secret.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.records import Json

_SECRET_NAME = re.compile(r"(?:key|token|secret|password|passwd|credential)s?$", re.IGNORECASE)
_SECRET_BLOCKS = frozenset({"env_vars", "launcher_env_report"})
_OF_WANDB = re.compile(r"docker|commit|gpu|gpu_type|gpu_count|python|cuda|\w*version", re.IGNORECASE)

# Keys of W&B, Hugging Face, OpenAI and Anthropic, GitHub, GitLab and AWS.
_KEY_SHAPES = re.compile(
    r"wandb_v\d+_\w{8}"
    r"|(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16}|sk-[\w-]{16}|gh[opsur]_[A-Za-z0-9]{30}|github_pat_\w{20}"
    r"|glpat-[\w-]{16}|AKIA[0-9A-Z]{16}(?![0-9A-Z]))"
)
_FORTY_HEX = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])", re.IGNORECASE)
_NAMES_A_VERSION = re.compile(r"commit|revision|hash|(?<![a-z])sha(?![a-z])|sha\d*$", re.IGNORECASE)
_SHORTEST = 16  # no key is shorter, so that shorter texts need no search
_SLASHES = ("/", "\\")
_DEEPEST = 100  # levels of nesting that are looked into; what lies deeper is dropped


def looks_like_key(text: str, name: str = "") -> bool:
    """Return whether `text` is, or contains, something that looks like an access key.

    Parameters
    ----------
    name : str
        The config key that holds it. Forty hex digits are one of W&B's older keys or a git commit: they
        pass where the name speaks of a commit, revision, sha or hash, or where they are part of a path.

    Examples
    --------
    >>> looks_like_key("hf_" + "aB3" * 12), looks_like_key("hf_checkpoint")
    (True, False)
    >>> looks_like_key("0123456789" * 4), looks_like_key("0123456789" * 4, "git_commit")
    (True, False)
    """
    if len(text) < _SHORTEST:
        return False
    if _KEY_SHAPES.search(text):
        return True
    found = (match.span() for match in _FORTY_HEX.finditer(text))
    alone = (
        text[start - 1 : start] not in _SLASHES and text[end : end + 1] not in _SLASHES
        for start, end in found
    )
    return any(alone) and not _NAMES_A_VERSION.search(name)


def scrub(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return a run's config without secrets, at any depth.

    Dropped are: text under names that end in key, token, secret, password, passwd or credential (any
    case, singular or plural); ``env_vars`` and ``launcher_env_report``; of ``_wandb`` all but image,
    commit, GPUs and versions; and any text that `looks_like_key`. Numbers stay: ``max_tokens`` is no
    secret.

    Examples
    --------
    >>> scrub({"wandb_key": "abc", "max_tokens": 8, "env": {"HF_TOKEN": "x", "rank": 0}})
    {'max_tokens': 8, 'env': {'rank': 0}}
    """
    return _scrub_mapping(config, _DEEPEST, hidden=False)


def _scrub_mapping(values: Mapping[str, Json], levels: int, *, hidden: bool) -> dict[str, Json]:
    """Return a mapping without secrets; where it is `hidden`, by a name above it, without any text."""
    kept: dict[str, Json] = {}
    for name, value in values.items():
        if not isinstance(value, (str, list, dict)):
            kept[name] = value
        elif name in _SECRET_BLOCKS:
            continue
        elif isinstance(value, str):
            if not (hidden or _is_secret(name) or looks_like_key(value, name)):
                kept[name] = value
        elif name == "_wandb":
            kept[name] = _of_wandb(value, levels)
        else:
            kept[name] = _scrub_nested(value, name, levels, hidden=hidden or _is_secret(name))
    return kept


def _scrub_nested(value: list[Json] | dict[str, Json], name: str, levels: int, *, hidden: bool) -> Json:
    if levels == 0:
        return None
    if isinstance(value, dict):
        return _scrub_mapping(value, levels - 1, hidden=hidden)
    return [
        _scrub_nested(item, name, levels - 1, hidden=hidden) if isinstance(item, (list, dict)) else item
        for item in value
        if not (isinstance(item, str) and (hidden or looks_like_key(item, name)))
    ]


def _of_wandb(value: Json, levels: int) -> Json:
    """Return what may be kept of the client's own notes: never the command line, hosts or people."""
    if not isinstance(value, dict) or levels == 0:
        return {}
    kept: dict[str, Json] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            if below := _of_wandb(inner, levels - 1):
                kept[name] = below
        elif isinstance(inner, list) or not _OF_WANDB.fullmatch(name):
            continue
        elif not (isinstance(inner, str) and looks_like_key(inner, name)):
            kept[name] = inner
    return kept


@lru_cache(maxsize=1 << 14)  # every run of a project has the same few hundred names
def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None
