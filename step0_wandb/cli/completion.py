"""What a shell completes in addition to commands and options: runs, setups and verdicts of the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from step0_wandb.records import VERDICTS
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from step0_wandb.store import Store

MOST = 200
"""Candidates offered; a shell that lists more helps nobody."""


def run_ids(incomplete: str) -> list[tuple[str, str]]:
    """Return ids of stored runs, the gravest first, each with its verdict and name."""
    return [
        (run_id, f"{run.verdict} {clean(run.name)}")
        for store in _store()
        for run in store.verdicts.runs()
        if (run_id := run.run.rsplit("/", 1)[-1]).startswith(incomplete)
    ][:MOST]


def setups(incomplete: str) -> list[str]:
    """Return the labels of stored setups, with and without the profile; their blanks are escaped."""
    labels = [clean(item.setup) for store in _store() for item in store.verdicts.ranges()]
    forms = [form for label in labels for form in (label, label.partition(" · ")[2])]
    return [text for form in forms if (text := form.replace(" ", "\\ ")).startswith(incomplete)][:MOST]


def verdicts(incomplete: str) -> list[str]:
    """Return verdicts, after a comma too."""
    chosen, comma, last = incomplete.rpartition(",")
    return [f"{chosen}{comma}{name}" for name in VERDICTS if name.startswith(last)]


def _store() -> Iterator[Store]:
    """Yield the store of the settings found here; nothing where it cannot be opened."""
    from step0_wandb.errors import Step0Error
    from step0_wandb.settings.load import environment, load_settings
    from step0_wandb.store import Store

    try:
        with Store.open(load_settings(cwd=Path.cwd(), environ=environment()).store, mode="read") as store:
            yield store
    except (Step0Error, OSError):  # a completion never prints an error
        return
