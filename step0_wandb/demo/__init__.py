"""Example runs on disk, written by the real wandb client: healthy ones and broken ones."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from step0_wandb.demo.folder import SETTINGS, DemoFolder, claim
from step0_wandb.demo.scenario import directories, run_ids
from step0_wandb.errors import Step0Error
from step0_wandb.settings.load import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from step0_wandb.demo.scenario import Directory

__all__ = ["DemoFolder", "write_demo"]

WRITER = Path(__file__).with_name("writer.py")


def write_demo(
    directory: Path, *, now: datetime, progress: Callable[[int, int], None] | None = None
) -> DemoFolder:
    """Write about 30 example runs below `directory`, and the settings that make the main job read them.

    The installed wandb client writes them in offline mode, in a process of its own that sees none of the
    user's W&B variables and settings; nothing is sent anywhere. An older demo there is replaced.

    Parameters
    ----------
    directory : Path
        Where to; it is made if need be.
    now : datetime
        The runs are spread over the ten days before.
    progress : callable, optional
        Called with the number of runs written and of all runs.

    Raises
    ------
    UsageError
        The directory cannot be written, or is neither empty nor a demo folder.
    Step0Error
        The wandb client failed.
    """
    ids = run_ids()
    replaced = claim(directory, ids)
    parts = directories(now)
    _write_runs(directory, parts, progress or (lambda _done, _total: None))
    for part in parts:
        _set_times(directory, part)
    folder = DemoFolder(directory, len(ids), replaced)
    folder.settings.write_text(SETTINGS, encoding="utf-8")
    return folder


def _write_runs(directory: Path, parts: Sequence[Directory], progress: Callable[[int, int], None]) -> None:
    plan = json.dumps({"root": str(directory.absolute()), "directories": [asdict(part) for part in parts]})
    total = len({part.run_id for part in parts})
    written: set[str] = set()
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own script, no shell
            # -P: a module of that name in the current directory must not get in the way.
            [sys.executable, "-P", WRITER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=scratch,
            env=_environment(scratch),
            text=True,
            start_new_session=True,  # Ctrl-C is handled in this process
        )
        with process:
            try:
                for run_id in _written(process, plan):
                    written.add(run_id)
                    progress(len(written), total)
                process.wait()
            finally:
                process.kill()  # does nothing to a process that has ended
        if process.returncode:
            errors.seek(0)
            raise Step0Error(f"The wandb client could not write the demo: {_last_line(errors.read())}")


def _written(process: subprocess.Popen[str], plan: str) -> Iterator[str]:
    """Send the plan, and yield what the writer prints until it and the client's service have ended."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # it died: its return code tells
        stdin.write(plan)
    for line in process.stdout:
        yield line.strip()


def _environment(scratch: str) -> Mapping[str, str]:
    """Return the user's environment with nothing in it that the wandb client obeys."""
    kept = {name: value for name, value in environment().items() if not name.startswith("WANDB_")}
    folders = {f"WANDB_{kind}_DIR": scratch for kind in ("CONFIG", "CACHE", "DATA", "ARTIFACT")}
    return kept | folders | {"WANDB_ERROR_REPORTING": "false"}


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given")


def _set_times(directory: Path, part: Directory) -> None:
    """Let the files of a run look as old as they claim to be; a run that still runs wrote just now."""
    for file in directory.glob(f"wandb/offline-run-*-{part.run_id}*/run-{part.run_id}.wandb"):
        os.utime(file, (part.end, part.end))
