"""Damage of five kinds, each as a function of a random generator that returns what came of it.

They raise where something is lost in silence, and let through whatever no command expects.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from step0_wandb.errors import NoStep0Error, SourceError, StoreError
from step0_wandb.sources.console.log import read_stream
from step0_wandb.sources.offline.frames import Damage
from step0_wandb.wandb_api import http
from tests.property import test_mutated_answers as answers
from tests.property import test_mutated_stores as stores
from tests.property import test_mutations as files
from tests.property import test_state_mutations as states
from tests.support.offline import CONFIG, GAP, offline_source
from tests.support.offline import step0 as step0_of
from tests.support.runs import Memory, history_record, run_record, wandb_file, write_file

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    Attack = Callable[[random.Random], str]

GAPS = (0.0152, 0.0163, 0.0174)
SMALL_FILE = wandb_file(
    run_record("abc", CONFIG),
    *(
        history_record({"train/step": at, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: gap})
        for at, gap in enumerate(GAPS)
    ),
)


def of_files(folder: Path) -> Attack:
    """Every second input is a file of many records, the others a small one that a sync reads."""

    def attack(noise: random.Random) -> str:
        if noise.random() < 0.5:
            return records(noise)
        return whole_sync(noise)

    def records(noise: random.Random) -> str:
        items = files.read(files.mutated(files.FILE, noise))
        missing = files.lost(items)
        if any(isinstance(item, Damage) for item in items):
            return "named"
        assert missing == list(range(len(files.RECORDS) - len(missing), len(files.RECORDS))), (
            "lost in silence"
        )
        return "cut" if missing else "whole"

    def whole_sync(noise: random.Random) -> str:
        data = files.mutated(SMALL_FILE, noise)
        write_file(folder, data)
        source = offline_source(folder)
        try:
            readings = list(source.readings(Memory()))
        except SourceError:
            return "refused"
        named = [*source.problems, *(problem for one in readings for problem in one.problems)]
        if named:
            return "named"
        found = step0_of(readings[0]) if readings else None
        if found and (found.status, found.gap) == ("found", GAPS[0]):
            return "whole"  # what lies behind step 0 is not read
        assert not any(isinstance(item, Damage) for item in files.read(data)), "damage that nobody is told"
        assert found is None or found.status != "found", "another value"
        return "cut"

    return attack


def of_logs(_folder: Path) -> Attack:
    """Logs of three frameworks in one."""

    def attack(noise: random.Random) -> str:
        try:
            reading = read_stream(
                io.BytesIO(files.mutated(files.LOG, noise)), files.FINDER, enough=lambda: False
            )
        except NoStep0Error:
            return "refused"
        return reading.facts(files.FINDER).step0.status

    return attack


def of_states(_folder: Path) -> Attack:
    """Shared states, read and merged into a store that knows of other projects."""
    shared = {}

    def attack(noise: random.Random) -> str:
        if not shared or noise.random() < 0.02:
            shared["store"] = states.known_store()
        taken = states.assert_survived(states.mutated(noise), shared["store"])
        return "taken over" if taken else "refused"

    return attack


def of_stores(folder: Path) -> Attack:
    """Stores with flipped bytes, odd values in a column, or another value inside a stored document."""
    whole = stores.whole_store(folder / "whole.db")
    known = set(stores.listed(folder / "whole.db"))

    def attack(noise: random.Random) -> str:
        path = folder / f"{noise.randrange(1 << 60)}.db"  # a half-read query would hold the lock of the last
        path.write_bytes(whole)
        try:
            return outcome(path, noise)
        finally:
            for file in folder.glob(f"{path.name}*"):
                file.unlink()

    def outcome(path: Path, noise: random.Random) -> str:
        noise.choice((flip, odd_value, other_document))(path, noise)
        try:
            stores.use(path)
        except StoreError:
            return "refused"
        assert known <= set(stores.listed(path)), "a run is lost in silence"
        return "read"

    def flip(path: Path, noise: random.Random) -> None:
        damaged = bytearray(whole)
        for _ in range(noise.choice([1, 1, 1, 8, 64])):
            damaged[noise.randrange(len(damaged))] ^= 1 << noise.randrange(8)
        path.write_bytes(damaged)

    def odd_value(path: Path, noise: random.Random) -> None:
        table, column = noise.choice(stores.cells())
        stores.change(path, table, column, lambda _old: noise.choice(stores.ODD))

    def other_document(path: Path, noise: random.Random) -> None:
        table, column = noise.choice(stores.DOCUMENTS)
        stores.change(path, table, column, lambda old: stores.another(old, noise))

    return attack


def of_pages(_folder: Path) -> Attack:
    """Answers of a server, one of each sync with something odd in it."""
    server = answers.project_server().__enter__()  # it ends with the process
    replies: dict[bytes, http.Reply] = {}

    def attack(noise: random.Random) -> str:
        one = answers.Attack(server, noise.randrange(1 << 60), replies)
        usual = http.HttpTransport.post
        http.HttpTransport.post = lambda *asked: one(*asked)  # noqa: PLW0108 - a method  # type: ignore[method-assign]
        try:
            stored, told = one.run()
        finally:
            http.HttpTransport.post = usual  # type: ignore[method-assign]
        silent = answers.silently_lost(stored, told)
        assert silent == [] or answers.is_another_name(one.mutation), f"lost in silence: {silent}"
        assert one.number < 60, "too many requests"
        return "named" if told else "whole"

    return attack


KINDS = {"files": of_files, "logs": of_logs, "states": of_states, "stores": of_stores, "pages": of_pages}
