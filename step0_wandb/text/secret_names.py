"""Which names of a config, of an option or of a variable hold a secret, and which only sound so."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST = 200
"""Of a name, in characters; nobody gives a longer one."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The lists of ``secrets.toml``, as sets."""

    secret: frozenset[str]
    phrases: tuple[tuple[str, ...], ...]
    suffixes: tuple[str, ...]
    forms: frozenset[str]
    harmless: dict[str, frozenset[str]]


@cache
def rule_file(name: str) -> dict[str, Any]:
    """Return what one of the data files next to this module holds."""
    with Path(__file__).with_name(name).open("rb") as file:
        return tomllib.load(file)


@cache
def _names() -> _Names:
    names = rule_file("secrets.toml")["names"]
    return _Names(
        frozenset(names["secret"]),
        tuple(tuple(phrase.split()) for phrase in names["secret_phrases"]),
        tuple(names["suffixes"]),
        frozenset(names["forms"]),
        {word: frozenset(before) for word, before in names["harmless"].items()},
    )


@lru_cache(maxsize=1 << 14)  # every run of a project has the same few hundred names
def is_secret_name(name: str) -> bool:
    """Return whether text under a name is a secret, whatever it looks like.

    The last words of the name decide, without numbers and forms such as ``json`` behind them. What a
    tokenizer or a dataset calls its own stays: it can be the cause of a gap.

    Examples
    --------
    >>> [is_secret_name(name) for name in ("wandb_key", "WANDB_API_KEY_1", "my_pass", "webhookUrl", "apikey")]
    [True, True, True, True, True]
    >>> [is_secret_name(name) for name in ("eos_token", "max_tokens", "label_key", "tokenizer", "key_path")]
    [False, False, False, False, False]
    """
    if len(name) > _LONGEST:
        return False
    names = _names()
    words = [word.lower() for word in _WORD.findall(name.rpartition(".")[2])]
    while len(words) > 1 and words[-1] in names.forms:
        words.pop()
    if not words:
        return False
    words[-1] = _singular(words[-1])
    if any(tuple(words[-len(phrase) :]) == phrase for phrase in names.phrases):
        return True
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in names.secret:
        return before not in names.harmless.get(last, ())
    suffix = next((suffix for suffix in names.suffixes if last.endswith(suffix)), None)
    return suffix is not None and last.removesuffix(suffix) not in names.harmless.get(suffix, ())


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
