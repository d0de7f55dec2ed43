"""Starts the program that writes with the wandb client, and ends it when it takes too long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from step0_wandb.publish.wandb.report import DESCRIPTION, TITLE
from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.text.formatting import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.publish.wandb.report import Report
    from step0_wandb.publish.wandb.state import State
    from step0_wandb.publish.wandb.tables import Table

RUN_ID = OWN_JOB_TYPE
"""Of the sync's own run, one a project, resumed each time."""
ARTIFACT, FILE = "step0-state", "step0-state.json"
"""The artifact of that run that holds the travelling state; its type has the same name."""
DEADLINE_S = 180.0
_LAST_STEPS_S = 10.0
_ERROR = 300


@dataclass(frozen=True, slots=True)
class Tables:
    """What the own run logs in one row: tables by name, counts, and a picture where there is one."""

    tables: Mapping[str, Table]
    metrics: Mapping[str, int]
    picture: Path | None = None

    def document(self) -> dict[str, Any]:
        """Return them as plain JSON."""
        return {
            "tables": {
                name: {"columns": list(table.columns), "rows": [list(row) for row in table.rows]}
                for name, table in self.tables.items()
            },
            "metrics": dict(self.metrics),
            "picture": str(self.picture.absolute()) if self.picture else None,
        }


@dataclass(frozen=True, slots=True)
class Job:
    """What to write into one project; a part that is None is not written.

    Attributes
    ----------
    report_id : str or None
        Of the report that is saved over.
    state_is_news : bool
        Whether the state is written in any case, or only if it has another part to tell of.
    marks : mapping of str to str
        The fingerprint of each part, which the state tells of those that were written.
    """

    entity: str
    project: str
    tables: Tables | None = None
    report: Report | None = None
    report_id: str | None = None
    state: State | None = None
    state_is_news: bool = True
    marks: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the job as plain JSON."""
        return {
            "entity": self.entity,
            "project": self.project,
            "run": RUN_ID,
            "artifact": ARTIFACT,
            "file": FILE,
            "tables": self.tables and self.tables.document(),
            "report": self.report
            and {
                "id": self.report_id,
                "title": TITLE,
                "description": DESCRIPTION,
                "blocks": self.report.blocks(),
            },
            "state": self.state and self.state.document(),
            "state_is_news": self.state_is_news,
            "marks": dict(self.marks),
        }


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a job: the parts that were written, and what failed, by part (``run``: all of it)."""

    parts: tuple[str, ...]
    failures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Login:
    """Where the client logs in; the key goes to it in its environment and shows nowhere."""

    base_url: str
    key: str = field(repr=False)


def write(job: Job, login: Login, *, environ: Mapping[str, str], deadline_s: float = DEADLINE_S) -> Done:
    """Write a job's parts in a process of its own.

    Parameters
    ----------
    environ : mapping
        For proxies and certificates; none of its ``WANDB_*`` reaches the client.
    deadline_s : float
        Seconds after which the process is ended.
    """
    answers: list[Mapping[str, str]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="step0-wandb-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            said = folder / "stderr.txt"
            environment = _environment(login, environ, folder)
            with _started(folder, said, environment) as process, _alarm(process, deadline_s) as late:
                answers += _answers(process, job)
            why = f"not done within {deadline_s:g} s" if late.is_set() else _last_line(said)
    except OSError as error:
        why = f"the wandb client cannot be started: {error.strerror}"
    failures = {line["part"]: line["error"] for line in answers if "error" in line}
    parts = {line["part"] for line in answers if "error" not in line}
    if "run" not in parts:
        failures["run"] = why
    return Done(tuple(sorted(parts - {"run"})), {part: _safe(text, login) for part, text in failures.items()})


def _answers(process: subprocess.Popen[str], job: Job) -> Iterator[Mapping[str, str]]:
    """Hand the job over, and yield the answers until the last; stdin stays open as a sign of life."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None  # noqa: S101, PT018 - both are pipes
    try:
        stdin.write(json.dumps(job.document(), allow_nan=False) + "\n")
        stdin.flush()
    except BrokenPipeError:
        with suppress(BrokenPipeError):
            stdin.close()
        return  # it ended before it read; what it said on stderr tells why
    for line in stdout:
        if not line.endswith("\n"):
            return  # it was ended in the middle of a word
        answer = json.loads(line)
        yield answer
        if answer["part"] == "run":
            return


@contextmanager
def _started(folder: Path, said: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start the program, and see that neither it nor its service process is left behind."""
    # By its path, so that it is the program of this version, whatever the interpreter would find first.
    command = [sys.executable, "-P", "-W", "ignore", str(Path(__file__).with_name("sdk.py"))]
    with (
        said.open("wb") as stderr,
        subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            env=dict(environment),
            text=True,
            encoding="utf-8",
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
            process.wait(_LAST_STEPS_S)
        except subprocess.TimeoutExpired:
            pass  # all is written; it is ended below
        finally:
            _kill(process)


@contextmanager
def _alarm(process: subprocess.Popen[str], deadline_s: float) -> Iterator[threading.Event]:
    """End the program once the time is up, which the event then says."""
    late = threading.Event()

    def ring() -> None:
        late.set()
        _kill(process)

    alarm = threading.Timer(deadline_s, ring)
    alarm.daemon = True
    alarm.start()
    try:
        yield late
    finally:
        alarm.cancel()


def _kill(process: subprocess.Popen[str]) -> None:
    """End the program with all that it started, if it still runs."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _environment(login: Login, environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the client's environment: nothing of the caller's own settings, no file outside `folder`."""
    kept = {name: value for name, value in environ.items() if not name.upper().startswith("WANDB")}
    bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    return {
        # The client's Go part knows this variable alone.
        **({"SSL_CERT_FILE": bundle} if bundle else {}),
        **kept,
        "WANDB_BASE_URL": login.base_url,
        "WANDB_API_KEY": login.key,
        **{
            f"WANDB_{name}_DIR": str(folder / name.lower())
            for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT")
        },
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_X_GRAPHQL_RETRY_MAX": "3",
        "WANDB_X_GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
        "WANDB_X_GRAPHQL_RETRY_WAIT_MAX_SECONDS": "4",
    }


def _last_line(said: Path) -> str:
    lines = filter(None, map(str.strip, said.read_text(encoding="utf-8", errors="replace").splitlines()))
    return next(reversed(list(lines)), "the wandb client ended without a word")


def _safe(text: str, login: Login) -> str:
    """Return what the client said in one short line, without the key."""
    return shorten(clean(text.replace(login.key, "***")), _ERROR)
