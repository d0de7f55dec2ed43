"""Runs out of the store: as records, as facts, and as a DataFrame."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import and_, func, or_, select, true, update

from step0_wandb.records import ALIVE, HistoryRow, chunks
from step0_wandb.store.codec import reading
from step0_wandb.store.columns import Wanted, columns_of, frame_of
from step0_wandb.store.rows import facts_columns, facts_of, identity_of, record_of, rows_of, tags_text
from step0_wandb.store.schema import accepts, clean, labels, marks, run_sources, runs, sources
from step0_wandb.store.stale import REMEMBERED_FOR, Stale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    from sqlalchemy import ColumnElement, Connection, Row, Select

    from step0_wandb.records import Json, RunFacts, RunRecord
    from step0_wandb.sources.base import RunUpdate
    from step0_wandb.store.database import Database
    from step0_wandb.store.rows import Columns

Starts = Literal["newest", "all"]
PAGE = 1000
"""Runs that are read at once where each is unpacked."""
_HEAVY = ("config", "rows")


@dataclass(frozen=True, slots=True)
class RunSelection:
    """Some runs: those of some setups, and some by their keys."""

    setups: Sequence[str] = ()
    keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunPresence:
    """Where a run was read, and when it last showed a sign of life.

    Attributes
    ----------
    on_server : bool
        Whether the run was read from a server.
    deleted : bool
        Whether its server has deleted it.
    seen_at : datetime or None
        In UTC: the heartbeat on a server, the last write on disk.
    """

    on_server: bool
    deleted: bool
    seen_at: datetime | None


class RunStore:
    """Stored runs, by key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, key: str) -> RunRecord | None:
        """Return one run as its source gave it; None for an unknown key."""
        with self._database.transaction() as connection:
            row = connection.execute(select(runs).where(runs.c.run == key)).first()
            return record_of(row, self._database.templates) if row else None

    def whole_record(self, key: str) -> RunRecord | None:
        """Return the newest start of a run as its source gave it, with the rows of all its policies."""
        parts = [record for _, record in self._records(_of_run(key), *_of("newest"))]
        if not parts or parts[0].policy is None:
            return parts[0] if parts else None
        values: dict[int, dict[str, float]] = {}
        for part in parts:
            for order, name, value in _numbers(part):
                values.setdefault(order, {})[name] = value
        rows = tuple(HistoryRow(values[order], order) for order in sorted(values))
        name = parts[0].name.removesuffix(f"#{parts[0].policy}")
        config = {key: value for part in parts for key, value in part.config.items()}
        return replace(parts[0], name=name, policy=None, config=config, rows=rows)

    def records(
        self, *, status: str | None = None, setup: str | None = None, starts: Starts = "newest"
    ) -> Iterator[RunRecord]:
        """Yield runs as their sources gave them, by key; of one step-0 status or one setup."""
        pairs = ((runs.c.step0, status), (runs.c.setup, setup))
        where = (*(column == value for column, value in pairs if value), *_of(starts))
        return (record for _, record in self._records(*where))

    def _records(self, *where: ColumnElement[bool]) -> Iterator[tuple[str, RunRecord]]:
        """Yield stored keys with their records, a page at a time: between pages the caller may write."""
        wanted = select(runs).where(*where)
        last = ""
        while True:
            with self._database.transaction() as connection:
                page = wanted.where(runs.c.run > last).order_by(runs.c.run).limit(PAGE)
                rows = connection.execute(page).all()
                found = [(row.run, record_of(row, self._database.templates)) for row in rows]
            yield from found
            if len(rows) < PAGE:
                return
            last = rows[-1].run

    def configs(self, keys: Iterable[str]) -> Iterator[Mapping[str, Json]]:
        """Yield the config of each run that is known, in the order of the keys."""
        return (record.config for key in keys if (record := self.record(key)) is not None)

    def facts(self, key: str) -> RunFacts | None:
        """Return what profiles and settings made of one run; None for an unknown key."""
        with self._database.transaction() as connection:
            row = connection.execute(select(runs).where(runs.c.run == key)).first()
            return (
                facts_of(row, self._database.plans, rows_of(row, self._database.templates)) if row else None
            )

    def files(self, key: str) -> tuple[str, ...]:
        """Return the paths of the ``.wandb`` files that a run was read from, sorted; empty off disk."""
        of_run = select(marks.c.path).join(runs, runs.c.id == marks.c.run).where(runs.c.run == key)
        with self._database.transaction() as connection:
            return tuple(sorted(set(connection.execute(of_run).scalars())))

    def presence(self, keys: Iterable[str]) -> dict[str, RunPresence]:
        """Return by key where runs were read and when they were last seen; unknown keys are left out."""
        written = select(func.max(marks.c.mtime_ns)).where(marks.c.run == runs.c.id).scalar_subquery()
        columns = (runs.c.run, runs.c.origin, runs.c.deleted_at, runs.c.heartbeat_at)
        wanted: Select[Any] = select(*columns, written.label("written"))
        with self._database.transaction() as connection:
            return {
                row.run: RunPresence(row.origin == "server", row.deleted_at is not None, _seen_at(row))
                for some in chunks(map(clean, keys), PAGE)
                for row in connection.execute(wanted.where(runs.c.run.in_(some)))
            }

    def setup_sizes(self) -> dict[str | None, int]:
        """Return how many stored starts each setup has, and how many have none."""
        counted = select(runs.c.setup, func.count().label("amount")).group_by(runs.c.setup)
        with self._database.transaction() as connection:
            return {row.setup: row.amount for row in connection.execute(counted)}

    def setups(self) -> list[str]:
        """Return the label of every setup, sorted."""
        wanted = select(runs.c.setup).where(runs.c.setup.is_not(None)).distinct().order_by(runs.c.setup)
        with self._database.transaction() as connection:
            return list(connection.execute(wanted).scalars())

    def keys_without_setup(self) -> list[str]:
        """Return the stored keys of all starts without a setup, sorted."""
        wanted = select(runs.c.run).where(runs.c.setup.is_(None)).order_by(runs.c.run)
        with self._database.transaction() as connection:
            return list(connection.execute(wanted).scalars())

    def counts_without_setup(self) -> dict[tuple[str | None, str, str], int]:
        """Return how many runs have no step 0, by profile, status and why, but those that a person labeled."""
        said = select(labels.c.run).where(labels.c.label != "exclude")
        group = (runs.c.profile, runs.c.step0, runs.c.note)
        counted = select(*group, func.count().label("amount")).where(
            runs.c.setup.is_(None), runs.c.superseded_by.is_(None), runs.c.run.not_in(said)
        )
        with self._database.transaction() as connection:
            found = connection.execute(counted.group_by(*group))
            return {(row.profile, row.step0, row.note): row.amount for row in found}

    def newest(self, project: str, profile: str, most: int) -> list[str]:
        """Return the keys of the newest runs of a project that have a setup by this profile."""
        entity, _, name = project.rpartition("/")
        of = (runs.c.entity == entity, runs.c.project == name, runs.c.profile == profile)
        wanted = select(runs.c.run).where(*of, runs.c.setup.is_not(None), runs.c.superseded_by.is_(None))
        newest = wanted.order_by(runs.c.created_at.desc(), runs.c.run.desc()).limit(most)
        with self._database.transaction() as connection:
            return list(connection.execute(newest).scalars())

    def setup_projects(self) -> set[tuple[str, str]]:
        """Return every setup with each ``entity/project`` that has runs of it."""
        wanted = select(runs.c.setup, runs.c.entity, runs.c.project).distinct()
        with self._database.transaction() as connection:
            rows = connection.execute(wanted.where(runs.c.setup.is_not(None)))
            return {(row.setup, f"{row.entity}/{row.project}") for row in rows}

    def keys(
        self, *, source: str | None = None, status: str | None = None, alive: bool | None = None
    ) -> tuple[str, ...]:
        """Return run keys in their order: of one source, of one step-0 status, still alive or not."""
        where: list[ColumnElement[bool]] = []
        if source is not None:
            shown = select(run_sources.c.run).join(sources, sources.c.id == run_sources.c.source_id)
            where.append(runs.c.id.in_(shown.where(sources.c.source == source)))
        if status is not None:
            where.append(runs.c.step0 == status)
        if alive is not None:
            where.append(runs.c.state.in_(ALIVE) == alive)
        return self._keys(*where)

    def find(self, text: str) -> tuple[str, ...]:
        """Return the keys that a person may mean by a key, a bare run id or a display name.

        More than one means that the text is not unique, none that it is not known.
        """
        own_key = runs.c.run.in_((text, f"_/{text}"))  # offline runs show no entity
        run_id, _, policy = text.partition("#")
        of_policy = (runs.c.run_id == run_id) & runs.c.run.endswith(f"#{policy}", autoescape=True)
        candidates = (own_key, of_policy if policy else runs.c.run_id == text, runs.c.name == text)
        return next((keys for where in candidates if (keys := self._keys(where))), ())

    def frame(
        self,
        *,
        config: Sequence[str] = (),
        metrics: Sequence[str] = (),
        starts: Starts = "newest",
        only: RunSelection | None = None,
    ) -> pd.DataFrame:
        """Return runs as a DataFrame, one row a run, ordered by key; see `columns.COLUMNS`.

        Parameters
        ----------
        config : sequence of str
            Config keys to add as columns, as dotted paths.
        metrics : sequence of str
            Numbers of the step-0 row to add as columns.
        starts : {"newest", "all"}
            ``all``: also the starts before the newest one of each run, ``superseded``, which take part in
            the ranges.
        only : RunSelection, optional
            Which runs; None: all.
        """
        wanted = Wanted(tuple(config), tuple(metrics))
        with self._database.transaction() as connection:
            found = (
                row for where in selected(only) for row in self._columns(connection, wanted, starts, where)
            )
            rows = sorted(found, key=itemgetter("run"))
            with reading("a run"):
                return frame_of(rows, wanted)

    # ── what changes ────────────────────────────────────────────────────────

    def refresh_facts(self, facts_of_record: Callable[[RunRecord], RunFacts]) -> dict[str, set[str]]:
        """Make again what profiles and settings make of every start of every stored run.

        Returns
        -------
        dict of str to set of str
            The setups whose runs have other setups now, and which.
        """
        database = self._database
        moved: dict[str, set[str]] = defaultdict(set)
        with database.transaction() as connection:
            numbers = connection.execute(select(runs.c.id)).scalars().all()
            for some in chunks(numbers, PAGE):
                for row in connection.execute(select(runs).where(runs.c.id.in_(some))).all():
                    record = record_of(row, database.templates)
                    facts = facts_of_record(record)
                    if row.setup and facts.setup and row.setup != facts.setup:
                        moved[row.setup].add(facts.setup)
                    self._update(row, facts_columns(facts, record.rows, database.plans))
        return moved

    def rename_setups(self, names: Mapping[str, str]) -> None:
        """Give the runs of some setups another setup: by its label, the label of the other one."""
        with self._database.transaction() as connection:
            stale = Stale(self._database)
            stale.mark_setups([*names, *names.values()])
            for old, new in names.items():
                stale.forget_verdicts(
                    connection.execute(select(runs.c.run).where(runs.c.setup == old)).scalars()
                )
                connection.execute(update(runs).where(runs.c.setup == old).values(setup=new))

    def update(self, updates: Iterable[RunUpdate]) -> None:
        """Change name, state and tags of runs; unknown runs are left out."""
        with self._database.transaction() as connection:
            for change in updates:
                for row in connection.execute(select(runs).where(_of_run(change.key))).all():
                    policy = f"#{row.policy}" if row.policy else ""
                    columns = {
                        "name": change.name and change.name + policy,
                        "state": change.state,
                        "tags": tags_text(change.tags),
                    }
                    self._update(row, columns)

    def mark_deleted(self, keys: Iterable[str], *, now: datetime) -> None:
        """Mark runs that their server has deleted; they stay, and a later reading removes the mark."""
        with self._database.transaction() as connection:
            for key in keys:
                connection.execute(update(runs).where(_of_run(key)).values(deleted_at=now))

    def save_heartbeats(self, heartbeats: Mapping[str, datetime]) -> None:
        """Note when running runs last sent a heartbeat, by run key; verdicts do not depend on it."""
        with self._database.transaction() as connection:
            for key, moment in heartbeats.items():
                connection.execute(update(runs).where(_of_run(clean(key))).values(heartbeat_at=moment))

    def _keys(self, *where: ColumnElement[bool]) -> tuple[str, ...]:
        with self._database.transaction() as connection:
            wanted = select(runs.c.run).where(runs.c.superseded_by.is_(None), *where).order_by(runs.c.run)
            return tuple(connection.execute(wanted).scalars())

    def _update(self, row: Row[Any], columns: Columns) -> None:
        """Write the columns that differ; the runs must be judged again then."""
        changes = {name: value for name, value in columns.items() if value != getattr(row, name)}
        if changes:
            stale = Stale(self._database)
            stale.mark_runs([row.run])
            self._database.connection.execute(update(runs).where(runs.c.id == row.id).values(changes))
            stale.mark_runs([row.run])
            if REMEMBERED_FOR & changes.keys():
                stale.forget_verdicts([row.run])

    def _columns(
        self, connection: Connection, wanted: Wanted, starts: Starts, where: ColumnElement[bool]
    ) -> Iterator[Columns]:
        needed = [column for column in runs.c if wanted.names() or column.name not in _HEAVY]
        labeled = (labels.c.label, labels.c.why.label("label_why"), labels.c.who.label("label_who"))
        joined: Select[Any] = select(*needed, *labeled).outerjoin(labels, labels.c.run == runs.c.run)
        joined = joined.where(where, *_of(starts))
        accepted = {row.setup: row.at for row in connection.execute(select(accepts))}
        for row in connection.execute(joined):
            with reading(f"the run {row.run}"):
                columns = self._columns_of(row, wanted)
            yield {**columns, "accepted_at": accepted.get(row.setup)}

    def _columns_of(self, row: Row[Any], wanted: Wanted) -> Columns:
        templates = self._database.templates
        rows = rows_of(row, templates) if wanted.metrics else ()
        config = (
            templates.unpack_under(wanted.config, row.config_template, row.config) if wanted.config else {}
        )
        run, facts = identity_of(row, config=config, rows=rows), facts_of(row, self._database.plans, rows)
        return {
            **columns_of(run, facts),
            "run": row.run,
            "superseded": row.superseded_by is not None,
            **(wanted.columns_of(run, facts) if wanted.names() else {}),
            "label": row.label,
            "label_why": row.label_why,
            "label_who": row.label_who,
            "conflict": row.conflict,
        }


def _numbers(record: RunRecord) -> Iterator[tuple[int, str, float]]:
    """Yield the numbers of a policy's rows under the names that the run gave them."""
    for row in record.rows:
        for name, value in row.values.items():  # noqa: PD011 - not a DataFrame
            # W&B's own columns, such as _step, belong to the row and not to a policy.
            yield row.order, name if name.startswith("_") else f"{record.policy}/{name}", value


def selected(only: RunSelection | None) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that together select the runs, each of them once."""
    if only is None:
        yield true()
        return
    for some in chunks(only.setups, PAGE):
        yield runs.c.setup.in_(some)
    for some in chunks(only.keys, PAGE):
        yield runs.c.run.in_(some)


def _of(starts: Starts) -> list[ColumnElement[bool]]:
    return [runs.c.superseded_by.is_(None)] if starts == "newest" else []


def _of_run(key: str) -> ColumnElement[bool]:
    """Return what finds a run's row, or the rows of its policies."""
    # A range, and not a pattern: SQLite then uses the index of the keys.
    return or_(runs.c.run == key, and_(runs.c.run > f"{key}#", runs.c.run < f"{key}$"))


def _seen_at(row: Row[Any]) -> datetime | None:
    heartbeat: datetime | None = row.heartbeat_at
    if heartbeat is not None or row.written is None:
        return heartbeat
    return datetime.fromtimestamp(row.written / 1e9, UTC)
