"""The demo's runs as data: what each process of each run logs, and when.

`scenario.toml` says what the runs of a framework have in common (``framework``), and what people started
(``launch``, each with its ``runs``).
"""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from step0_wandb.records import Json

SCENARIO = Path(__file__).with_name("scenario.toml")
STARTUP_S = 150.0
"""From a run's start to its first row: loading the model, starting the engine."""
NOISE = 0.03
"""Relative spread of the numbers that vary from row to row."""
GOODBYE_S = 60.0
"""From a run's last row to its end."""
PROCESS_STARTS_S = {"driver": 0.0, "rollout": 11.0, "trainer": 23.0}
"""When the processes of a split run open their directories."""
EXIT_CODES = {"finished": 0, "failed": 1, "running": None}

LAUNCH: Mapping[str, Any] = {"config": {}, "packages": {}, "omit": (), "split": False}
"""What a launch is where the scenario does not say."""
RUN: Mapping[str, Any] = {
    "gap": 0.0,
    "ppo_kl": 0.0,
    "clip_frac": 0.0,
    "row": {},
    # `minutes` is the duration of one rollout; `stops_before` the kind of row that the run does not live to see.
    "end": "finished",
    "rollouts": 3,
    "first_rollout": 0,
    "minutes": 6.0,
    "stops_before": None,
}


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
        None where the process writes no exit record: it still runs, or was killed with the job.
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


class Planned(NamedTuple):
    """One run of the scenario, with its launch and its framework."""

    framework: dict[str, Any]
    launch: dict[str, Any]
    run: dict[str, Any]


@cache
def planned() -> tuple[Planned, ...]:
    """Read the scenario."""
    tables = tomllib.loads(SCENARIO.read_text(encoding="utf-8"))
    return tuple(
        Planned(tables["framework"][launch["framework"]], {**LAUNCH, **launch}, {**RUN, **run})
        for launch in tables["launch"]
        for run in launch["runs"]
    )


def run_ids() -> tuple[str, ...]:
    """Return the ids of the demo's runs."""
    return tuple(run["id"] for _, _, run in planned())


def directories(now: datetime) -> list[Directory]:
    """Return what is to be written, the oldest run first; all directories of a run in a row.

    Parameters
    ----------
    now : datetime
        The runs are spread over the ten days before.
    """
    oldest_first = sorted(planned(), key=lambda plan: -plan.run["hours_ago"])
    return [part for plan in oldest_first for part in _parts(plan, now)]


def _parts(plan: Planned, now: datetime) -> Iterator[Directory]:
    start = (now - timedelta(hours=plan.run["hours_ago"])).timestamp()
    rows = list(_timed_rows(plan, start))
    whole = _directory(plan, tuple(row for _, row in rows), start, now)
    if not plan.launch["split"]:
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


def _directory(plan: Planned, rows: tuple[Row, ...], start: float, now: datetime) -> Directory:
    framework, launch, run = plan
    suffix = f"{random.Random(run['id']).getrandbits(32):08x}"  # noqa: S311 - a name
    names = {"group": launch["group"], "suffix": suffix}
    return Directory(
        **{name: framework[name] for name in ("entity", "project")},
        run_id=run["id"],
        name=framework["name"].format(**names),
        group=launch["group"],
        user=run["user"],
        config=_filled(_merged(framework["config"], launch["config"]), names),
        packages={**framework.get("packages", {}), **launch["packages"]},
        step_metrics=framework.get("step_metrics", {}),
        rows=rows,
        start=start,
        end=now.timestamp() if run["end"] == "running" else rows[-1].at + GOODBYE_S,
        exit_code=EXIT_CODES[run["end"]],
    )


def _timed_rows(plan: Planned, start: float) -> Iterator[tuple[str, Row]]:
    """Yield a run's rows with the process that writes each, evenly over its time."""
    framework, launch, run = plan
    moments = list(_moments(framework, run))
    every_s = run["minutes"] * 60.0 * run["rollouts"] / len(moments)
    noise = random.Random(run["id"])  # noqa: S311 - the demo's numbers are not secret
    for index, moment in enumerate(moments):
        if moment.spec["each"] == run["stops_before"]:
            return
        values = {name: x for name, x in _values(moment, run, noise).items() if name not in launch["omit"]}
        at = start + STARTUP_S + every_s * index
        step = moment.step if framework.get("wandb_step") else None
        yield moment.spec.get("process", "trainer"), Row(at, values, step)


class _Moment(NamedTuple):
    """When a row is logged; `off_policy` counts the optimizer steps since the rollout."""

    spec: dict[str, Any]
    rollout: int
    step: int
    off_policy: int = 0


def _moments(framework: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[_Moment]:
    first, per_rollout = run["first_rollout"], framework["steps_per_rollout"]
    for rollout in range(first, first + run["rollouts"]):
        step = framework["first_step"] + rollout * per_rollout
        for spec in framework["row"]:
            if spec["each"] == "step":
                yield from (_Moment(spec, rollout, step + n, n) for n in range(per_rollout))
            elif spec["each"] == "rollout":
                yield _Moment(spec, rollout, step)
            elif rollout == first:
                yield _Moment(spec, rollout, 0)


def _values(moment: _Moment, run: Mapping[str, Any], noise: random.Random) -> dict[str, float]:
    """Return what a row logs: a text in the scenario stands for a value of the run or of the moment."""
    spec = moment.spec
    is_first = moment.rollout == run["first_rollout"]
    measured = {
        "rollout": moment.rollout,
        "step": moment.step,
        "gap": run["gap"] * (1.0 if is_first else noise.gauss(1.0, NOISE)),
        # Exact at the first step of a rollout, off-policy after it.
        "ppo_kl": run["ppo_kl"] + moment.off_policy * noise.uniform(2e-4, 9e-4),
        "clip_frac": run["clip_frac"] + moment.off_policy * noise.uniform(1e-4, 4e-4),
    }
    values = {name: measured.get(value, value) for name, value in spec.get("values", {}).items()}
    noisy = {name: value * noise.gauss(1.0, NOISE) for name, value in spec.get("noisy", {}).items()}
    return values | noisy | (run["row"] if spec["each"] == "step" else {})


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
    if isinstance(value, dict):
        return {key: _filled(inner, names) for key, inner in value.items()}
    return value
