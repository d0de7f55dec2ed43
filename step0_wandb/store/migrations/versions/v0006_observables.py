"""Runs: the numbers of their observables; old runs get them from their rows at the next sync."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column, and let the next sync make the facts of every run again from what is stored."""
    op.add_column("runs", sa.Column("observed", sa.LargeBinary))
    op.execute("DELETE FROM meta WHERE key = 'profiles'")
    op.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('stale', 'true')")
