"""Everything the double remembers: users, projects, runs, and who may see what."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from .sampling import key_statistics, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from .library import Artifact, Collection, View


def stamp(moment: datetime) -> str:
    """Return a time in UTC as W&B writes it, in whole seconds."""
    return moment.replace(microsecond=0).isoformat().removesuffix("+00:00") + "Z"


def encode_id(text: str) -> str:
    """Return a global id: ``Run:v1:...`` in base64."""
    return base64.b64encode(text.encode()).decode()


def decode_id(identifier: str) -> str:
    """Return the text inside a global id; empty where it is none."""
    try:
        return base64.b64decode(identifier + "=" * (-len(identifier) % 4)).decode()
    except (ValueError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True, slots=True)
class User:
    """A person with an account."""

    username: str
    name: str
    email: str

    @property
    def id(self) -> str:
        """Return the global id."""
        return encode_id(f"User:{self.username}")


@dataclass(slots=True, eq=False)
class StoredFile:
    """A file of a run or of an artifact; `content` is None until it was uploaded."""

    name: str
    token: str
    updated_at: datetime
    content: bytes | None = None
    artifact: Artifact | None = None

    @property
    def md5(self) -> str:
        """Return the checksum of the content, in base64."""
        return base64.b64encode(hashlib.md5(self.content or b"", usedforsecurity=False).digest()).decode()


@dataclass(slots=True, eq=False)
class Run:
    """One run; `status` is what was last said, `state` what it is at a moment."""

    project: Project
    name: str
    serial: int
    created_at: datetime
    heartbeat_at: datetime
    user: User
    display_name: str = ""
    status: str = "running"
    config_json: str = "{}"
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    log_lines: list[str] = field(default_factory=list)
    tags: tuple[str, ...] = ()
    group: str | None = None
    job_type: str | None = None
    notes: str | None = None
    description: str | None = None
    host: str | None = None
    program: str | None = None
    repo: str | None = None
    commit: str | None = None
    sweep_name: str | None = None
    exit_code: int | None = None
    stop_requested: bool = False
    files: dict[str, StoredFile] = field(default_factory=dict)
    _keys: tuple[int, dict[str, Any] | None] = (-1, None)

    @property
    def id(self) -> str:
        """Return the storage id, as real servers build it."""
        return encode_id(f"Run:v1:{self.name}:{self.project.name}:{self.project.entity}")

    @property
    def config(self) -> dict[str, Any]:
        """Return the config with W&B's wrapping, ``{"lr": {"value": 0.1}}``, as a copy."""
        parsed: dict[str, Any] = json.loads(self.config_json)
        return parsed

    @property
    def config_values(self) -> dict[str, Any]:
        """Return the config as the user wrote it."""
        return {key: item["value"] if isinstance(item, dict) and "value" in item else item
                for key, item in self.config.items()}  # fmt: skip

    @property
    def history_keys(self) -> dict[str, Any] | None:
        """Return the statistics of the keys logged so far."""
        if self._keys[0] != len(self.rows):
            self._keys = (len(self.rows), key_statistics(self.rows))
        return self._keys[1]

    def state(self, now: datetime, timeout_s: float) -> str:
        """Return the state at `now`: a running run that went silent has crashed."""
        silent = now - self.heartbeat_at > timedelta(seconds=timeout_s)
        return "crashed" if self.status == "running" and silent else self.status

    def merge_config(self, update: dict[str, Any]) -> None:
        """Add keys, or replace their values."""
        self.config_json = to_json(self.config | update)

    def write_rows(self, offset: int, rows: list[dict[str, Any]]) -> None:
        """Put rows at their place in the history, over what stands there."""
        for index, row in enumerate(rows, start=offset):
            row.setdefault("_step", index)
        self.rows[offset : offset + len(rows)] = rows
        self._keys = (-1, None)


@dataclass(slots=True, eq=False)
class Project:
    """One project; a hidden one answers as if it did not exist."""

    entity: str
    name: str
    internal_id: int
    created_at: datetime
    runs: dict[str, Run] = field(default_factory=dict)
    hidden: bool = False
    read_only: bool = False

    @property
    def id(self) -> str:
        """Return the global id."""
        return encode_id(f"Project:v1:{self.name}:{self.entity}")


class State:
    """The database behind the double.

    Parameters
    ----------
    entity : str
        The default entity of the user whose key the server accepts.
    clock : callable
        Returns the present as an aware datetime; replaced by tests that let time pass.
    """

    def __init__(self, entity: str, clock: Callable[[], datetime]) -> None:
        self.entity = entity
        self.clock = clock
        self.users: dict[str, User] = {}
        self.projects: dict[tuple[str, str], Project] = {}
        self.files: dict[str, StoredFile] = {}
        self.collections: dict[tuple[str, str, str], Collection] = {}
        self.views: dict[int, View] = {}
        self.serial = count(1)

    def user(self, username: str) -> User:
        """Return an account, made at first mention."""
        if username not in self.users:
            self.users[username] = User(username, username.title(), f"{username}@example.com")
        return self.users[username]

    def project(self, entity: str | None, name: str | None) -> Project | None:
        """Return a project that the key may see, else None."""
        project = self.projects.get((entity or self.entity, name or "uncategorized"))
        return None if project is None or project.hidden else project

    def ensure_project(self, entity: str | None, name: str | None) -> Project:
        """Return a project, made where there is none."""
        key = (entity or self.entity, name or "uncategorized")
        if key not in self.projects:
            self.projects[key] = Project(*key, internal_id=next(self.serial), created_at=self.clock())
        return self.projects[key]

    def all_runs(self) -> Iterator[Run]:
        """Yield every run of every project."""
        for project in self.projects.values():
            yield from project.runs.values()

    def run(self, entity: str | None, project: str | None, name: str) -> Run | None:
        """Return a run by its path, else None."""
        found = self.project(entity, project)
        return found.runs.get(name) if found else None

    def run_by_id(self, storage_id: str) -> Run | None:
        """Return a run by its storage id, else None."""
        kind, _, rest = decode_id(storage_id).partition(":v1:")
        if kind != "Run":
            return None
        name, project, entity = rest.split(":", 2)
        return self.run(entity, project, name)

    def create_run(self, project: Project, name: str, username: str) -> Run:
        """Make an empty run that starts now."""
        now = self.clock().replace(microsecond=0)
        run = Run(project, name, next(self.serial), now, now, self.user(username), display_name=name)
        project.runs[name] = run
        return run

    def new_file(self, files: dict[str, StoredFile], name: str) -> StoredFile:
        """Return the file of that name to be uploaded again, reachable by an unguessable token."""
        token = f"{next(self.serial):08d}"
        files[name] = self.files[token] = StoredFile(name, token, self.clock())
        return files[name]
