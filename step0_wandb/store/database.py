"""What every part of the store works with: the open file, and what its runs share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.store.templates import Plans, Templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from step0_wandb.store.file import File


@dataclass(frozen=True, slots=True)
class Database:
    """An open store file with its templates and check plans."""

    file: File
    templates: Templates
    plans: Plans

    @classmethod
    def of(cls, file: File) -> Database:
        """Return the database in an open file."""
        return cls(file, Templates(file.connection), Plans(file.connection))

    @property
    def connection(self) -> Connection:
        """Return the connection; to be used inside `transaction`."""
        return self.file.connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Do everything inside, or nothing."""
        try:
            with self.file.transaction() as connection:
                yield connection
        except BaseException:
            self.templates.forget()
            self.plans.forget()
            raise
