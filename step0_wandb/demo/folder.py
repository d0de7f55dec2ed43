"""The demo's folder: created, replaced, and never anything removed that the demo did not write."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MARKER = ".step0-demo"
SETTINGS = """\
# The settings of this demo. `step0-wandb settings` prints every setting there is.
sources = ["./wandb"]
store   = "step0.db"

[report]
html = "step0.html"
"""
_OWN_FILES = ("step0.toml", "step0.html", "step0.db*")
_LINKS = ("latest-run", "debug.log", "debug-internal.log")


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """A directory with example runs and the settings that make the main job read them.

    Attributes
    ----------
    runs : int
        Number of runs; some of them are written by several processes, one directory each.
    replaced : bool
        Whether it replaced an older demo and its labels.
    """

    directory: Path
    runs: int
    replaced: bool = False

    @property
    def settings(self) -> Path:
        """Return the path of the settings file."""
        return self.directory / "step0.toml"

    @property
    def wandb(self) -> Path:
        """Return the directory that holds the run directories."""
        return self.directory / "wandb"


def claim(directory: Path, run_ids: Iterable[str]) -> bool:
    """Make `directory` an empty demo folder; an older demo in it is removed, other files stay.

    Returns
    -------
    bool
        Whether there was an older demo.

    Raises
    ------
    UsageError
        It is not a directory, cannot be written, or is neither empty nor a demo folder.
    """
    marker = directory / MARKER
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not marker.exists() and any(directory.iterdir()):
            raise UsageError(
                f"{directory} is not empty and is not a demo folder",
                "Name a new directory: step0-wandb demo DIR",
            )
        # The marker comes first and stays, so that an interrupted demo is recognized.
        marker.write_text(
            "Written by `step0-wandb demo`, which may remove what it wrote here.\n", encoding="utf-8"
        )
        remains = list(_remains(directory, run_ids))
        for path in remains:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    except FileExistsError as error:
        raise UsageError(f"{directory} is a file, not a directory") from error
    except OSError as error:
        raise UsageError(f"Cannot write the demo to {directory}: {error.strerror}") from error
    return bool(remains)


def _remains(directory: Path, run_ids: Iterable[str]) -> Iterator[Path]:
    """Yield what an older demo wrote: its files, and the run directories of its run ids."""
    for pattern in _OWN_FILES:
        yield from directory.glob(pattern)
    for link in _LINKS:
        if (directory / "wandb" / link).is_symlink():
            yield directory / "wandb" / link
    for run_id in run_ids:
        yield from directory.glob(f"wandb/offline-run-*-{run_id}*")
