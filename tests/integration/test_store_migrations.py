"""Older files are upgraded with everything in them, and newer ones are refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from step0_wandb.errors import StoreError
from step0_wandb.store import Label, Store, versions
from step0_wandb.store.schema import APPLICATION_ID, VERSION, metadata
from tests.support.judged import judged, setup_range
from tests.support.stored import DISK, NOW, SETUP, facts, from_disk, mark, python

FIRST = Path(__file__).with_name("test_store_v1.sql")
HEALTHY, BROKEN = "_/rl/aa000000", "_/rl/aa000001"


@pytest.fixture
def old(tmp_path):
    """Return the path of a store of schema version 1 with two runs."""
    path = tmp_path / "step0.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST.read_text(encoding="utf-8"))
    return path


def version_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchall()


def shape_of(connection):
    """Return every table with its columns, keys and indexes, as SQLite itself tells them."""
    query = connection.exec_driver_sql
    names = query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").scalars().all()
    return {
        name: (
            sorted(tuple(row)[1:] for row in query(f"PRAGMA table_info({name})")),
            sorted(tuple(row)[2:] for row in query(f"PRAGMA foreign_key_list({name})")),
            sorted(
                (index[2], index[3], [tuple(row)[2] for row in query(f"PRAGMA index_info({index[1]})")])
                for index in query(f"PRAGMA index_list({name})")
            ),
        )
        for name in names
    }


def assert_holds_what_was_written(store):
    assert store.runs.keys() == store.runs.keys(source=DISK) == (HEALTHY, BROKEN)
    assert store.runs.record(HEALTHY) == from_disk("aa000000")[0].record
    assert store.runs.record(BROKEN).config == {
        "hf_checkpoint": "/models/Qwen3-0.6B",
        "args": {"lr": 1e-6, "seed": 2},
    }
    assert store.runs.facts(HEALTHY) == facts()
    assert store.people.labels() == {BROKEN: Label(BROKEN, "broken", "wrong checkpoint", "mia", NOW)}
    assert store.people.accepts()[SETUP].why == "new image"
    assert store.sources.memory(DISK).marks[mark("aa000001").path] == mark("aa000001", run=BROKEN)
    first, second = store.verdicts.runs()
    assert (first.run, first.verdict, first.reasons) == (BROKEN, "broken", ("several times its range",))
    assert (second.verdict, second.ratio, second.range) == ("healthy", judged().ratio, setup_range())
    assert store.verdicts.ranges() == [setup_range()]
    assert store.notes.get("profiles") is None  # the next sync makes the facts again from what is stored
    assert store.sources.cursor(DISK) is None


def test_opening_an_older_store_upgrades_it_with_all_it_holds(old):
    with Store.open(old, mode="write") as store:
        assert_holds_what_was_written(store)
        assert store.notes.stale  # its ranges say less than those of today
        store.sources.save_cursor(DISK, {"page": 1})
        store.runs.mark_deleted([HEALTHY], now=NOW)
    assert version_of(old) == [(f"{VERSION:04d}",)]
    with Store.open(old, mode="read") as store:
        assert store.sources.cursor(DISK) == {"page": 1}


@pytest.mark.parametrize("mode", ["read", "copy"])
def test_reading_an_older_store_works_and_leaves_it_as_it_is(old, mode):
    before = old.read_bytes()
    with Store.open(old, mode=mode) as store:
        assert_holds_what_was_written(store)
    assert old.read_bytes() == before
    assert version_of(old) == [("0001",)]


def test_an_upgrade_that_fails_leaves_the_old_store(old, monkeypatch):
    def upgrade(connection):
        connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN half TEXT")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0002'")
        raise sqlite3.OperationalError

    with closing(sqlite3.connect(old)) as connection:
        before = list(connection.iterdump())
    monkeypatch.setattr(versions, "upgrade", upgrade)
    with pytest.raises(sqlite3.OperationalError):
        Store.open(old, mode="write")
    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before
    monkeypatch.undo()
    with Store.open(old, mode="write") as store:
        assert_holds_what_was_written(store)


@pytest.mark.parametrize("mode", ["write", "read", "copy"])
def test_a_newer_store_is_refused_with_both_versions_and_not_touched(old, mode):
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
        connection.commit()
    before = old.read_bytes()
    with pytest.raises(
        StoreError, match=f"version 99; this step0-wandb knows versions up to {VERSION}\n"
    ) as caught:
        Store.open(old, mode=mode)
    assert "Upgrade step0-wandb" in caught.value.hint
    assert old.read_bytes() == before


def test_the_migrations_make_what_a_new_store_gets():
    shapes = []
    for make in (versions.create, versions.upgrade):
        with create_engine("sqlite://").connect() as connection:
            make(connection)
            shapes.append(shape_of(connection))
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    assert shapes[0] == shapes[1]
    assert {"runs", "verdicts", "labels"} < shapes[0].keys()


def test_every_version_has_one_migration_and_the_last_is_the_schemas():
    scripts = ScriptDirectory(Path(versions.__file__).with_name("migrations"))
    assert [script.revision for script in scripts.walk_revisions()] == [
        f"{number:04d}" for number in range(VERSION, 0, -1)
    ]
    assert scripts.get_current_head() == f"{VERSION:04d}"


def test_a_new_store_says_whose_it_is(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write"):
        pass
    with closing(sqlite3.connect(tmp_path / "step0.db")) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert version_of(tmp_path / "step0.db") == [(f"{VERSION:04d}",)]


def test_alembic_and_pandas_load_only_where_they_are_needed(tmp_path, old):
    code = """
import sys
from step0_wandb.store import Store
heavy = lambda: sorted({"alembic", "pandas", "numpy", "scipy"} & sys.modules.keys())
with Store.open(sys.argv[1], mode="write") as store:
    store.verdicts.save((), (), now=__import__("datetime").datetime.now())
with Store.open(sys.argv[1], mode="read") as store:
    store.verdicts.runs(), store.verdicts.ranges(), store.sources.states(), store.people.labels()
print(heavy())
Store.open(sys.argv[2], mode="write").close()
print(heavy())
"""
    said, _ = python(code, tmp_path / "new.db", old).communicate()
    assert said == "[]\n['alembic']\n"


def test_an_older_store_is_copied_before_it_is_upgraded(old):
    before = Store.of_image(old.read_bytes(), path=old).runs.keys()
    Store.open(old, mode="write").close()
    copy = old.with_name("step0.db.v1")
    assert (copy.stat().st_mode & 0o777, version_of(copy)) == (0o600, [("0001",)])
    assert Store.of_image(copy.read_bytes(), path=copy).runs.keys() == before
    Store.open(old, mode="write").close()
    assert sorted(path.name for path in old.parent.iterdir()) == ["step0.db", "step0.db.lock", copy.name]
