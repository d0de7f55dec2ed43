"""Runs: their policies, and the starts before the newest one."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add what tells policies and starts apart, and have runs with several directories read again."""
    op.add_column("runs", sa.Column("policy", sa.Text))
    op.add_column("runs", sa.Column("start", sa.Integer, nullable=False, server_default="1"))
    op.add_column("runs", sa.Column("superseded_by", sa.Text))
    op.create_index("ix_runs_superseded_by", "runs", ["superseded_by"])
    # Each directory may be a start of its own; until now only the first was judged.
    op.execute("DELETE FROM marks WHERE run IN (SELECT run FROM marks GROUP BY run HAVING count(*) > 1)")
