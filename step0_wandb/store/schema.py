"""The tables of the store: one row a run, and what runs share in tables of its own.

To change a table, raise `VERSION` and add a migration that does the same to older files.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

from step0_wandb.store.codec import DamagedError

if TYPE_CHECKING:
    from sqlalchemy import Dialect

VERSION = 8
"""The version of the schema below; the migration that makes it has the same number."""
APPLICATION_ID = 0x53_74_65_70
"""Tells a store from the SQLite files of other programs ("Step"; ``PRAGMA application_id``)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(TypeDecorator[datetime]):
    """A moment, kept as microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Return what is stored."""
        del dialect
        return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Return the moment, in UTC."""
        del dialect
        try:
            return None if value is None else _EPOCH + timedelta(microseconds=value)
        except (TypeError, OverflowError) as error:
            raise DamagedError(f"{str(value)[:40]!r} is not a time") from error


def clean(text: str) -> str:
    """Return text as the store holds it: half a surrogate pair, which no file can hold, becomes ``?``."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Words(TypeDecorator[str]):
    """Text from outside."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return what is stored."""
        del dialect
        return None if value is None else clean(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text."""
        del dialect
        if value is not None and not isinstance(value, str):
            raise DamagedError(f"{str(value)[:40]!r} is not a text")
        return value


metadata = MetaData()

alembic_version = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))

sources = Table(
    "sources",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("source", Words, nullable=False, unique=True),
    Column("read_at", UtcTime),
    Column("cursor", Words),
)

templates = Table(
    "templates",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kind", Words, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
)
"""What documents of a kind have in common, see `codec`."""

plans = Table(
    "plans",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("body", Words, nullable=False, unique=True),
)
"""Check plans as JSON, each once."""

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run", Words, nullable=False, unique=True),
    # who the run is
    Column("entity", Words, nullable=False),
    Column("project", Words, nullable=False),
    Column("run_id", Words, nullable=False, index=True),
    Column("policy", Words),
    Column("start", Integer, nullable=False, server_default="1"),
    Column("superseded_by", Words, index=True),
    Column("origin", Words, nullable=False),
    Column("name", Words, nullable=False),
    Column("url", Words),
    Column("user", Words),
    Column("group", Words),
    Column("job_type", Words),
    Column("tags", Words),
    Column("created_at", UtcTime),
    Column("state", Words, nullable=False),
    Column("deleted_at", UtcTime),
    Column("heartbeat_at", UtcTime),
    # what it logged
    Column("config_template", ForeignKey("templates.id"), nullable=False),
    Column("config", LargeBinary, nullable=False),
    Column("rows_template", ForeignKey("templates.id"), nullable=False),
    Column("rows", LargeBinary, nullable=False),
    Column("conflict", Words),
    # what profiles and settings make of it
    Column("step0", Words, nullable=False),
    Column("profile", Words),
    Column("note", Words, nullable=False),
    Column("fit", Boolean, nullable=False),
    Column("step", Float),
    Column("ppo_kl", Float),
    Column("clip_frac", Float),
    Column("gap", Float),
    Column("gap_metric", Words),
    Column("nan_metrics", Words, nullable=False),
    Column("step0_row", Words),
    Column("setup", Words, index=True),
    Column("plan_id", ForeignKey("plans.id")),
    Column("observed", LargeBinary),
    Column("entropy", Float),
    Column("seed", Words),
    Column("data", Words),
    Column("prompts", Float),
    Index("ix_runs_newest", "entity", "project", "profile", "created_at"),
)
"""A row for each start of each policy of a run.

The newest start has the run's key; an earlier one has `superseded_key` and names the run's key in
``superseded_by``.
"""

run_sources = Table(
    "run_sources",
    metadata,
    Column("source_id", ForeignKey("sources.id"), primary_key=True),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True),
    sqlite_with_rowid=False,
)
"""Which source has shown which run."""

marks = Table(
    "marks",
    metadata,
    Column("source_id", ForeignKey("sources.id"), primary_key=True),
    Column("path", Words, primary_key=True),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), index=True),
    Column("size", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("settled", Boolean, nullable=False),
    sqlite_with_rowid=False,
)
"""How far each file was read."""

verdicts = Table(
    "verdicts",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("verdict", Words, nullable=False, index=True),
    Column("digest", LargeBinary, nullable=False),
    Column("template", ForeignKey("templates.id"), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("remembered", Boolean, nullable=False, server_default="0"),
)
"""What was made of each run when it was last judged; `changed_at` is when people last saw it change.

``remembered``: a later judgment has to know of this one. It does not where a person gave the verdict, or
where the run has another gap or setup by now.
"""

stale = Table(
    "stale",
    metadata,
    Column("kind", Words, primary_key=True),
    Column("name", Words, primary_key=True),
    sqlite_with_rowid=False,
)
"""The runs (by key) and setups that changed since they were judged."""

fits = Table(
    "fits",
    metadata,
    Column("setup", Words, primary_key=True),
    Column("metric", Words),
    Column("current", Integer, nullable=False),
    Column("levels", Words, nullable=False),
    Column("coverage", Words, nullable=False),
)
"""What judging each setup leaves for judging the others: a JSON list ``[n, mean, ss]`` a level, which of
them is in force, and what was not checked in how many of its runs."""

ranges = Table(
    "ranges",
    metadata,
    Column("setup", Words, primary_key=True),
    Column("profile", Words, nullable=False),
    Column("gap_metric", Words),
    Column("n", Integer, nullable=False),
    Column("center", Float),
    Column("low", Float),
    Column("high", Float),
    Column("seen_low", Float),
    Column("seen_high", Float),
    Column("sigma", Float),
    Column("df", Float),
    Column("alpha", Float, nullable=False),
    Column("basis", Words, nullable=False),
    Column("accepted", Boolean, nullable=False),
    Column("note", Words, nullable=False),
    Column("last_run", UtcTime),
    Column("moved", Float),
    Column("moved_since", UtcTime),
    Column("believed", Boolean, nullable=False, server_default="1"),
    Column("ppo_kl_noise", Float),
    Column("moved_runs", Integer, nullable=False, server_default="0"),
    Column("question", Words),
)

labels = Table(
    "labels",
    metadata,
    Column("run", Words, primary_key=True),
    Column("label", Words, nullable=False),
    Column("why", Words, nullable=False),
    Column("who", Words, nullable=False),
    Column("at", UtcTime, nullable=False),
)
"""By run key, not by row: a label may arrive before its run."""

accepts = Table(
    "accepts",
    metadata,
    Column("setup", Words, primary_key=True),
    Column("why", Words, nullable=False),
    Column("who", Words, nullable=False),
    Column("at", UtcTime, nullable=False),
)

mutes = Table(
    "mutes",
    metadata,
    Column("setup", Words, primary_key=True),
    Column("until", UtcTime, nullable=False),
    Column("who", Words, nullable=False),
    Column("at", UtcTime, nullable=False),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("channel", Words, nullable=False),
    Column("severity", Words, nullable=False),
    Column("title", Words, nullable=False),
    Column("text", Words, nullable=False),
    Column("entity", Words, nullable=False),
    Column("project", Words, nullable=False),
    Column("run_id", Words, nullable=False),
    Column("url", Words),
    Column("queued_at", UtcTime, nullable=False),
    Column("sent_at", UtcTime),
    Column("failure", Words),
)
"""Alerts as they go out; `sent_at` is set when the receiver took it, `failure` says why not."""

alerted = Table(
    "alerted",
    metadata,
    Column("channel", Words, primary_key=True),
    Column("subject", Words, primary_key=True),
    Column("level", Words, primary_key=True),
    Column("message", ForeignKey("outbox.id", ondelete="CASCADE"), index=True),
    Column("at", UtcTime, nullable=False),
    sqlite_with_rowid=False,
)
"""What has its alert, by run key or setup: no second one is made. Without a message, another store sent it."""

meta = Table(
    "meta",
    metadata,
    Column("key", Words, primary_key=True),
    Column("value", Words, nullable=False),
)
