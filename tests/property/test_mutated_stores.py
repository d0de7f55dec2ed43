"""A store with damage anywhere is read as it is, or refused as a damaged store: never a crash."""

import json
import random
import sqlite3
import zlib
from contextlib import closing

import pytest

from step0_wandb.errors import StoreError
from step0_wandb.publish.wandb.memory import Memory
from step0_wandb.sources.server.progress import Progress
from step0_wandb.store import Accept, Label, Message, Mute, Store, Subject, kept
from step0_wandb.store.schema import metadata
from step0_wandb.text.json_documents import plain
from tests.property.test_state_mutations import places, replaced
from tests.support.judged import judged, setup_range
from tests.support.stored import DISK, LATER, NOW, SERVER, SETUP, from_disk, from_server

EACH = 50
PROGRESS = {
    "version": 1, "profiles": "p", "since": "2026-11-01T08:00:00+00:00",
    "recent": {"a": "2026-11-01T08:10:00+00:00"}, "pending": ["b"], "watched": {"c": "0f"}, "lost": {"z": "why"},
    "count": 3, "surplus": 0, "metrics": ["train/ppo_kl"], "flat_until": "2026-11-02T08:00:00+00:00",
    "marks": {"c": [3, ["w1"]]}, "heard": "2026-11-01T08:00:00+00:00", "named_from": "2026-11-01T08:00:00+00:00",
}  # fmt: skip
MEMORY = {
    "marks": {"tables": "a1"}, "report": "Vm", "seen": ["v1"], "refused_at": "2026-11-01T08:00:00+00:00",
    "claims": {"m2": [["webhook", "team/rl/a", "broken", "2026-11-01T08:00:00+00:00"]]},
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return whole_store(tmp_path_factory.mktemp("store") / "step0.db")


def whole_store(path):
    """Return the bytes of a store that has something of everything."""
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server(name) for name in "abc"], now=NOW)
        store.sources.save_readings(DISK, [from_disk("d", gap=0.063)], now=NOW)
        store.sources.save_cursor(SERVER, PROGRESS)
        store.notes.put("state:team/rl", MEMORY)
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
    """Read what a sync and every other command reads."""
    Progress.load(store.sources.cursor(SERVER), now=LATER)
    Memory.load(store.notes.get("state:team/rl"))
    kept.load_goodness(store), kept.load_weight_checks(store), kept.load_coverage(store)
    frame = store.runs.frame(config=["args.lr"], metrics=["train/step"], starts="all")
    json.dumps([plain(run) for run in store.verdicts.iterate()])
    for record in store.runs.records(starts="all"):
        store.runs.facts(record.key)
    store.notes.changed_at, store.verdicts.remembered()
    store.verdicts.ranges(), store.verdicts.counts(), store.notes.stale
    people, outbox, sources = store.people, store.outbox, store.sources
    people.labels(), people.accepts(), people.mutes(), people.retractions()
    outbox.unsent(), outbox.sent(), outbox.alerted("wandb")
    sources.states(), sources.memory(SERVER), sources.memory(DISK)
    return frame


def use(path):
    """Read the store, and read and write it as a sync does."""
    for mode in ("read", "write"):
        with Store.open(path, mode=mode) as store:
            read_everything(store)
            if mode == "write":
                store.sources.save_readings(SERVER, [from_server("a"), from_server("e")], now=LATER)


def try_all(path):
    """Use the store; whatever is damaged must be told as the store's damage."""
    try:
        use(path)
    except StoreError as error:
        assert "\n" not in error.message  # noqa: PT017 - every other error fails the test


def listed(path):
    """Return the keys of the runs that a reader finds."""
    with Store.open(path, mode="read") as store:
        return store.runs.keys()


@pytest.mark.parametrize(
    "seed", [pytest.param(at, marks=[pytest.mark.full_grid] if at >= 2 else []) for at in range(100)]
)
def test_flipped_bytes_anywhere_are_damage_of_the_store(whole, tmp_path, seed, pytestconfig):
    rng = random.Random(seed)  # noqa: S311 - the same damage each time
    for _ in range(EACH if pytestconfig.getoption("--full-grid") else EACH // 5):
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


def change(path, table, column, new):
    """Put another value into all rows of a column, as far as the table's own rules allow; return whether."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA ignore_check_constraints = 1")
        rows = connection.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall()  # noqa: S608
        try:
            for (old,) in rows:
                update = f'UPDATE OR REPLACE "{table}" SET "{column}" = ? WHERE "{column}" IS ?'  # noqa: S608
                connection.execute(update, (new(old), old))
            connection.commit()
        except sqlite3.IntegrityError:
            return False
    return True


@pytest.mark.parametrize("table", sorted({table for table, _ in cells()}))
def test_odd_values_in_any_column_are_damage_of_the_store(whole, tmp_path, table, pytestconfig):
    amount = 3 if pytestconfig.getoption("--full-grid") else 1
    columns = [column for owner, column in cells() if owner == table]
    choices = [
        (column, odd)
        for column in columns
        for odd in random.Random(f"{table}.{column}").sample(ODD, amount)  # noqa: S311 - the same each time
    ]
    for column, odd in choices:
        path = tmp_path / "step0.db"
        path.write_bytes(whole)
        if change(path, table, column, lambda _old, odd=odd: odd):
            try_all(path)


DOCUMENTS = [
    ("sources", "cursor"), ("meta", "value"), ("plans", "body"), ("runs", "tags"), ("runs", "step0_row"),
    ("runs", "config"), ("runs", "rows"), ("verdicts", "body"), ("templates", "body"),
]  # fmt: skip
"""Columns that hold JSON, as text or packed."""
NEWS = [
    "",
    "later",
    -1,
    7,
    1e308,
    True,
    None,
    [],
    {},
    ["later"],
    {"later": 1},
    "2026-13-41T25:61:00",
    "0001-01-01",
]


def another(stored, noise):
    """Return a stored document in which one value is another, or that has a field of a later program."""
    if not stored or isinstance(stored, int | float):
        return stored
    text = zlib.decompress(stored, -15) if isinstance(stored, bytes) else stored.encode()
    head, zero, planes = text.partition(b"\0")
    document = json.loads(head)
    at = noise.choice(list(places(document)))
    if noise.random() < 0.3:
        digits = [place for place, byte in enumerate(head) if 48 <= byte < 58]
        if digits:
            place = noise.choice(digits)
            head = head[:place] + noise.choice(b"0123456789").to_bytes() + head[place + 1 :]
    else:
        old = value_at(document, at)
        new = {**old, "later": 1} if isinstance(old, dict) and noise.random() < 0.5 else noise.choice(NEWS)
        head = json.dumps(replaced(document, at, new)).encode()
    text = head + zero + planes
    return zlib.compress(text, 9, -15) if isinstance(stored, bytes) else text.decode()


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


@pytest.mark.parametrize(("table", "column"), DOCUMENTS, ids=lambda name: name)
def test_another_value_in_a_stored_document_is_damage_or_taken_as_it_is(whole, tmp_path, table, column):
    """``tests.benchmarks.mutations stores`` is the long form."""
    noise = random.Random(f"{table}.{column}")  # noqa: S311 - the same damage each time
    path = tmp_path / "step0.db"
    for _ in range(4):
        path.write_bytes(whole)
        change(path, table, column, lambda old: another(old, noise))
        try_all(path)
