"""Paths as people type them, on disks that may refuse to say what is there."""

from pathlib import Path

from step0_wandb.errors import UsageError


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


def write_new(path: Path, content: str, hint: str) -> None:
    """Write a file that is not there yet, whole or not at all.

    Raises
    ------
    UsageError
        There is one already, with `hint` for what to do, or it cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as new:
            try:
                new.write(content)
                new.flush()
            except OSError:
                path.unlink()  # half a file would stand in the way of the next attempt
                raise
    except FileExistsError as error:
        raise UsageError(f"{path} already exists and was left as it is", hint) from error
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error.strerror}") from error
