"""A disk that is full at any write: a clear end, nothing half-written, and the next sync does the rest once."""

import contextlib
import io
import os
import resource
import sqlite3
import time

import pytest

from step0_wandb.cli import app
from tests.support.command import run, surroundings
from tests.support.miles import miles_run
from tests.support.webhook import Hook

ROOM = [
    0,
    4_000,
    120_000,
    *(pytest.param(size, marks=pytest.mark.full_grid) for size in range(10_000, 400_000, 30_000)),
]
"""Bytes that a file may have; the store has 600,000, the journal of the second sync more than 400,000."""
SYNC = ("sync", ".", "--store", "s.db", "--html", "page.html")


def with_room(size, folder, environ):
    """Sync in a copy of this process in which no file may grow beyond a size; return the code and what it says."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 99
        try:
            said = io.StringIO()
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            with (
                surroundings(folder, environ),
                contextlib.redirect_stdout(said),
                contextlib.redirect_stderr(said),
            ):
                code = app.run(list(SYNC))
            os.write(writing, said.getvalue().encode()[:60_000])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


@pytest.mark.parametrize("later", [False, True], ids=["first sync", "later sync"])
@pytest.mark.parametrize("room", ROOM)
def test_a_full_disk_is_a_clear_end_and_the_next_sync_does_the_rest_once(tmp_path, room, later):
    for at in range(3):
        miles_run(tmp_path, f"ok{at}", 0.0150 + at * 1e-4)
    (tmp_path / "step0.toml").write_text('[alerts]\nwebhook_env = "HOOK"\n')
    page = tmp_path / "page.html"
    with Hook() as hook:
        environ = {"HOOK": hook.url}
        if later:
            assert run(*SYNC, cwd=tmp_path, **environ).code == 0
        before = page.read_text(encoding="utf-8") if later else ""
        miles_run(tmp_path, "bad", 0.0150, ppo_kl=0.2, started=int(time.time()) - 60)
        code, said = with_room(room, tmp_path, environ)
        assert code == 6, said
        assert "s.db cannot be" in said
        assert 1 <= len(said.splitlines()) <= 3
        assert hook.texts == []
        assert (page.read_text(encoding="utf-8") if page.exists() else "") == before
        assert run(*SYNC, cwd=tmp_path, **environ).code == 0
        assert len(hook.texts) == 1
    assert "run-bad" in page.read_text(encoding="utf-8")
    assert not list(tmp_path.glob(".page.html.*"))
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
