"""All directories of one run id, read as one run.

W&B's shared mode writes one directory a process: the driver's has the config and the exit record, the
trainer's the metrics. Restarts under one run id also write one directory each. These rules keep the two
apart:

* Each directory is a history of its own; whether step 0 is decided is asked of each alone.
* Directories are in the order in which they began, by the time in their names, then by path. The
  metrics of the first one that has any are the run's (the capture). A later one that has metrics again
  is a restart, and none of its rows count.
* Rows without metrics (evaluation, rollouts) come from the directories that lived at the same time as
  the capture's: one that began after the capture's last write, or was last written before the capture
  began, belongs to another start.
* The config is what the directories make of it one after the other, and the capture's own on top.
* The end is the exit record that was written last. If any directory was still written a minute later,
  it is a restart that goes on.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial, reduce
from typing import TYPE_CHECKING

from step0_wandb.records import OWN_JOB_TYPE, RunRecord
from step0_wandb.sources.base import Reading
from step0_wandb.sources.offline.messages import RunInfo
from step0_wandb.sources.offline.runfile import TURN
from step0_wandb.text.redact import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from step0_wandb.records import HistoryRow, Json
    from step0_wandb.sources.offline.runfile import Lookout, RunFile

FIRST_TURN = 128 * 1024
"""In bytes. Most runs are decided in the first turn; the next ones grow up to `TURN`."""

GIVE_UP = 256 * 1024 * 1024
"""In bytes; a run that has shown no step 0 in so much will not show it."""

SILENT_S = 24 * 3600
"""A run without an exit record that was not written for so long has crashed."""

_SAME_END_S = 60
_ENDS = ("failed", "crashed", "finished")  # the gravest first


def state_of(files: Sequence[RunFile], now: datetime) -> str:
    """Return W&B's state of a run from the ends and the last writes of its files."""
    newest = max(file.written_s for file in files)
    last_end = max((file.written_s for file in files if file.ended_as), default=None)
    if last_end is None or newest - last_end > _SAME_END_S:
        return "running" if now.timestamp() - newest < SILENT_S else "crashed"
    ends = {file.ended_as for file in files if last_end - file.written_s <= _SAME_END_S}
    return next((end for end in _ENDS if end in ends), "finished")


class Directories:
    """The directories of one run, and what this reading and earlier ones found in them.

    Parameters
    ----------
    key : str
        The run's key.
    files : iterable of RunFile
        One for each directory.
    prior : RunRecord or None
        The run as it was read before; None if no file has a mark.

    Attributes
    ----------
    files : tuple of RunFile
        In the order in which they began.
    """

    def __init__(
        self, key: str, files: Iterable[RunFile], *, prior: RunRecord | None, lookout: Lookout
    ) -> None:
        self.key = key
        self.files = tuple(sorted(files, key=lambda file: (file.stamp, file.path)))
        self._prior = prior
        self._lookout = lookout
        self._config: dict[str, Json] = dict(prior.config) if prior else {}
        self._elsewhere: tuple[HistoryRow, ...] = ()
        if prior:
            self._restore(prior)
        for file in self.files:
            self._apply(file)

    @property
    def info(self) -> RunInfo:
        """Return who the run is, as far as any directory says."""
        return reduce(RunInfo.or_else, (file.info for file in self.files), _info_of(self._prior))

    @property
    def is_own(self) -> bool:
        """Whether this is a run of this tool itself."""
        return self.info.job_type == OWN_JOB_TYPE

    def read(self) -> None:
        """Read all directories in turns until step 0 is decided; then look how they end."""
        budget = FIRST_TURN
        while waiting := self._waiting():
            for file in waiting:
                _try(file, partial(file.turn, self._lookout, self._config, budget=budget))
                self._config = file.config
            budget = min(2 * budget, TURN)
        for file in self.files:
            if not (file.unchanged or file.at_end or file.ended_as or file.failed):
                _try(file, file.look_for_end)

    def reading(self, now: datetime) -> Reading:
        """Return the run as it is known now, and how far its files are read."""
        state = state_of(self.files, now)
        settled = self._first_decided() is not None or self._is_given_up()
        marks = [file.mark_of(self.key, over=state == "crashed", settled=settled) for file in self.files]
        return Reading(
            self._record(state),
            tuple(mark for mark in marks if mark),
            tuple(problem for file in self.files for problem in file.problems),
        )

    def _restore(self, prior: RunRecord) -> None:
        """Give each file what the earlier record has of it; rows of vanished files stay by themselves."""
        for file in self.files:
            if file.mark is None:
                continue
            file.rows = tuple(row for row in prior.rows if file.wrote(row))
            file.decided = bool(file.rows) and self._lookout.finder.decided(file.rows, prior.config)
            if file.mark.ended:
                revived = prior.state == "crashed" and not file.unchanged
                file.ended_as = None if revived else prior.state if prior.state in _ENDS else "failed"
        self._elsewhere = tuple(row for row in prior.rows if not any(file.wrote(row) for file in self.files))

    def _apply(self, file: RunFile) -> None:
        for change in file.changes:
            change.apply_to(self._config)

    def _waiting(self) -> list[RunFile]:
        """Return the files that have another turn.

        Once a directory is decided, only those before it go on, until as much of them was read: they
        may hold an earlier capture.
        """
        if self.is_own or self._is_given_up():
            return []
        first = self._first_decided()
        waiting = [file for file in self.files if file.has_more]
        if first is None:
            return waiting
        enough = self.files[first].offset
        return [
            file
            for file in waiting
            if not file.turns or (file in self.files[:first] and file.offset < enough)
        ]

    def _first_decided(self) -> int | None:
        return next((place for place, file in enumerate(self.files) if file.decided), None)

    def _is_given_up(self) -> bool:
        return sum(file.offset for file in self.files if not file.settled) >= GIVE_UP

    def _record(self, state: str) -> RunRecord:
        entity, project, run_id = self.key.split("/", 2)
        info, prior, capture = self.info, self._prior, self._capture()
        if capture and len(self.files) > 1:
            self._apply(capture)
        return RunRecord(
            entity,
            project,
            run_id,
            name=info.name,
            url=prior.url if prior else None,
            user=prior.user if prior else None,
            group=info.group or None,
            job_type=info.job_type or None,
            tags=info.tags,
            created_at=self._created_at(),
            state=state,
            config=scrub(self._config),
            rows=self._rows(capture),
        )

    def _capture(self) -> RunFile | None:
        return next((file for file in self.files if self._lookout.finder.has_metrics(file.rows)), None)

    def _rows(self, capture: RunFile | None) -> tuple[HistoryRow, ...]:
        has_metrics = self._lookout.finder.has_metrics
        if self._prior and has_metrics(self._elsewhere):  # captured in a directory that is gone
            return self._prior.rows
        beside = (
            row
            for file in self.files
            if not has_metrics(file.rows) and (capture is None or self._lived_together(file, capture))
            for row in file.rows
        )
        return (*(capture.rows if capture else ()), *self._elsewhere, *beside)

    def _lived_together(self, one: RunFile, other: RunFile) -> bool:
        began_one, began_other = self._began(one), self._began(other)
        return (began_one is None or began_one.timestamp() <= other.written_s) and (
            began_other is None or began_other.timestamp() <= one.written_s
        )

    def _began(self, file: RunFile) -> datetime | None:
        """Return when a directory began; where its run record was not read now, by its name."""
        if file.info and file.info.started_at:
            return file.info.started_at
        first, now = _local_time(self.files[0].stamp), _local_time(file.stamp)
        created_at = self._created_at()
        return created_at + (now - first) if created_at and first and now else None

    def _created_at(self) -> datetime | None:
        times = [file.info.started_at for file in self.files if file.info and file.info.started_at]
        if self._prior and self._prior.created_at:
            times.append(self._prior.created_at)
        return min(times, default=None)


def _info_of(record: RunRecord | None) -> RunInfo:
    if record is None:
        return RunInfo()
    return RunInfo(
        name=record.name, group=record.group or "", job_type=record.job_type or "", tags=record.tags
    )


def _local_time(stamp: str) -> datetime | None:
    """Return the time in a directory's name; its zone is not known, only differences mean something."""
    try:
        return datetime.strptime(stamp, "%Y%m%d_%H%M%S")  # noqa: DTZ007 - see above
    except ValueError:
        return None


def _try(file: RunFile, action: Callable[[], None]) -> None:
    try:
        action()
    except OSError as error:
        file.fail(error)
