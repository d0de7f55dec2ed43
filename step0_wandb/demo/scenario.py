"""The demo's runs as data: what each process of each run logs, and when."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from step0_wandb.records import Json

SCENARIO = Path(__file__).with_name("scenario.toml")
STARTUP_S = 150.0
"""From a run's start to its first row: loading the model, starting the engine."""
NOISE = 0.03
"""Relative spread of the numbers that are told as noisy."""
GOODBYE_S = 60.0
"""From a run's last row to its end."""
PROCESS_STARTS_S = {"driver": 0.0, "rollout": 11.0, "trainer": 23.0}
"""When the processes of a split run open their directories."""
EXIT_CODES = {"finished": 0, "failed": 1, "running": None}

Process = Literal["rollout", "trainer"]


@dataclass(frozen=True, slots=True)
class RowSpec:
    """One kind of history row of a framework.

    Attributes
    ----------
    each : {"run", "rollout", "step"}
        How often it is logged.
    process : {"rollout", "trainer"}
        Which process logs it, where the processes of a run write one directory each.
    values : mapping of str to number or str
        As they are; a text names a value of the run or of the moment.
    noisy : mapping of str to float
        These vary from row to row.
    """

    each: Literal["run", "rollout", "step"]
    process: Process = "trainer"
    values: Mapping[str, float | str] = field(default_factory=dict)
    noisy: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Framework:
    """What the runs of one framework have in common.

    Attributes
    ----------
    name : str
        Pattern of the display name.
    packages : mapping of str to str
        The versions that its image has installed.
    step_metrics : mapping of str to str
        Which step key the metrics of a pattern are drawn over.
    wandb_step : bool
        Whether the framework passes its step to W&B, so that it becomes ``_step``.
    """

    entity: str
    project: str
    name: str
    config: Mapping[str, Json]
    row: tuple[RowSpec, ...]
    first_step: int
    steps_per_rollout: int
    packages: Mapping[str, str] = field(default_factory=dict)
    step_metrics: Mapping[str, str] = field(default_factory=dict)
    wandb_step: bool = False


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run: who started it, how long ago, and what its step 0 says.

    Attributes
    ----------
    row : mapping of str to float
        What its optimizer steps log instead of the framework's usual values.
    minutes : float
        Duration of one rollout with its training.
    stops_before : {"rollout", "step"} or None
        The kind of row that the run does not live to see.
    """

    id: str
    user: str
    hours_ago: float
    gap: float = 0.0
    ppo_kl: float = 0.0
    clip_frac: float = 0.0
    row: Mapping[str, float] = field(default_factory=dict)
    end: Literal["finished", "failed", "running"] = "finished"
    rollouts: int = 3
    first_rollout: int = 0
    minutes: float = 6.0
    stops_before: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """What one person started, once or several times.

    Attributes
    ----------
    config, packages : mapping
        Where they differ from the framework's.
    omit : tuple of str
        Metrics that this version of the framework does not log.
    split : bool
        Whether each process of a run writes a directory of its own.
    """

    framework: Framework
    group: str
    runs: tuple[DemoRun, ...]
    config: Mapping[str, Json] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    split: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One call of ``run.log``: when (seconds since 1970), what, and W&B's step where it is passed."""

    at: float
    values: Mapping[str, float]
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Directory:
    """One run directory: what one process of a run writes.

    Attributes
    ----------
    start, end : float
        In seconds since 1970.
    exit_code : int or None
        None where the process never says goodbye: it still runs, or was killed with the job.
    """

    run_id: str
    entity: str
    project: str
    name: str
    group: str
    user: str
    config: Mapping[str, Json]
    packages: Mapping[str, str]
    step_metrics: Mapping[str, str]
    rows: tuple[Row, ...]
    start: float
    end: float
    exit_code: int | None


def load_launches(path: Path = SCENARIO) -> tuple[Launch, ...]:
    """Read the scenario."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    frameworks = {
        name: Framework(**table | {"row": tuple(RowSpec(**row) for row in table["row"])})
        for name, table in tables["framework"].items()
    }
    return tuple(
        Launch(
            **table
            | {
                "framework": frameworks[table["framework"]],
                "runs": tuple(DemoRun(**run) for run in table["runs"]),
                "omit": tuple(table.get("omit", ())),
            }
        )
        for table in tables["launch"]
    )


def run_ids() -> tuple[str, ...]:
    """Return the ids of the demo's runs."""
    return tuple(run.id for launch in load_launches() for run in launch.runs)


def directories(now: datetime) -> list[Directory]:
    """Return what is to be written, the oldest run first; all directories of a run in a row.

    Parameters
    ----------
    now : datetime
        The runs are spread over the ten days before.
    """
    runs = [(launch, run) for launch in load_launches() for run in launch.runs]
    runs.sort(key=lambda pair: -pair[1].hours_ago)
    return [part for launch, run in runs for part in _parts(launch, run, now)]


def _parts(launch: Launch, run: DemoRun, now: datetime) -> Iterator[Directory]:
    rows = list(_timed_rows(launch, run, now))
    whole = _directory(launch, run, now, tuple(row for _, row in rows))
    if not launch.split:
        yield whole
        return
    for process, later_s in PROCESS_STARTS_S.items():
        yield replace(
            whole,
            rows=tuple(row for writer, row in rows if writer == process),
            start=whole.start + later_s,
            # The trainer's process is killed with the job: its file has no exit record.
            exit_code=None if process == "trainer" else whole.exit_code,
        )


def _directory(launch: Launch, run: DemoRun, now: datetime, rows: tuple[Row, ...]) -> Directory:
    framework = launch.framework
    names = {"group": launch.group, "suffix": f"{random.Random(run.id).getrandbits(32):08x}"}  # noqa: S311 - a name
    running = run.end == "running"
    return Directory(
        run_id=run.id,
        entity=framework.entity,
        project=framework.project,
        name=framework.name.format(**names),
        group=launch.group,
        user=run.user,
        config=_filled(_merged(framework.config, launch.config), names),
        packages={**framework.packages, **launch.packages},
        step_metrics=framework.step_metrics,
        rows=rows,
        start=_start(run, now),
        end=now.timestamp() if running else rows[-1].at + GOODBYE_S,
        exit_code=EXIT_CODES[run.end],
    )


def _start(run: DemoRun, now: datetime) -> float:
    return (now - timedelta(hours=run.hours_ago)).timestamp()


def _timed_rows(launch: Launch, run: DemoRun, now: datetime) -> Iterator[tuple[Process, Row]]:
    """Yield a run's rows with the process that writes each, evenly over its time."""
    moments = list(_moments(launch.framework, run))
    every_s = run.minutes * 60.0 * run.rollouts / len(moments)
    noise = random.Random(run.id)  # noqa: S311 - the demo's numbers are no secret
    for index, moment in enumerate(moments):
        if moment.spec.each == run.stops_before:
            return
        values = {name: x for name, x in _values(moment, run, noise).items() if name not in launch.omit}
        at = _start(run, now) + STARTUP_S + every_s * index
        yield moment.spec.process, Row(at, values, moment.step if launch.framework.wandb_step else None)


@dataclass(frozen=True, slots=True)
class _Moment:
    """When a row is logged; `off_policy` counts the optimizer steps since the rollout."""

    spec: RowSpec
    rollout: int
    step: int
    off_policy: int = 0


def _moments(framework: Framework, run: DemoRun) -> Iterator[_Moment]:
    for rollout in range(run.first_rollout, run.first_rollout + run.rollouts):
        step = framework.first_step + rollout * framework.steps_per_rollout
        for spec in framework.row:
            if spec.each == "step":
                yield from (_Moment(spec, rollout, step + n, n) for n in range(framework.steps_per_rollout))
            elif spec.each == "rollout":
                yield _Moment(spec, rollout, step)
            elif rollout == run.first_rollout:
                yield _Moment(spec, rollout, 0)


def _values(moment: _Moment, run: DemoRun, noise: random.Random) -> dict[str, float]:
    spec = moment.spec
    known = {"rollout": moment.rollout, "step": moment.step, **_measured(moment, run, noise)}
    values = {name: known[value] if isinstance(value, str) else value for name, value in spec.values.items()}
    noisy = {name: value * noise.gauss(1.0, NOISE) for name, value in spec.noisy.items()}
    return values | noisy | (dict(run.row) if spec.each == "step" else {})


def _measured(moment: _Moment, run: DemoRun, noise: random.Random) -> dict[str, float]:
    """Return the three step-0 metrics: as told at the first step of a rollout, off-policy after it."""
    gap_noise = 1.0 if moment.rollout == run.first_rollout else noise.gauss(1.0, NOISE)
    return {
        "gap": run.gap * gap_noise,
        "ppo_kl": run.ppo_kl + moment.off_policy * noise.uniform(2e-4, 9e-4),
        "clip_frac": run.clip_frac + moment.off_policy * noise.uniform(1e-4, 4e-4),
    }


def _merged(base: Mapping[str, Json], over: Mapping[str, Json]) -> dict[str, Json]:
    """Return `base` with what `over` says instead, table by table."""
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        merged[key] = _merged(inner, value) if both else value  # type: ignore[arg-type]
    return merged


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**names)
    if isinstance(value, Mapping):
        return {key: _filled(inner, names) for key, inner in value.items()}
    return value
