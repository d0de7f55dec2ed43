"""Paths as people type them, on disks that may refuse to say what is there."""

from pathlib import Path


def user_path(text: str) -> Path:
    """Return the path that a person means, with the home directory in place of ``~``.

    Where there is no such home, as for a container's user without an entry, the text stands as it is.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def is_there(path: Path) -> bool:
    """Return whether one can see something at `path`.

    Unlike `Path.exists` it says no, and raises nothing, of names that are too long and of directories
    that one may not look into.
    """
    try:
        return path.exists()
    except OSError:
        return False
