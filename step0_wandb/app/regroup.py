"""What profiles and settings make of the stored runs, brought up to those of now: setups may get other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from step0_wandb.profiles.architecture import join
from step0_wandb.store.people import BY_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.settings.options import Settings
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.store import Label, Store


def join_setups(store: Store) -> dict[str, str]:
    """Let runs whose config does not say their architecture be of the setup that they can only belong to."""
    joined = join(store.runs.setups())
    if joined:
        with store.transaction():
            store.runs.rename_setups(joined)
            for old, new in joined.items():
                store.people.carry_over(old, new)
    return joined


def _regroup(store: Store, finder: Step0Finder) -> tuple[str, ...]:
    """Find the setup of every stored run again; accepts and mutes go along with the runs.

    Returns
    -------
    tuple of str
        One line for each setup with an accept or a mute that has another name now.
    """
    moved = store.runs.refresh_facts(finder.facts)
    joined = join_setups(store)
    names = {old: sorted({joined.get(name, name) for name in new} - {old}) for old, new in moved.items()}
    moves = {
        old: carried
        for old, new in names.items()
        if (carried := [name for name in new if store.people.carry_over(old, name)])
    }
    return tuple(
        f"the runs of {old} are in {new[0]}{f' and {len(new) - 1} more' if len(new) > 1 else ''} now; "
        "its accept and mute hold there too"
        for old, new in sorted(moves.items())
    )


def refresh(store: Store, finder: Step0Finder, settings: Settings) -> tuple[str, ...]:
    """Bring stored facts up to the profiles and settings of now; what that changes makes the store stale.

    Returns which setups have another name now, in sentences.
    """
    renamed: tuple[str, ...] = ()
    profiles = finder.profiles.fingerprint
    if store.notes.get("profiles") != profiles:
        with store.transaction():
            renamed = _regroup(store, finder)
            store.sources.forget_marks(status="no-step0")
            store.notes.mark_stale()
            store.notes.put("profiles", profiles)
    parts = (settings.ranges, settings.checks, settings.alerts)
    judging = "".join(part.model_dump_json() for part in parts)
    if store.notes.get("judging") != judging:
        with store.transaction():
            store.notes.mark_stale()
            store.notes.put("judging", judging)
    return renamed


def labels_left_behind(store: Store, before: Mapping[str, Label]) -> tuple[str, ...]:
    """Say which labels stay with a start that is not the newest of its run any more.

    A label is about the start that the store had when it was given: that is what `runs` and the alert showed.

    Parameters
    ----------
    before : mapping of str to Label
        The labels before the sources were read, by run key.
    """
    now = store.people.labels()
    left = {
        key: label
        for key, label in before.items()
        if label.who != BY_TAG and key not in now and "@" not in key
    }
    return tuple(
        f"{key} was started again: its label {label.label} stays with the start before; "
        "label it again if that was about the new start"
        for key, label in sorted(left.items())
        if (record := store.runs.record(key)) is not None and record.start > 1
    )
