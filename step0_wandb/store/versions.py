"""Which schema a file has, and how it gets the one this program uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from step0_wandb.errors import StoreError
from step0_wandb.store.schema import APPLICATION_ID, VERSION, alembic_version, metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection

EMPTY = 0
"""The version of a file without any table."""


def version_of(connection: Connection, path: Path) -> int:
    """Return the schema version of an open file; nothing is changed.

    Raises
    ------
    StoreError
        The file belongs to another program, or to a newer version of this one.
    """
    application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    tables = connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars().all()
    if application == 0 and not tables:
        return EMPTY
    if application != APPLICATION_ID or alembic_version.name not in tables:
        raise StoreError(
            f"{path} is a database of another program, not a step0-wandb store",
            "Name another file with --store; this one was not touched.",
        )
    version = int(connection.execute(select(alembic_version.c.version_num)).scalar_one())
    if version > VERSION:
        raise StoreError(
            f"the store {path} has schema version {version}; this step0-wandb knows versions up to {VERSION}",
            "Upgrade step0-wandb, or name another file with --store; this one was not touched.",
        )
    return version


def create(connection: Connection) -> None:
    """Make all tables in an empty file, inside the caller's transaction."""
    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
    metadata.create_all(connection)
    connection.execute(insert(alembic_version).values(version_num=f"{VERSION:04d}"))


def upgrade(connection: Connection, to: str = "head") -> None:
    """Bring an older file to the current schema, inside the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    command.upgrade(config, to)
