"""Setups: when they last had a run, and the level that their runs have moved to."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add what people want to know of a setup."""
    op.add_column("ranges", sa.Column("last_run", sa.BigInteger))
    op.add_column("ranges", sa.Column("moved", sa.Float))
    op.add_column("ranges", sa.Column("moved_since", sa.BigInteger))
