"""Alerts: the outbox, what was alerted, what people muted, and when running runs were heard of."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add what alerts need."""
    op.add_column("runs", sa.Column("heartbeat_at", sa.BigInteger))
    op.create_table(
        "mutes",
        sa.Column("setup", sa.Text, primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer, primary_key=True),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("channel", "severity", "title", "text", "entity", "project", "run_id")
        ),
        sa.Column("url", sa.Text),
        sa.Column("queued_at", sa.BigInteger, nullable=False),
        sa.Column("sent_at", sa.BigInteger),
        sa.Column("failure", sa.Text),
    )
    op.create_table(
        "alerted",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("channel", "subject", "level")),
        sa.Column("message", sa.Integer, sa.ForeignKey("outbox.id", ondelete="CASCADE"), index=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
