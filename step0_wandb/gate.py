"""Wait for the step-0 row of a live run, judge it, and stop the run if it is broken."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from step0_wandb.errors import NoStep0Error, SourceError, UsageError
from step0_wandb.job import profiles_of, read_into
from step0_wandb.single import judge_one
from step0_wandb.sources.address import LocalAddress, RemoteAddress, parse_address
from step0_wandb.step0 import Step0Finder
from step0_wandb.store import NOWHERE, Store
from step0_wandb.text import span_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from step0_wandb.job import Job
    from step0_wandb.records import JudgedRun, RunRecord
    from step0_wandb.sources.control import RunControl

SERVER_POLL_S = 15.0
"""A live run's first row reaches the server about 15 s after the run appears."""
DISK_POLL_S = 2.0
STOP_WAIT_S = 60.0
"""The client asks every 15 s whether it is to stop, and hears of it with its next post, 30 s at most."""
SETTLE_POLLS = 2
"""Further looks at a step 0 that lacks a metric: its second row may be on its way."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, and by which clock.

    Attributes
    ----------
    timeout : timedelta
        After this time without a step 0 the gate gives up.
    now, sleep : callable
        Monotonic seconds, and a pause of so many seconds.
    told : callable
        Called with a line for people while they wait.
    """

    timeout: timedelta
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    told: Callable[[str], None] = field(default=lambda _line: None)

    def deadline(self) -> float:
        """Return when the wait ends."""
        return self.now() + self.timeout.total_seconds()


@dataclass(frozen=True, slots=True)
class Newest:
    """Which run of a project is meant, where a launch script cannot know its id.

    Attributes
    ----------
    group, name : str or None
        The run's group or name is this, or begins with it and ``_``.
    since : datetime
        It was created then or later.
    """

    since: datetime
    group: str | None = None
    name: str | None = None

    def matches(self, group: str | None, name: str) -> bool:
        """Return whether a run with this group and name is meant."""
        wanted = [(self.group, group), (self.name, name)]
        return all(_begins(value or "", text) for text, value in wanted if text is not None)

    def __str__(self) -> str:
        return " and ".join(
            f"{what} {text}" for what, text in (("group", self.group), ("name", self.name)) if text
        )


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of asking the server to stop a run.

    Attributes
    ----------
    asked : bool
        Whether the server took the request.
    stopped : bool
        Whether the run ended within the time that this takes.
    says : str
        The same as a sentence; with what to do where it still runs.
    """

    asked: bool
    stopped: bool
    says: str = ""


def wait(text: str, job: Job, patience: Patience, newest: Newest | None = None) -> RunRecord:
    """Wait until the step 0 of a run is there, and return the run.

    Parameters
    ----------
    text : str
        A run on the server, a run directory, or with `newest` a project.
    newest : Newest, optional
        Which run of the project.

    Raises
    ------
    NoStep0Error
        The run ended without a step 0, or the time is over.
    UsageError
        The run does not exist, or the text names a whole project.
    """
    deadline = patience.deadline()
    address = parse_address(text)
    if isinstance(address, RemoteAddress) and address.run_id is None:
        if newest is None:
            raise UsageError(
                f"{text} is a whole project, and gate waits for one run",
                "Give ENTITY/PROJECT/RUN_ID, or --group or --name of the run to come.",
            )
        text = _wait_for_run(address, newest, job, patience, deadline)
    poll_s = DISK_POLL_S if isinstance(address, LocalAddress) else SERVER_POLL_S
    return _wait_for_step0(text, job, patience, deadline, poll_s)


def judge_when_there(text: str, job: Job, patience: Patience, newest: Newest | None = None) -> JudgedRun:
    """Wait for the step 0 of a run and judge it; see `wait`."""
    return judge_one(wait(text, job, patience, newest), job.loaded)


def stop(run: JudgedRun, job: Job, patience: Patience) -> Stopped:
    """Ask the server to stop a run, and see what becomes of it."""
    if run.url is None:
        return Stopped(
            asked=False,
            stopped=False,
            says="a run on disk has no server that could stop it; end its job yourself",
        )
    entity, project, run_id = run.run.split("/", 2)
    control = _control(RemoteAddress(entity, project), job)
    asked_at = job.clock()
    if not control.stop(run_id):
        return Stopped(
            asked=False, stopped=False, says="the server refused to stop the run; end its job yourself"
        )
    until = patience.now() + STOP_WAIT_S
    while patience.now() < until:
        patience.sleep(5.0)
        state = control.state(run_id)
        if state not in ("running", "pending", "preempting"):
            return Stopped(
                asked=True, stopped=True, says=f"asked at {asked_at:%H:%M} UTC; the run is {state}"
            )
    return Stopped(
        asked=True,
        stopped=False,
        says=(
            f"asked at {asked_at:%H:%M} UTC, still running after {STOP_WAIT_S:.0f} s: W&B interrupts the main thread "
            "of each process that logs, and a Ray worker can swallow that; end the job itself (ray job stop, scancel)"
        ),
    )


def _wait_for_run(
    address: RemoteAddress, newest: Newest, job: Job, patience: Patience, deadline: float
) -> str:
    control = _control(address, job)
    while True:
        found = [
            node
            for node in control.created_since(newest.since)
            if newest.matches(node.group, node.display_name)
        ]
        if found:
            run_id = max(found, key=lambda node: (node.created_at or newest.since, node.name)).name
            patience.told(f"found the run {address}/{run_id}")
            return f"wandb:{address}/{run_id}"
        if patience.now() + SERVER_POLL_S > deadline:
            raise NoStep0Error(
                f"No run of {address} with {newest} appeared within {span_text(patience.timeout)}",
                "Check the name, or give the job more time with --timeout.",
            )
        patience.sleep(SERVER_POLL_S)


def _wait_for_step0(text: str, job: Job, patience: Patience, deadline: float, poll_s: float) -> RunRecord:
    finder = Step0Finder(profiles_of(job.loaded))
    unsettled = 0
    with Store.open(NOWHERE, mode="copy") as store:
        while True:
            record = _look(store, text, job)
            if record is not None:
                step0 = finder.find(record)
                unsettled += step0.status == "found"
                if finder.decided(record.rows, record.config) or unsettled > SETTLE_POLLS:
                    return record
                if step0.status == "no-step0" or (step0.status == "found" and not record.alive):
                    return record
            if patience.now() + poll_s > deadline:
                raise NoStep0Error(
                    f"{text} has logged no step 0 within {span_text(patience.timeout)}",
                    "Long evaluations come first in some jobs: give more time with --timeout.",
                )
            patience.sleep(poll_s)


def _look(store: Store, text: str, job: Job) -> RunRecord | None:
    """Read what is new of the run; None while its directory holds nothing yet."""
    failure = read_into(store, text, job).failure
    if failure is not None and not isinstance(failure, SourceError):
        raise failure
    records = list(store.records())
    if len(records) > 1:
        raise UsageError(
            f"{text} holds {len(records)} runs, and gate waits for one", "Name one run directory."
        )
    return records[0] if records else None


def _control(address: RemoteAddress, job: Job) -> RunControl:
    from step0_wandb.sources.control import RunControl

    return RunControl(job.outside().client(), address)


def _begins(value: str, text: str) -> bool:
    return value == text or value.startswith(f"{text}_")
