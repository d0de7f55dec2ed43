"""Runs from W&B projects: where reading stopped, and which runs the server has deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add what a server source remembers."""
    op.add_column("sources", sa.Column("cursor", sa.Text))
    op.add_column("runs", sa.Column("deleted_at", sa.BigInteger))
