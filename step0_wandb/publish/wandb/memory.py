"""What a store remembers of one project in W&B: what is there, what it has read, and what others claim."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from pydantic import AwareDatetime, TypeAdapter, ValidationError  # noqa: TC002 - in a field

from step0_wandb.publish.wandb.state import Claim
from step0_wandb.store.outbox import AlertLevel  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.records import Json


@dataclass(frozen=True, slots=True)
class _Note:
    marks: dict[str, str]
    report: str | None
    seen: list[str] = field(default_factory=list)
    claims: dict[str, list[tuple[str, str, AlertLevel, AwareDatetime]]] = field(default_factory=dict)
    refused_at: AwareDatetime | None = None


_NOTE: Final = TypeAdapter(_Note)
_REMEMBERED: Final = 60
"""Versions of the state: more than are ever listed."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a store remembers of one project.

    Attributes
    ----------
    marks : mapping of str to str
        The fingerprint of each part as it is there.
    report : str or None
        The id of the report.
    seen : sequence of str
        The ids of the versions of the state that were merged, the newest last.
    claims : mapping of str to sequence of Claim
        What other machines are about to send, by their id.
    refused_at : str or None
        When the key was found not to be allowed to write.
    """

    marks: Mapping[str, str] = field(default_factory=dict)
    report: str | None = None
    seen: Sequence[str] = ()
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    refused_at: str | None = None

    @classmethod
    def load(cls, note: Json) -> Memory:
        """Return what a note of the store says."""
        try:
            known = _NOTE.validate_python(note)
        except ValidationError:  # what was in the project is looked at again
            return cls()
        claims = {writer: tuple(Claim(*one) for one in some) for writer, some in known.claims.items()}
        refused_at = known.refused_at.isoformat() if known.refused_at else None
        return cls(known.marks, known.report, known.seen, claims, refused_at)

    def note(self) -> Json:
        """Return the note for the store."""
        claims: dict[str, Json] = {
            writer: [[one.channel, one.subject, one.level, one.at.isoformat()] for one in some]
            for writer, some in self.claims.items()
            if some
        }
        return {
            "marks": dict(self.marks),
            "report": self.report,
            "seen": cast("list[Json]", list(self.seen)[-_REMEMBERED:]),
            "claims": claims,
            "refused_at": self.refused_at,
        }
