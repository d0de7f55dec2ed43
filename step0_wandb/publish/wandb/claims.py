"""Agreement between machines on which of them sends a message that its channel would not drop as a repeat.

Each machine writes into the shared state what it is about to send, and then reads what the others have
written. Whatever the order, the one that writes second sees the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast

from step0_wandb.errors import Step0Error
from step0_wandb.publish.wandb.state import Claim
from step0_wandb.store import Subject

if TYPE_CHECKING:
    from collections.abc import Collection

    from step0_wandb.publish.wandb.project import ProjectSync
    from step0_wandb.store.outbox import AlertLevel

CLAIM_LASTS: Final = timedelta(minutes=15)
"""How long a claim holds when the machine that made it is never heard of again."""
CLAIM_WAITS_S: Final = (1.0,) * 40
"""Waits for other machines that claim the same."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What one machine is about to send about the runs of one project in one channel."""

    project: ProjectSync
    channel: str

    def win(self, subjects: Collection[Subject]) -> set[Subject]:
        """Return which subjects this machine is to send.

        It writes what it is about to send, then reads what the others have written. Of two machines that
        see each other, the one with the greater id gives way in writing, and the other waits for that.
        Where one cannot write or read, all are returned: twice is better than never.
        """
        wanted = set(subjects)
        if self.project.was_refused():
            return wanted
        try:
            self.project.met()
            mine = {one for one in wanted - self._alerted() if not self._claimants(one)}
            if not mine:
                return set()
            if self.project.share(self._claims(mine)):
                return wanted - self._alerted()
            return self._settle(mine)
        except Step0Error:
            return wanted - self._alerted()

    def _settle(self, mine: set[Subject]) -> set[Subject]:
        """Give way to machines of a smaller id, and wait until those of a greater one have done so."""
        for wait_s in (0.0, *CLAIM_WAITS_S):
            if wait_s:
                self.project.sleep(wait_s)
                self.project.met()
            rivals = {one: self._claimants(one) for one in mine}
            lost = {one for one, some in rivals.items() if any(other < self.project.writer for other in some)}
            lost |= mine & self._alerted()
            if lost:
                mine -= lost
                self.project.share(self._claims(mine))
            if not any(rivals[one] for one in mine):
                return mine
        return {one for one in mine if not self._claimants(one)}

    def _alerted(self) -> set[Subject]:
        """Return what any machine has sent in a channel."""
        rows = (row for row in self.project.store.outbox.sent() if row["channel"] == self.channel)
        return {Subject(str(row["subject"]), cast("AlertLevel", row["level"])) for row in rows}

    def _claims(self, subjects: Collection[Subject]) -> list[Claim]:
        now = self.project.context.clock()
        ordered = sorted(subjects, key=lambda one: (one.name, one.level))
        return [Claim(self.channel, one.name, one.level, now) for one in ordered]

    def _claimants(self, subject: Subject) -> set[str]:
        """Return the other machines that are about to send this."""
        since = self.project.context.clock() - CLAIM_LASTS
        return {
            writer
            for writer, claims in self.project.memory.claims.items()
            for one in claims
            if (one.channel, one.subject, one.level) == (self.channel, subject.name, subject.level)
            and one.at > since
        }
