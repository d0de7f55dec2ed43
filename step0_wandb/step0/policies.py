"""Several policies in one run: each logs under its own prefix, and has its own step 0.

Miles puts the policy in front of every metric and of the step key, ``solver/train/ppo_kl`` next to
``solver/train/step``. The step key is what tells a policy's prefix from any other first part of a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from step0_wandb.records import HistoryRow
from step0_wandb.text.nested import lookup
from step0_wandb.text.python_values import fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from step0_wandb.records import Json, RunRecord
    from step0_wandb.step0.finder import Step0Finder

_LISTS = ("raw_megatron.trainers", "trainers", "policies")
"""Where a config lists its policies, each with what is its own."""
_NAMES = ("policy", "name", "model_id", "trainer_id")
_OWN = ("overrides", "base_args", "args")


def prefixes(names: Iterable[str], step_keys: Collection[str]) -> set[str]:
    """Return the prefixes under which a row carries a step key.

    Examples
    --------
    >>> prefixes({"solver/train/step", "solver/train/ppo_kl"}, {"train/step"})
    {'solver'}
    """
    parts = (name.partition("/") for name in names)
    return {head for head, _, tail in parts if tail in step_keys and head}


def of_policy(values: Mapping[str, float], policy: str) -> dict[str, float]:
    """Return a row's numbers of one policy under their plain names, with W&B's own next to them."""
    if not policy:
        return dict(values)
    start = f"{policy}/"
    return {
        name.removeprefix(start): value for name, value in values.items() if name.startswith((start, "_"))
    }


def by_policy(rows: Iterable[HistoryRow], step_keys: Collection[str]) -> dict[str, list[HistoryRow]]:
    """Return the rows of each policy under plain names, in their order; nothing where there is no prefix."""
    found: dict[str, list[HistoryRow]] = {}
    for row in rows:
        for policy in sorted(prefixes(row.values, step_keys)):
            found.setdefault(policy, []).append(HistoryRow(of_policy(row.values, policy), row.order))
    return found


def split_policies(record: RunRecord, finder: Step0Finder) -> tuple[RunRecord, ...]:
    """Return one record a policy; the record itself where the run has but one, without a prefix.

    Each has the run's config, with what the config has for that policy alone in front.
    """
    parts = finder.by_policy(record.rows) if record.policy is None else {}
    return tuple(
        replace(
            record,
            policy=policy,
            name=f"{record.name}#{policy}" if record.name else "",
            rows=tuple(rows),
            config=policy_config(record.config, policy),
        )
        for policy, rows in sorted(parts.items())
    ) or (record,)


def policy_config(config: Mapping[str, Json], policy: str) -> Mapping[str, Json]:
    """Return the config of one policy: the run's, over which its own values lie.

    Examples
    --------
    >>> policy_config({"lr": 1, "policies": {"solver": {"hf_checkpoint": "Qwen3-4B"}}}, "solver")["hf_checkpoint"]
    'Qwen3-4B'
    """
    own: dict[str, Any] = {}
    for table in _own_tables(config, policy):
        own |= {key: value for key, value in table.items() if value is not None}
    return {**config, **own} if own else config


def _own_tables(config: Mapping[str, Json], policy: str) -> Iterator[Mapping[str, Any]]:
    for path in (f"policies.{policy}", policy):
        table = lookup(config, path)
        if isinstance(table, str):
            table = fields(table)
        if isinstance(table, Mapping):
            yield table
    for path in _LISTS:
        entries = lookup(config, path)
        for entry in list(entries) if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and policy in [entry.get(name) for name in _NAMES]:
                yield {key: value for key, value in entry.items() if key not in (*_NAMES, *_OWN)}
                yield from (
                    cast("Mapping[str, Any]", entry[key])
                    for key in _OWN
                    if isinstance(entry.get(key), Mapping)
                )
