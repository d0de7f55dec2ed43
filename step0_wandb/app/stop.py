"""Stop a broken run through its server, and say honestly what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from step0_wandb.errors import Step0Error
from step0_wandb.records import ALIVE, RunKey
from step0_wandb.wandb_api.address import RemoteAddress

if TYPE_CHECKING:
    from step0_wandb.app.gate import Patience
    from step0_wandb.app.sync import Job
    from step0_wandb.records import JudgedRun
    from step0_wandb.wandb_api.control import RunControl


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of asking the server to stop a run.

    Attributes
    ----------
    asked : bool
        Whether the server took the request.
    stopped : bool
        Whether the run has ended.
    message : str
        The same as a sentence; with what to do where it still runs.
    """

    asked: bool
    stopped: bool
    message: str = ""


def stop(run: JudgedRun, job: Job, patience: Patience) -> Stopped:
    """Ask the server to stop a run, and see what becomes of it; what fails is told, not raised."""
    if run.url is None:
        message = "a run on disk has no server that could stop it; end its job yourself"
        return Stopped(asked=False, stopped=False, message=message)
    run_id = RunKey.of(run.run).run_id
    try:
        control = _control(run, job, patience)
        state = control.state(run_id)
        if state not in ALIVE:
            return Stopped(asked=False, stopped=True, message=f"the run had ended before: it is {state}")
        if not control.stop(run_id):
            message = "the server refused to stop the run; end its job yourself"
            return Stopped(asked=False, stopped=False, message=message)
    except Step0Error as error:
        message = f"the server could not be asked: {error.message}; end the run's job yourself"
        return Stopped(asked=False, stopped=False, message=message)
    return _end_of(run_id, control, patience, f"asked at {job.clock():%H:%M} UTC")


def _control(run: JudgedRun, job: Job, patience: Patience) -> RunControl:
    from step0_wandb.wandb_api.control import RunControl

    key = RunKey.of(run.run)
    context = job.context()
    context = replace(context, give_up_s=min(context.give_up_s, patience.stop_wait_s))
    return RunControl(context.client(), RemoteAddress(key.entity, key.project))


def _end_of(run_id: str, control: RunControl, patience: Patience, asked: str) -> Stopped:
    """Wait for a run that was asked to stop."""
    until = patience.now() + patience.stop_wait_s
    while (rest_s := until - patience.now()) > 0:
        patience.sleep(min(rest_s, patience.stop_poll_s))
        try:
            state = control.state(run_id)
        except Step0Error as error:
            message = f"{asked}, but what became of it is not known: {error.message}"
            return Stopped(asked=True, stopped=False, message=message)
        if state not in ALIVE:
            return Stopped(asked=True, stopped=True, message=f"{asked}; the run is {state}")
    message = (
        f"{asked}, still running after {patience.stop_wait_s:.0f} s: W&B interrupts the main thread of each process "
        "that logs, and a Ray worker can swallow that; end the job itself (ray job stop, scancel)"
    )
    return Stopped(asked=True, stopped=False, message=message)
