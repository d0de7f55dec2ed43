"""An open store, and its parts."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from step0_wandb.store import versions
from step0_wandb.store.database import Database
from step0_wandb.store.file import image_of, open_copy, open_image, open_to_read, open_to_write
from step0_wandb.store.fits import FitStore
from step0_wandb.store.notes import Notes
from step0_wandb.store.outbox import Outbox
from step0_wandb.store.people import PeopleStore
from step0_wandb.store.runs import RunStore
from step0_wandb.store.scrub import is_scrubbed, scrub_store
from step0_wandb.store.sources import SourceStore
from step0_wandb.store.stale import Stale
from step0_wandb.store.verdicts import VerdictStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

Mode = Literal["write", "read", "copy"]


class Store:
    """An open store; use it in ``with``, and from one thread.

    Every method of its parts that writes is a transaction of its own, or part of the one around it.

    Attributes
    ----------
    sources : SourceStore
        The runs that sources have shown, and where reading goes on.
    runs : RunStore
        Runs as their sources gave them, with what profiles and settings make of them.
    verdicts : VerdictStore
        Verdicts and ranges of the last sync.
    people : PeopleStore
        Labels, accepted setups and mutes.
    outbox : Outbox
        Alerts, sent or not.
    stale : Stale
        The runs and setups that changed since they were judged.
    fits : FitStore
        What judging each setup leaves for judging the others.
    notes : Notes
        Whether verdicts are up to date, and what else a sync keeps, by name.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.runs = RunStore(database)
        self.sources = SourceStore(database, self.runs)
        self.verdicts = VerdictStore(database)
        self.people = PeopleStore(database)
        self.outbox = Outbox(database)
        self.notes = Notes(database)
        self.stale = Stale(database)
        self.fits = FitStore(database)

    @classmethod
    def open(cls, path: Path | str, *, mode: Mode) -> Self:
        """Open a store.

        Parameters
        ----------
        path : Path or str
            The SQLite file.
        mode : {"write", "read", "copy"}
            ``write`` makes the file where there is none, upgrades an older one, and keeps other writers
            out until `close`. ``read`` changes nothing, neither the file nor its directory. ``copy``
            works on a copy in memory (an empty store, where there is no file), which is gone afterwards.

        Raises
        ------
        StoreBusyError
            Another process writes the store.
        StoreError
            The file cannot be used, or is that of a newer version; or there is none to read.
        """
        opener = {"write": open_to_write, "read": open_to_read, "copy": open_copy}[mode]
        with ExitStack() as undo:
            database = Database.of(opener(Path(path)))
            undo.callback(database.file.close)
            if mode == "read" and not is_scrubbed(database):
                database.file.close()
                database = Database.of(open_copy(Path(path)))
            if mode != "read" or not is_scrubbed(database):
                scrub_store(database)
            undo.pop_all()
        return cls(database)

    @classmethod
    def of_image(cls, image: bytes, *, path: Path) -> Self:
        """Open in memory what `image` returned; nothing of it is kept.

        Parameters
        ----------
        path : Path
            What errors call it.
        """
        return cls(Database.of(open_image(path, image)))

    def image(self) -> bytes:
        """Return the whole store as bytes, 1 to 2 KB a run, which need not be closed."""
        return image_of(self._database.file)

    @property
    def path(self) -> Path:
        """Return the file's path."""
        return self._database.file.path

    @property
    def version(self) -> int:
        """Return the schema version; that of an older file once it is upgraded."""
        with self._database.transaction() as connection:
            return versions.version_of(connection, self.path)

    def close(self) -> None:
        """Close the file and let others write."""
        self._database.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything inside, or nothing: an error inside leaves the store as it was."""
        with self._database.transaction():
            yield
