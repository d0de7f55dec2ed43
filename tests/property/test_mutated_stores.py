"""A store with damage anywhere is read as it is, or refused as a damaged store: never a crash."""

import json
import random
import sqlite3
from contextlib import closing

import pytest

from step0_wandb.errors import StoreError
from step0_wandb.store import Accept, Label, Message, Mute, Store, Subject
from step0_wandb.store.schema import metadata
from step0_wandb.text.json_documents import plain
from tests.support.judged import judged, setup_range
from tests.support.stored import DISK, LATER, NOW, SERVER, SETUP, from_disk, from_server

EACH = 50


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the bytes of a store that has something of everything."""
    path = tmp_path_factory.mktemp("store") / "step0.db"
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server(name) for name in "abc"], now=NOW)
        store.sources.save_readings(DISK, [from_disk("d", gap=0.063)], now=NOW)
        store.sources.save_cursor(SERVER, {"page": "x"})
        keys = store.runs.keys()
        runs = [judged(run=key, verdict="broken") for key in keys]
        store.verdicts.save(runs, [setup_range()], now=NOW)
        store.people.save(Label("team/rl/a", "broken", "saw it", "mia", NOW))
        store.people.save(Accept(SETUP, "new image", "mia", NOW))
        store.people.save(Mute(SETUP, LATER, "mia", NOW))
        subject = Subject("team/rl/a", "broken")
        store.outbox.add(Message("wandb", "ERROR", "t", "text", "team", "rl", "a", None, (subject,)), now=NOW)
    return path.read_bytes()


def read_everything(store):
    frame = store.runs.frame(config=["args.lr"], metrics=["train/step"], starts="all")
    json.dumps([plain(run) for run in store.verdicts.iterate()])
    for record in store.runs.records(starts="all"):
        store.runs.facts(record.key)
    store.verdicts.ranges(), store.verdicts.counts(), store.notes.stale
    people, outbox, sources = store.people, store.outbox, store.sources
    people.labels(), people.accepts(), people.mutes(), people.retractions()
    outbox.unsent(), outbox.sent(), outbox.alerted("wandb")
    sources.states(), sources.memory(SERVER), sources.memory(DISK)
    return frame


def try_all(path):
    """Read the store and write to it; whatever is damaged must be told as the store's damage."""
    for mode in ("read", "write"):
        try:
            with Store.open(path, mode=mode) as store:
                read_everything(store)
                if mode == "write":
                    store.sources.save_readings(SERVER, [from_server("a"), from_server("e")], now=LATER)
        except StoreError as error:
            assert "\n" not in error.message  # noqa: PT017 - every other error fails the test


@pytest.mark.parametrize(
    "seed", [pytest.param(at, marks=[pytest.mark.full_grid] if at >= 2 else []) for at in range(100)]
)
def test_flipped_bytes_anywhere_are_damage_of_the_store(whole, tmp_path, seed):
    rng = random.Random(seed)  # noqa: S311 - the same damage each time
    for _ in range(EACH):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 1, 8, 64])):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path = tmp_path / "step0.db"
        path.write_bytes(damaged)
        try_all(path)


ODD = [10**18, -1, 2**63 - 1, "text", b"\xff\xfe", "\x1b[2J", 1e999, None, ""]


def cells():

    return [
        (table.name, column.name)
        for table in metadata.sorted_tables
        for column in table.columns
        if table.name != "alembic_version"
    ]


@pytest.mark.parametrize(("table", "column"), cells(), ids=lambda name: name)
def test_odd_values_in_any_column_are_damage_of_the_store(whole, tmp_path, table, column):
    for odd in ODD:
        path = tmp_path / "step0.db"
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA ignore_check_constraints = 1")
            try:
                connection.execute(f'UPDATE OR REPLACE "{table}" SET "{column}" = ?', (odd,))  # noqa: S608
                connection.commit()
            except sqlite3.IntegrityError:
                continue
        try_all(path)
