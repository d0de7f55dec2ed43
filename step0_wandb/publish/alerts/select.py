"""Alerts of a sync: what is new goes into the store's outbox, and from there out, once.

A run is alerted about once a level and channel: when it is `broken`, or `suspect` because its gap lies
above its range. A whole setup that moved or is not believed is told once, not run by run. Nothing is
told of runs that passed when they came, of runs that a person has labeled, of setups that are muted, and of runs that are older than
``alerts.since`` and do not run any more.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from step0_wandb.records import ALIVE
from step0_wandb.store import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from step0_wandb.explanations.installed import Installed
    from step0_wandb.settings.load import Loaded
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.store import Queued, Store
    from step0_wandb.store.outbox import AlertLevel, Channel
    from step0_wandb.verdicts.judge import Judgement
    from step0_wandb.wandb_api.context import Context

_Positions = dict[Subject, list[int]]
"""Where in the judgement the runs of a subject stand."""


def queue(
    installed: Installed, settings: AlertsSettings, result: Judgement, *, clock: Callable[[], datetime]
) -> None:
    """Put alerts about new verdicts into the outbox; called in the transaction that stores the verdicts.

    What waits there and is not so any more is withdrawn: the verdict got better, the run was labeled or
    deleted, or the setup muted.

    Parameters
    ----------
    installed : Installed
        Knows the store, and what is installed where its runs ran.
    """
    import numpy as np

    from step0_wandb.checks.columns import texts
    from step0_wandb.publish.alerts.compose import Item, Newsroom

    store, now = installed.store, clock()
    channels: list[Channel] = ["log", "wandb", "webhook"] if settings.webhook_env else ["log", "wandb"]
    standing = _standing(store, result, settings.levels, now=now)
    keys = result.runs["run"].tolist()
    places = store.runs.presence({keys[at] for some in standing.values() for at in some})
    standing = _only(standing, lambda at: not places[keys[at]].deleted)
    _withdraw(store, standing, channels)
    fresh = _fresh(result, since=now - settings.since)
    # Alerts are about new starts: a run that passed when it came is told of in its setup's question.
    passed = np.isin(texts(result.runs, "verdict"), ("healthy", "no-range"))
    items = [
        Item.of(subject, [result.judged(at) for at in some], places)
        for subject, some in _only(standing, lambda at: bool(fresh[at])).items()
        if subject.is_setup or not passed[some[0]]
    ]
    newsroom = Newsroom(installed, places, clock=clock)
    for channel in channels:
        for message in newsroom.messages(channel, items, digest=settings.digest):
            store.outbox.add(message, now=now)


def deliver(
    store: Store, loaded: Loaded, context: Context, *, dry_run: bool
) -> tuple[dict[str, object], ...]:
    """Send what the outbox holds; return what became of each alert, one item a run or setup.

    A message is marked as sent right after whoever takes it has said so. After a crash in between it is
    sent again in the same words, and a W&B server drops it. With `dry_run` nothing is sent.
    """
    waiting = tuple(store.outbox.unsent())
    if not waiting:
        return ()
    from step0_wandb.publish.alerts.delivery import Delivery

    delivery = Delivery(loaded, context)
    told: list[dict[str, object]] = []
    for queued in waiting:
        if not delivery.takes(queued.message.channel):
            continue
        failure = None if dry_run else delivery.send(queued.message)
        if failure is not None:
            store.outbox.mark_failed(queued.number, failure)
        elif not dry_run:
            store.outbox.mark_sent(queued.number, now=context.clock())
        told += _told(queued, sent=not dry_run and failure is None, error=failure)
    return tuple(told)


def _told(queued: Queued, *, sent: bool, error: str | None) -> Iterator[dict[str, object]]:
    message = queued.message
    for subject in message.subjects:
        yield {
            "run": None if subject.is_setup else subject.name,
            "setup": subject.name if subject.is_setup else None,
            "level": subject.level,
            "title": message.title,
            "text": message.text,
            "channel": message.channel,
            "sent": sent,
            "error": error,
        }


def _standing(store: Store, result: Judgement, levels: Sequence[str], *, now: datetime) -> _Positions:
    """Return all that people should know of, new or old, told or not."""
    import numpy as np

    muted = [setup for setup, mute in store.people.mutes().items() if mute.until > now]
    setups, runs = result.runs["setup"].tolist(), result.runs["run"].tolist()
    heard = ~np.isin(result.runs["setup"].to_numpy(dtype=str), muted)
    found: _Positions = defaultdict(list)
    for level, mask in _flagged(result, levels).items():
        names = setups if Subject("", level).is_setup else runs
        for at in np.flatnonzero(mask & heard):
            found[Subject(names[at], level)].append(int(at))
    return found


def _flagged(result: Judgement, levels: Sequence[str]) -> Mapping[AlertLevel, NDArray[np.bool_]]:
    """Return by level which runs are flagged; a run in a moved setup speaks for the setup alone."""
    from step0_wandb.checks.columns import texts
    from step0_wandb.checks.outcomes import Why

    unspoken = texts(result.runs, "label") == ""
    why = result.outcomes["gap"].why
    found: dict[AlertLevel, NDArray[np.bool_]] = {}
    if "broken" in levels:
        found["broken"] = unspoken & (result.verdict == "broken")
    if "suspect" in levels:
        found["suspect"] = unspoken & result.needs_attention
        found["moved"] = unspoken & (why == Why.MOVED)
        found["doubted"] = unspoken & (why == Why.NOT_BELIEVED)
    return found


def _fresh(result: Judgement, *, since: datetime) -> NDArray[np.bool_]:
    """Return which runs are young enough to alert about, or still run."""
    runs = result.runs
    fresh: NDArray[np.bool_] = ((runs["created_at"] >= since) | runs["state"].isin(ALIVE)).to_numpy(
        dtype=bool
    )
    return fresh


def _only(positions: _Positions, wanted: Callable[[int], bool]) -> _Positions:
    """Return the subjects with those of their runs that are wanted, if any is left."""
    kept = {subject: [at for at in some if wanted(at)] for subject, some in positions.items()}
    return {subject: some for subject, some in kept.items() if some}


def _withdraw(store: Store, standing: _Positions, channels: Sequence[Channel]) -> None:
    """Take messages back that nobody has got and that are not true any more."""
    for queued in store.outbox.unsent():
        message = queued.message
        if message.channel not in channels or standing.keys().isdisjoint(message.subjects):
            store.outbox.withdraw(queued.number)
