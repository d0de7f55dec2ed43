"""The store: what is known of every run, in one SQLite file."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, cast

from sqlalchemy import select, update

from step0_wandb.sources.base import SourceMemory
from step0_wandb.store import notes, outbox, people, queries, readings, tags, verdicts, versions
from step0_wandb.store.codec import parsed
from step0_wandb.store.columns import Wanted
from step0_wandb.store.database import Database
from step0_wandb.store.file import image_of, open_copy, open_image, open_to_read, open_to_write
from step0_wandb.store.schema import runs, sources
from step0_wandb.store.schema import verdicts as verdict_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    import pandas as pd
    from sqlalchemy import ColumnElement

    from step0_wandb.records import Json, JudgedRun, RunFacts, RunRecord, SetupRange
    from step0_wandb.sources.base import FileMark, Reading
    from step0_wandb.store.outbox import Outbox, Whereabouts
    from step0_wandb.store.people import Accept, Label, Mute, Retraction
    from step0_wandb.store.queries import RunUpdate, SourceState

Mode = Literal["write", "read", "copy"]


class Store:
    """An open store; use it in ``with``, and from one thread.

    Every method that writes is a transaction of its own, or part of the one around it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

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
        return cls(Database.of(opener(Path(path))))

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

    # ── what sources remember ───────────────────────────────────────────────

    def memory(self, source: str) -> SourceMemory:
        """Return what is remembered of a source at this moment."""
        return SourceMemory(
            cursor=self.cursor(source),
            names=_ids(self.keys(source=source)),
            names_without_step0=_ids(self.keys(source=source, status="no-step0")),
            marks=queries.marks_of(self._database, source),
            record=self.record,
        )

    def cursor(self, source: str) -> dict[str, Json] | None:
        """Return where reading of a source stopped, as it was saved; None where nothing was."""
        with self._database.transaction() as connection:
            text = connection.execute(select(sources.c.cursor).where(sources.c.source == source)).scalar()
        return cast("dict[str, Json]", parsed(text)) if text else None

    def save_cursor(self, source: str, cursor: dict[str, Json]) -> None:
        """Remember where reading of a source stopped."""
        with self._database.transaction() as connection:
            number = readings.source_number(self._database, source)
            connection.execute(
                update(sources)
                .where(sources.c.id == number)
                .values(cursor=json.dumps(cursor, sort_keys=True))
            )

    def sources(self) -> tuple[SourceState, ...]:
        """Return when each source was last read, and how many runs came from it."""
        return queries.source_states(self._database)

    # ── runs ────────────────────────────────────────────────────────────────

    def save_readings(
        self, source: str, items: Iterable[tuple[Reading, RunFacts]], *, now: datetime
    ) -> tuple[str, ...]:
        """Store runs that are new or changed, with their marks.

        The first step 0 of a run is kept; where a later reading has other values, the column
        ``conflict`` says so. A run read both from disk and from the server (same run id, project and
        step-0 values) is one run, the server's; labels and marks go over to it.

        Returns
        -------
        tuple of str
            The keys of the runs that were not known before.
        """
        with self._database.transaction():
            return readings.save(self._database, source, items, now=now)

    def save_marks(self, source: str, marks: Iterable[FileMark]) -> None:
        """Remember how far files were read that brought no reading, such as those without a run."""
        with self._database.transaction():
            readings.save_marks(self._database, source, marks)

    def mark_deleted(self, keys: Iterable[str], *, now: datetime) -> None:
        """Mark runs that their server has deleted; they stay, and a later reading takes the mark away."""
        queries.mark_deleted(self._database, keys, now=now)

    def update_runs(self, updates: Iterable[RunUpdate]) -> None:
        """Change name, state and tags of runs; what the store does not know is left out."""
        queries.update_runs(self._database, updates)

    def forget_marks(self, *, status: str) -> None:
        """Forget how far the files of runs of one step-0 status were read, so that they are read anew."""
        queries.forget_marks(self._database, status)

    def record(self, key: str) -> RunRecord | None:
        """Return one run as its source gave it; None for an unknown key."""
        return queries.record(self._database, key)

    def records(self, *, status: str | None = None, setup: str | None = None) -> Iterator[RunRecord]:
        """Yield runs as their sources gave them, by key; of one step-0 status or one setup."""
        where = [
            column == value for column, value in ((runs.c.step0, status), (runs.c.setup, setup)) if value
        ]
        return queries.records(self._database, *where)

    def configs(self, keys: Iterable[str]) -> Iterator[Mapping[str, Json]]:
        """Yield the config of each run that is known, in the order of the keys."""
        return queries.configs(self._database, keys)

    def files(self, key: str) -> tuple[str, ...]:
        """Return the paths of the ``.wandb`` files that a run was read from, sorted; empty off disk."""
        return queries.files(self._database, key)

    def facts(self, key: str) -> RunFacts | None:
        """Return what profiles and settings made of one run; None for an unknown key."""
        return queries.facts(self._database, key)

    def save_facts(self, items: Iterable[tuple[str, RunFacts]]) -> None:
        """Replace what profiles and settings make of stored runs, by run key, where it differs."""
        queries.save_facts(self._database, items)

    def frame(self, *, config: Sequence[str] = (), metrics: Sequence[str] = ()) -> pd.DataFrame:
        """Return all runs as a DataFrame, one row a run, ordered by key; see `columns.COLUMNS`.

        Parameters
        ----------
        config : sequence of str
            Config keys to add as columns, as dotted paths.
        metrics : sequence of str
            Numbers of the step-0 row to add as columns.
        """
        return queries.frame(self._database, Wanted(tuple(config), tuple(metrics)))

    def keys(
        self, *, source: str | None = None, status: str | None = None, alive: bool | None = None
    ) -> tuple[str, ...]:
        """Return run keys in their order: of one source, of one step-0 status, still alive or not."""
        where: list[ColumnElement[bool]] = []
        if source is not None:
            where.append(queries.of_source(source))
        if status is not None:
            where.append(runs.c.step0 == status)
        if alive is not None:
            where.append(queries.is_alive(alive=alive))
        return queries.keys(self._database, *where)

    def find_runs(self, text: str) -> tuple[str, ...]:
        """Return the keys that a person may mean by a key, a bare run id or a display name.

        More than one means that the text is not unique, none that it is not known.
        """
        return queries.find(self._database, text)

    # ── verdicts ────────────────────────────────────────────────────────────

    def save_judged(
        self, judged: Iterable[JudgedRun], setups: Iterable[SetupRange], *, now: datetime
    ) -> tuple[str, ...]:
        """Replace all verdicts and ranges; only rows that differ are written.

        Returns
        -------
        tuple of str
            The keys of the runs whose verdict, label, or values differ from before, sorted.

        Raises
        ------
        KeyError
            A run is not in the store.
        """
        return verdicts.save(self._database, judged, setups, now=now)

    def judged(
        self,
        *,
        verdict: Collection[str] | None = None,
        since: datetime | None = None,
        user: str | None = None,
        setup: str | None = None,
        keys: Collection[str] | None = None,
    ) -> list[JudgedRun]:
        """Return stored verdicts: the gravest first, of these the newest first.

        Name, state and label are today's, verdict and reasons those of the last sync.

        Parameters
        ----------
        verdict : collection of str, optional
            Only these verdicts.
        since : datetime, optional
            Only runs created then or later; none whose time of creation is not known.
        user : str, optional
            Only runs of this user.
        setup : str, optional
            Only setups whose label holds this text, in any case.
        keys : collection of str, optional
            Only these runs.
        """
        where: list[ColumnElement[bool]] = []
        if verdict is not None:
            where.append(verdict_rows.c.verdict.in_(verdict))
        if since is not None:
            where.append(runs.c.created_at >= since)
        if user is not None:
            where.append(runs.c.user == user)
        if setup is not None:
            where.append(runs.c.setup.icontains(setup, autoescape=True))
        return verdicts.judged_runs(self._database, *where, keys=keys)

    def counts(self) -> dict[str, int]:
        """Return how many runs have each verdict, the gravest first; verdicts without runs are left out."""
        return verdicts.counts(self._database)

    def setups(self) -> list[SetupRange]:
        """Return the stored ranges, by setup."""
        return verdicts.setup_ranges(self._database)

    # ── people ──────────────────────────────────────────────────────────────

    def label(self, label: Label) -> None:
        """Store a person's word on a run, in place of an earlier one."""
        people.say(self._database, label)

    def retract(self, word: Retraction) -> bool:
        """Take a label or a mute back that was given before; return whether there was one."""
        return people.retract(self._database, word)

    def retractions(self) -> tuple[Retraction, ...]:
        """Return what was taken back, the last time of each."""
        return people.all_retractions(self._database)

    def labels(self) -> dict[str, Label]:
        """Return every label by run key."""
        return people.all_labels(self._database)

    def follow_tags(self, *, now: datetime) -> None:
        """Make labels of the tags ``step0-ok``, ``step0-bad`` and ``step0-skip`` that runs have in W&B."""
        tags.follow(self._database, now=now)

    def accept(self, accept: Accept) -> None:
        """Store that a setup's level is right, in place of an earlier word on it.

        That answers the alerts on the setup: should it move again, it is told again.
        """
        with self._database.transaction():
            people.say(self._database, accept)
            outbox.forget_setup(self._database, accept.setup, until=accept.at)

    def accepts(self) -> dict[str, Accept]:
        """Return every accepted setup by its label."""
        return people.all_accepts(self._database)

    def mute(self, mute: Mute) -> None:
        """Store that there shall be no alerts of a setup for a while, in place of an earlier word on it."""
        people.say(self._database, mute)

    def end_mutes(self, *, now: datetime) -> None:
        """Forget the mutes that are over; what they held back is looked at anew."""
        people.end_mutes(self._database, now=now)

    def mutes(self) -> dict[str, Mute]:
        """Return every mute by its setup, over or not."""
        return people.all_mutes(self._database)

    # ── alerts ──────────────────────────────────────────────────────────────

    @property
    def outbox(self) -> Outbox:
        """Return the alerts on their way out."""
        return outbox.Outbox(self._database)

    def alerted(self) -> list[dict[str, Json]]:
        """Return what was alerted, as plain JSON that `restore_alerted` of another store takes.

        One item is one run or setup (``subject``, a run's key or a setup's label) that was told in one
        ``channel`` at one ``level``. What is queued and not sent yet is not in it.
        """
        return outbox.sent_alerts(self._database)

    def restore_alerted(self, rows: Iterable[Mapping[str, Json]]) -> None:
        """Note what another store has alerted, so that it is not told again; what is known here stays."""
        outbox.restore(self._database, rows)

    def hear(self, heartbeats: Mapping[str, datetime]) -> None:
        """Note when running runs were last heard of, by run key."""
        outbox.hear(self._database, heartbeats)

    def whereabouts(self, keys: Iterable[str]) -> dict[str, Whereabouts]:
        """Return by key what matters of runs for alerting about them; unknown keys are left out."""
        return outbox.whereabouts(self._database, keys)

    # ── the store's own notes ───────────────────────────────────────────────

    @property
    def stale(self) -> bool:
        """Whether runs, labels or accepted setups changed since the runs were judged last."""
        return bool(notes.get(self._database, notes.STALE))

    def mark_stale(self) -> None:
        """Note that the runs are to be judged anew, as the settings of judging changed."""
        notes.put(self._database, notes.STALE, value=True)

    def meta(self, key: str) -> Json:
        """Return a note of the store's own; None where there is none.

        ``changed_at`` is when verdicts or ranges changed last, ISO 8601.
        """
        return notes.get(self._database, key)

    def set_meta(self, key: str, value: Json) -> None:
        """Write a note, in place of an earlier one."""
        notes.put(self._database, key, value)


def _ids(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(key.rpartition("/")[2] for key in keys)
