"""What judging each setup leaves for judging the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import delete, insert, select

from step0_wandb.records import SetupFit, chunks
from step0_wandb.store.codec import parsed, reading
from step0_wandb.store.schema import clean, fits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from step0_wandb.records import Json
    from step0_wandb.store.database import Database

_SOME = 500


@dataclass(frozen=True, slots=True)
class KeptFit:
    """The fit of a setup, and what was not checked in its runs (see `verdicts.coverage`)."""

    fit: SetupFit
    coverage: Json


class FitStore:
    """Fits by setup."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> dict[str, KeptFit]:
        """Return what is kept of every setup."""
        with self._database.transaction() as connection, reading("a fit"):
            found = connection.execute(select(fits).order_by(fits.c.setup)).all()
            return {row.setup: _kept(row) for row in found}

    def replace(self, kept: Iterable[KeptFit], setups: Collection[str]) -> None:
        """Write what is kept of some setups; nothing stays of those of `setups` that are not in it."""
        rows = [
            {
                "setup": one.fit.setup,
                "metric": one.fit.metric,
                "current": one.fit.current,
                "levels": json.dumps(one.fit.levels),
                "coverage": json.dumps(one.coverage),
            }
            for one in kept
        ]
        with self._database.transaction() as connection:
            for some in chunks(map(clean, setups), _SOME):
                connection.execute(delete(fits).where(fits.c.setup.in_(some)))
            if rows:
                connection.execute(insert(fits), rows)


def _kept(row: Any) -> KeptFit:
    levels = tuple((int(n), float(mean), float(ss)) for n, mean, ss in cast("Any", parsed(row.levels)))
    return KeptFit(SetupFit(row.setup, row.metric, row.current, levels), parsed(row.coverage))
