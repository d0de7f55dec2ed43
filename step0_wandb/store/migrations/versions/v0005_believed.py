"""Setups: whether their level is believed, and how large a ppo_kl is taken for noise."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add what single runs are judged by, and let the next sync fill it in."""
    op.add_column("ranges", sa.Column("believed", sa.Boolean, nullable=False, server_default="1"))
    op.add_column("ranges", sa.Column("ppo_kl_noise", sa.Float))
    op.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('stale', 'true')")
