"""The shared state: what other machines need of this store, as one small JSON document in W&B.

It lies there as an artifact of the sync's own run. A sync with an empty store starts from it, machines
that sync the same project merge each other's, and a single run is judged by its ranges where there is no
store. `state_document` reads it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from step0_wandb.records import SetupRange
from step0_wandb.store import Accept, Label, Mute
from step0_wandb.store.outbox import AlertLevel, Subject  # noqa: TC001 - pydantic reads it
from step0_wandb.store.people import BY_TAG
from step0_wandb.text.json_documents import document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from step0_wandb.records import Json, JudgedRun
    from step0_wandb.store import Retraction, Store

VERSION: Final = 2
"""Of the document; a reader refuses a later one and takes what it knows of an earlier one."""
RETRACTIONS_EXPIRE: Final = timedelta(days=180)
"""After this long no store is left that could bring back what was removed."""
MOST_RANGES, MOST_PEOPLE, MOST_ALERTED, MOST_RETRACTIONS = 5_000, 20_000, 50_000, 2_000
"""Records of each kind; of more the newest are written, and a document with more is damaged."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_DIGITS = 12
"""Of a float in a fingerprint: the last bits differ between machines that fit the same runs."""


_OF_ONE_VERSION: Final = ("written_at", "written", "writer", "token", "claims", "report")
"""What differs between versions that say the same of runs and people."""


@dataclass(frozen=True, slots=True)
class ProjectScope:
    """Which runs of a store belong to one project that a sync writes to.

    Attributes
    ----------
    project : str
        ``entity/project``.
    others : frozenset of str
        The other projects that the sync writes to.
    takes_rest : bool
        Whether runs of no such project (from directories) count as this one's: true of the first.
    everything : bool
        Whether runs of all sources are shown here: true of a report for several projects.
    """

    project: str
    others: frozenset[str] = frozenset()
    takes_rest: bool = False
    everything: bool = False

    def has(self, key: str) -> bool:
        """Return whether a run, by its key, belongs to the project."""
        return self.has_project(key.rpartition("/")[0])

    def has_project(self, home: str) -> bool:
        """Return whether the runs of a project belong to this one."""
        return self.everything or home == self.project or (self.takes_rest and home not in self.others)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a machine is about to send in a channel that does not drop repeats, and since when."""

    channel: str
    subject: str
    level: AlertLevel
    at: datetime


@dataclass(frozen=True, slots=True)
class State:
    """What a store knows of the runs of one project beyond what W&B keeps of them.

    Attributes
    ----------
    project : str
        ``entity/project``.
    written_at : datetime
        In UTC.
    runs : int
        Runs that were judged.
    counts : mapping of str to int
        Runs by verdict.
    labels : tuple of Label
        From the shell; tags are read from the runs anyway.
    retractions : tuple of Retraction
        Labels and mutes that were removed, which no other store is to bring back.
    alerted : tuple of dict
        As `Outbox.sent` gives them.
    report : str or None
        Id of the project's report.
    written : mapping of str to str
        Fingerprints of what was last written in addition to this state, by part.
    writer, token : str
        The store that wrote it, by a random id, and this very version, by another one.
    claims : tuple of Claim
        What that store is about to send.
    """

    project: str
    written_at: datetime
    runs: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[SetupRange, ...] = ()
    labels: tuple[Label, ...] = ()
    accepts: tuple[Accept, ...] = ()
    mutes: tuple[Mute, ...] = ()
    retractions: tuple[Retraction, ...] = ()
    alerted: tuple[dict[str, Json], ...] = ()
    report: str | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    writer: str = ""
    token: str = ""
    claims: tuple[Claim, ...] = ()

    def document(self) -> dict[str, Json]:
        """Return the state as plain JSON."""
        parts: dict[str, object] = {item.name: getattr(self, item.name) for item in fields(self)}
        # By field, and not as documents show them: they are read back.
        parts["ranges"] = [
            {item.name: getattr(one, item.name) for item in fields(SetupRange)} for one in self.ranges
        ]
        plain = document("state", **parts)
        return plain | {"schema": f"step0/state/{VERSION}"}

    def fingerprint(self) -> str:
        """Return what is equal for two states with the same content, whatever their writer and time."""
        own: dict[str, Json] = dict.fromkeys(_OF_ONE_VERSION)
        return fingerprint(self.document() | own)


def export_state(store: Store, scope: ProjectScope, runs: Sequence[JudgedRun], *, now: datetime) -> State:
    """Return what of a store one project's state holds.

    Parameters
    ----------
    runs : sequence of JudgedRun
        Those of the scope.
    """
    setups = {run.setup for run in runs if run.setup}
    ranges = store.verdicts.ranges()
    known = {item.setup for item in ranges}

    def concerns(name: str) -> bool:
        """Return whether a run or a setup of that name belongs to the scope."""
        return name in setups if name in known else scope.has(name)

    counts: dict[str, int] = {}
    for run in runs:
        counts[run.verdict] = counts.get(run.verdict, 0) + 1
    people = store.people
    labels = [one for run, one in people.labels().items() if scope.has(run) and one.who != BY_TAG]
    retractions = [
        one for one in people.retractions() if concerns(one.name) and one.at > now - RETRACTIONS_EXPIRE
    ]
    alerted = [item for item in store.outbox.sent() if concerns(str(item["subject"]))]
    return State(
        project=scope.project,
        written_at=now,
        runs=len(runs),
        counts=counts,
        ranges=tuple([replace(item, question=None) for item in ranges if item.setup in setups][:MOST_RANGES]),
        labels=_newest(labels, MOST_PEOPLE, _at),
        accepts=_newest([one for name, one in people.accepts().items() if concerns(name)], MOST_PEOPLE, _at),
        mutes=_newest([one for name, one in people.mutes().items() if concerns(name)], MOST_PEOPLE, _at),
        retractions=_newest(retractions, MOST_RETRACTIONS, _at),
        alerted=_newest(alerted, MOST_ALERTED, lambda item: str(item["at"])),
    )


_Item = TypeVar("_Item")


def _at(said: Label | Accept | Mute | Retraction) -> datetime:
    return said.at


def _newest(items: list[_Item], most: int, at: Callable[[_Item], Any]) -> tuple[_Item, ...]:
    """Return all items in their order, or the newest where they are too many."""
    if len(items) <= most:
        return tuple(items)
    limit = sorted(map(at, items), reverse=True)[most - 1]
    return tuple([item for item in items if at(item) >= limit][:most])


def merge_state(store: Store, scope: ProjectScope, state: State, *, now: datetime) -> None:
    """Take over what another store knows; of several labels on the same run the latest stays.

    A removal counts as one. So the stores of several machines that sync one project come to know the
    same, whichever of them writes last. What a state says of runs of other projects is ignored, and so
    are its accepts and mutes of a setup that has runs outside the project: they are not its to decide.
    """
    people = store.people
    labels, accepts, mutes = people.labels(), people.accepts(), people.mutes()
    own = _OwnSetups(store, scope)
    removed_at = {(one.what, one.name): one.at for one in people.retractions()}
    news = [
        one
        for one in state.retractions
        if (scope.has(one.name) if one.what == "label" else own.has(one.name))
        and now - RETRACTIONS_EXPIRE < one.at <= _soon(now)
        and removed_at.get((one.what, one.name), _NEVER) < one.at
    ]
    with store.transaction():
        people.retract_all(news)
        removed_at |= {(one.what, one.name): one.at for one in news}
        for label in state.labels:
            known = labels.get(label.run)
            is_later = known is None or known.who == BY_TAG or known.at < label.at
            if scope.has(label.run) and is_later and label.at > removed_at.get(("label", label.run), _NEVER):
                people.save(_dated(label, now))
        for accept in state.accepts:
            known_accept = accepts.get(accept.setup)
            is_later = known_accept is None or known_accept.at < accept.at
            removed = removed_at.get(("accept", accept.setup), _NEVER)
            if own.has(accept.setup) and is_later and accept.at > removed:
                people.save(_dated(accept, now))
        for mute in state.mutes:
            known_mute = mutes.get(mute.setup)
            is_later = (known_mute is None or known_mute.at < mute.at) and mute.until > now
            if own.has(mute.setup) and is_later and mute.at > removed_at.get(("mute", mute.setup), _NEVER):
                people.save(_dated(mute, now))
        store.outbox.restore(item for item in state.alerted if _is_own(item, scope, own))


def _is_own(item: Mapping[str, Json], scope: ProjectScope, own: _OwnSetups) -> bool:
    name = str(item["subject"])
    is_setup = Subject(name, cast("AlertLevel", item["level"])).is_setup
    return own.has(name) if is_setup else scope.has(name)


class _OwnSetups:
    """The setups whose stored runs all belong to one project."""

    def __init__(self, store: Store, scope: ProjectScope) -> None:
        self._foreign = {setup for setup, home in store.runs.setup_projects() if not scope.has_project(home)}

    def has(self, setup: str) -> bool:
        return setup not in self._foreign


_Said = TypeVar("_Said", Label, Accept, Mute)


def _soon(now: datetime) -> datetime:
    """Return the end of what clocks of other machines may show."""
    return now + timedelta(hours=1)


def _dated(said: _Said, now: datetime) -> _Said:
    """Return a record that is not dated ahead: else nothing said later could ever replace it."""
    return said if said.at <= _soon(now) else replace(said, at=now)


def fingerprint(value: Any) -> str:
    """Return a short text that is the same for equal plain JSON, floats to 12 digits."""
    text = json.dumps(_rounded(value), sort_keys=True, ensure_ascii=True)
    return blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
