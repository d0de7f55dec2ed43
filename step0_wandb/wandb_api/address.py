"""What a source's text means: a path on disk, or a project or run on a W&B server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from step0_wandb.errors import UsageError
from step0_wandb.text.paths import is_there, user_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from step0_wandb.wandb_api.credentials import Server

LOCAL, REMOTE = "file:", "wandb:"
_FORMS = "Write entity/project, entity/project/run_id, a W&B URL, or a path."
_PAGES = frozenset({"runs", "workspace", "table", "reports", "sweeps", "groups", "artifacts", "overview"})
"""What may follow the project in the address of a W&B page."""
_FILE_NAMES = (".wandb", ".log", ".txt", ".out", ".err", ".jsonl")
_PROJECT_PARTS = 2


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """A directory or file that exists."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """A project on the W&B server, or one run of it (`run_id` is None for the whole project)."""

    entity: str
    project: str
    run_id: str | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.entity, self.project, self.run_id) if part)


Address = LocalAddress | RemoteAddress


def parse_address(
    text: str, *, server: Callable[[], Server] | None = None, exists: Callable[[Path], bool] = is_there
) -> Address:
    """Return what `text` names.

    A path that exists is a path; ``wandb:`` and ``file:`` in front force the reading.

    Parameters
    ----------
    text : str
        ``entity/project``, ``entity/project/run_id``, the URL of a project or run, or a path.
    server : callable, optional
        Returns the server in use; asked for URLs alone. A URL of another server is refused, because a
        key is never sent to another host. None takes any host.

    Raises
    ------
    UsageError
        The text is none of these, or the path does not exist.

    Examples
    --------
    >>> parse_address("wandb:team/project/7f3a")
    RemoteAddress(entity='team', project='project', run_id='7f3a')
    >>> str(parse_address("https://wandb.example.com/team/project/runs/7f3a?nw=1"))
    'team/project/7f3a'
    """
    if text.startswith(LOCAL):
        return _existing(text.removeprefix(LOCAL), exists)
    forced = text.startswith(REMOTE)
    name = text.removeprefix(REMOTE)
    if name.startswith(("https://", "http://")):
        return _from_url(name, server)
    if not forced and name and exists(user_path(name)):
        return LocalAddress(user_path(name))
    if not forced and _looks_like_path(name):
        return _existing(name, exists)
    parts = [part.strip() for part in name.strip("/").split("/")]
    address = _from_parts(parts) if all(parts) else None
    if address is None:
        raise UsageError(
            f"{safe_text(text)!r} is neither a W&B project or run nor a path that exists", _FORMS
        )
    return address


def _existing(text: str, exists: Callable[[Path], bool]) -> LocalAddress:
    path = user_path(text)
    if not exists(path):
        raise UsageError(
            f"The path {path} does not exist",
            "Check the spelling, the directory you are in, and that you may look there.",
        )
    return LocalAddress(path)


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", ".", "~")) or "\\" in text or text.endswith(_FILE_NAMES)


def safe_text(text: str) -> str:
    """Return a source's text as it may be shown: a URL without what may be a password.

    Examples
    --------
    >>> safe_text("https://ada:secret@wandb.example.com/team/project?token=secret")
    'https://wandb.example.com/team/project'
    """
    if "://" not in text:
        return text
    scheme, _, rest = text.partition("://")
    place, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path.rpartition('@')[2]}"


def _from_url(url: str, server_in_use: Callable[[], Server] | None) -> RemoteAddress:
    try:
        path = urlsplit(url).path
    except ValueError:  # its text may hold the password
        raise UsageError(f"{safe_text(url)} is not a valid URL", _FORMS) from None
    server = server_in_use() if server_in_use else None
    if server is not None and not server.owns(url):
        raise UsageError(
            f"{safe_text(url)} is not on the W&B server in use, {server.app_url} (from {server.origin})",
            "Set WANDB_BASE_URL to that server, and log in there.",
        )
    if server is not None:
        path = path.removeprefix(urlsplit(server.app_url).path.rstrip("/"))
    parts = [unquote(part) for part in path.split("/") if part]
    # The page may lie below a path of the server's own, which only a run's URL shows without `server`.
    at = parts.index("runs", _PROJECT_PARTS) if "runs" in parts[_PROJECT_PARTS:] else _PROJECT_PARTS
    address = _from_parts(parts[at - _PROJECT_PARTS :])
    if address is None:
        raise UsageError(f"{safe_text(url)} does not name a W&B project or run", _FORMS)
    return address


def _from_parts(parts: list[str]) -> RemoteAddress | None:
    """Return the address that the parts of a path name; what follows a page's name is left out."""
    match parts:
        case [entity, project] | [entity, project, "runs"]:
            return RemoteAddress(entity, project)
        case [entity, project, "runs", run_id, *_]:
            return RemoteAddress(entity, project, run_id)
        case [entity, project, page, *_] if page in _PAGES:
            return RemoteAddress(entity, project)
        case [entity, project, run_id]:
            return RemoteAddress(entity, project, run_id)
    return None
