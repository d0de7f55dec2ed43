"""What is new to tell: runs and setups with what people need to know of them, made into messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from step0_wandb.explanations.explanation import Explainer
from step0_wandb.publish.alerts import text as words
from step0_wandb.publish.alerts.delivery import OWN_RUN
from step0_wandb.records import ALIVE
from step0_wandb.store import Message, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from step0_wandb.explanations.installed import Installed
    from step0_wandb.profiles import Profiles
    from step0_wandb.records import JudgedRun
    from step0_wandb.store import RunPresence
    from step0_wandb.store.outbox import Channel, Severity

_ORDER = ("broken", "suspect", "moved", "doubted")
"""The levels as a digest lists them."""
_LATEST = datetime.max.replace(tzinfo=UTC)
HURRY: Final = timedelta(seconds=10)
"""How long a sync asks servers which packages differ; later alerts go out without it."""
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Item:
    """A run to tell people of, or a setup with the runs that show it, the oldest first.

    Attributes
    ----------
    on_server : bool
        Whether W&B can be asked to alert; all `runs` are on the server then, else on disk.
    """

    subject: Subject
    runs: tuple[JudgedRun, ...]
    on_server: bool

    @classmethod
    def of(cls, subject: Subject, runs: Sequence[JudgedRun], places: dict[str, RunPresence]) -> Item:
        """Return the item; of a setup that is seen on a server and on disk the runs on the server count."""
        on_server = any(places[run.run].on_server for run in runs)
        some = [run for run in runs if places[run.run].on_server is on_server]
        return cls(subject, tuple(sorted(some, key=_age)), on_server)

    @property
    def first(self) -> JudgedRun:
        """Return the oldest of the runs, which stays the first."""
        return self.runs[0]

    @property
    def entity(self) -> str:
        """Return the team or user whose people are told."""
        return self.first.run.split("/", 1)[0]

    @property
    def severity(self) -> Severity:
        """Return how grave W&B is to call it."""
        return "ERROR" if self.subject.level == "broken" else "WARN"

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Return what items are sorted by: it does not change from one sync to the next."""
        return (_ORDER.index(self.subject.level), *_age(self.first))

    def is_in(self, channel: Channel) -> bool:
        """Return whether a channel can tell people of this."""
        return channel == "webhook" or (channel == "wandb") is self.on_server

    def is_told(self, told: set[Subject]) -> bool:
        """Return whether people know: a run that was called broken is not called suspect later."""
        graver = Subject(self.subject.name, "broken")
        return self.subject in told or (self.subject.level == "suspect" and graver in told)


class Newsroom:
    """Writes the messages of one sync; every text once, whatever the number of channels.

    Parameters
    ----------
    installed : Installed
        Knows what is installed where the runs ran.
    """

    def __init__(
        self, installed: Installed, places: dict[str, RunPresence], *, clock: Callable[[], datetime]
    ) -> None:
        self._installed = replace(installed, give_up_s=_PATIENCE_S)
        self._store = installed.store
        self._places = places
        self._clock = clock
        self._now = clock()
        self._texts: dict[Subject, str] = {}
        self._peers: dict[str | None, list[JudgedRun]] = {}

    def messages(self, channel: Channel, items: Sequence[Item], *, digest: int) -> Iterator[Message]:
        """Yield what a channel is to be sent: one message an item, or where there are too many one for all.

        In W&B that is one for all of a team, whose runs are not another team's business.

        Parameters
        ----------
        digest : int
            How many messages are not too many.
        """
        told = self._store.outbox.alerted(channel)
        new = sorted(
            (item for item in items if item.is_in(channel) and not item.is_told(told)),
            key=lambda item: item.order,
        )
        groups: dict[str, list[Item]] = defaultdict(list)
        for item in new:
            groups[item.entity if channel == "wandb" else ""].append(item)
        for group in groups.values():
            if len(new) > digest and len(group) > 1:
                yield self._digest(channel, group)
            else:
                yield from (self._message(channel, item) for item in group)

    def _message(self, channel: Channel, item: Item) -> Message:
        entity, project, run_id = item.first.run.split("/", 2)
        is_setup, level = item.subject.is_setup, item.subject.level
        return Message(
            channel=channel,
            severity=item.severity,
            title=self._setup_title(item) if is_setup else words.run_title(run_id, level),
            text=self._text(item),
            entity=entity,
            project=project,
            run_id=OWN_RUN if is_setup else run_id.partition("#")[0],
            url=item.first.url,
            subjects=(item.subject,),
        )

    def _digest(self, channel: Channel, items: Sequence[Item]) -> Message:
        first = items[0]
        runs = [item.first for item in items if not item.subject.is_setup]
        entity, project, run_id = first.first.run.split("/", 2)
        return Message(
            channel=channel,
            severity="ERROR" if any(item.severity == "ERROR" for item in items) else "WARN",
            title=words.digest_title(
                words.short_hash(first.subject.name) if first.subject.is_setup else run_id
            ),
            text=words.digest_text([self._line(item) for item in items], runs, first.first.url),
            entity=entity,
            project=project,
            run_id=OWN_RUN,
            url=first.first.url,
            subjects=tuple(item.subject for item in items),
        )

    def _setup_title(self, item: Item) -> str:
        accepted = self._store.people.accepts().get(item.subject.name)
        return words.setup_title(item.subject.name, item.subject.level, accepted.at if accepted else None)

    def _text(self, item: Item) -> str:
        if item.subject not in self._texts:
            self._texts[item.subject] = self._new_text(item)
        return self._texts[item.subject]

    def _new_text(self, item: Item) -> str:
        if item.subject.is_setup:
            return words.setup_text(item.subject.name, self._notes.get(item.subject.name, ""), item.runs)
        return words.run_text(item.first, self._stake(item.first), self._findings(item.first))

    def _line(self, item: Item) -> str:
        if item.subject.is_setup:
            return words.setup_line(item.subject.name, self._notes.get(item.subject.name, ""))
        return words.run_line(item.first)

    @cached_property
    def _notes(self) -> dict[str, str]:
        return {setup.setup: setup.note for setup in self._store.verdicts.ranges()}

    @property
    def _profiles(self) -> Profiles:
        return self._installed.finder.profiles

    def _findings(self, run: JudgedRun) -> Sequence[str]:
        found = Explainer(self._judged(run.setup), self._store, self._profiles).explain(run)
        late = self._clock() - self._now > HURRY
        return (self._installed.beside_files if late else self._installed).explained(found).findings

    def _judged(self, setup: str | None) -> list[JudgedRun]:
        """Return the runs that one of this setup is compared with: all where the setup has no healthy one."""
        if setup not in self._peers:
            own = self._store.verdicts.runs(setup=setup) if setup else []
            healthy = any(run.verdict == "healthy" for run in own)
            self._peers[setup] = own if healthy else self._store.verdicts.runs()
        return self._peers[setup]

    def _stake(self, run: JudgedRun) -> words.Stake:
        record = self._store.runs.record(run.run)
        profile = self._profiles.by_name.get(run.profile or "")
        gpus = profile.gpu_count(record.config) if profile and record else None
        if run.state not in ALIVE:
            return words.Stake(gpus)
        heard = min(self._places[run.run].seen_at or self._now, self._now)
        logged = self._step0_at(run)
        began = logged or run.created_at
        spent = heard - began if began and began <= heard else None
        return words.Stake(gpus, spent, "step 0" if logged else "its start", heard)

    def _step0_at(self, run: JudgedRun) -> datetime | None:
        """Return when step 0 was logged, where its row says so and that can be."""
        facts = self._store.runs.facts(run.run)
        seconds = facts.step0.row.get("_timestamp", 0.0) if facts else 0.0
        if not 0 < seconds <= self._now.timestamp():
            return None
        return datetime.fromtimestamp(seconds, UTC)


def _age(run: JudgedRun) -> tuple[datetime, str]:
    return (run.created_at or _LATEST, run.run)
