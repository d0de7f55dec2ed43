"""All directories of one run id: which of them are one start of the run, and what each start logged.

W&B's shared mode writes one directory a process: the driver's has the config and the exit record, the
trainer's the metrics. A job that is started again under its run id writes new directories. These rules
keep the two apart:

* Each directory is a history of its own; whether step 0 is decided is asked of each alone.
* Directories are in the order in which they began, by the time in their names, then by path.
* A directory that has metrics is a start, unless it goes on above the first step (it was resumed), has the
  very rows of an earlier one (it is a copy), or has other metrics and lived at the same time (it is another
  trainer of the same start).
* A directory without metrics (evaluation, rollouts) belongs to the start that lived at the same time; of
  several to the one that began nearest.
* The config of a start is what its directories make of it one after the other, and that of the directory
  with the metrics on top.
* The end of the run is the exit record that was written last. If any directory was still written a minute
  later, it is a start that goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial, reduce
from typing import TYPE_CHECKING

from step0_wandb.records import ALIVE, NOTHING_LOGGED, OWN_JOB_TYPE, RunRecord
from step0_wandb.sources.base import Reading
from step0_wandb.sources.offline.messages import RunInfo
from step0_wandb.sources.offline.runfile import TURN, RunFile
from step0_wandb.step0.policies import split_policies
from step0_wandb.text.redact import scrub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from step0_wandb.records import HistoryRow, Json
    from step0_wandb.sources.offline.messages import ConfigChange
    from step0_wandb.sources.offline.runfile import Lookout

FIRST_TURN = 128 * 1024
"""In bytes. Most runs are decided in the first turn; the next ones grow up to `TURN`."""

REACH = 64 * 1024 * 1024
"""In bytes; of a run that has its step 0 each directory is read so far for what else it logged then."""

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


@dataclass(slots=True)
class Start:
    """One start of a run.

    Attributes
    ----------
    files : list of RunFile
        Its directories; none where they are gone and the store alone knows it.
    rows : tuple of HistoryRow
        The rows that carry metrics.
    number : int
        The first is 1.
    is_stored : bool
        Whether it is the start that was the newest one before this reading.
    """

    files: list[RunFile] = field(default_factory=list)
    rows: tuple[HistoryRow, ...] = ()
    number: int = 1
    is_stored: bool = False


class Directories:
    """The directories of one run, and what this reading and earlier ones found in them.

    Parameters
    ----------
    key : str
        The run's key.
    files : iterable of RunFile
        One for each directory.
    prior : RunRecord or None
        The newest start of the run as it was read before; None if no file has a mark.

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
        self.bytes_read_again = 0
        self._prior = prior
        self._lookout = lookout
        self._config: dict[str, Json] = dict(prior.config) if prior else {}
        self._elsewhere: tuple[HistoryRow, ...] = ()
        if prior:
            self._restore(prior)
        for file in self.files:
            self._apply(file)

    @property
    def is_own(self) -> bool:
        """Whether this is a run of this tool itself."""
        return self._info(self.files).job_type == OWN_JOB_TYPE

    def read(self, now: datetime, *, named: str = "") -> None:
        """Read all directories in turns up to their own first rows; then look how they end.

        Parameters
        ----------
        named : str
            The path of the file that was asked for, whose console log is read even while the run goes on.
        """
        budget = FIRST_TURN
        while waiting := self._waiting():
            for file in waiting:
                _try(file, partial(file.turn, self._lookout, self._config, budget=budget))
                self._config = file.config
            budget = min(2 * budget, TURN)
        for file in self.files:
            if not (file.unchanged or file.at_end or file.ended_as or file.failed):
                _try(file, file.look_for_end)
        is_over = state_of(self.files, now) not in ALIVE
        for file in self.files:
            if (is_over or file.path == named) and self._is_cut(file):
                file.take_output_log(self._lookout)

    def _is_cut(self, file: RunFile) -> bool:
        """Return whether a directory has no row, and no other one has the rows of its start."""
        has_metrics = self._lookout.finder.has_metrics
        return self._logged_nothing([file]) and not any(
            has_metrics(other.rows) and self._lived_together(file, other) for other in self.files
        )

    def readings(self, now: datetime) -> list[Reading]:
        """Return the starts that are new or changed, the newest last, and how far the files are read.

        A run without a step 0 is one start, with what it has logged.
        """
        starts = self._starts()
        if not starts:
            number = self._prior.start if self._prior else 1
            starts = [Start([*self.files], self._rows_without_start(), number, is_stored=True)]
        *earlier, newest = starts
        fresh = [start for start in earlier if any(file.mark is None for file in start.files)]
        state = state_of(self.files, now)
        left = [file for file in self.files if not any(file in start.files for start in fresh)]
        found = [self._reading(start, start.files, state_of(start.files, now)) for start in fresh]
        return [*found, self._reading(newest, left, state)]

    def reading_of(self, path: str, now: datetime) -> Reading:
        """Return the start that one directory belongs to; alone, where it has none yet."""
        starts = self._starts()
        mine = next((start for start in starts if any(file.path == path for file in start.files)), None)
        if mine is None:
            named = next(file for file in self.files if file.path == path)
            loose = [file for file in self.files if not any(file in start.files for start in starts)]
            files = [file for file in loose if file is named or self._lived_together(file, named)]
            rows = tuple(row for file in files for row in file.rows)
            mine = Start(files, rows, starts[-1].number + 1 if starts else 1, is_stored=not starts)
        before = [start for start in starts if start.number < mine.number]
        return replace(
            self._reading(mine, self.files, state_of(mine.files, now)),
            earlier=tuple(self._record(start, state_of(start.files, now)) for start in before if start.files),
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
        self._elsewhere = tuple(
            row for row in prior.rows if row.values and not any(file.wrote(row) for file in self.files)
        )

    def _apply(self, file: RunFile) -> None:
        for change in file.changes:
            change.apply_to(self._config)

    def _waiting(self) -> list[RunFile]:
        """Return the files that have another turn."""
        if self.is_own or self._is_given_up():
            return []
        waiting = [file for file in self.files if file.has_more]
        if not self._is_decided():
            return waiting
        return [file for file in waiting if not (file.is_past or file.offset >= REACH) or not file.turns]

    def _is_decided(self) -> bool:
        return any(file.decided for file in self.files) or self._lookout.finder.has_metrics(self._elsewhere)

    def _is_given_up(self) -> bool:
        return sum(file.offset for file in self.files if not file.settled) >= GIVE_UP

    # ── starts ──────────────────────────────────────────────────────────────

    def _starts(self) -> list[Start]:
        """Return the starts that have a step 0, in their order, with all their files."""
        found = self._captures()
        for file in self.files:
            if not any(file in start.files for start in found):
                self._join(file, found)
        starts = [start for start in found if self._has_step0(start)]
        # Of the starts before the stored one nothing is read again; one that had no step 0 has it now.
        stored = next((place for place, start in enumerate(starts) if start.is_stored), len(starts) - 1)
        for place, start in enumerate(starts):
            start.number = place + max(1, (self._prior.start if self._prior else 1) - stored)
        return starts

    def _captures(self) -> list[Start]:
        """Return what has metrics, each with the directories that have them."""
        finder = self._lookout.finder
        found: list[Start] = []
        if finder.has_metrics(self._elsewhere):
            found.append(Start(rows=self._elsewhere, is_stored=True))
        for file in self.files:
            if not finder.has_metrics(file.rows):
                continue
            same = next((start for start in found if self._is_same(file, start)), None)
            if same is None:
                same = Start()
                found.append(same)
            same.is_stored |= bool(self._prior and any(file.wrote(row) for row in self._prior.rows))
            known = {str(row.values) for row in same.rows}
            same.rows = (*same.rows, *(row for row in file.rows if str(row.values) not in known))
            same.files.append(file)
        return found

    def _is_same(self, file: RunFile, start: Start) -> bool:
        """Return whether a directory with metrics is a copy or another trainer of a start."""
        theirs = [row.values for row in start.rows if self._has_metric(row)]
        mine = [row.values for row in file.rows if self._has_metric(row)]
        if any(str(values) == str(other) for values in mine for other in theirs):
            return True
        shared = {name for row in mine for name in row} & {name for row in theirs for name in row}
        return all(self._lived_together(file, other) for other in start.files) and not any(
            self._lookout.is_metric(name) for name in shared
        )

    def _has_metric(self, row: HistoryRow) -> bool:
        return any(self._lookout.is_metric(name) for name in row.values)

    def _join(self, file: RunFile, starts: Sequence[Start]) -> None:
        """Give a directory without metrics to the start that it belongs to, if there is one."""
        near = [
            (self._seconds_between(file, start.files[0]), place)
            for place, start in enumerate(starts)
            if start.files and any(self._lived_together(file, other) for other in start.files)
        ]
        if near:
            starts[min(near)[1]].files.append(file)

    def _has_step0(self, start: Start) -> bool:
        record = replace(self._record(start, "finished"), rows=start.rows)
        return any(
            self._lookout.finder.find(part).status == "found"
            for part in split_policies(record, self._lookout.finder)
        )

    def _rows_without_start(self) -> tuple[HistoryRow, ...]:
        """Return what a run without a step 0 has logged: of resumed ones the first, and the other rows."""
        has_metrics = self._lookout.finder.has_metrics
        late = next((file for file in self.files if has_metrics(file.rows)), None)
        others = (
            row
            for file in self.files
            if not has_metrics(file.rows) and (late is None or self._lived_together(file, late))
            for row in file.rows
        )
        return (*(late.rows if late else ()), *self._elsewhere, *others)

    # ── records ─────────────────────────────────────────────────────────────

    def _reading(self, start: Start, files: Sequence[RunFile], state: str) -> Reading:
        marks = [
            file.mark_of(self.key, over=state == "crashed", settled=self._is_settled(file, state))
            for file in files
        ]
        return Reading(
            self._record(start, state),
            tuple(mark for mark in marks if mark),
            tuple(problem for file in files for problem in file.problems),
        )

    def _is_settled(self, file: RunFile, state: str) -> bool:
        """Return whether nothing more of a directory matters for step 0."""
        if file.decided or self._is_given_up():
            return True
        return self._is_decided() and (file.is_past or file.offset >= REACH or state not in ALIVE)

    def _record(self, start: Start, state: str) -> RunRecord:
        entity, project, run_id = self.key.split("/", 2)
        files = sorted(start.files, key=lambda file: (file.stamp, file.path))
        prior, info = self._prior, self._info(files)
        has_metrics = self._lookout.finder.has_metrics
        others = (row for file in files if not has_metrics(file.rows) for row in file.rows)
        rows = {row.order: row for row in (*start.rows, *others)}
        return RunRecord(
            entity,
            project,
            run_id,
            start=start.number,
            name=info.name,
            url=prior.url if prior else None,
            user=prior.user if prior else None,
            group=info.group or None,
            job_type=info.job_type or None,
            tags=info.tags,
            created_at=self._created_at(files, start),
            state=state,
            config=scrub(self._config_of(start, files)),
            rows=tuple(rows.values()) or (NOTHING_LOGGED if self._logged_nothing(files) else ()),
        )

    def _logged_nothing(self, files: Sequence[RunFile]) -> bool:
        """Return whether the histories of some directories are known to be empty."""
        before = self._prior is None or self._prior.logged_nothing
        return not any(file.has_history or file.failed or (file.mark and not before) for file in files)

    def _config_of(self, start: Start, files: Sequence[RunFile]) -> Mapping[str, Json]:
        if not start.files or len(self.files) == 1:
            return self._config
        has_metrics = self._lookout.finder.has_metrics
        is_new = not start.is_stored
        config: dict[str, Json] = {} if is_new or self._prior is None else dict(self._prior.config)
        for file in (*files, *(file for file in files if has_metrics(file.rows))):
            for change in self._changes_again(file) if is_new and file.mark else file.changes:
                change.apply_to(config)
        return config

    def _changes_again(self, file: RunFile) -> Sequence[ConfigChange]:
        """Return what a directory does to the config, also what an earlier reading saw."""
        again = RunFile(file.found, None)
        while again.has_more and again.offset < file.offset:
            _try(again, partial(again.turn, self._lookout, {}, budget=TURN))
        self.bytes_read_again += again.bytes_read
        return again.changes

    def _info(self, files: Iterable[RunFile]) -> RunInfo:
        """Return who the run is, as some of its directories say, or else any."""
        known = (file.info for file in (*files, *self.files))
        return reduce(RunInfo.or_else, known, RunInfo()).or_else(_info_of(self._prior))

    def _lived_together(self, one: RunFile, other: RunFile) -> bool:
        began_one, began_other = self._began(one), self._began(other)
        return (began_one is None or began_one.timestamp() <= other.written_s) and (
            began_other is None or began_other.timestamp() <= one.written_s
        )

    def _seconds_between(self, one: RunFile, other: RunFile) -> float:
        began_one, began_other = self._began(one), self._began(other)
        return abs((began_one - began_other).total_seconds()) if began_one and began_other else 0.0

    def _began(self, file: RunFile) -> datetime | None:
        """Return when a directory began; where its run record was not read now, by its name."""
        if file.info and file.info.started_at:
            return file.info.started_at
        mine = _local_time(file.stamp)
        for other in self.files:  # only differences of local times mean something
            theirs = _local_time(other.stamp)
            if mine and theirs and other.info and other.info.started_at:
                return other.info.started_at + (mine - theirs)
        first = _local_time(self.files[0].stamp)
        created_at = self._prior.created_at if self._prior else None
        return created_at + (mine - first) if created_at and first and mine else None

    def _created_at(self, files: Iterable[RunFile], start: Start) -> datetime | None:
        times = [file.info.started_at for file in files if file.info and file.info.started_at]
        if self._prior and self._prior.created_at and start.is_stored:
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
