"""Sends what the outbox holds, through the channel of each message."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from step0_wandb.errors import Step0Error
from step0_wandb.publish.alerts.channels import CHANNELS, channels_in_use
from step0_wandb.publish.alerts.channels.base import NotAllowedError, OutOfReachError
from step0_wandb.records import Problem
from step0_wandb.text.formatting import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from step0_wandb.publish.alerts.channels.base import Sender
    from step0_wandb.settings.load import Loaded
    from step0_wandb.store import Message, Queued, Store, Subject
    from step0_wandb.wandb_api.context import Context

    Claim = Callable[[str, Mapping[Subject, str]], set[Subject]]

_NOT_ALLOWED: Final = "alerts:not-allowed"
"""The note of the channels in which the key may not alert, which has been said once."""


def _claim_all(_channel: str, subjects: Mapping[Subject, str]) -> set[Subject]:
    return set(subjects)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the messages that waited.

    Attributes
    ----------
    alerts : tuple of dict
        One item a run or setup of each message.
    problems : tuple of Problem
        One a channel that did not accept all of them; what a key may not do is a problem once.
    """

    alerts: tuple[dict[str, object], ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass
class Delivery:
    """Sends the messages of one sync; a channel that is out of reach is not tried again."""

    loaded: Loaded
    context: Context
    not_allowed: set[str] = field(default_factory=set)
    _senders: dict[str, Sender] = field(default_factory=dict)
    _out_of_reach: dict[str, str] = field(default_factory=dict)

    def send(self, message: Message) -> str | None:
        """Send one message; return None where it was accepted, else why not."""
        name = message.channel
        if failure := self._out_of_reach.get(name):
            return failure
        try:
            if name not in self._senders:
                self._senders[name] = CHANNELS[name].sender(self.loaded, self.context)
            self._senders[name].send(message)
        except OutOfReachError as error:
            self._out_of_reach[name] = error.message
            return error.message
        except NotAllowedError as error:
            self.not_allowed.add(name)
            return error.message
        except Step0Error as error:
            return error.message
        return None


def deliver(
    store: Store, loaded: Loaded, context: Context, *, claim: Claim = _claim_all, dry_run: bool
) -> Delivered:
    """Send what the outbox holds.

    A message is marked as sent right after its channel has accepted it. After a crash in between it is
    sent again in the same words, and a W&B server drops it. With `dry_run` nothing is sent.

    Parameters
    ----------
    claim : callable
        Takes a channel that does not drop repeats, and subjects with their projects; returns those that
        no other machine sends.
    """
    delivery = Delivery(loaded, context)
    alerts: list[dict[str, object]] = []
    failures: dict[str, list[tuple[str, str]]] = defaultdict(list)
    accepted: set[str] = set()
    for channel in channels_in_use(loaded.settings.alerts):
        waiting = [queued for queued in store.outbox.unsent() if queued.message.channel == channel.name]
        if not dry_run and not channel.drops_repeats:
            waiting = _claimed(store, channel.name, waiting, claim)
        for queued in waiting:
            failure = None if dry_run else delivery.send(queued.message)
            if failure is not None:
                store.outbox.mark_failed(queued.number, failure)
                failures[channel.name].append((queued.message.title, failure))
            elif not dry_run:
                store.outbox.mark_sent(queued.number, now=context.clock())
                accepted.add(channel.name)
            alerts += _items(queued, is_sent=not dry_run and failure is None, error=failure)
    if dry_run:
        return Delivered(tuple(alerts))
    return Delivered(tuple(alerts), tuple(_problems(store, failures, accepted, delivery.not_allowed)))


def _claimed(store: Store, channel: str, waiting: Sequence[Queued], claim: Claim) -> list[Queued]:
    """Return the messages that no other machine sends.

    Of a digest another machine may send a part. Then it is withdrawn, and the next sync tells the rest.
    """
    if not waiting:
        return []
    homes = {
        subject: f"{queued.message.entity}/{queued.message.project}" if subject.is_setup else _home(subject)
        for queued in waiting
        for subject in queued.message.subjects
    }
    mine = claim(channel, homes)
    gone = {queued.number for queued in waiting} - {queued.number for queued in store.outbox.unsent()}
    kept = []
    for queued in waiting:
        subjects = set(queued.message.subjects)
        if queued.number in gone:
            continue
        if subjects <= mine:
            kept.append(queued)
        elif subjects & mine:
            store.outbox.withdraw(queued.number)
            from step0_wandb.publish.alerts.select import run_of

            store.stale.mark_runs(run_of(subject.name) for subject in queued.message.subjects)
            store.stale.mark_setups(subject.name for subject in queued.message.subjects if subject.is_setup)
    return kept


def _home(subject: Subject) -> str:
    return subject.name.rpartition("/")[0]


def _problems(
    store: Store, failures: Mapping[str, list[tuple[str, str]]], accepted: set[str], not_allowed: set[str]
) -> Iterator[Problem]:
    """Yield a problem a channel; that a key may not alert is said when it is noticed, and not again."""
    note = store.notes.get(_NOT_ALLOWED)
    known = set(map(str, note)) if isinstance(note, list) else set()
    for name, some in failures.items():
        channel, (title, why) = CHANNELS[name], some[0]
        what = f"{count(len(some), 'message')} not delivered ({title}): {why}"
        if name not in not_allowed:
            yield Problem(f"alerts in {channel.label}", f"{what}; the next sync tries again")
        elif name not in known:
            off = f"use a key that may write, or set {channel.turn_off} (this is not said again)"
            yield Problem(f"alerts in {channel.label}", f"{what}; {off}")
    if (now := (known | not_allowed) - accepted) != known:
        store.notes.put(_NOT_ALLOWED, [*sorted(now)])


def _items(queued: Queued, *, is_sent: bool, error: str | None) -> Iterator[dict[str, object]]:
    from step0_wandb.publish.alerts.select import run_of

    message = queued.message
    for subject in message.subjects:
        yield {
            "run": None if subject.is_setup else run_of(subject.name),
            "setup": subject.name if subject.is_setup else None,
            "level": subject.level,
            "title": message.title,
            "text": message.text,
            "channel": message.channel,
            "sent": is_sent,
            "error": error,
        }
