"""Finds the ``.wandb`` files below a directory."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.records import Problem

SUFFIX = ".wandb"
RUN_DIRECTORY = re.compile(r"(?:offline-)?run-(?P<stamp>\d{8}_\d{6})-(?P<id>.+)")
"""How W&B names a run's directory: when it began, in local time, and the run id."""


_HINT = "W&B writes wandb/run-* and wandb/offline-run-* below the directory that a run is started in."


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A ``.wandb`` file as it was when the directory was listed; `path` has no links in it."""

    path: str
    size: int
    mtime_ns: int


@dataclass(slots=True)
class Found:
    """What lies below a root.

    Attributes
    ----------
    named : str
        The file of the one run directory that the root is; empty where the root holds run directories.
    """

    named: str = ""
    files: dict[str, FoundFile] = field(default_factory=dict)
    run_directories: int = 0
    problems: list[Problem] = field(default_factory=list)


def find_files(root: Path) -> Found:
    """Return all ``.wandb`` files below a directory, or those of the one run that `root` belongs to.

    Several directories with one run id are one run: of a run directory, or a file in one, the others
    next to it that carry the same id come along.

    Links are followed; what they lead to counts once, however many lead there. Inside of run directories
    only the ``.wandb`` file is looked for: their other files can be many.

    Raises
    ------
    UsageError
        If there is nothing at `root`.
    SourceError
        If `root` cannot be read, or holds no run directory.
    """
    try:
        if not root.exists():
            raise UsageError(f"{root} does not exist", _HINT)
        is_file = root.is_file()
    except OSError as error:
        raise SourceError(f"{root} cannot be read: {error.strerror}") from error
    found = Found()
    real = os.path.realpath(root)
    if is_file:
        _add(found, real)
    else:
        _walk(found, real)
    if is_file or RUN_DIRECTORY.fullmatch(Path(real).name):
        found.named = next(iter(found.files), "")
    for sibling in _same_run(Path(real).parent if is_file else Path(real)):
        _walk(found, str(sibling))
    if not (found.files or found.run_directories):
        if found.problems:
            raise SourceError(f"{found.problems[0].where} {found.problems[0].what}")
        raise SourceError(f"{root} holds no W&B run directories", _HINT)
    return found


def _same_run(directory: Path) -> list[Path]:
    """Return the other directories next to a run directory that carry its run id."""
    own = RUN_DIRECTORY.fullmatch(directory.name)
    if own is None:
        return []
    try:
        siblings = sorted(path for path in directory.parent.iterdir() if path != directory)
    except OSError:
        return []  # what lies next to it may be somebody else's; the directory itself can be read
    names = [(path, RUN_DIRECTORY.fullmatch(path.name)) for path in siblings]
    return [
        path
        for path, name in names
        if name and name["id"] == own["id"] and path.is_dir() and not path.is_symlink()
    ]


def _walk(found: Found, root: str) -> None:
    waiting, seen = [root], {root}
    while waiting:
        directory = waiting.pop()
        is_run = RUN_DIRECTORY.fullmatch(Path(directory).name) is not None
        found.run_directories += is_run
        try:
            with os.scandir(directory) as entries:
                listed = list(entries)
        except OSError as error:
            found.problems.append(Problem(directory, f"cannot be listed: {error.strerror}"))
            continue
        for entry in listed:
            try:
                path, is_directory = entry.path, entry.is_dir(follow_symlinks=False)
                if entry.is_symlink():
                    path = os.path.realpath(path)
                    is_directory = Path(path).is_dir()
            except FileNotFoundError:
                continue  # gone since it was listed: the client makes its links again for every run
            except OSError as error:
                found.problems.append(Problem(entry.path, f"cannot be followed: {error.strerror}"))
                continue
            if not is_directory:
                if entry.name.endswith(SUFFIX):
                    _add(found, path)
            elif not is_run and path not in seen:
                seen.add(path)
                waiting.append(path)


def _add(found: Found, path: str) -> None:
    if path in found.files:
        return
    try:
        path.encode()  # a name that is not UTF-8 could not be remembered
        status = Path(path).stat()
    except OSError as error:
        found.problems.append(Problem(path, f"cannot be read: {error.strerror}"))
    except UnicodeEncodeError:
        found.problems.append(Problem(os.fsencode(path).decode(errors="replace"), "its path is not UTF-8"))
    else:
        if stat.S_ISREG(status.st_mode):
            found.files[path] = FoundFile(path, status.st_size, status.st_mtime_ns)
