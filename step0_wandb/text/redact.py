"""Secrets are dropped from what a run says where it is read, before anything else sees it.

Miles logs ``wandb_key``, OpenRLHF keeps the key in ``use_wandb``, and launch scripts log whole command
lines, environments and printed Namespaces. A value that is a secret goes with its name; inside a text that
tells more, the secret alone is replaced.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from step0_wandb.text.secret_fields import has_fields, secret_fields
from step0_wandb.text.secret_names import is_secret_name
from step0_wandb.text.secret_shapes import RULE_FILES, key_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from step0_wandb.records import Json, RunRecord

_CODE = 1  # goes up with a change of the code that finds more secrets
HIDDEN = "***"
"""Stands for a secret in a text."""
_SECRET_BLOCKS = frozenset({"env_vars", "launcher_env_report"})
_OF_WANDB = re.compile(r"docker|commit|gpu|gpu_type|gpu_count|python|cuda|\w*version", re.IGNORECASE)
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")
_NO_VALUE = re.compile(r"(?i)(\\*[\"'])?(?:none|null|true|false|\*+)?(?(1)\1)")
_DEEPEST = 100  # levels of nesting that are looked into; what lies deeper is dropped
_CACHED = 256  # characters of a text that is worth remembering
_LONGEST = 1 << 20  # characters of one text; a longer one is dropped


def looks_like_key(text: str, name: str = "") -> bool:
    """Return whether `text` is, or contains, something that looks like an access key.

    Parameters
    ----------
    name : str
        What holds it; see `key_spans`.

    Examples
    --------
    >>> looks_like_key("hf_" + "aB3" * 12), looks_like_key("hf_checkpoint")
    (True, False)
    >>> looks_like_key("0123456789" * 4), looks_like_key("0123456789" * 4, "git_commit")
    (True, False)
    """
    return bool(key_spans(text, name))


def rules_version() -> str:
    """Return what changes with every rule: what was scrubbed by other rules is scrubbed again."""
    files = (Path(__file__).with_name(name).read_bytes() for name in RULE_FILES)
    return f"{reduce(lambda crc, data: crc32(data, crc), files, _CODE):08x}"


def redact(text: str) -> str:
    """Return a text with each secret in it replaced: by its look, and by the name before it.

    Examples
    --------
    >>> redact("train.py --wandb-key hunter2 --lr 1e-6 https://me:pw@example.org")
    'train.py --wandb-key *** --lr 1e-6 https://***@example.org'
    """
    if len(text) > _LONGEST:
        return HIDDEN
    return _without(text, [*key_spans(text), *secret_fields(text)])


def redact_keys(text: str) -> str:
    """Return a sentence with what looks like a key replaced; names are not looked at, sentences use them too.

    Examples
    --------
    >>> redact_keys("https://me:pw@example.org is not a valid URL; no key: set WANDB_API_KEY")
    'https://***@example.org is not a valid URL; no key: set WANDB_API_KEY'
    """
    return _without(text[:_LONGEST], key_spans(text[:_LONGEST]))


def redact_record(record: RunRecord) -> RunRecord:
    """Return a run without secrets: in its names, its config and the names of its metrics."""
    rows = record.rows
    if any(looks_like_key(name) for row in rows for name in row.values):
        rows = tuple(
            replace(
                row, values={name: value for name, value in row.values.items() if not looks_like_key(name)}
            )
            for row in rows
        )
    return replace(
        record,
        name=redact(record.name),
        group=record.group and redact(record.group),
        job_type=record.job_type and redact(record.job_type),
        tags=tuple(map(redact, record.tags)),
        config=scrub(record.config),
        rows=rows,
    )


def scrub(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return a run's config without secrets, at any depth.

    Dropped are: text under the name of a secret (`is_secret_name`); ``env_vars`` and
    ``launcher_env_report``; of ``_wandb`` all but image, commit, GPUs and versions; names that look like
    keys; and any text that `looks_like_key`, unless it is made of names and values: there the secrets
    alone are replaced. Numbers stay: ``max_tokens`` is not a secret.

    Examples
    --------
    >>> scrub({"wandb_key": "abc", "max_tokens": 8, "env": {"HF_TOKEN": "x", "rank": 0}})
    {'max_tokens': 8, 'env': {'rank': 0}}
    >>> scrub({"args": "Namespace(wandb_key='abc', lr=1e-06)"})
    {'args': "Namespace(wandb_key='***', lr=1e-06)"}
    """
    return _scrub_mapping(config, _DEEPEST, hidden=False)


def _scrub_mapping(values: Mapping[str, Json], levels: int, *, hidden: bool) -> dict[str, Json]:
    """Return a mapping without secrets; where it is `hidden`, by a name above it, without any text."""
    kept: dict[str, Json] = {}
    for name, value in values.items():
        if (name in _SECRET_BLOCKS and isinstance(value, (str, list, dict))) or _safe(name, "") != name:
            continue
        if isinstance(value, str):
            safe = None if hidden or is_secret_name(name) else _safe(value, name)
            if safe is not None:
                kept[name] = safe
        elif not isinstance(value, (list, dict)):
            kept[name] = value
        elif name == "_wandb":
            kept[name] = _of_wandb(value, levels)
        else:
            kept[name] = _scrub_nested(value, name, levels, hidden=hidden or is_secret_name(name))
    return kept


def _scrub_nested(value: list[Json] | dict[str, Json], name: str, levels: int, *, hidden: bool) -> Json:
    if levels == 0:
        return None
    if isinstance(value, dict):
        return _scrub_mapping(value, levels - 1, hidden=hidden)
    kept: list[Json] = []
    follows_option = False  # ["--wandb-key", "hunter2"]
    for item in value:
        if isinstance(item, (list, dict)):
            kept.append(_scrub_nested(item, name, levels - 1, hidden=hidden))
        elif not isinstance(item, str):
            kept.append(item)
        elif not hidden and not (follows_option and not item.startswith("-")):
            safe = _safe(item, name)
            if safe is not None:
                kept.append(safe)
        option = _OPTION.fullmatch(item) if isinstance(item, str) else None
        follows_option = option is not None and is_secret_name(option[1])
    return kept


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


def _safe(text: str, name: str) -> str | None:
    """Return a text of a config without the secrets in it; None where nothing is left that tells anything."""
    if len(text) > _LONGEST:
        return None
    return (_searched if len(text) > _CACHED else _remembered)(text, name)


@lru_cache(maxsize=1 << 14)  # the runs of a project share most of their texts
def _remembered(text: str, name: str) -> str | None:
    return _searched(text, name)


def _searched(text: str, name: str) -> str | None:
    keys, fields = key_spans(text, name), list(secret_fields(text))
    if not keys and not fields:
        return text
    return _without(text, [*keys, *fields]) if fields or has_fields(text) else None


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with a placeholder for each of some parts, which may overlap."""
    parts: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if end <= at or _NO_VALUE.fullmatch(text, start, end):
            continue
        if start > at or not parts:
            parts += [text[at:start], _placeholder(text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def _placeholder(secret: str) -> str:
    """Return what stands for a secret, in the quotes that it had."""
    quote = re.match(r"\\*[\"']", secret)
    return f"{quote[0]}{HIDDEN}{quote[0]}" if quote and secret.endswith(quote[0]) else HIDDEN
