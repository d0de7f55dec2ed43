"""Artifacts and reports as the double keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .state import encode_id, stamp

if TYPE_CHECKING:
    from datetime import datetime

    from .state import Project, Run, StoredFile, User


@dataclass(slots=True, eq=False)
class Collection:
    """All versions of one artifact name; ``latest`` and other aliases point into them."""

    project: Project
    name: str
    type_name: str
    serial: int
    made_at: datetime
    versions: list[Artifact] = field(default_factory=list)
    aliases: dict[str, Artifact] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Return the global id."""
        return encode_id(f"ArtifactCollection:{self.serial}")

    @property
    def committed(self) -> list[Artifact]:
        """Return the versions that are complete, newest first."""
        return [version for version in reversed(self.versions) if version.state == "COMMITTED"]

    def find(self, alias: str) -> Artifact | None:
        """Return the version of that alias or number (``v3``), else None."""
        found = self.aliases.get(alias)
        if found is None:
            found = next((version for version in self.versions if alias == version.version), None)
        return found if found and found.state == "COMMITTED" else None


@dataclass(slots=True, eq=False)
class Artifact:
    """One version of a collection."""

    collection: Collection
    serial: int
    version_index: int
    digest: str
    client_id: str | None
    made_at: datetime
    run: Run | None = None
    state: str = "PENDING"
    description: str | None = None
    metadata: str | None = None
    history_step: int | None = None
    tag_names: tuple[str, ...] = ()
    wanted_aliases: tuple[str, ...] = ()
    files: dict[str, StoredFile] = field(default_factory=dict)
    manifest: dict[str, StoredFile] = field(default_factory=dict)
    users: list[Run] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Return the global id, base64 as the client expects to decode."""
        return encode_id(f"Artifact:{self.serial}")

    @property
    def version(self) -> str:
        """Return the version's name, ``v0`` for the first."""
        return f"v{self.version_index}"

    @property
    def alias_names(self) -> list[str]:
        """Return the aliases that point here."""
        return [alias for alias, version in self.collection.aliases.items() if version is self]

    @property
    def size(self) -> int:
        """Return the size of all files, in bytes."""
        return sum(len(file.content or b"") for file in self.files.values())

    def commit(self) -> None:
        """Make the version visible; ``latest`` and the asked aliases move to it."""
        self.state = "COMMITTED"
        self.collection.aliases |= dict.fromkeys(("latest", *self.wanted_aliases), self)


@dataclass(slots=True, eq=False)
class View:
    """A report, or another saved view of a project."""

    project: Project
    serial: int
    user: User
    made_at: datetime
    changed_at: datetime
    type: str = "runs"
    name: str = ""
    display_name: str = ""
    description: str = ""
    spec: str = "{}"

    @property
    def id(self) -> str:
        """Return the global id, of which a report's url shows a part."""
        return encode_id(f"View:{self.serial}")

    @property
    def created_at(self) -> str:
        """Return the time of the first save."""
        return stamp(self.made_at)

    @property
    def updated_at(self) -> str:
        """Return the time of the last save."""
        return stamp(self.changed_at)
