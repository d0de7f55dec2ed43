"""What the program would use, and whether each part of it works; nothing is changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from step0_wandb.app.sync import profiles_of
from step0_wandb.errors import CredentialsError, SourceError, Step0Error, UsageError
from step0_wandb.publish.alerts.channels import CHANNELS, channels_in_use
from step0_wandb.publish.alerts.deliver import Delivery
from step0_wandb.publish.wandb import shared_ranges
from step0_wandb.publish.wandb.target import home_of
from step0_wandb.records import OWN_JOB_TYPE
from step0_wandb.sources.server.diagnose import Finding, diagnose, failure_of
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.store import Message, Store, store_exists
from step0_wandb.text.formatting import count, when
from step0_wandb.wandb_api.address import RemoteAddress, parse_address, safe_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from step0_wandb.settings.load import Loaded
    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.context import Context
    from step0_wandb.wandb_api.credentials import Account

RECEIVING: Final = (
    "W&B sends an alert to the person whose run it is: there each turns on User Settings > Alerts > "
    '"Scriptable run alerts", by e-mail or with "Connect Slack". Alerts on several runs, or on a setup, '
    f"are raised on the run {OWN_JOB_TYPE}, which belongs to the owner of the sync's key; for a channel that all "
    "read there is alerts.webhook_env. `doctor --test-alert` sends one"
)
"""What people must turn on to get alerts."""
_PATIENCE_S, _DEADLINE_S = 20.0, 15.0


@dataclass(frozen=True)
class Checkup:
    """A look at everything that a sync with these settings needs.

    Attributes
    ----------
    sources : tuple of str
        What it would read, as `run_sync` takes it; empty takes the settings' sources.
    """

    loaded: Loaded
    context: Context
    sources: tuple[str, ...] = ()

    def findings(self) -> Iterator[Finding]:
        """Yield what was looked at, in the order in which a sync needs it."""
        file = self.loaded.file
        yield Finding(
            "settings", "ok", str(file) if file else "defaults: no step0.toml here or in a folder above"
        )
        sources = [self._source(text) for text in self._texts]
        yield from (source for source in sources if isinstance(source, Finding))
        yield from self._server([source for source in sources if isinstance(source, RemoteAddress)])
        yield from self._store()
        yield from self._alerts()
        yield from self._report()

    def test_alerts(self) -> Iterator[Finding]:
        """Send a test alert to every target of every channel; yield what became of it."""
        delivery = Delivery(self.loaded, self._patient)
        for message in self.test_messages():
            name, failure = f"test alert to {place_of(message)}", delivery.send(message)
            if failure is None:
                yield Finding(name, "ok", "sent; check that it arrived")
            else:
                yield Finding(name, "fail", failure, SourceError.exit_code)

    def test_messages(self) -> list[Message]:
        """Return the test alerts; their title holds the time, so that none is dropped as a repeat."""
        return [
            self._test_message(channel.name, *target)
            for channel in channels_in_use(self.loaded.settings.alerts)
            for target in channel.trial_targets(self._homes)
        ]

    def _test_message(self, channel: str, entity: str, project: str) -> Message:
        now = self.context.clock()
        return Message(
            channel=channel,
            severity="INFO",
            title=f"Test alert of step0-wandb, {now:%Y-%m-%d %H:%M:%S} UTC",
            text="If you read this, alerts about broken runs reach you. Sent by `step0-wandb doctor`.",
            entity=entity,
            project=project,
            run_id=OWN_JOB_TYPE,
            url=None,
            subjects=(),
        )

    @property
    def _patient(self) -> Context:
        return replace(self.context, give_up_s=_PATIENCE_S)

    @property
    def _projects(self) -> list[tuple[str, str]]:
        """Return entity and project of every source that is on a server."""
        sources = [self._source(text) for text in self._texts]
        found = ((one.entity, one.project) for one in sources if isinstance(one, RemoteAddress))
        return list(dict.fromkeys(found))

    @property
    def _written(self) -> list[tuple[str, str]]:
        """Return every project that alerts may be raised in."""
        return list(dict.fromkeys([*self._projects, *self._homes]))

    @property
    def _homes(self) -> list[tuple[str, str]]:
        """Return entity and project of every place that holds a run of our own: the home, or each project."""
        home = home_of(self.loaded)
        return [(home.entity, home.project)] if home else self._projects

    @property
    def _texts(self) -> tuple[str, ...]:
        return tuple(map(safe_text, self.sources or self.loaded.sources))

    def _source(self, text: str) -> RemoteAddress | Finding:
        """Return the project that a source names; of a path, and of what cannot be read, what is found."""
        try:
            address = parse_address(text, server=self.context.server)
            if isinstance(address, RemoteAddress):
                return address
        except Step0Error as error:
            return failure_of("source", error)
        return Finding("source", "ok", f"{address} exists")

    def _server(self, remote: Sequence[RemoteAddress]) -> Iterator[Finding]:
        if self._texts and not remote:
            yield Finding("server", "ok", "not asked: no source is on one")
            return
        finder = Step0Finder(profiles_of(self.loaded))
        yield from diagnose(self.context.places, remote, finder, connect=self._connect)

    def _connect(self, account: Account) -> GraphQLClient:
        from step0_wandb.wandb_api.client import GraphQLClient
        from step0_wandb.wandb_api.http import HttpLimits
        from step0_wandb.wandb_api.rate_limit import RateLimiter

        limits = HttpLimits(deadline_s=_DEADLINE_S, give_up_s=_PATIENCE_S)
        return GraphQLClient(
            account, limiter=RateLimiter(), environ=self.context.places.environ, limits=limits
        )

    def _store(self) -> Iterator[Finding]:
        path = self.loaded.store
        try:
            if not store_exists(path):
                yield Finding("store", "ok", f"none yet at {path}: the first sync makes it")
                return
            with Store.open(path, mode="read") as store:
                runs = count(sum(store.verdicts.counts().values()), "run")
                yield Finding("store", "ok", f"{path}, schema version {store.version}, {runs} judged")
                for source in store.sources.states():
                    what = f"{count(source.runs, 'run')}, read last {when(source.read_at)}"
                    yield Finding(f"last sync of {source.source}", "ok", what)
                yield from _waiting(store, self.context.clock())
        except Step0Error as error:
            yield failure_of("store", error)

    def _alerts(self) -> Iterator[Finding]:
        settings = self.loaded.settings.alerts
        hours = settings.since.total_seconds() / 3600
        what = (
            f"about {' and '.join(settings.levels) or 'nothing'}, of runs that still run or are younger than "
            f"{hours:g} h; more than {settings.digest} new ones become one"
        )
        yield Finding("alerts", "ok", what)
        yield Finding("receiving alerts", "ok", RECEIVING)
        for channel in channels_in_use(settings):
            try:
                yield from channel.findings(self.loaded, self._patient, self._written)
            except Step0Error as error:  # a key that is missing or refused has its own finding
                yield Finding(f"alerts in {channel.label}", "warn", error.message)

    def _report(self) -> Iterator[Finding]:
        """Yield where a sync publishes, and whether it can."""
        report = self.loaded.settings.report
        home = f"; home: {report.home}" if report.home else ""
        yield Finding(
            "report", "ok", f"page: {report.html or 'none'}; in W&B: {report.wandb or 'none'}{home}"
        )
        if report.html:
            folder = self.loaded.path(report.html).parent
            if not os.access(folder, os.W_OK):
                what = f"{folder} is not a folder that can be written to"
                yield Finding("page", "fail", what, UsageError.exit_code)
        missing = [name for name in ("wandb", "wandb_workspaces") if find_spec(name) is None]
        if missing and (report.wandb or report.state):
            yield Finding("W&B client", "fail", f"not installed: {', '.join(missing)}", UsageError.exit_code)
        if report.state:
            yield from self._states()

    def _states(self) -> Iterator[Finding]:
        """Yield what each project's shared state says, or why it cannot be read."""
        for entity, project in self._homes:
            name = f"state in {entity}/{project}"
            try:
                found = shared_ranges(RemoteAddress(entity, project), self._patient)
            except CredentialsError:
                return  # the key has its own finding
            except Step0Error as error:
                yield Finding(name, "warn", error.message)
            else:
                yield Finding(name, "ok", found.origin if found else "none yet: the first sync writes it")


def place_of(message: Message) -> str:
    """Return where a message goes, as people call it."""
    return f"{message.entity}/{message.project}" if message.entity else CHANNELS[message.channel].label


def _waiting(store: Store, now: datetime) -> Iterator[Finding]:
    """Yield the alerts that nobody has taken yet, and the setups that are muted."""
    waiting = store.outbox.unsent()
    for queued in waiting:
        why = queued.failure or "not sent yet"
        what = f"{queued.message.title} (since {when(queued.queued_at)}): {why}; the next sync tries again"
        yield Finding(f"unsent alert ({queued.message.channel})", "warn", what)
    if not waiting:
        yield Finding("unsent alerts", "ok", "none")
    for mute in store.people.mutes().values():
        if mute.until > now:
            yield Finding("muted", "ok", f"{mute.setup} until {when(mute.until)}, by {mute.who}")
