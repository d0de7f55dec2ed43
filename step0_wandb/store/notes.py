"""The store's notes on itself: fingerprints, times, and whether its verdicts are up to date."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert as upsert

from step0_wandb.store.codec import parsed, reading
from step0_wandb.store.schema import meta, stale

if TYPE_CHECKING:
    from collections.abc import Callable

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database

_Built = TypeVar("_Built")
STALE = "stale"
"""The note that everything has to be judged again; the table of that name has what changed alone."""
CHANGED_AT = "changed_at"
"""The note of when verdicts or ranges last changed, ISO 8601."""


class Notes:
    """JSON values by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> Json:
        """Return a note; None where there is none."""
        return self.load(key, lambda value: value)

    def load(self, key: str, build: Callable[[Json], _Built]) -> _Built:
        """Return what `build` makes of a note, or of None; what it cannot take is damage of the store."""
        with self._database.transaction() as connection, reading(f"the note {key!r}"):
            text = connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar()
            return build(parsed(text) if text is not None else None)

    def put(self, key: str, value: Json) -> None:
        """Write a note, replacing an earlier one."""
        statement = upsert(meta).values(key=key, value=json.dumps(value, sort_keys=True))
        replace = {"value": statement.excluded.value}
        with self._database.transaction() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["key"], set_=replace))

    @property
    def changed_at(self) -> datetime | None:
        """Return when verdicts or ranges last changed, in UTC; None before the first."""
        return self.load(CHANGED_AT, lambda text: datetime.fromisoformat(str(text)) if text else None)

    @property
    def stale(self) -> bool:
        """Return whether runs, labels, accepted setups or settings changed since runs were last judged."""
        with self._database.transaction() as connection:
            some = connection.execute(select(stale.c.name).limit(1)).first()
        return some is not None or bool(self.get(STALE))

    def mark_stale(self) -> None:
        """Note that all runs must be judged again."""
        if not self.get(STALE):
            self.put(STALE, value=True)
