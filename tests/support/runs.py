"""Runs on disk for tests: by the real W&B client, or frame by frame where the client would not.

Two independent writers: `Client` is the installed client in a process of its own, always offline.
`wandb_file` frames any bytes as LevelDB's log format says, and the ``*_record`` functions fill the
client's own protobuf classes.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from step0_wandb.records import RunRecord
    from step0_wandb.sources.base import FileMark, Reading

BLOCK = 32768
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)

_CHILD = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
import wandb
run = None
for line in sys.stdin:
    what, given = json.loads(line)
    if what == "init":
        settings = wandb.Settings(console="off", x_disable_stats=True)
        run = wandb.init(mode="offline", settings=settings, **given)
        print(run.settings.sync_dir, file=answers)
        continue
    if what == "log":
        for row in given:
            run.log(row)
    elif what == "config":
        run.config.update(given, allow_val_change=True)
    elif what == "finish":
        run.finish(exit_code=given)
    print("done", file=answers)
"""


class Client:
    """The installed W&B client in a process of its own, offline, as a training job would use it.

    One process may write several runs, one after the other. Leaving the ``with`` block without `finish`
    kills the process and all that it started, as a scheduler does.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        home = directory / ".home"
        home.mkdir(parents=True, exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TMPDIR") if name in os.environ}
        places = {f"WANDB_{name}_DIR": str(home) for name in ("CACHE", "CONFIG", "DATA")}
        quiet = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_GIT": "true"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env={**kept, "HOME": str(home), "WANDB_MODE": "offline", **places, **quiet},
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, run_id: str, **given: Any) -> Path:
        """Begin a run and return its directory; `given` goes to ``wandb.init``."""
        given = {"project": "project", "entity": "team", "dir": str(self._directory), **given}
        self._place = Path(self._ask("init", {"id": run_id, **given}))
        return self._place

    def log(self, *rows: Mapping[str, Any]) -> None:
        """Log each row by a call of its own."""
        self._ask("log", rows)

    def write_out(self) -> None:
        """Have the client's helper write what it holds: it writes full blocks at once, others after 15 s."""
        (file,) = self._place.glob("*.wandb")
        size = file.stat().st_size
        self.log({"filler": "x" * 3 * BLOCK})
        until(lambda: file.stat().st_size >= size + 2 * BLOCK)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Update the config of the run."""
        self._ask("config", config)

    def finish(self, exit_code: int = 0) -> None:
        """End the run, which writes its exit record."""
        self._ask("finish", exit_code)

    def kill(self) -> None:
        """Kill the process and the client's helper, which gets no time to write anything."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _ask(self, what: str, given: Any) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([what, given]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer, f"the client died at {what!r}"
        return answer


@dataclass
class Memory:
    """What a store would remember of a source, kept in memory."""

    marks: dict[str, FileMark] = field(default_factory=dict)
    records: dict[str, RunRecord] = field(default_factory=dict)

    def record(self, key: str) -> RunRecord | None:
        return self.records.get(key)

    def keep(self, readings: Iterable[Reading], loose: Iterable[FileMark] = ()) -> list[Reading]:
        """Remember readings and marks without a run; return the readings."""
        kept = list(readings)
        for reading in kept:
            self.records[reading.record.key] = reading.record
            self.marks.update({mark.path: mark for mark in reading.marks})
        self.marks.update({mark.path: mark for mark in loose})
        return kept


def frame(kind: int, data: bytes) -> bytes:
    """Return one frame: 1 full, 2 first, 3 middle, 4 last."""
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + data), len(data), kind) + data


def wandb_file(*records: bytes) -> bytes:
    """Return a whole ``.wandb`` file with these records."""
    return append(HEADER, *records)


def append(file: bytes, *records: bytes) -> bytes:
    """Return a ``.wandb`` file with more records behind what it has."""
    parts, size = [file], len(file)
    for record in records:
        rest, first = record, True
        while first or rest:
            room = BLOCK - size % BLOCK
            if room < 7:
                parts.append(bytes(room))
                size += room
                room = BLOCK
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (2 if rest else 1) if first else (3 if rest else 4)
            parts.append(frame(kind, piece))
            size += 7 + len(piece)
            first = False
    return b"".join(parts)


def run_record(run_id: str, config: Mapping[str, Any] | None = None, **given: Any) -> bytes:
    """Return a run record; `given` are fields of ``RunRecord``, `started` seconds since 1970."""
    record = _record()
    run = record.run
    run.run_id = run_id
    run.start_time.seconds = given.pop("started", 1767225600)  # 2026-01-01 00:00 UTC
    run.tags.extend(given.pop("tags", ()))
    for name, value in {"entity": "team", "project": "project", **given}.items():
        setattr(run, name, value)
    for key, value in (config or {}).items():
        run.config.update.add(key=key, value_json=json.dumps(value))
    return record.SerializeToString()


def config_record(
    update: Mapping[tuple[str, ...], Any] | None = None, remove: Iterable[tuple[str, ...]] = ()
) -> bytes:
    """Return a config record; a path of one key is written as ``key``, others as ``nested_key``."""
    record = _record()
    for path, value in (update or {}).items():
        _name(record.config.update.add(value_json=json.dumps(value)), path)
    for path in remove:
        _name(record.config.remove.add(), path)
    record.config.SetInParent()
    return record.SerializeToString()


def history_record(values: Mapping[str, Any], *, old: bool = False) -> bytes:
    """Return a history record; `old` writes ``key`` as clients before 0.13 did, else ``nested_key``."""
    record = _record()
    for name, value in values.items():
        item = record.history.item.add(value_json=value if isinstance(value, str) else json.dumps(value))
        if old:
            item.key = name
        else:
            item.nested_key.append(name)
    record.history.SetInParent()
    return record.SerializeToString()


def exit_record(code: int = 0) -> bytes:
    """Return an exit record."""
    record = _record()
    record.exit.exit_code = code
    record.exit.SetInParent()
    return record.SerializeToString()


def filler_record(size: int) -> bytes:
    """Return a record of console output, which no reader of step 0 needs."""
    record = _record()
    record.output_raw.line = "x" * size
    return record.SerializeToString()


def write_file(root: Path, content: bytes, *, run_id: str = "abc", stamp: str = "20260101_000000") -> Path:
    """Write a file where W&B would: ``root/run-STAMP-ID/run-ID.wandb``."""
    path = root / f"run-{stamp}-{run_id}" / f"run-{run_id}.wandb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _record() -> Any:
    from wandb.proto import wandb_internal_pb2

    return wandb_internal_pb2.Record(num=1)


def _name(item: Any, path: tuple[str, ...]) -> None:
    if len(path) == 1:
        item.key = path[0]
    else:
        item.nested_key.extend(path)
