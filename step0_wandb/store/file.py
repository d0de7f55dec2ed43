"""The SQLite file behind a store: how it is opened, locked, and what is said when that fails."""

from __future__ import annotations

import os
import platform
import sqlite3
import warnings
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from filelock import FileLock, Timeout
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from step0_wandb.errors import StoreBusyError, StoreError
from step0_wandb.store import versions
from step0_wandb.store.codec import DamagedError
from step0_wandb.store.schema import VERSION
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection

_MAGIC = b"SQLite format 3\0"
_PAGE = 16384
"""In bytes; a run takes 1 to 2 KB and is not split, so that smaller pages stay half empty."""
_WAIT_S = 5.0
"""How long to wait for another program that has the file open, a database shell or a backup."""


@dataclass(frozen=True, slots=True)
class File:
    """An open store file.

    Attributes
    ----------
    connection : Connection
        The only one; it belongs to the thread that opened it.
    stamp : _Stamp or None
        How the file looked when it was opened without locks, because nothing may be written next to it;
        where it looks different later, what was read may be torn.
    """

    path: Path
    connection: Connection
    lock: FileLock | None = None
    stamp: _Stamp | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Do everything inside, or nothing; SQLite's errors become a `StoreError`."""
        with explained(self.path):
            if self.connection.in_transaction():
                yield self.connection
                return
            with self.connection.begin():
                yield self.connection
        _refuse_torn(self.path, self.stamp)

    def compact(self) -> None:
        """Write the file again without what was deleted from it; outside of a transaction."""
        with explained(self.path):
            self.connection.rollback()
            raw = _raw(self.connection)
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file and let others write."""
        try:
            with explained(self.path):
                self.connection.close()
        finally:
            if self.lock is not None:
                self.lock.release()


def store_exists(path: Path) -> bool:
    """Return whether there is a file for a store.

    Raises
    ------
    StoreError
        The disk does not say: too long a name, or a directory that one may not look into.
    """
    with _usable(path):
        return path.exists()


def open_to_write(path: Path) -> File:
    """Open a store, made or upgraded where needed, and keep other writers out.

    Raises
    ------
    StoreBusyError
        Another process writes it.
    StoreError
        It cannot be used; it was not touched.
    """
    with explained(path), _usable(path), ExitStack() as undo:
        _refuse_other_files(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
        undo.callback(lock.release)
        with suppress(FileExistsError):  # configs are nobody else's business; SQLite would take the umask
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        connection = _connect(lambda: _sqlite(path, "rwc"), begin="BEGIN IMMEDIATE")
        undo.callback(connection.close)
        _keep_copy(connection, path)
        _update(connection, path)
        _raw(connection).execute("PRAGMA journal_mode = WAL")
        undo.pop_all()
        return File(path, connection, lock)


def open_to_read(path: Path) -> File:
    """Open a store, and leave it and its directory as they are.

    A store of an older version is read from a copy in memory that is upgraded.

    Raises
    ------
    StoreError
        There is none, or it cannot be used.
    """
    with explained(path), _usable(path), ExitStack() as undo:
        _refuse_other_files(path)
        if not path.exists():
            raise _missing(path)
        file = _open_unlocked(path)
        undo.callback(file.close)
        version = versions.version_of(file.connection, path)
        file.connection.rollback()
        if version == versions.EMPTY:
            raise _missing(path)
        if version < VERSION:
            return _copy_of(file)
        _raw(file.connection).execute("PRAGMA query_only = 1")
        undo.pop_all()
        return file


def open_copy(path: Path) -> File:
    """Open a copy in memory, of an empty store where there is none; nothing of it is kept.

    Raises
    ------
    StoreError
        The file is there and cannot be used.
    """
    with explained(path), _usable(path):
        _refuse_other_files(path)
        if not path.exists():
            return _in_memory(path, None)
        with closing(_open_unlocked(path)) as file:
            return _copy_of(file)


def image_of(file: File) -> bytes:
    """Return a whole open store as bytes, for `open_image`."""
    with explained(file.path):
        return _raw(file.connection).serialize()


def open_image(path: Path, image: bytes) -> File:
    """Open in memory what `image_of` returned; `path` is what errors call it."""
    with explained(path), closing(sqlite3.connect(":memory:")) as source:
        source.deserialize(image)
        return _in_memory(path, source)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into a `StoreError` that says what to do."""
    try:
        yield
    except (DBAPIError, sqlite3.Error, UnicodeDecodeError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # The driver has no name for text that is not UTF-8; its message quotes it.
        is_text = isinstance(cause, UnicodeDecodeError) or "decode to UTF-8" in str(cause)
        name = getattr(cause, "sqlite_errorname", None) or ("SQLITE_CORRUPT" if is_text else "")
        found = next((reason for prefix, reason in _REASONS.items() if name.startswith(prefix)), None)
        if found is None:
            raise
        # What is damaged may be the name of a run, which came from outside.
        detail = f": {clean(str(cause))}" if isinstance(cause, DamagedError) else ""
        raise found.error(f"the store {path} {found.what}{detail}", found.hint) from error


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a `StoreError`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"the store {path} cannot be used: {error.strerror or error}", _ELSEWHERE) from error


@dataclass(frozen=True, slots=True)
class _Stamp:
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> _Stamp:
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class _Reason:
    what: str
    hint: str
    error: type[StoreError] = StoreError


_ELSEWHERE = "Name another place with --store, or `store` in the settings."
_DAMAGED = _Reason("is damaged", "Move it away; the next sync makes a new one.")
_REASONS = {
    "SQLITE_BUSY": _Reason("is locked by another program", "Close it there, then run again.", StoreBusyError),
    "SQLITE_LOCKED": _Reason(
        "is locked by another program", "Close it there, then run again.", StoreBusyError
    ),
    "SQLITE_NOTADB": _Reason("is no SQLite database", "Name another file; this one was not touched."),
    "SQLITE_CORRUPT": _DAMAGED,
    # The statements are always the same: what they do not find, or find twice, was changed in the file.
    "SQLITE_ERROR": _DAMAGED,
    "SQLITE_CONSTRAINT": _DAMAGED,
    "SQLITE_MISMATCH": _DAMAGED,
    "SQLITE_FULL": _Reason(
        "cannot be written: the disk is full", "Nothing was changed. Make room, then run again."
    ),
    "SQLITE_READONLY": _Reason("may not be written", _ELSEWHERE),
    "SQLITE_CANTOPEN": _Reason("cannot be opened", _ELSEWHERE),
    "SQLITE_PERM": _Reason("may not be opened", _ELSEWHERE),
    "SQLITE_IOERR": _Reason("cannot be read or written", "Look at the disk. " + _ELSEWHERE),
}


def _missing(path: Path) -> StoreError:
    return StoreError(f"there is no store at {path} yet", "`step0-wandb sync SOURCE` makes one.")


def _refuse_other_files(path: Path) -> None:
    """Refuse what is surely no store before anything is made next to it."""
    if path.is_dir():
        raise StoreError(f"the store {path} is a directory", "Name a file in it, such as step0.db.")
    if path.exists():
        if not path.is_file():  # opening a pipe would wait for its writer
            raise StoreError(f"the store {path} is not a regular file", _ELSEWHERE)
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
        if head and head != _MAGIC:
            reason = _REASONS["SQLITE_NOTADB"]
            raise StoreError(f"the store {path} {reason.what}", reason.hint)


def _refuse_torn(path: Path, stamp: _Stamp | None) -> None:
    if stamp is not None and stamp != _Stamp.of(path):
        raise StoreBusyError(f"the store {path} was written while it was read", "Run it again.")


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _lock(path: Path) -> FileLock:
    """Take the writers' lock, and note in it who has it."""
    place = _sibling(path, ".lock")
    holder = f" ({place.read_text(encoding='utf-8', errors='replace')[:80]})" if place.exists() else ""
    lock = FileLock(place, timeout=0, mode=0o600)
    try:
        with warnings.catch_warnings(record=True) as fallback:
            warnings.simplefilter("always")
            lock.acquire()
    except Timeout:
        if not place.exists():
            place.touch()  # says why that cannot be, where no file can be made; FileLock waits there too
        raise StoreBusyError(f"the store {path} is busy: another step0-wandb writes it{holder}") from None
    except NotImplementedError:  # as below, said by older versions of filelock
        raise StoreError(
            f"the store {path} cannot be locked: its file system has no file locks (flock)", _ELSEWHERE
        ) from None
    if fallback:  # flock answers ENOSYS, as on Lustre: the file itself is the lock, with its own text
        return lock
    place.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
    return lock


def _update(connection: Connection, path: Path) -> None:
    """Give the file the current schema; what is not ours is refused before anything is written."""
    version = versions.version_of(connection, path)
    connection.rollback()
    if version == VERSION:
        return
    with connection.begin():
        if version == versions.EMPTY:
            versions.create(connection)
        else:
            versions.upgrade(connection)


def _keep_copy(connection: Connection, path: Path) -> None:
    """Copy a store of an older version to ``NAME.vN`` before it is upgraded, in place of an earlier copy."""
    version = versions.version_of(connection, path)
    connection.rollback()
    if version in (versions.EMPTY, VERSION):
        return
    copy, unfinished = _sibling(path, f".v{version}"), _sibling(path, f".v{version}.part")
    unfinished.unlink(missing_ok=True)
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(unfinished)) as target:
        _raw(connection).backup(target)
    unfinished.replace(copy)


def _open_unlocked(path: Path) -> File:
    """Open a file for reading, while another process may write it."""
    if _sibling(path, "-wal").exists():
        return File(path, _connect(lambda: _sqlite(path, "ro")))
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        # A reader of a file in WAL mode makes a log and an index next to it; only one who may write
        # takes them away in the end.
        return File(path, _connect(lambda: _sqlite(path, "rw")))
    return File(path, _connect(lambda: _sqlite(path, "ro&immutable=1")), stamp=_Stamp.of(path))


def _copy_of(file: File) -> File:
    copy = _in_memory(file.path, _raw(file.connection))
    _refuse_torn(file.path, file.stamp)
    return copy


def _in_memory(path: Path, source: sqlite3.Connection | None) -> File:
    memory = _configured(sqlite3.connect(":memory:", isolation_level=None))
    if source is not None:
        source.backup(memory)
    connection = _connect(lambda: memory)
    _update(connection, path)
    return File(path, connection)


def _connect(sqlite: Callable[[], sqlite3.Connection], *, begin: str = "BEGIN") -> Connection:
    # Parameters hold names and configs of others, which no message may show.
    engine = create_engine("sqlite://", creator=sqlite, poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine.connect()


def _sqlite(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    # Without isolation_level=None the module begins transactions by itself, and not before every statement.
    return _configured(sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None))


def _configured(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("PRAGMA foreign_keys = 1")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA page_size = {_PAGE}")
    # A full TMPDIR would otherwise be reported as a full disk under the store.
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _raw(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection, for what must happen outside of a transaction."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)
