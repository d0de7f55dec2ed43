"""How far a server source has been read: what the store keeps between two syncs.

Runs are read in the order of their creation, so that the creation time of the newest run says what is
still to be read, also after a sync that was interrupted. W&B's page cursors are not kept: whether they
outlive a change of the project is not documented.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, AwareDatetime, TypeAdapter, ValidationError

from step0_wandb.records import ALIVE
from step0_wandb.wandb_api.answers import moment
from step0_wandb.wandb_api.queries import LABEL_TAGS, names_filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from step0_wandb.records import Json
    from step0_wandb.sources.server.history import Step0Search
    from step0_wandb.wandb_api.answers import RunNode

VERSION = 1
OVERLAP = timedelta(hours=1)
"""Runs may appear so much later than they were created."""
MOST_NAMES = 500
"""Names that one filter holds."""
Moment = Annotated[AwareDatetime, AfterValidator(lambda found: moment(found.isoformat()))]


@dataclass(slots=True)
class Progress:
    """What is known of a project's runs, by their ids.

    Attributes
    ----------
    profiles : str
        Fingerprint of the profiles with which the runs were read.
    since : datetime or None
        Runs created until then were read; None before the first run.
    recent : dict of str to datetime
        Creation times of the runs read that are newer: a sync asks from `since` on, but not for them.
    pending : set of str
        Runs whose step 0 was not there yet.
    watched : dict of str to str
        Runs that still run or that a person labeled, with a digest of their light facts.
    lost : dict of str to str
        Runs that could not be read, and why.
    count : int
        Runs read so far that exist.
    surplus : int
        By how many the server's count differed from ours when its runs were last listed.
    metrics : set of str
        The metrics seen in the project.
    flat_until : datetime or None
        Until when the nested query is not tried, after the server refused it.
    marks : dict of str to tuple
        Of the watched runs, how many rows and which writers they had.
    heard : datetime or None
        The latest heartbeat of any run: a run with a later one that is not watched has started again.
    named_from : datetime or None
        The creation time from which on the next sync looks at the names of older runs.
    """

    profiles: str = ""
    since: Moment | None = None
    recent: dict[str, Moment] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    watched: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    count: int = 0
    surplus: int = 0
    metrics: set[str] = field(default_factory=set)
    flat_until: Moment | None = None
    marks: dict[str, tuple[int | None, tuple[str, ...]]] = field(default_factory=dict)
    heard: Moment | None = None
    named_from: Moment | None = None

    @classmethod
    def load(cls, cursor: Mapping[str, Json] | None, *, now: datetime) -> Progress:
        """Return what the store kept; a cursor that is damaged or of another version starts again.

        Nothing is lost by that. What is damaged may also be a date: behind one to come no run is new.
        """
        try:
            saved = _PROGRESS.validate_python(cursor)
        except ValidationError:
            return cls()
        is_usable = isinstance(cursor, dict) and cursor.get("version") == VERSION
        return saved if is_usable and (saved.since or now) <= now else cls()

    def save(self) -> dict[str, Json]:
        """Return what the store is to keep."""
        return {
            "version": VERSION,
            "profiles": self.profiles,
            "since": _text(self.since),
            "recent": {name: moment.isoformat() for name, moment in sorted(self.recent.items())},
            "pending": _list(self.pending),
            "watched": dict(sorted(self.watched.items())),
            "lost": dict(sorted(self.lost.items())),
            "count": self.count,
            "surplus": self.surplus,
            "metrics": _list(self.metrics),
            "flat_until": _text(self.flat_until),
            "marks": {name: [lines, [*writers]] for name, (lines, writers) in sorted(self.marks.items())},
            "heard": _text(self.heard),
            "named_from": _text(self.named_from),
        }

    def filters(self, pending: Sequence[str]) -> dict[str, Json]:
        """Return the filter of the runs to read: the new ones, and these pending ones."""
        if self.since is None:
            return {}
        left_out = {*self.recent, *self.lost} - set(pending)
        new: list[Json] = [{"createdAt": {"$gt": _stamp(self.since)}}]
        if left_out:
            new.append({"name": {"$nin": _list(left_out)}})
        return {"$or": [{"$and": new}, names_filter(pending)]} if pending else {"$and": new}

    def labeled_filter(self) -> dict[str, Json]:
        """Return the filter of the labeled runs that are not watched yet."""
        tagged: dict[str, Json] = {"tags": {"$in": _list(LABEL_TAGS)}}
        if not self.watched:
            return tagged
        return {"$and": [tagged, {"name": {"$nin": _list(self.watched)}}]}

    def light_filters(self, now: datetime) -> dict[str, dict[str, Json]]:
        """Return the filters of the runs that a sync looks at without config and history."""
        if self.since is None:
            return {}
        filters = {"labeled": self.labeled_filter()}
        watched = self.watched_names()[:MOST_NAMES]
        if watched:
            filters["watched"] = names_filter(watched)
        if self.heard is not None:
            # Servers tell whole seconds and may compare fractions.
            between: Json = {
                "heartbeatAt": {
                    "$gt": _stamp(self.heard + timedelta(seconds=1)),
                    "$lt": _stamp(now + OVERLAP),
                }
            }
            asked = _list([*watched, *self.pending])
            filters["active"] = {"$and": [between, {"name": {"$nin": asked}}]}
        after = self.named_from or datetime(1970, 1, 2, tzinfo=UTC)
        filters["named"] = {"createdAt": {"$gt": _stamp(after)}}
        return filters

    def watched_names(self) -> list[str]:
        """Return the watched runs that are not read whole anyway."""
        return sorted(self.watched.keys() - self.pending)

    def has_restarted(self, node: RunNode) -> bool:
        """Return whether a watched run has lost rows or got another writer since the last sync."""
        lines, writers = self.marks.get(node.name, (None, ()))
        is_shorter = lines is not None and node.line_count is not None and node.line_count < lines
        return is_shorter or bool(writers and node.writers and writers != node.writers)

    def settle(self, search: Step0Search, now: datetime, *, again: bool = False) -> None:
        """Note a run that was read, `again` where its step 0 was known."""
        node = search.node
        known = node.name in self.pending or node.name in self.recent or node.name in self.watched
        self.count += not (known or again)
        self.lost.pop(node.name, None)
        self.pending.discard(node.name)
        if node.state in ALIVE and not search.newest.decided:
            self.pending.add(node.name)
        self.note([node], now)
        if node.created_at is not None:
            self.recent[node.name] = node.created_at

    def note(self, nodes: Iterable[RunNode], now: datetime) -> list[RunNode]:
        """Note light facts; return the runs for which they differ from before."""
        changed = []
        for node in nodes:
            digest = _digest(node)
            if self.watched.get(node.name) != digest:
                changed.append(node)
            self.watched.pop(node.name, None)
            self.marks.pop(node.name, None)
            if node.heartbeat_at is not None and node.heartbeat_at < now + OVERLAP:
                self.heard = max(node.heartbeat_at, self.heard or node.heartbeat_at)
            if node.state in ALIVE or not set(LABEL_TAGS).isdisjoint(node.tags):
                self.watched[node.name] = digest
                self.marks[node.name] = (node.line_count, node.writers)
        return changed

    def lose(self, name: str, why: str) -> bool:
        """Note a run that could not be read; return whether that is news."""
        news = self.lost.get(name) != why
        self.count -= name in self.pending
        self.pending.discard(name)
        self.lost[name] = why
        return news

    def forget(self, name: str) -> None:
        """Note that a run does not exist any more."""
        self.count -= name not in self.lost
        for names in (self.recent, self.watched, self.lost, self.marks):
            names.pop(name, None)
        self.pending.discard(name)

    def trim(self, now: datetime) -> None:
        """Move `since` on: an hour behind the newest run, or as far as one filter's names allow."""
        if not self.recent:
            return
        moments = sorted(self.recent.values(), reverse=True)
        floor = min(moments[0], now) - OVERLAP
        if len(moments) > MOST_NAMES:
            floor = max(floor, moments[MOST_NAMES])
        self.since = floor if self.since is None else max(floor, self.since)
        self.recent = {name: moment for name, moment in self.recent.items() if moment > self.since}


_PROGRESS = TypeAdapter(Progress)


def _list(names: Iterable[str]) -> list[Json]:
    return [*sorted(names)]


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(node: RunNode) -> str:
    facts = "\0".join((node.display_name, node.state, *node.tags))
    return hashlib.blake2b(facts.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
