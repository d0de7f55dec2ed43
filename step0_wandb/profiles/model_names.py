"""The model that a path names, and whether two paths name different ones.

Training goes on from one's own checkpoints, whose paths end in parts that name nothing:
``.../qwen3-4b-math/checkpoint-500/hf``. From the end, parts that name nothing are skipped; the first one
that tells is the model's name. The lists are data, see ``lists/model_names.toml``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_URL = re.compile(r"^(?:file|https?)://[^/]*/?|^[a-z0-9]+://", re.IGNORECASE)
_ALIAS = re.compile(r"(?<=[^/\\:]):(?:v\d+|latest|best|final)$|@[\w.-]+$")
"""The version of a W&B artifact, the revision of a hub name."""
_TOKEN = re.compile(r"[a-z]+|\d+")
_FOREIGN = re.compile(r"[^\W\da-z_]")
"""A letter that no word of the lists has."""
_SEPARATORS = re.compile(r"[-_. ]")
_QUANTISED = re.compile(
    r"(?:[-_.](?:torch|dist|mcore|megatron|hf|ckpt|converted|merged|dcp|fsdp|bf16|fp16|(?:mx|nv)?fp[48]|int[48]"
    r"|w\d+a\d+|awq|gptq|dynamic|block|tp\d+|pp\d+|ep\d+))+$"
)
_TIME = r"\d{4}-?\d\d-?\d\d[-_t]?\d\d[-_:]?\d\d[-_:]?\d\d"
_LONGEST_COUNT = 9
"""Digits; more are a time or an id."""
_FIRST_ITERATIONS = frozenset({0, 1})
"""What converters number a checkpoint with that they have just written."""


@cache
def name_lists() -> Mapping[str, Any]:
    """Return what is known of the names of models."""
    text = resources.files("step0_wandb").joinpath("profiles", "lists", "model_names.toml").read_text("utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class ModelNames:
    """Reads the names of models out of paths.

    Attributes
    ----------
    generic : frozenset of str
        More words that name no model, in lower case.
    """

    generic: frozenset[str] = frozenset()

    def name(self, path: object) -> str | None:
        """Return the name of the model that a path or hub name stands for; None where there is no path.

        Where no part of it names anything, the path without its numbered parts is the name.

        Examples
        --------
        >>> ModelNames().name("/data/models--Qwen--Qwen3-0.6B/snapshots/c1899de2")
        'Qwen3-0.6B'
        >>> ModelNames().name("/sft/qwen3-4b-math/checkpoint-500/hf_torch_dist")
        'qwen3-4b-math'
        >>> ModelNames().name("/models/output/checkpoint-225")
        '/models/output'
        """
        parts = _parts(path)
        if not parts:
            return None
        return self._telling(parts) or self._whole(str(path), parts)

    def tells(self, path: object) -> bool:
        """Return whether some part of a path names a model.

        Examples
        --------
        >>> ModelNames().tells("/data/qwen3-4b-math/hf"), ModelNames().tells("/models/output/hf")
        (True, False)
        """
        return self._telling(_parts(path)) is not None

    def family(self, path: object) -> str | None:
        """Return the name in lower case, without what conversions and quantizations append to it.

        Examples
        --------
        >>> ModelNames().family("/data/Qwen2.5-Math-7B_torch_dist") == ModelNames().family("Qwen/Qwen2.5-Math-7B-FP8")
        True
        """
        name = self.name(path)
        return name and _QUANTISED.sub("", name.lower())

    def differ(self, one: object, other: object) -> bool:
        """Return whether two paths surely name different models.

        They do with two telling names that disagree, and with two checkpoints of one training. A path
        without a telling name is not evidence.

        Examples
        --------
        >>> ModelNames().differ("/sft/qwen3-4b-math/checkpoint-500", "/sft/qwen3-4b-code/checkpoint-500_torch_dist")
        True
        >>> ModelNames().differ("/sft/exp20/checkpoint-1200", "/sft/exp20/dist")
        False
        """
        names = [self._telling(_parts(path)) for path in (one, other)]
        if not all(names):
            return False
        families = {_SEPARATORS.sub("", _QUANTISED.sub("", str(name).lower())) for name in names}
        return len(families) > 1 or _other_checkpoint(self._counted(one), self._counted(other))

    def surely_differ(self, one: object, other: object) -> bool:
        """Return whether two paths name different models, and neither name is the other one in short.

        People shorten names (``Kimi-K2_torch_dist`` of ``Kimi-K2-Instruct``) and add to them
        (``exp7-qwen3-4b``). A base model is another one than its namesake, though.

        Examples
        --------
        >>> ModelNames().surely_differ("/m/Kimi-K2_torch_dist", "/m/Kimi-K2-Instruct")
        False
        >>> ModelNames().surely_differ("/m/Qwen3-4B-Base_torch_dist", "/m/Qwen3-4B")
        True
        """
        if not self.differ(one, other):
            return False
        short, long = sorted((self._tokens(one), self._tokens(other)), key=len)
        places = (at for at in range(len(long) - len(short) + 1) if long[at : at + len(short)] == short)
        at = next(places, None)
        return at is None or len(short) == len(long) or "base" in (*long[:at], *long[at + len(short) :])

    def _tokens(self, path: object) -> list[str]:
        return [token for token in _SEPARATORS.split(self.family(path) or "") if token]

    def checkpoint(self, path: object) -> tuple[str | None, dict[str, int]]:
        """Return what tells one checkpoint from another, wherever it is stored: its model, and its numbers."""
        return self.name(path), self._counted(path)

    def _telling(self, parts: list[str]) -> str | None:
        hub = next((part for part in parts if part.startswith("models--")), None)
        if hub is not None:
            return hub.rsplit("--", 1)[-1]
        for part in reversed(parts):
            bare = _bare(part)
            if not self._is_generic(bare):
                name = _uncounted(bare)
                return (bare if self._is_generic(name) else name).replace("___", ".")  # a dot of ModelScope
        return None

    def _is_generic(self, part: str) -> bool:
        lower = part.lower()
        if lower in self.generic or _nothing().fullmatch(lower):
            return True
        if _FOREIGN.search(lower):
            return False
        return self._words.issuperset(token for token in _TOKEN.findall(lower) if not token.isdigit())

    @cached_property
    def _words(self) -> frozenset[str]:
        lists = name_lists()
        counters = (word for words in lists["counters"].values() for word in words)
        return frozenset((*lists["generic"], *lists["layout"], *counters)) | self.generic

    def _whole(self, path: str, parts: list[str]) -> str:
        """Return a path that names nothing, without what changes from one checkpoint to the next."""
        kept = [_uncounted(bare) for part in parts if (bare := _bare(part)) and not _is_layout(bare)]
        root = "/" if path.replace("\\", "/").startswith("/") else ""
        return root + "/".join(kept or parts)

    def _counted(self, path: object) -> dict[str, int]:
        """Return the number of the checkpoint in a path, by what it counts."""
        counters = name_lists()["counters"]
        found: dict[str, int] = {}
        for part in map(_bare, _parts(path)):
            counting = part if self._is_generic(part) else part[len(_uncounted(part)) :]
            for word, number in re.findall(r"([a-z]+)[-_]?(\d+)", counting.lower().replace("global_", "")):
                kind = next((kind for kind, words in counters.items() if word in words), "")
                if kind in ("step", "epoch") and len(number) < _LONGEST_COUNT:
                    found[kind] = max(int(number), found.get(kind, 0))
        return found


@cache
def names_with(generic: frozenset[str] = frozenset()) -> ModelNames:
    """Return what reads names by the shipped lists and some more generic words."""
    return ModelNames(generic)


def _other_checkpoint(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return any(
        one[kind] != other[kind] and not (kind == "step" and _FIRST_ITERATIONS & {one[kind], other[kind]})
        for kind in one.keys() & other.keys()
    )


def _parts(path: object) -> list[str]:
    if not isinstance(path, str):
        return []
    text = _ALIAS.sub("", _URL.sub("", path.strip().replace("\\", "/").split("?", 1)[0]).rstrip("/"))
    return [part for part in text.split("/") if part.strip()]


@cache
def _suffix() -> re.Pattern[str]:
    suffixes = name_lists()["suffixes"]
    formats = "|".join(map(re.escape, suffixes["formats"]))
    files = "|".join(map(re.escape, suffixes["files"]))
    return re.compile(rf"(?<=.)(?:(?:[-_](?:{formats}))|{files})$", re.IGNORECASE)


def _bare(part: str) -> str:
    """Return a part without the suffixes of formats; one that is nothing else stays."""
    while (shorter := _suffix().sub("", part)) != part:
        part = shorter
    return part


@cache
def _counter() -> re.Pattern[str]:
    words = "|".join(map(re.escape, name_lists()["suffixes"]["counters"]))
    count = rf"(?:global[-_]?)?(?:{words})[-_]?\d{{1,{_LONGEST_COUNT - 1}}}"
    return re.compile(rf"(?<=.)[-_](?:{count}|{_TIME})$", re.IGNORECASE)


def _uncounted(part: str) -> str:
    """Return a part without the checkpoint's number or time at its end: ``qwen3-4b-math_step_500``."""
    while (shorter := _counter().sub("", part)) != part:
        part = shorter
    return part


@cache
def _nothing() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in name_lists()["patterns"]["nothing"]))


def _is_layout(part: str) -> bool:
    """Return whether a part says only where in a training, or in which form, a checkpoint is."""
    lists, lower = name_lists(), part.lower()
    if _nothing().fullmatch(lower):
        return True
    tokens = _TOKEN.findall(lower)
    words = {token for token in tokens if not token.isdigit()}
    counters = {word for words in lists["counters"].values() for word in words}
    return words <= counters | set(lists["layout"])
