"""Runs the program that writes with the wandb client, and ends it when it takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from step0_wandb.publish.wandb.report import TITLE
from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.text.formatting import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.publish.wandb.report import Report
    from step0_wandb.publish.wandb.state import State
    from step0_wandb.publish.wandb.tables import Tables

RUN_ID: Final = OWN_JOB_TYPE
"""Of the sync's own run, one a project, resumed each time."""
ARTIFACT: Final = "step0-state"
"""The artifact of that run that holds the shared state; its type has the same name."""
FILE: Final = "step0-state.json"
_ERROR = 300
_FOLDER = "step0-wandb-"
_LEFT_S = 24 * 3600.0
"""No write takes so long; a folder that is older has no owner."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """What to write into one project; a part that is None is not written.

    Attributes
    ----------
    picture : bytes or None
        A PNG that is logged with the tables.
    report_id : str or None
        Of the report that is saved over.
    description : str
        Of the report.
    """

    entity: str
    project: str
    tables: Tables | None = None
    picture: bytes | None = field(default=None, repr=False)
    report: Report | None = None
    report_id: str | None = None
    description: str = ""
    state: State | None = None

    def document(self) -> dict[str, Any]:
        """Return the job as plain JSON."""
        report = self.report and {
            "id": self.report_id,
            "title": TITLE,
            "description": self.description,
            "blocks": self.report.blocks(),
        }
        return {
            "entity": self.entity,
            "project": self.project,
            "run": RUN_ID,
            "artifact": ARTIFACT,
            "file": FILE,
            "tables": self.tables and {**self.tables.document(), "written": self.tables.written},
            "picture": b64encode(self.picture).decode() if self.picture else None,
            "report": report,
            "state": self.state and self.state.document(),
            "parent": os.getpid(),
        }


@dataclass(frozen=True, slots=True)
class Login:
    """Where the client logs in; the key goes to it in its environment and shows nowhere."""

    base_url: str
    key: str = field(repr=False)


def write(job: WriteJob, login: Login, *, environ: Mapping[str, str], deadline_s: float) -> dict[str, str]:
    """Write a job's parts in a process of its own; return what failed and why, by part ("": all of it).

    That the client reports no failure does not mean that a part has arrived: it goes on after an upload
    that was refused.

    Parameters
    ----------
    environ : mapping
        For proxies and certificates; none of its ``WANDB_*`` reaches the client.
    deadline_s : float
        Seconds after which the process is ended.
    """
    # By its path, so that it is the program of this version, whatever the interpreter would find first.
    command = [sys.executable, "-P", "-W", "ignore", str(Path(__file__).with_name("sdk.py"))]
    try:
        remove_leftovers(Path(tempfile.gettempdir()))
        with tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            with (folder / "stderr.txt").open("w+b") as stderr:
                try:
                    done = subprocess.run(  # noqa: S603 - our own program
                        command,
                        input=json.dumps(job.document(), allow_nan=False).encode(),
                        stdout=subprocess.PIPE,
                        stderr=stderr,
                        cwd=folder,
                        env=_environment(login, environ, folder),
                        start_new_session=True,
                        timeout=deadline_s,
                        check=False,
                    )
                    output, why = done.stdout, ""
                except subprocess.TimeoutExpired as late:
                    output, why = late.stdout or b"", f"not done within {deadline_s:g} s"
                stderr.seek(0)
                why = why or _last_line(stderr.read())
    except OSError as error:
        output, why = b"", f"the wandb client cannot be started: {error.strerror}"
    # The last line may be cut off.
    answers = [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith(b"\n")]
    failures = {answer["part"]: answer["error"] for answer in answers if "error" in answer}
    if not any(answer["part"] == "end" for answer in answers):
        failures = {"": why}
    return {part: _safe(text, login) for part, text in failures.items()}


def remove_leftovers(temporary: Path) -> None:
    """Remove this user's folders of writes that a signal ended just as they began or were cleaned up."""
    for folder in temporary.glob(f"{_FOLDER}*"):
        with contextlib.suppress(FileNotFoundError):  # its owner has just removed it
            status = folder.lstat()
            is_left = time.time() - status.st_mtime > _LEFT_S
            if is_left and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


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
        # The client's own temporary files go where they are removed too.
        "TMPDIR": str(folder),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_X_GRAPHQL_RETRY_MAX": "3",
        "WANDB_X_GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
        "WANDB_X_GRAPHQL_RETRY_WAIT_MAX_SECONDS": "4",
    }


def _last_line(stderr: bytes) -> str:
    lines = filter(None, map(str.strip, stderr.decode("utf-8", "replace").splitlines()))
    return next(reversed(list(lines)), "the wandb client ended without a message")


def _safe(text: str, login: Login) -> str:
    """Return what the client said in one short line, without the key."""
    return shorten(clean(text.replace(login.key, "***")), _ERROR)
