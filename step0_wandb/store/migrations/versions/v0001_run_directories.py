"""Runs from W&B run directories, with their verdicts and what people say of them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    _create_shared()
    _create_runs()
    _create_verdicts()
    _create_words_of_people()


def _create_shared() -> None:
    op.create_table(
        "sources",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("source", sa.Text, nullable=False, unique=True),
        sa.Column("read_at", sa.BigInteger),
    )
    op.create_table(
        "templates",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("body", sa.Text, nullable=False, unique=True),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run", sa.Text, nullable=False, unique=True),
        sa.Column("entity", sa.Text, nullable=False),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False, index=True),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text),
        sa.Column("user", sa.Text),
        sa.Column("group", sa.Text),
        sa.Column("job_type", sa.Text),
        sa.Column("tags", sa.Text),
        sa.Column("created_at", sa.BigInteger),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("config_template", sa.Integer, sa.ForeignKey("templates.id"), nullable=False),
        sa.Column("config", sa.LargeBinary, nullable=False),
        sa.Column("rows_template", sa.Integer, sa.ForeignKey("templates.id"), nullable=False),
        sa.Column("rows", sa.LargeBinary, nullable=False),
        sa.Column("conflict", sa.Text),
        sa.Column("step0", sa.Text, nullable=False),
        sa.Column("profile", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("fit", sa.Boolean, nullable=False),
        sa.Column("step", sa.Float),
        sa.Column("ppo_kl", sa.Float),
        sa.Column("clip_frac", sa.Float),
        sa.Column("gap", sa.Float),
        sa.Column("gap_metric", sa.Text),
        sa.Column("nan_metrics", sa.Text, nullable=False),
        sa.Column("step0_row", sa.Text),
        sa.Column("setup", sa.Text),
        sa.Column("plan_id", sa.Integer, sa.ForeignKey("plans.id")),
    )
    op.create_table(
        "run_sources",
        sa.Column("source_id", sa.Integer, sa.ForeignKey("sources.id"), primary_key=True),
        sa.Column(
            "run", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "marks",
        sa.Column("source_id", sa.Integer, sa.ForeignKey("sources.id"), primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("run", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), index=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("settled", sa.Boolean, nullable=False),
        sqlite_with_rowid=False,
    )


def _create_verdicts() -> None:
    op.create_table(
        "verdicts",
        sa.Column("run", sa.Integer, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("template", sa.Integer, sa.ForeignKey("templates.id"), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )
    numbers = ("center", "low", "high", "seen_low", "seen_high", "sigma", "df")
    op.create_table(
        "ranges",
        sa.Column("setup", sa.Text, primary_key=True),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("gap_metric", sa.Text),
        sa.Column("n", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Float) for name in numbers),
        sa.Column("alpha", sa.Float, nullable=False),
        sa.Column("basis", sa.Text, nullable=False),
        sa.Column("accepted", sa.Boolean, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )


def _create_words_of_people() -> None:
    op.create_table(
        "labels",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "accepts",
        sa.Column("setup", sa.Text, primary_key=True),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
