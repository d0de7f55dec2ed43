"""From verdicts to queued messages: drafted before the transaction that stores the verdicts, queued in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.publish.alerts.channels import channels_in_use

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from step0_wandb.explanations.installed import Installed
    from step0_wandb.publish.alerts.select import Candidate
    from step0_wandb.records import JudgedRun, SetupRange
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.store import Message, Store, Subject


@dataclass(frozen=True, slots=True)
class Judged:
    """What one sync has just judged.

    Attributes
    ----------
    candidates : sequence of Candidate
        The runs to which an alert or an all clear may be due.
    runs : sequence of JudgedRun
        Those whose verdicts the store does not have yet.
    setups : mapping of str to SetupRange
        Those whose runs were judged, by label.
    keys : collection of str or None
        The runs that were judged; None: all of the store.
    """

    candidates: Sequence[Candidate]
    runs: Sequence[JudgedRun]
    setups: Mapping[str, SetupRange]
    keys: Collection[str] | None = None

    def has(self, subject: Subject) -> bool:
        """Whether what an alert is about was judged."""
        from step0_wandb.publish.alerts.select import run_of

        if self.keys is None:
            return True
        return subject.name in self.setups if subject.is_setup else run_of(subject.name) in self.keys


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be queued, and what of the queue is still true.

    Attributes
    ----------
    standing : frozenset of Subject
        A queued message about nothing of this is withdrawn, if all that it is about was judged.
    channels : frozenset of str
        The channels in use; messages for others are withdrawn.
    """

    messages: tuple[Message, ...]
    standing: frozenset[Subject]
    channels: frozenset[str]
    judged: Judged


def draft(
    installed: Installed, settings: AlertsSettings, judged: Judged, *, clock: Callable[[], datetime]
) -> Draft:
    """Return the messages about new verdicts.

    Servers are asked for packages, so it is called before the transaction that stores the verdicts.
    """
    from step0_wandb.publish.alerts.compose import Composer
    from step0_wandb.publish.alerts.select import select

    store = installed.store
    selection = select(store, settings, judged.candidates, now=clock())
    composer = None
    messages: list[Message] = []
    channels = channels_in_use(settings)
    for channel in channels:
        due = selection.due(channel.name, store.outbox.alerted(channel.name))
        due = [alert for alert in due if alert.origin in channel.origins]
        if due:
            composer = composer or Composer(installed, judged, clock=clock)
            messages += composer.messages(channel.name, due, digest=settings.digest)
    names = frozenset(channel.name for channel in channels)
    return Draft(tuple(messages), selection.standing, names, judged)


def queue(store: Store, draft: Draft, *, now: datetime) -> None:
    """Queue the messages, and withdraw what waits and is no longer true.

    The verdict got better, the run was labeled or deleted, or the setup muted.
    """
    for queued in store.outbox.unsent():
        message = queued.message
        stands = any(one in draft.standing or not draft.judged.has(one) for one in message.subjects)
        if message.channel not in draft.channels or not stands:
            store.outbox.withdraw(queued.number)
    for message in draft.messages:
        store.outbox.add(message, now=now)
