"""Alerts made into messages: what people need to know of each run, and one digest where there are many."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from step0_wandb.explanations.explanation import Explainer
from step0_wandb.publish.alerts import text
from step0_wandb.publish.alerts.channels import CHANNELS
from step0_wandb.records import ALIVE, OWN_JOB_TYPE
from step0_wandb.store import Message
from step0_wandb.store.outbox import CLEAR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from step0_wandb.explanations.explanation import Explanation
    from step0_wandb.explanations.installed import Installed
    from step0_wandb.publish.alerts.queueing import Judged
    from step0_wandb.publish.alerts.select import Alert
    from step0_wandb.records import JudgedRun
    from step0_wandb.store import Subject

HURRY: Final = timedelta(seconds=10)
"""How long a sync asks servers which packages differ; later alerts go out without it."""
_PATIENCE_S: Final = 5.0
_GRAVEST: Final = ("ERROR", "WARN", "INFO")
_EXPLAINED: Final = 10
"""Runs of a digest or setup that are explained, to name what they have in common."""


class Composer:
    """Writes the messages of one sync; every text once, whatever the number of channels.

    Servers are asked which packages differ, so that this is not done inside a transaction.

    Parameters
    ----------
    installed : Installed
        Knows the store, and what is installed where its runs ran.
    """

    def __init__(self, installed: Installed, judged: Judged, *, clock: Callable[[], datetime]) -> None:
        self._installed = replace(installed, give_up_s=_PATIENCE_S)
        self._store = installed.store
        self._judged = judged
        self._profiles = installed.finder.profiles
        self._explainer = Explainer(self._store, self._profiles, judged.runs)
        self._clock = clock
        self._began = clock()
        self._texts: dict[Subject, str] = {}

    def messages(self, channel: str, alerts: Sequence[Alert], *, digest: int) -> Iterator[Message]:
        """Yield the messages of a channel: one an alert, or where there are too many one for all.

        In W&B that is one for all of a team. All clears are counted apart from alerts.

        Parameters
        ----------
        digest : int
            How many messages are not too many.
        """
        for is_clear in (False, True):
            some = [alert for alert in alerts if (alert.subject.level == CLEAR) is is_clear]
            groups: dict[str, list[Alert]] = defaultdict(list)
            for alert in some:
                groups[CHANNELS[channel].audience(alert.entity)].append(alert)
            for group in groups.values():
                if len(some) > digest and len(group) > 1:
                    yield self._digest(channel, group)
                else:
                    yield from (self._message(channel, alert) for alert in group)

    def _message(self, channel: str, alert: Alert) -> Message:
        entity, project, run_id = _address(alert)
        is_setup = alert.subject.is_setup
        return Message(
            channel=channel,
            severity=alert.severity,
            title=self._title(alert),
            text=self._text(alert),
            entity=entity,
            project=project,
            run_id=OWN_JOB_TYPE if is_setup else run_id,
            url=alert.first.url,
            subjects=(alert.subject,),
        )

    def _digest(self, channel: str, alerts: Sequence[Alert]) -> Message:
        first = alerts[0]
        entity, project, _ = _address(first)
        title = text.short_hash(first.subject.name) if first.subject.is_setup else _name(first)
        return Message(
            channel=channel,
            severity=min((alert.severity for alert in alerts), key=_GRAVEST.index),
            title=text.digest_title(title, first.subject.level),
            text=text.digest_text(
                [self._line(alert) for alert in alerts], first.first.url, first.subject.level
            ),
            entity=entity,
            project=project,
            run_id=OWN_JOB_TYPE,
            url=text.project_url(first.first.url),
            subjects=tuple(alert.subject for alert in alerts),
        )

    def _title(self, alert: Alert) -> str:
        if not alert.subject.is_setup:
            return text.run_title(_name(alert), alert.subject.level, alert.first.name)
        accepted = self._store.people.accepts().get(alert.subject.name)
        return text.setup_title(alert.subject.name, alert.subject.level, accepted.at if accepted else None)

    def _text(self, alert: Alert) -> str:
        if alert.subject not in self._texts:
            self._texts[alert.subject] = self._new_text(alert)
        return self._texts[alert.subject]

    def _new_text(self, alert: Alert) -> str:
        if alert.subject.is_setup:
            setup = alert.subject.name
            causes = [self._first_cause(run) for run in alert.runs[:_EXPLAINED]]
            return text.setup_text(setup, self._note(setup), alert.runs, text.common(causes))
        if alert.subject.level == CLEAR:
            return text.clear_text(alert.first)
        found = self._explained(alert.first)
        return text.run_text(alert.first, self._cost(alert.first), found.causes[:1], found.findings)

    def _line(self, alert: Alert) -> text.DigestLine:
        if alert.subject.is_setup:
            return text.setup_line(alert.subject.name, self._note(alert.subject.name))
        if alert.subject.level == CLEAR:
            return text.clear_line(alert.first)
        return text.run_line(alert.first, self._first_cause(alert.first))

    def _note(self, setup: str) -> str:
        known = self._judged.setups.get(setup)
        return known.note if known else ""

    def _first_cause(self, run: JudgedRun) -> str:
        """Return the likeliest known cause, from the config alone; empty where none fits."""
        return next((cause.text for cause in self._explainer.explain(run).causes), "")

    def _explained(self, run: JudgedRun) -> Explanation:
        late = self._clock() - self._began > HURRY
        return (self._installed.on_disk if late else self._installed).explained(self._explainer.explain(run))

    def _cost(self, run: JudgedRun) -> text.Cost:
        record = self._store.runs.record(run.run)
        profile = self._profiles.by_name.get(run.profile or "")
        gpus = profile.gpu_count(record.config) if profile and record else None
        if run.state not in ALIVE:
            return text.Cost(gpus)
        seen_at = self._store.runs.presence([run.run])[run.run].seen_at
        as_of = min(seen_at or self._began, self._began)
        step0_at = self._step0_at(run)
        start = step0_at or run.created_at
        spent = as_of - start if start and start <= as_of else None
        return text.Cost(gpus, spent, "step 0" if step0_at else "its start", as_of)

    def _step0_at(self, run: JudgedRun) -> datetime | None:
        """Return when step 0 was logged, where its row says so and that can be."""
        facts = self._store.runs.facts(run.run)
        seconds = facts.step0.row.get("_timestamp", 0.0) if facts else 0.0
        if not 0 < seconds <= self._began.timestamp():
            return None
        return datetime.fromtimestamp(seconds, UTC)


def _address(alert: Alert) -> tuple[str, str, str]:
    """Return entity, project and run id of an alert's first run; a policy is part of the key alone."""
    entity, project, run_id = alert.first.run.split("/", 2)
    return entity, project, run_id.partition("#")[0]


def _name(alert: Alert) -> str:
    """Return the run id with its policy and its start, which no other alert has."""
    name, _, start = alert.subject.name.split("/", 2)[-1].partition("@")
    return f"{name} (start {start})" if start else name
