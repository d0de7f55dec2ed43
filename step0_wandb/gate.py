"""Wait for the step-0 row of a live run, judge it, and stop the run if it is broken."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from step0_wandb.errors import NoStep0Error, SourceError, Step0Error, UsageError
from step0_wandb.job import profiles_of
from step0_wandb.pull import pull
from step0_wandb.records import ALIVE
from step0_wandb.single import basis_of, judge_one
from step0_wandb.sources.address import LocalAddress, RemoteAddress, parse_address
from step0_wandb.step0 import Step0Finder
from step0_wandb.store import NOWHERE, Store
from step0_wandb.text import span_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from step0_wandb.job import Job
    from step0_wandb.pull import Outside
    from step0_wandb.records import JudgedRun, RunRecord
    from step0_wandb.sources.address import Address
    from step0_wandb.sources.control import RunControl

_Answer = TypeVar("_Answer")

SETTLE_LOOKS = 2
"""Further looks at a step 0 that lacks a metric: its second row may be on its way."""
_STATE_POLL_S = 5.0
_PATHS = ("file:", "/", ".", "~")
"""What begins so names a path, also one that is not there yet."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, how often to look, and by which clock.

    Attributes
    ----------
    timeout : timedelta
        After this time without a step 0 the gate gives up.
    server_poll_s, disk_poll_s : float
        Seconds between two looks. The first row of a live run reaches the server about 15 s after the
        run appears.
    stop_wait_s : float
        How long a run may take to end once the server was asked to stop it, in seconds. The client hears
        of it with its next post, 30 s later at most, and asks every 15 s whether it has heard of it.
    now, sleep : callable
        Monotonic seconds, and a pause of so many seconds.
    told : callable
        Called with a line for people while they wait.
    """

    timeout: timedelta
    server_poll_s: float = 15.0
    disk_poll_s: float = 2.0
    stop_wait_s: float = 60.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    told: Callable[[str], None] = field(default=lambda _line: None)


@dataclass(frozen=True, slots=True)
class Newest:
    """Which run is meant, where a launch script cannot know its id: the newest of those that match.

    Attributes
    ----------
    since : datetime
        It was created then or later.
    group, name : str or None
        The run's group or name is this, or begins with it and ``_``.
    """

    since: datetime
    group: str | None = None
    name: str | None = None

    def matches(self, group: str | None, name: str, created_at: datetime | None) -> bool:
        """Return whether a run with this group and name, created then, is meant."""
        young = created_at is not None and created_at >= self.since
        wanted = [(self.group, group), (self.name, name)]
        return young and all(_begins(value or "", text) for text, value in wanted if text is not None)

    def __str__(self) -> str:
        parts = [("group", self.group), ("name", self.name)]
        return " and ".join(f"{what} {text}" for what, text in parts if text)


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of asking the server to stop a run.

    Attributes
    ----------
    asked : bool
        Whether the server took the request.
    stopped : bool
        Whether the run has ended.
    says : str
        The same as a sentence; with what to do where it still runs.
    """

    asked: bool
    stopped: bool
    says: str = ""


class Gate:
    """Waits for one run; its time begins when it is made.

    Parameters
    ----------
    job : Job
        The settings, the clock, and where server and key are found.
    patience : Patience
        How long to wait.
    """

    def __init__(self, job: Job, patience: Patience) -> None:
        self._job = job
        self._patience = patience
        self._finder = Step0Finder(profiles_of(job.loaded))
        self._called_at = job.clock()
        self._deadline = patience.now() + patience.timeout.total_seconds()
        self._answered = False
        self._trouble: SourceError | None = None

    def judged(self, text: str, newest: Newest | None = None) -> JudgedRun:
        """Wait for the step 0 of a run and judge it; see `wait`."""
        record = self.wait(text, newest)
        basis = basis_of(record, self._job)
        if basis.said:
            self._patience.told(basis.said)
        return judge_one(record, self._job.loaded, basis)

    def wait(self, text: str, newest: Newest | None = None) -> RunRecord:
        """Wait until the step 0 of a run is there, and return the run.

        Parameters
        ----------
        text : str
            A run on the server (a stored one also by its id or name), a run directory, also one that is
            not there yet, or with `newest` a project or a directory of runs.
        newest : Newest, optional
            Which run of the project or directory.

        Returns
        -------
        RunRecord
            With its step 0, or ended without one.

        Raises
        ------
        NoStep0Error
            The time is over.
        UsageError
            The run does not exist, or the text names a whole project.
        SourceError
            The server could not be reached from the beginning, or not at the end of the time.
        CredentialsError
            No key was found, or the server refused it.
        """
        address = self._address(text)
        if isinstance(address, LocalAddress):
            return self._step0(address, newest)
        if address.run_id is not None:
            return self._step0(address)
        if newest is None:
            raise UsageError(
                f"{text} is a whole project, and gate waits for one run",
                "Give ENTITY/PROJECT/RUN_ID, or --group or --name of the run to come; a path begins with ./",
            )
        return self._newest_of(address, newest)

    def stop(self, run: JudgedRun) -> Stopped:
        """Ask the server to stop a run, and see what becomes of it; what fails is told, not raised."""
        if run.url is None:
            return Stopped(
                asked=False,
                stopped=False,
                says="a run on disk has no server that could stop it; end its job yourself",
            )
        entity, project, run_id = run.run.split("/", 2)
        try:
            control = self._control(RemoteAddress(entity, project), self._patience.stop_wait_s)
            state = control.state(run_id)
            if state not in ALIVE:
                return Stopped(asked=False, stopped=True, says=f"the run had ended before: it is {state}")
            if not control.stop(run_id):
                says = "the server refused to stop the run; end its job yourself"
                return Stopped(asked=False, stopped=False, says=says)
        except Step0Error as error:
            says = f"the server could not be asked: {error.message}; end the run's job yourself"
            return Stopped(asked=False, stopped=False, says=says)
        return self._stopping(control, run_id)

    def _stopping(self, control: RunControl, run_id: str) -> Stopped:
        """Wait for a run that was asked to stop."""
        asked = f"asked at {self._job.clock():%H:%M} UTC"
        until = self._patience.now() + self._patience.stop_wait_s
        while (rest_s := until - self._patience.now()) > 0:
            self._patience.sleep(min(rest_s, _STATE_POLL_S))
            try:
                state = control.state(run_id)
            except Step0Error as error:
                says = f"{asked}, but what became of it is not known: {error.message}"
                return Stopped(asked=True, stopped=False, says=says)
            if state not in ALIVE:
                return Stopped(asked=True, stopped=True, says=f"{asked}; the run is {state}")
        says = (
            f"{asked}, still running after {self._patience.stop_wait_s:.0f} s: W&B interrupts the main thread of "
            "each process that logs, and a Ray worker can swallow that; end the job itself (ray job stop, scancel)"
        )
        return Stopped(asked=True, stopped=False, says=says)

    def _address(self, text: str) -> Address:
        """Return what the text names: a path may not be there yet, a stored run goes by its name too."""
        from step0_wandb.sources.credentials import find_server

        server = find_server(self._job.outside().places) if "://" in text else None
        try:
            return parse_address(text, server=server)
        except UsageError as error:
            if text.startswith(_PATHS):
                address = parse_address(text, exists=lambda path: path.parent.is_dir())
            elif key := self._stored(text):
                address = parse_address(f"wandb:{key}")
            else:
                raise error from None
            return address

    def _stored(self, text: str) -> str | None:
        """Return the key of the stored run with this id or name, if it is one and on a server."""
        path = self._job.loaded.store
        if not path.exists():
            return None
        with Store.open(path, mode="read") as store:
            keys = store.find_runs(text)
            record = store.record(keys[0]) if len(keys) == 1 else None
        return record.key if record and record.url else None

    def _newest_of(self, project: RemoteAddress, newest: Newest) -> RunRecord:
        """Return the newest run that matches; one that was over when the gate began is of another launch."""
        over: set[str] = set()
        while True:
            address = self._appeared(project, newest, over)
            record = self._step0(address)
            earlier = record.created_at is not None and record.created_at < self._called_at
            if record.alive or not earlier or self._finder.find(record).status != "no-step0":
                return record
            over.add(record.run_id)
            self._patience.told(
                f"{address} ended before its step 0 and before this wait; waiting for a newer one"
            )

    def _appeared(self, project: RemoteAddress, newest: Newest, over: set[str]) -> RemoteAddress:
        """Wait for a run that matches and is not `over`."""
        self._patience.told(f"waiting for a run of {project} with {newest}")
        while True:
            found = [
                node
                for node in self._ask(lambda: self._control(project).created_since(newest.since)) or ()
                if node.name not in over and newest.matches(node.group, node.display_name, node.created_at)
            ]
            if found:
                run = max(found, key=lambda node: (node.created_at or newest.since, node.name))
                return replace(project, run_id=run.name)
            self._rest(
                self._patience.server_poll_s,
                f"No run of {project} with {newest} appeared within {span_text(self._patience.timeout)}",
                "Check the name, or give the job more time with --timeout.",
            )

    def _step0(self, address: Address, newest: Newest | None = None) -> RunRecord:
        """Wait for the step 0 of one run."""
        self._patience.told(f"waiting for step 0 of {address}, {span_text(self._patience.timeout)} at most")
        is_local = isinstance(address, LocalAddress)
        unsettled = 0
        with Store.open(NOWHERE, mode="copy") as store:
            while True:
                why_not = self._read(store, address)
                record = _the_run(list(store.records()), address, newest)
                if record is not None:
                    status = self._finder.find(record).status
                    unsettled += status == "found"
                    settled = self._finder.decided(record.rows, record.config) or unsettled > SETTLE_LOOKS
                    if settled or status == "no-step0" or not record.alive:
                        return record
                self._rest(
                    self._patience.disk_poll_s if is_local else self._patience.server_poll_s,
                    f"{address} has logged no step 0 within {span_text(self._patience.timeout)}",
                    why_not or "Long evaluations come first in some jobs: give more time with --timeout.",
                )

    def _read(self, store: Store, address: Address) -> str:
        """Read what is new of a run; return why there is nothing yet, where that is known."""
        if isinstance(address, RemoteAddress):
            self._ask(lambda: self._pull(store, f"wandb:{address}"))
        elif not address.path.exists():
            return "There is no such directory yet: check the path."
        else:
            try:
                self._pull(store, f"file:{address.path}")
            except SourceError as error:
                if not address.path.is_dir():
                    raise
                return error.message
        return ""

    def _pull(self, store: Store, text: str) -> None:
        (pulled,) = pull(store, [text], self._finder, self._outside())
        if pulled.failure:
            raise pulled.failure
        for problem in pulled.problems:
            self._patience.told(f"problem: {problem.where}: {problem.what}")

    def _ask(self, question: Callable[[], _Answer]) -> _Answer | None:
        """Return the server's answer; None where it has trouble now and did answer before."""
        try:
            answer = question()
        except SourceError as error:
            if not self._answered:
                raise
            if self._trouble is None:
                self._patience.told(f"{error.message}; waiting on")
            self._trouble = error
            return None
        self._answered, self._trouble = True, None
        return answer

    def _rest(self, poll_s: float, message: str, hint: str) -> None:
        """Sleep until the next look, the last one at the end of the time; then raise."""
        left_s = self._deadline - self._patience.now()
        if left_s <= 0:
            raise self._trouble or NoStep0Error(message, hint)
        self._patience.sleep(min(poll_s, left_s))

    def _outside(self, patience_s: float | None = None) -> Outside:
        """Return what reading needs; a server that is in trouble may not take more than the time left."""
        outside = self._job.outside()
        left_s = max(1.0, self._deadline - self._patience.now()) if patience_s is None else patience_s
        return replace(outside, give_up_s=min(outside.give_up_s, left_s))

    def _control(self, project: RemoteAddress, patience_s: float | None = None) -> RunControl:
        from step0_wandb.sources.control import RunControl

        return RunControl(self._outside(patience_s).client(), project)


def _the_run(records: list[RunRecord], address: Address, newest: Newest | None) -> RunRecord | None:
    """Return the run that is meant; None while there is none."""
    if newest is not None:
        records = [item for item in records if newest.matches(item.group, item.name, item.created_at)]
        return max(records, key=lambda item: (str(item.created_at), item.run_id), default=None)
    if len(records) > 1:
        raise UsageError(
            f"{address} holds {len(records)} runs, and gate waits for one",
            "Name one run directory, or give --group or --name of the run to come.",
        )
    return records[0] if records else None


def _begins(value: str, text: str) -> bool:
    return value == text or value.startswith(f"{text}_")
