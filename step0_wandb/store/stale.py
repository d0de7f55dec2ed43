"""What changed since the runs were last judged: everything, or some runs and setups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.records import chunks
from step0_wandb.store.notes import STALE, Notes
from step0_wandb.store.schema import clean, runs, stale, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from step0_wandb.store.database import Database

REMEMBERED_FOR = frozenset({"gap", "setup"})
"""The columns of a run that its verdict was about."""
_SOME = 500
"""Names that are looked up together."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What is to be judged again.

    Attributes
    ----------
    everything : bool
        Settings or profiles changed, or nothing was ever judged.
    setups : frozenset of str
        Setups whose runs changed, came or went, or about which a person said something.
    without_setup : frozenset of str
        The keys of changed runs that have no setup.
    """

    everything: bool
    setups: frozenset[str]
    without_setup: frozenset[str]


class Stale:
    """The note of an open store on what its verdicts do not know yet."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._notes = Notes(database)

    def mark_runs(self, keys: Iterable[str]) -> None:
        """Have these runs judged again, those of their setups too; called before and after they change."""
        with self._database.transaction() as connection:
            for some in chunks(map(clean, keys), _SOME):
                self._put("run", some)
                setups = select(runs.c.setup).where(runs.c.run.in_(some), runs.c.setup.is_not(None))
                self._put("setup", connection.execute(setups.distinct()).scalars().all())

    def mark_setups(self, names: Iterable[str]) -> None:
        """Have the runs of these setups judged again."""
        for some in chunks(map(clean, names), _SOME):
            self._put("setup", some)

    def forget_verdicts(self, keys: Iterable[str]) -> None:
        """Let a later judgment not know of these runs' verdicts: they are about another gap or setup."""
        with self._database.transaction() as connection:
            for some in chunks(map(clean, keys), _SOME):
                numbers = select(runs.c.id).where(runs.c.run.in_(some))
                connection.execute(
                    update(verdicts).where(verdicts.c.run.in_(numbers)).values(remembered=False)
                )

    def changed(self) -> Changed:
        """Return what is to be judged again."""
        with self._database.transaction() as connection:
            setups = connection.execute(select(stale.c.name).where(stale.c.kind == "setup")).scalars()
            without = (
                select(runs.c.run)
                .join(stale, (stale.c.kind == "run") & (stale.c.name == runs.c.run))
                .where(runs.c.setup.is_(None))
            )
            return Changed(
                bool(self._notes.get(STALE)),
                frozenset(setups),
                frozenset(connection.execute(without).scalars()),
            )

    def clear(self) -> None:
        """Note that all runs have been judged."""
        with self._database.transaction() as connection:
            if connection.execute(select(stale.c.name).limit(1)).first():
                connection.execute(delete(stale))
            if self._notes.get(STALE):
                self._notes.put(STALE, value=False)

    def _put(self, kind: str, names: Iterable[str]) -> None:
        rows = [{"kind": kind, "name": name} for name in names]
        if rows:
            with self._database.transaction() as connection:
                connection.execute(upsert(stale).on_conflict_do_nothing(), rows)
