"""From verdicts to queued messages: drafted before the transaction that stores the verdicts, queued in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.publish.alerts.channels import channels_in_use

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from step0_wandb.explanations.installed import Installed
    from step0_wandb.records import JudgedRun, SetupRange
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.store import Message, Store, Subject
    from step0_wandb.verdicts.judge import Judgement


@dataclass(frozen=True, slots=True)
class Judged:
    """What one sync has just judged.

    Attributes
    ----------
    runs : sequence of JudgedRun
        All of the store.
    setups : mapping of str to SetupRange
        By label.
    """

    runs: Sequence[JudgedRun]
    setups: Mapping[str, SetupRange]


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be queued, and what of the queue is still true.

    Attributes
    ----------
    standing : frozenset of Subject
        A queued message about nothing of this is withdrawn.
    channels : frozenset of str
        The channels in use; messages for others are withdrawn.
    """

    messages: tuple[Message, ...]
    standing: frozenset[Subject]
    channels: frozenset[str]


def draft(
    installed: Installed,
    settings: AlertsSettings,
    judgement: Judgement,
    judged: Judged,
    *,
    clock: Callable[[], datetime],
) -> Draft:
    """Return the messages about new verdicts.

    Servers are asked for packages, so it is called before the transaction that stores the verdicts.
    """
    from step0_wandb.publish.alerts.compose import Composer
    from step0_wandb.publish.alerts.select import select

    store = installed.store
    selection = select(store, settings, judgement, judged.runs, now=clock())
    composer = None
    messages: list[Message] = []
    channels = channels_in_use(settings)
    for channel in channels:
        due = selection.due(channel.name, store.outbox.alerted(channel.name))
        due = [alert for alert in due if alert.origin in channel.origins]
        if due:
            composer = composer or Composer(installed, judged, clock=clock)
            messages += composer.messages(channel.name, due, digest=settings.digest)
    return Draft(tuple(messages), selection.standing, frozenset(channel.name for channel in channels))


def queue(store: Store, draft: Draft, *, now: datetime) -> None:
    """Queue the messages, and withdraw what waits and is no longer true.

    The verdict got better, the run was labeled or deleted, or the setup muted.
    """
    for queued in store.outbox.unsent():
        message = queued.message
        if message.channel not in draft.channels or draft.standing.isdisjoint(message.subjects):
            store.outbox.withdraw(queued.number)
    for message in draft.messages:
        store.outbox.add(message, now=now)
