"""The store's notes on itself: fingerprints, times, and whether its verdicts are of today."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.store.codec import parsed
from step0_wandb.store.schema import meta

if TYPE_CHECKING:
    from step0_wandb.records import Json
    from step0_wandb.store.database import Database

STALE = "stale"
"""True where something changed since the runs were judged last."""
CHANGED_AT = "changed_at"
"""When verdicts or ranges changed last, ISO 8601."""


def get(database: Database, key: str) -> Json:
    """Return a note; None where there is none."""
    with database.transaction() as connection:
        text = connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar()
    return parsed(text) if text is not None else None


def put(database: Database, key: str, value: Json) -> None:
    """Write a note, in place of an earlier one."""
    statement = upsert(meta).values(key=key, value=json.dumps(value, sort_keys=True))
    replace = {"value": statement.excluded.value}
    with database.transaction() as connection:
        connection.execute(statement.on_conflict_do_update(index_elements=["key"], set_=replace))
