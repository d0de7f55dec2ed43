"""Opening the store: who may, what is left behind, and what is said when it does not work."""

import errno
import os
import signal
import sqlite3
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from step0_wandb.errors import StoreBusyError, StoreError
from step0_wandb.store import Store, store_exists
from step0_wandb.store.file import _Stamp
from tests.support.stored import KEY, NOW, SERVER, as_nobody, from_server, python

HOLD = """
import sys
from step0_wandb.store import Store, store_exists
from tests.support.stored import NOW, SERVER, from_server
store = Store.open(sys.argv[1], mode="write")
with store.transaction():
    store.sources.save_readings(SERVER, [from_server(f"b{at}") for at in range(2000)], now=NOW)
    print("written", flush=True)
    sys.stdin.readline()
store.close()
print("closed", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "step0.db"


@pytest.fixture
def filled(path):
    """Return the path of a store with one run."""
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server()], now=NOW)
    return path


@pytest.fixture
def open_folder():
    """Return a folder that other users may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def picture(path):
    return path.read_bytes(), path.stat().st_mtime_ns, names(path.parent)


def keys_of(path, mode="read"):
    with Store.open(path, mode=mode) as store:
        return store.runs.keys()


def make(path, script):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


# ── writing ────────────────────────────────────────────────────────────────


def test_a_store_is_made_where_there_is_none_with_the_folders_to_it(tmp_path):
    path = tmp_path / "new" / "folder" / "step0.db"
    assert keys_of(path, "write") == ()
    assert names(path.parent) == ["step0.db", "step0.db.lock"]


@pytest.mark.parametrize("name", ["with space#and?mode=ro.db", "ünï%20.db", "-.db"])
def test_any_file_name_will_do(tmp_path, name):
    path = tmp_path / name
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server()], now=NOW)
    assert keys_of(path) == (KEY,)
    assert names(tmp_path) == sorted([name, f"{name}.lock"])


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    assert keys_of(path, "write") == ()
    assert path.stat().st_size > 0


def test_the_file_writes_ahead_checks_its_links_and_syncs_at_checkpoints(filled):
    with Store.open(filled, mode="write") as store, store._database.transaction() as connection:
        pragmas = ("journal_mode", "foreign_keys", "synchronous")
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    assert found == ["wal", 1, 1]


def test_two_writers_at_once_one_is_told_who_has_the_store(filled):
    with Store.open(filled, mode="write"), pytest.raises(StoreBusyError) as caught:
        Store.open(filled, mode="write")
    assert str(filled) in caught.value.message
    assert f"process {os.getpid()} " in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 6
    assert keys_of(filled, "write") == (KEY,)


def test_another_process_keeps_writers_out_and_lets_readers_see_what_was_there(filled):
    holder = python(HOLD, filled)
    assert holder.stdout.readline() == "written\n"
    with pytest.raises(StoreBusyError, match=f"process {holder.pid} "):
        Store.open(filled, mode="write")
    assert keys_of(filled) == keys_of(filled, "copy") == (KEY,)
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "closed\n"
    assert len(keys_of(filled)) == 2001
    holder.communicate("\n")


def test_a_writer_killed_in_a_transaction_leaves_the_store_as_it_was(filled):
    holder = python(HOLD, filled)
    assert holder.stdout.readline() == "written\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert keys_of(filled) == (KEY,)
    with Store.open(filled, mode="write") as store:
        assert store.runs.keys() == (KEY,)
        store.sources.save_readings(SERVER, [from_server("b")], now=NOW)
    assert keys_of(filled) == (KEY, "team/rl/b")


def test_a_full_disk_changes_nothing(filled):
    with Store.open(filled, mode="write") as store:
        with store._database.transaction() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="disk is full") as caught:
            store.sources.save_readings(SERVER, [from_server(f"b{at}") for at in range(500)], now=NOW)
        assert caught.value.hint
        assert store.runs.keys() == (KEY,)
    assert keys_of(filled) == (KEY,)


def test_a_file_that_may_not_grow_is_no_traceback(path):
    code = """
import resource, sys
from step0_wandb.errors import StoreError
from step0_wandb.store import Store, store_exists
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
try:
    Store.open(sys.argv[1], mode="write")
except StoreError as error:
    print(error.message)
"""
    said, _ = python(code, path).communicate()
    assert said.startswith(f"the store {path} cannot be ")


def test_another_program_in_the_file_is_waited_for_and_then_told(filled, monkeypatch):
    monkeypatch.setattr("step0_wandb.store.file._WAIT_S", 0.05)
    with closing(sqlite3.connect(filled, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match="locked by another program") as caught:
            Store.open(filled, mode="write")
        assert caught.value.hint
    assert keys_of(filled, "write") == (KEY,)


# ── what is no store ───────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["write", "read", "copy"])
@pytest.mark.parametrize(
    "content", [b"not a database", b"SQLite format 3\0" + b"x" * 5000, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_database_is_refused_and_not_touched(path, content, mode):
    path.write_bytes(content)
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(StoreError, match=r"database|damaged") as caught:
        Store.open(path, mode=mode)
    assert caught.value.hint
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("mode", ["write", "read", "copy"])
@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE notes (x)",
        "CREATE TABLE runs (run TEXT)",
        "PRAGMA application_id = 1398022256",
        "PRAGMA journal_mode = WAL; CREATE TABLE t (x)",
    ],
    ids=["tables", "a table of ours", "an id and no tables", "wal"],
)
def test_a_database_of_another_program_is_refused_and_not_touched(path, script, mode):
    make(path, script)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path, mode=mode)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["write", "read", "copy"])
def test_a_directory_is_no_store(tmp_path, mode):
    with pytest.raises(StoreError, match="directory"):
        Store.open(tmp_path, mode=mode)
    assert names(tmp_path) == []
    assert not (tmp_path.parent / f"{tmp_path.name}.lock").exists()


def test_a_damaged_store_is_told_and_nothing_else_is_lost(filled):
    with Store.open(filled, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server(f"b{at}") for at in range(500)], now=NOW)
    data = bytearray(filled.read_bytes())
    data[16384 * 2 :] = b"\xff" * len(data[16384 * 2 :])
    filled.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"), Store.open(filled, mode="read") as store:
        list(store.runs.records())
    assert filled.read_bytes() == data


def test_a_value_that_is_damaged_is_told_like_a_damaged_file(filled):
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("update templates set body = x'00ff'")
    with Store.open(filled, mode="read") as store, pytest.raises(StoreError, match="is damaged") as caught:
        list(store.runs.records())
    assert caught.value.hint.startswith("Move it away")


def test_a_damaged_name_in_the_schema_is_told_too(filled):
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("pragma writable_schema = 1")
        connection.execute("update sqlite_master set name = cast(x'c328' as text) where name = 'runs'")
    with pytest.raises(StoreError, match="is damaged"):
        Store.open(filled, mode="write")


@pytest.mark.parametrize("mode", ["read", "write", "copy"])
def test_a_pipe_is_no_store_and_nobody_is_waited_for(tmp_path, mode):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a regular file"):
        Store.open(tmp_path / "pipe", mode=mode)
    assert names(tmp_path) == ["pipe"]


def test_whether_there_is_a_store_is_not_guessed(open_folder):
    assert not store_exists(open_folder / "step0.db")
    with pytest.raises(StoreError, match="too long"):
        store_exists(open_folder / ("x" * 300))
    (open_folder / "closed").mkdir(mode=0)
    with as_nobody(), pytest.raises(StoreError, match="Permission denied"):
        store_exists(open_folder / "closed" / "step0.db")


@pytest.mark.parametrize("mode", ["write", "read"])
def test_a_path_below_a_file_is_no_traceback(filled, mode):
    with pytest.raises(StoreError):
        Store.open(filled / "step0.db", mode=mode)


# ── reading ────────────────────────────────────────────────────────────────


def test_reading_makes_no_store_and_says_what_does(path):
    with pytest.raises(StoreError, match="no store") as caught:
        Store.open(path, mode="read")
    assert "sync" in caught.value.hint
    assert names(path.parent) == []


def test_reading_an_empty_file_is_as_if_there_were_none(path):
    path.touch()
    with pytest.raises(StoreError, match="no store"):
        Store.open(path, mode="read")
    assert path.stat().st_size == 0


@pytest.mark.parametrize("mode", ["read", "copy"])
def test_reading_changes_and_leaves_nothing(filled, mode):
    before = picture(filled)
    assert keys_of(filled, mode) == (KEY,)
    assert picture(filled) == before


def test_a_reader_cannot_write(filled):
    before = picture(filled)
    with Store.open(filled, mode="read") as store, pytest.raises(StoreError, match="may not be written"):
        store.notes.put("a", 1)
    assert picture(filled) == before


def test_readers_do_not_disturb_each_other_or_a_writer(filled):
    with (
        Store.open(filled, mode="read") as one,
        Store.open(filled, mode="read") as two,
        Store.open(filled, mode="write") as writer,
    ):
        assert one.runs.keys() == (KEY,)
        writer.sources.save_readings(SERVER, [from_server("b")], now=NOW)
        assert two.runs.keys() == one.runs.keys() == (KEY, "team/rl/b")
    assert names(filled.parent) == ["step0.db", "step0.db.lock"]


def test_reading_works_where_nothing_may_be_written(open_folder):
    path = open_folder / "step0.db"
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server()], now=NOW)
    path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    open_folder.chmod(0o555)
    before = picture(path)
    with as_nobody():
        assert keys_of(path) == keys_of(path, "copy") == (KEY,)
    assert picture(path) == before
    open_folder.chmod(0o755)


def share(path):
    """Let everybody read a store, as its owner may."""
    for file in path.parent.glob(f"{path.name}*"):
        file.chmod(0o644)


def test_a_new_store_is_for_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        with Store.open(tmp_path / "step0.db", mode="write") as store:
            store.sources.save_readings(SERVER, [from_server()], now=NOW)
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) >= {"step0.db", "step0.db-wal"}
    assert set(modes.values()) == {0o600}


def test_a_store_that_its_owner_shares_stays_shared(tmp_path):
    path = tmp_path / "step0.db"
    Store.open(path, mode="write").close()
    share(path)
    Store.open(path, mode="write").close()
    assert path.stat().st_mode & 0o777 == 0o644


def test_reading_beside_a_writer_works_for_one_who_may_not_write(open_folder):
    path = open_folder / "step0.db"
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server()], now=NOW)
        share(path)
        with as_nobody():
            assert keys_of(path) == (KEY,)


def test_what_may_be_torn_is_not_believed(open_folder):
    path = open_folder / "step0.db"
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server()], now=NOW)
    share(path)
    with as_nobody():
        reader = Store.open(path, mode="read")
    assert reader._database.file.stamp == _Stamp.of(path)
    with Store.open(path, mode="write") as store:
        store.sources.save_readings(SERVER, [from_server("b")], now=NOW)
    with closing(reader), pytest.raises(StoreBusyError, match="while it was read"):
        reader.runs.keys()


@pytest.mark.parametrize("place", ["folder", "file"])
def test_a_place_that_may_not_be_written_is_told_with_what_to_do(open_folder, place):
    path = open_folder / "step0.db"
    if place == "file":
        make(path, "")
        path.touch(0o444)
        open_folder.chmod(0o777)
    with (
        as_nobody(),
        pytest.raises(StoreError, match=r"cannot be (used|opened)|may not be written") as caught,
    ):
        Store.open(path, mode="write")
    assert "--store" in caught.value.hint


def test_a_file_that_may_not_be_read_is_told(open_folder):
    path = open_folder / "step0.db"
    with Store.open(path, mode="write"):
        pass
    path.chmod(0)
    with as_nobody(), pytest.raises(StoreError, match="Permission denied"):
        Store.open(path, mode="read")


# ── a copy ─────────────────────────────────────────────────────────────────


def test_a_copy_takes_everything_and_keeps_nothing(filled):
    before = picture(filled)
    with Store.open(filled, mode="copy") as store:
        store.sources.save_readings(SERVER, [from_server("b")], now=NOW)
        assert store.runs.keys() == (KEY, "team/rl/b")
    assert picture(filled) == before


def test_a_copy_of_nothing_is_an_empty_store_and_makes_no_file(path):
    with Store.open(path, mode="copy") as store:
        store.sources.save_readings(SERVER, [from_server()], now=NOW)
        assert store.runs.keys() == (KEY,)
    assert names(path.parent) == []


def test_a_copy_is_made_while_another_writes(filled):
    with Store.open(filled, mode="write"):
        assert keys_of(filled, "copy") == (KEY,)


def test_closing_twice_is_fine(filled):
    store = Store.open(filled, mode="write")
    store.close()
    store.close()
    assert keys_of(filled, "write") == (KEY,)


def test_a_folder_that_takes_no_file_is_not_called_busy():
    with pytest.raises(StoreError, match="cannot be used") as caught:
        Store.open(Path("/dev/fd/step0.db"), mode="write")
    assert not isinstance(caught.value, StoreBusyError)


def test_a_file_system_without_flock_still_has_one_writer_at_a_time(path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    with Store.open(path, mode="write") as store:
        store.notes.put("a", 1)
        with pytest.raises(StoreBusyError):
            Store.open(path, mode="write")
    with Store.open(path, mode="write") as store:
        assert store.notes.get("a") == 1


def test_sorting_needs_no_temporary_files(path):
    with Store.open(path, mode="write") as store, store.transaction():
        setting = store._database.connection.exec_driver_sql("PRAGMA temp_store").scalar()
    assert setting == 2  # in memory
