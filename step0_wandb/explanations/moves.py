"""What changed in the configs when a whole setup moved to another level."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from step0_wandb.explanations.differences import differences, one_line
from step0_wandb.text.formatting import clean, count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from step0_wandb.explanations.differences import Difference
    from step0_wandb.records import Json, SetupRange
    from step0_wandb.store.store import Store
    from step0_wandb.verdicts.judge import Judgment

    Config: TypeAlias = Mapping[str, Json]
    Compared: TypeAlias = Callable[[Sequence[str], Sequence[str]], Sequence[str]]

AT_MOST = 20
"""Runs on either side that are compared: those nearest to the move."""
NAMED = 2
"""Config keys or packages that a sentence names."""


def with_what_changed(
    setups: Sequence[SetupRange], result: Judgment, store: Store, *, packages: Compared
) -> list[SetupRange]:
    """Return the setups, with what changed in the config told of those that moved.

    Parameters
    ----------
    packages : callable
        Returns the installed packages that changed from some runs to others, given by their keys; asked
        where the config names nothing.
    """
    told = [_told(setup, result, store, packages) if setup.moved else setup for setup in setups]
    told = [_asked(setup, store) if setup.question else setup for setup in told]
    hidden = set(result.ranges.index[result.ranges["lower_n"] > 0])
    return [
        _split(setup, result, store)
        if setup.setup in hidden and setup.note and not (setup.moved or setup.question)
        else setup
        for setup in told
    ]


def _split(setup: SetupRange, result: Judgment, store: Store) -> SetupRange:
    """Return a setup that hides two levels, with the config keys in which they differ."""
    member = result.by["member"].to_numpy(dtype=bool) & (result.runs["setup"] == setup.setup).to_numpy()
    own, row = result.runs[member], result.ranges.loc[setup.setup]
    upper = own["gap"] ** 2 > row["lower_center"] * row["upper_center"]
    sides = [list(store.runs.configs(own.loc[of, "run"].tolist()[-AT_MOST:])) for of in (upper, ~upper)]
    differs = [clean(item.key) for item in _changed(sides[0], sides[1])]
    if not differs:
        return setup
    return replace(setup, note=f"{setup.note}; they differ in {' and '.join(differs[:NAMED])}")


def _asked(setup: SetupRange, store: Store) -> SetupRange:
    """Return a setup with two levels, with the config keys in which they differ."""
    assert setup.question  # noqa: S101 - the caller has looked
    older, newer = (list(store.runs.configs(level.runs[:AT_MOST])) for level in setup.question.levels)
    differs = tuple(item.key for item in _changed(newer, older))
    if not differs:
        return setup
    named = " and ".join(map(clean, differs[:NAMED]))
    text = f"{setup.question.text}; they differ in {named}"
    return replace(setup, question=replace(setup.question, text=text, differs=differs), note=text)


def _told(setup: SetupRange, result: Judgment, store: Store, packages: Compared) -> SetupRange:
    runs = result.runs
    own = runs[runs["setup"] == setup.setup].sort_values(["created_at", "run"])
    is_after = own["created_at"] >= setup.moved_since
    before = own.loc[~is_after, "run"].tolist()[-AT_MOST:]
    after = own.loc[is_after, "run"].tolist()[:AT_MOST]
    changed = _changed(list(store.runs.configs(after)), list(store.runs.configs(before)))
    if changed:
        said = [
            f"{clean(item.key)} went from {one_line(item.healthy)} to {one_line(item.value)}"
            for item in changed
        ]
        return _noted(setup, said, "key")
    return _noted(setup, packages(before, after), "package")


def _noted(setup: SetupRange, said: Sequence[str], noun: str) -> SetupRange:
    if not said:
        return setup
    more = len(said) - NAMED
    rest = f", and {count(more, f'more {noun}')} changed" if more > 0 else ""
    return replace(setup, note=f"{setup.note}; since then {' and '.join(said[:NAMED])}{rest}")


def _changed(after: Sequence[Config], before: Sequence[Config]) -> list[Difference]:
    """Return the keys that have one value in all runs after the move and that none had before."""
    if not after or not before:
        return []
    first, *others = after
    found = differences(first, before)
    for other in others:
        same = {(item.key, one_line(item.value)) for item in differences(other, before)}
        found = [item for item in found if (item.key, one_line(item.value)) in same]
    return found
