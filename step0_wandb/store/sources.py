"""What is remembered of each source: the runs it has shown, and where reading goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sqlalchemy import delete, func, insert, select, update

from step0_wandb.sources.base import FileMark, SourceMemory
from step0_wandb.store import readings
from step0_wandb.store.codec import parsed
from step0_wandb.store.schema import marks, run_sources, runs, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from step0_wandb.records import Json, RunFacts
    from step0_wandb.sources.base import Reading
    from step0_wandb.store.database import Database
    from step0_wandb.store.runs import RunStore


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source and its runs.

    Attributes
    ----------
    read_at : datetime or None
        The last time anything of it was stored, in UTC.
    runs : int
        Runs that it has shown.
    """

    source: str
    read_at: datetime | None
    runs: int


class SourceStore:
    """Sources by name."""

    def __init__(self, database: Database, runs: RunStore) -> None:
        self._database = database
        self._runs = runs

    def states(self) -> tuple[SourceState, ...]:
        """Return when each source was last read, and how many runs came from it; by name."""
        count = (
            select(sources.c.source, sources.c.read_at, func.count(runs.c.run_id.distinct()).label("runs"))
            .outerjoin(run_sources, run_sources.c.source_id == sources.c.id)
            .outerjoin(runs, runs.c.id == run_sources.c.run)
            .group_by(sources.c.id)
            .order_by(sources.c.source)
        )
        with self._database.transaction() as connection:
            return tuple(SourceState(row.source, row.read_at, row.runs) for row in connection.execute(count))

    def memory(self, source: str) -> SourceMemory:
        """Return what is remembered of a source at this moment."""
        return SourceMemory(
            cursor=self.cursor(source),
            names=self._names(source),
            names_without_step0=_run_ids(self._runs.keys(source=source, status="no-step0")),
            marks=self._marks(source),
            record=self._runs.whole_record,
        )

    def _names(self, source: str) -> dict[str, str]:
        """Return the display names of a source's runs by id."""
        shown = (
            select(runs.c.run_id, runs.c.name, runs.c.policy)
            .join(run_sources, run_sources.c.run == runs.c.id)
            .join(sources, sources.c.id == run_sources.c.source_id)
            .where(sources.c.source == source, runs.c.deleted_at.is_(None), runs.c.superseded_by.is_(None))
        )
        with self._database.transaction() as connection:
            return {row.run_id: row.name.removesuffix(f"#{row.policy}") for row in connection.execute(shown)}

    def cursor(self, source: str) -> dict[str, Json] | None:
        """Return where reading of a source stopped, as it was saved; None where nothing was."""
        with self._database.transaction() as connection:
            text = connection.execute(select(sources.c.cursor).where(sources.c.source == source)).scalar()
            return cast("dict[str, Json]", parsed(text)) if text else None

    def save_cursor(self, source: str, cursor: Mapping[str, Json]) -> None:
        """Remember where reading of a source stopped."""
        with self._database.transaction() as connection:
            number = self._number(source)
            text = json.dumps(cursor, sort_keys=True)
            connection.execute(update(sources).where(sources.c.id == number).values(cursor=text))

    def save_readings(
        self, source: str, items: Iterable[tuple[Reading, RunFacts]], *, now: datetime
    ) -> tuple[str, ...]:
        """Store runs that are new or changed, with their marks.

        The first step 0 of a run is kept; where a later reading has other values, the column
        ``conflict`` says so. A run read both from disk and from the server (same run id, project and
        step-0 values) is one run, the server's; labels and marks move to it.

        Returns
        -------
        tuple of str
            The keys of the runs that were not known before.
        """
        with self._database.transaction() as connection:
            number = self._number(source)
            new = readings.save(self._database, number, items)
            connection.execute(update(sources).where(sources.c.id == number).values(read_at=now))
            return new

    def save_marks(self, source: str, marks: Iterable[FileMark]) -> None:
        """Remember how far files were read that brought no reading, such as those without a run."""
        with self._database.transaction():
            readings.save_marks(self._database, self._number(source), marks)

    def forget_marks(self, *, status: str) -> None:
        """Forget how far the files of runs of one step-0 status were read, so that they are read again."""
        some = select(runs.c.id).where(runs.c.step0 == status)
        with self._database.transaction() as connection:
            connection.execute(delete(marks).where(marks.c.run.in_(some)))

    def _marks(self, source: str) -> dict[str, FileMark]:
        columns = (column for column in marks.c if column.name not in ("source_id", "run"))
        key = func.coalesce(runs.c.superseded_by, runs.c.run, "")
        wanted = (
            select(*columns, key.label("run"))
            .join(sources, sources.c.id == marks.c.source_id)
            .outerjoin(runs, runs.c.id == marks.c.run)
            .where(sources.c.source == source)
        )
        with self._database.transaction() as connection:
            return {
                row["path"]: FileMark(**{**row, "run": row["run"].partition("#")[0]})
                for row in connection.execute(wanted).mappings()
            }

    def _number(self, source: str) -> int:
        """Return the row of a source; may add it."""
        connection = self._database.connection
        number = connection.execute(select(sources.c.id).where(sources.c.source == source)).scalar()
        if number is None:
            added = insert(sources).values(source=source).returning(sources.c.id)
            number = connection.execute(added).scalar_one()
        return int(number)


def _run_ids(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key.rpartition("/")[2].partition("#")[0] for key in keys)
