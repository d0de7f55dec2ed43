"""Wait for the step-0 row of a live run, and judge it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from step0_wandb.app.check import basis_of, gravest_first, judge_one
from step0_wandb.app.pull import pull
from step0_wandb.app.sync import profiles_of
from step0_wandb.errors import NoStep0Error, SourceError, UsageError
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.step0.rollouts import RolloutFinder, judge_later
from step0_wandb.store import NOWHERE, Store, store_exists
from step0_wandb.text.formatting import span_text
from step0_wandb.text.paths import is_there
from step0_wandb.wandb_api.address import LocalAddress, RemoteAddress, parse_address, safe_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from step0_wandb.app.run_selector import Newest
    from step0_wandb.app.sync import Job
    from step0_wandb.checks.answered import Answer
    from step0_wandb.records import JudgedRun, RunRecord
    from step0_wandb.sources.server.rollouts import RolloutRows
    from step0_wandb.wandb_api.address import Address
    from step0_wandb.wandb_api.context import Context
    from step0_wandb.wandb_api.control import RunControl

_Answer = TypeVar("_Answer")

_JUDGE_S = 60.0
"""Seconds that reading the ranges may take, also where step 0 came at the end of the time."""
SETTLE_LOOKS = 2
"""Further looks at a step 0 that lacks a metric: its second row may be on its way."""
_MORE_TIME = "Long evaluations come first in some jobs: give more time with --timeout."
_EARLIER = "{} was over before this wait, so it is of an earlier launch; waiting for a newer one"
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
    stop_poll_s : float
        Seconds between two looks at a run that was asked to stop.
    now, sleep : callable
        Monotonic seconds, and a pause of so many seconds.
    tell : callable
        Called with a line for people while they wait.
    """

    timeout: timedelta
    server_poll_s: float = 15.0
    disk_poll_s: float = 2.0
    stop_wait_s: float = 60.0
    stop_poll_s: float = 5.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tell: Callable[[str], None] = field(default=lambda _line: None)


@dataclass(frozen=True, slots=True)
class _FoundRun:
    """A run whose step 0 is there, or that ended without one, policy by policy, and where it is read."""

    records: tuple[RunRecord, ...]
    address: Address


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

    def judged(self, text: str, newest: Newest | None = None, *, rollouts: int = 1) -> list[JudgedRun]:
        """Wait for the step 0 of a run and judge each of its policies, the gravest first; see `wait`.

        Parameters
        ----------
        rollouts : int
            Unless step 0 is broken, wait for the first step of so many rollouts and judge these too.
        """
        found = self._found(text, newest)
        record = found.records[0]
        left_s = max(_JUDGE_S, self._deadline - self._patience.now())
        basis = basis_of(record, replace(self._job, at_most_s=left_s))
        if basis.origin:
            self._patience.tell(basis.origin)
        judged = {one.key: judge_one(one, self._job.loaded, basis) for one in found.records}
        verdicts = {run.verdict for run in judged.values()}
        waited = [one for one in found.records if judged[one.key].verdict not in ("pending", "no-step0")]
        if rollouts > 1 and "broken" not in verdicts and waited:
            shown = " and ".join(sorted(verdicts))
            self._patience.tell(f"step 0 is {shown}; waiting for the first step of {rollouts} rollouts")
            for one in waited:
                later = self._later(one, found.address, rollouts)
                judged[one.key] = judge_one(one, self._job.loaded, basis, later=later)
        return gravest_first(judged.values())

    def wait(self, text: str, newest: Newest | None = None) -> tuple[RunRecord, ...]:
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
        tuple of RunRecord
            One a policy, with its step 0, or ended without one.

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
        return self._found(text, newest).records

    def _found(self, text: str, newest: Newest | None) -> _FoundRun:
        text = safe_text(text)
        address = self._address(text)
        if isinstance(address, LocalAddress):
            address = self._moved_on(address)
            return _FoundRun(self._step0(address, newest), address)
        if address.run_id is not None:
            return _FoundRun(self._step0(address), address)
        if newest is None:
            raise UsageError(
                f"{text} is a whole project, and gate waits for one run",
                "Give ENTITY/PROJECT/RUN_ID, or --group or --name of the run to come; a path begins with ./",
            )
        return self._newest_of(address, newest)

    def _address(self, text: str) -> Address:
        """Return what the text names: a path may not be there yet, a stored run goes by its name too."""
        try:
            return parse_address(text, server=self._job.context().server)
        except UsageError as error:
            if text.startswith(_PATHS):
                address = parse_address(text, exists=lambda path: is_there(path.parent))
            elif key := self._stored(text):
                address = parse_address(f"wandb:{key}")
            else:
                raise error from None
            return address

    def _stored(self, text: str) -> str | None:
        """Return the key of the stored run with this id or name, if it is one and on a server."""
        path = self._job.loaded.store
        if not store_exists(path):
            return None
        with Store.open(path, mode="read") as store:
            keys = store.runs.find(text)
            record = store.runs.record(keys[0]) if len(keys) == 1 else None
        return record.key if record and record.url else None

    def _newest_of(self, project: RemoteAddress, newest: Newest) -> _FoundRun:
        """Return the newest run that matches; what was over when the gate began is of an earlier launch."""
        self._patience.tell(f"waiting for a run of {project} with {newest}")
        over: set[str] | None = set() if newest.over else None
        while True:
            nodes = self._ask(lambda: self._control(project).created_since(newest.since))
            found = [
                node for node in nodes or () if newest.matches(node.group, node.display_name, node.created_at)
            ]
            if over is None and nodes is not None:
                call = self._called_at
                over = {
                    node.name
                    for node in found
                    if newest.was_over(node.state, node.created_at, node.heartbeat_at, call=call)
                }
                for name in over:
                    self._patience.tell(_EARLIER.format(f"{project}/{name}"))
            fresh = [node for node in found if node.name not in (over or ())]
            if fresh:
                run = max(fresh, key=lambda node: (node.created_at or newest.since, node.name))
                address = replace(project, run_id=run.name)
                return _FoundRun(self._step0(address), address)
            self._rest(
                project,
                f"No run of {project} with {newest} appeared within {span_text(self._patience.timeout)}",
                f"To judge a run that was over before, give its id: {project}/{min(over)}"
                if over
                else "Check the name, or give the job more time with --timeout.",
            )

    def _moved_on(self, address: LocalAddress) -> LocalAddress:
        """Wait for a link such as ``latest-run`` to leave a run that was over when the gate began."""
        path = address.path
        if not path.is_symlink():
            return address
        before = path.resolve()
        with Store.open(NOWHERE, mode="copy") as store:
            self._read(store, replace(address, path=before), self._finder)
            records = list(store.runs.records())
        if records and not any(record.alive for record in records):
            self._patience.tell(_EARLIER.format(path))
            while path.resolve() == before:
                self._rest(
                    address,
                    f"{address} still leads to a run that was over before this wait",
                    f"To judge that run, name its directory: {before}",
                )
        return replace(address, path=path.resolve())

    def _step0(self, address: Address, newest: Newest | None = None) -> tuple[RunRecord, ...]:
        """Wait for the step 0 of one run."""
        self._patience.tell(f"waiting for step 0 of {address}, {span_text(self._patience.timeout)} at most")
        unsettled = 0
        over: dict[str, int] | None = None if newest else {}
        with Store.open(NOWHERE, mode="copy") as store:
            while True:
                why_not = self._read(store, address, self._finder)
                records = list(store.runs.records())
                if newest is not None and over is None:
                    over = self._over_among(records, newest)
                fresh = [run for run in records if run.start > (over or {}).get(run.key, 0)]
                found = _the_run(fresh, address, newest)
                if found:
                    statuses = {self._finder.find(record).status for record in found}
                    unsettled += statuses == {"found"}
                    if unsettled > SETTLE_LOOKS or statuses == {"no-step0"} or not found[0].alive:
                        return found
                    # Another policy may log its step 0 later than this one.
                    if found[0].policy is None and self._finder.decided(found[0].rows, found[0].config):
                        return found
                self._rest(
                    address,
                    f"{address} has logged no step 0 within {span_text(self._patience.timeout)}",
                    why_not or _MORE_TIME,
                )

    def _over_among(self, records: list[RunRecord], newest: Newest) -> dict[str, int]:
        """Return the runs that match and were over before the gate was called, and which start of each."""
        over = {
            record.key: record.start
            for record in records
            if newest.matches(record.group, _name_of(record), record.created_at)
            and newest.was_over(record.state, record.created_at, None, call=self._called_at)
        }
        for key in over:
            self._patience.tell(_EARLIER.format(key))
        return over

    def _later(self, record: RunRecord, address: Address, rollouts: int) -> tuple[Answer, ...]:
        """Wait for the first step of some rollouts, or the end of the run, and judge them."""
        finder = RolloutFinder(self._finder.profiles, until=rollouts)
        with Store.open(NOWHERE, mode="copy") as store:
            source = store if isinstance(address, LocalAddress) else self._following(record, address)
            while True:
                record = self._grown(record, address, finder, source)
                if finder.decided(record.rows, record.config) or not record.alive:
                    return judge_later(finder, record)
                self._rest(
                    address,
                    f"{address} has logged step 0, and not the first step of {rollouts} rollouts "
                    f"within {span_text(self._patience.timeout)}",
                    _MORE_TIME,
                )

    def _following(self, record: RunRecord, address: RemoteAddress) -> RolloutRows:
        from step0_wandb.sources.server.rollouts import RolloutRows

        profile = self._finder.profiles.by_name[self._finder.find(record).profile or ""]
        return RolloutRows(self._context().client(), address, profile, policy=record.policy)

    def _grown(
        self, record: RunRecord, address: Address, finder: RolloutFinder, source: Store | RolloutRows
    ) -> RunRecord:
        """Return a run with what it has logged meanwhile."""
        if isinstance(source, Store):
            self._read(source, address, finder)
            return source.runs.record(record.key) or record
        rows = self._ask(source.read) or ()
        return replace(record, rows=(*record.rows, *rows), state=source.state or record.state)

    def _read(self, store: Store, address: Address, finder: Step0Finder) -> str:
        """Read what is new of a run; return why there is nothing yet, where that is known."""
        if isinstance(address, RemoteAddress):
            self._ask(lambda: self._pull(store, f"wandb:{address}", finder))
        elif not is_there(address.path):
            return "There is no such directory yet: check the path."
        else:
            try:
                self._pull(store, f"file:{address.path}", finder)
            except SourceError as error:
                if not address.path.is_dir():
                    raise
                return error.message
        return ""

    def _pull(self, store: Store, text: str, finder: Step0Finder) -> None:
        (pulled,) = pull(store, [text], finder, self._context())
        if pulled.failure:
            raise pulled.failure
        for problem in pulled.problems:
            self._patience.tell(f"problem: {problem.where}: {problem.what}")

    def _ask(self, question: Callable[[], _Answer]) -> _Answer | None:
        """Return the server's answer; None where it has trouble now and did answer before."""
        try:
            answer = question()
        except SourceError as error:
            if not self._answered:
                raise
            if self._trouble is None:
                self._patience.tell(f"{error.message}; waiting on")
            self._trouble = error
            return None
        self._answered, self._trouble = True, None
        return answer

    def _rest(self, address: Address, message: str, hint: str) -> None:
        """Sleep until the next look, the last one at the end of the time; then raise."""
        patience = self._patience
        poll_s = patience.disk_poll_s if isinstance(address, LocalAddress) else patience.server_poll_s
        left_s = self._deadline - self._patience.now()
        if left_s <= 0:
            raise self._trouble or NoStep0Error(message, hint)
        self._patience.sleep(min(poll_s, left_s))

    def _context(self) -> Context:
        """Return what reading needs; a server that is in trouble may not take more than the time left."""
        context = self._job.context()
        left_s = max(1.0, self._deadline - self._patience.now())
        return replace(context, give_up_s=min(context.give_up_s, left_s), at_most_s=left_s)

    def _control(self, project: RemoteAddress) -> RunControl:
        from step0_wandb.wandb_api.control import RunControl

        return RunControl(self._context().client(), project)


def _name_of(record: RunRecord) -> str:
    """Return the name of the run itself, where the record is one policy of it."""
    return record.name.removesuffix(f"#{record.policy}")


def _the_run(records: list[RunRecord], address: Address, newest: Newest | None) -> tuple[RunRecord, ...]:
    """Return the run that is meant, policy by policy; nothing while there is none."""
    if newest is not None:
        records = [item for item in records if newest.matches(item.group, _name_of(item), item.created_at)]
        last = max(records, key=lambda item: (str(item.created_at), item.run_id), default=None)
        return tuple(item for item in records if last and item.run_id == last.run_id)
    names = {record.run_id for record in records}
    if len(names) > 1:
        raise UsageError(
            f"{address} holds {len(names)} runs, and gate waits for one",
            "Name one run directory, or give --group or --name of the run to come.",
        )
    return tuple(records)
