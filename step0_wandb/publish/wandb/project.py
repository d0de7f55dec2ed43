"""One project that a sync writes to: what lies there, what is written, and what is remembered of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from step0_wandb.errors import Step0Error
from step0_wandb.plots.picture import draw_gaps
from step0_wandb.publish.wandb import process
from step0_wandb.publish.wandb.content import STATE, Content
from step0_wandb.publish.wandb.memory import Memory
from step0_wandb.publish.wandb.report import report_page
from step0_wandb.publish.wandb.state import export_state, merge_state
from step0_wandb.publish.wandb.state_document import DamagedStateError, NewerStateError, read_state
from step0_wandb.records import Problem
from step0_wandb.wandb_api.credentials import find_account, find_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from step0_wandb.publish.wandb.remote import RemoteProject
    from step0_wandb.publish.wandb.state import Claim, State
    from step0_wandb.publish.wandb.target import Target
    from step0_wandb.store import Store
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.context import Context

LIGHT_S: Final = 30.0
"""Seconds after which a light request is given up."""
STARTUP_S: Final = 60.0
"""Seconds that the wandb client gets in addition to the patience that the settings have with a server."""
READ_BACK_S: Final = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Waits before each look for what was written: a real server shows it a moment later."""
ROUNDS: Final = 6
"""Times that a state is written again because another machine wrote at the same moment."""
REFUSED_FOR: Final = timedelta(hours=24)
"""How long a key that may not write is not tried again."""
_FIRST_MEETING: Final = 5
"""Versions that a store reads where it has read none before."""
_WRITER: Final = "wandb:writer"


@dataclass(frozen=True, slots=True)
class Written:
    """One thing that was written, or that would be.

    Attributes
    ----------
    what : {"tables", "report", "state"}
    where : str
        ``entity/project``.
    url : str or None
        The report's page, where it is known.
    """

    what: str
    where: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What was written, and what could not be."""

    written: tuple[Written, ...] = ()
    problems: tuple[Problem, ...] = ()


def remote_project(address: RemoteAddress, context: Context) -> RemoteProject:
    """Return what reads back from a project."""
    from step0_wandb.publish.wandb.remote import RemoteProject

    return RemoteProject(
        address,
        find_account(context.places),
        patient=replace(context, give_up_s=min(context.give_up_s, LIGHT_S)).client(),
        once=replace(context, give_up_s=0.0).client(),
        environ=context.places.environ,
        file_hosts=context.file_hosts,
    )


class ProjectSync:
    """Reads, merges and writes what one store and one project have to say to each other."""

    def __init__(
        self, store: Store, target: Target, context: Context, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.target = target
        self.store = store
        self.context = context
        self.sleep = sleep
        self._arrived: set[str] = set()

    @cached_property
    def _remote(self) -> RemoteProject:
        return remote_project(self.target.address, self.context)

    @cached_property
    def writer(self) -> str:
        """Return the random id of this store among those that write to projects."""
        known = self.store.notes.get(_WRITER)
        if not isinstance(known, str):
            known = token_hex(8)
            self.store.notes.put(_WRITER, known)
        return known

    @property
    def _note(self) -> str:
        return f"wandb:{self.target}"

    @property
    def is_known(self) -> bool:
        """Return whether the store has seen what lay in the project."""
        return self.store.notes.get(self._note) is not None

    @property
    def memory(self) -> Memory:
        """Return what the store remembers of the project."""
        return Memory.load(self.store.notes.get(self._note))

    def _remember(self, **changes: Any) -> None:
        self.store.notes.put(self._note, replace(self.memory, **changes).note())

    # ── reading ─────────────────────────────────────────────────────────────

    def exchange(self) -> bool:
        """Merge the versions of the state that were written since the last look; return if there were any.

        Every version is read, not the newest alone: two machines that wrote at the same moment did not
        see each other's, and the newer one lacks what the older one says.

        Raises
        ------
        DamagedStateError
            One of them cannot be read; this is said once.
        Step0Error
            The project cannot be reached, or a later program has written there.
        """
        memory, now = self.memory, self.context.clock()
        versions = self._remote.versions()
        limit = len(versions) if self.is_known else _FIRST_MEETING
        fresh = [version for version in versions[:limit] if version.id not in memory.seen]
        found: list[State | None] = []
        damage: DamagedStateError | None = None
        for version in reversed(fresh):
            try:
                found.append(read_state(self._remote.document(version)))
            except DamagedStateError as error:
                damage = error
                found.append(None)
            except NewerStateError:
                if version is versions[0]:
                    raise
        marks = {
            part: mark for part, mark in memory.marks.items() if part != STATE or (versions and not fresh)
        }
        if found and found[-1]:
            marks |= {part: mark for part, mark in found[-1].written.items() if part in ("tables", "report")}
            marks[STATE] = found[-1].fingerprint()
        states = [state for state in found if state]
        report = next((state.report for state in reversed(states) if state.report), memory.report)
        claims = dict(memory.claims) | {state.writer: state.claims for state in states if state.writer}
        with self.store.transaction():
            for state in states:
                merge_state(self.store, self.target.scope, state, now=now)
            self._remember(
                marks=marks,
                report=report,
                seen=[*memory.seen, *(one.id for one in reversed(versions) if one.id not in memory.seen)],
                claims={writer: some for writer, some in claims.items() if writer != self.writer},
            )
        self._arrived |= {state.token for state in states}
        if damage:
            raise damage
        return bool(fresh) or marks != memory.marks

    # ── writing ─────────────────────────────────────────────────────────────

    def publish(self, *, dry_run: bool, force: bool) -> Published:
        """Write what changed since it was written last, and look whether it has arrived."""
        content = self._content()
        news = content.news(self.memory.marks, force=force)
        if dry_run:
            return Published(tuple(Written(part, str(self.target)) for part in sorted(news)))
        if not news or (self.was_refused() and not force):
            return Published()
        try:
            if self.target.shares and self.met():
                content = self._content()
                news = content.news(self.memory.marks, force=force)
            failures = self._write(content, news, force=force)
        except Step0Error as error:
            failures = {"": error.message}
        done = sorted(news - failures.keys()) if "" not in failures else []
        page = report_page(find_server(self.context.places).app_url, str(self.target), self.memory.report)
        return Published(
            tuple(Written(part, str(self.target), page if part == "report" else None) for part in done),
            tuple(self._problems(failures)),
        )

    def met(self) -> bool:
        """Do what `exchange` does; what is damaged is written again, and nothing of it can be lost."""
        try:
            return self.exchange()
        except DamagedStateError:
            return True

    def _content(self) -> Content:
        return Content.of(self.store, self.target, self.store.verdicts.runs(), now=self.context.clock())

    def _write(self, content: Content, news: set[str], *, force: bool) -> dict[str, str]:
        """Write some parts; return why those failed that did."""
        failures = {}
        shown = news - {STATE}
        if shown:
            if "report" in shown:
                self._remember(report=self._remote.report(self.memory.report))
            failures = self._write_shown(content, shown)
            arrived = {part: content.marks[part] for part in shown - failures.keys()}
            self._remember(marks={**self.memory.marks, **arrived})
        if STATE in news and (
            force or shown - failures.keys() or content.marks[STATE] != self.memory.marks.get(STATE)
        ):
            failures |= self.share()
        return failures

    def _write_shown(self, content: Content, shown: set[str]) -> dict[str, str]:
        """Write tables and report, and look for them; the client says nothing of an upload refused."""
        marks, report = content.marks, self.memory.report
        tables = content.tables if "tables" in shown else None
        picture = draw_gaps(content.runs, content.state.ranges) if tables else None
        job = process.WriteJob(
            entity=self.target.address.entity,
            project=self.target.address.project,
            tables=tables and replace(tables, written=marks["tables"]),
            picture=picture,
            report=content.report if "report" in shown else None,
            report_id=report,
            description=self._remote.describe(report, marks["report"])
            if report and "report" in shown
            else "",
        )
        failures = dict(self._send(job))
        checks: dict[str, Callable[[], bool]] = {
            "tables": lambda: self._remote.has_tables(marks["tables"]),
            "report": lambda: self._remote.has_report(report or "", marks["report"]),
        }
        if "" not in failures:
            for part in sorted(shown - failures.keys()):
                if not self._shows(checks[part]):
                    failures[part] = "it was sent, but the server does not show it"
        return failures if "" not in failures else dict.fromkeys(("", *shown), failures[""])

    def share(self, claims: Sequence[Claim] = ()) -> dict[str, str]:
        """Write the state, and again while other machines have written something else meanwhile."""
        for attempt in range(ROUNDS):
            state = self._state(claims)
            job = process.WriteJob(self.target.address.entity, self.target.address.project, state=state)
            if failures := self._send(job):
                return dict(failures)
            if not self._shows(lambda token=state.token: self.met() and token in self._arrived):  # type: ignore[misc]
                return {STATE: "it was sent, but the server does not show it"}
            if self.memory.marks.get(STATE) == self._state(claims).fingerprint():
                return {}
            # Each machine waits a time of its own, so that the next round meets fewer of them.
            self.sleep(int(self.writer[:4], 16) / 0xFFFF * 0.5 * 2.0**attempt)
        return {STATE: "other machines kept writing at the same time; the next sync writes it again"}

    def _state(self, claims: Sequence[Claim]) -> State:
        scope, now = self.target.scope, self.context.clock()
        runs = [run for run in self.store.verdicts.runs() if scope.has(run.run)]
        memory = self.memory
        written = {part: mark for part, mark in memory.marks.items() if part != STATE}
        return replace(
            export_state(self.store, scope, runs, now=now),
            report=memory.report,
            written=written,
            writer=self.writer,
            token=token_hex(8),
            claims=tuple(claims),
        )

    def _shows(self, look: Callable[[], bool]) -> bool:
        for wait_s in READ_BACK_S:
            self.sleep(wait_s)
            if look():
                return True
        return False

    def _send(self, job: process.WriteJob) -> Mapping[str, str]:
        """Let the wandb client write a job; return what failed, by part, or under "" all of it."""
        places, account = self.context.places, find_account(self.context.places)
        login = process.Login(account.server.base_url, account.key)
        deadline_s = self.context.give_up_s + STARTUP_S
        return process.write(job, login, environ=places.environ, deadline_s=deadline_s)

    def was_refused(self) -> bool:
        """Return whether the key was found not to be allowed to write, not long ago."""
        refused_at = self.memory.refused_at
        return (
            bool(refused_at) and datetime.fromisoformat(str(refused_at)) > self.context.clock() - REFUSED_FOR
        )

    def _may_write(self) -> bool:
        try:
            return self._remote.may_write()
        except Step0Error:  # without a key
            return True

    def _problems(self, failures: Mapping[str, str]) -> Iterator[Problem]:
        """Yield what failed; that a key may not write is said once."""
        whole = failures.get("")
        if whole is None or self._may_write():
            if self.memory.refused_at:
                self._remember(refused_at=None)
            for part, why in ({"": whole} if whole is not None else failures).items():
                where = f"{self.target}: {part}" if part else str(self.target)
                yield Problem(where, f"not written: {why}")
            return
        first = self.memory.refused_at is None
        self._remember(refused_at=self.context.clock().isoformat())
        if first:
            off = "report.state = false" + (' and report.wandb = ""' if self.target.shows else "")
            what = f"not written: {whole}; use a key that may write, or set {off} (this is not said again)"
            yield Problem(str(self.target), what)
