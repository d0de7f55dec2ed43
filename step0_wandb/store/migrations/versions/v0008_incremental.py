"""What a sync needs to judge only the setups that changed."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add it, and let the next sync make the facts of every run again and judge them all."""
    op.add_column("runs", sa.Column("entropy", sa.Float))
    op.add_column("runs", sa.Column("seed", sa.Text))
    op.add_column("runs", sa.Column("data", sa.Text))
    op.add_column("runs", sa.Column("prompts", sa.Float))
    op.add_column("ranges", sa.Column("moved_runs", sa.Integer, nullable=False, server_default="0"))
    op.add_column("ranges", sa.Column("question", sa.Text))
    op.create_index("ix_runs_setup", "runs", ["setup"])
    op.create_index("ix_runs_newest", "runs", ["entity", "project", "profile", "created_at"])
    op.add_column("verdicts", sa.Column("remembered", sa.Boolean, nullable=False, server_default="0"))
    op.create_index("ix_verdicts_verdict", "verdicts", ["verdict"])
    op.create_table(
        "stale",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fits",
        sa.Column("setup", sa.Text, primary_key=True),
        sa.Column("metric", sa.Text),
        sa.Column("current", sa.Integer, nullable=False),
        sa.Column("levels", sa.Text, nullable=False),
        sa.Column("coverage", sa.Text, nullable=False),
    )
    op.execute("DELETE FROM meta WHERE key = 'profiles'")
    op.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('stale', 'true')")
