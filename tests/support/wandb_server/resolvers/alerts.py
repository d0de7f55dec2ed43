"""Alerts and stop: what is asked of somebody else's run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.wandb_server.gql import HttpError, resolves
from tests.support.wandb_server.records import Alert

from .accounts import state_of

DEFAULT_WAIT_MS = 60_000


@resolves("Mutation.notifyScriptableRunAlert")
def notify(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, bool]:
    """Deliver an alert, unless one of the same title was delivered within its wait duration."""
    backend = info.context.backend
    run = state_of(info).run(given["entity_name"], given["project_name"], given["run_name"])
    if run is None:
        raise HttpError(404, f"run {given['run_name']} not found")
    if not backend.abilities.accepts_alert(run.name):
        raise HttpError(403, "permission denied")
    wait_ms = given.get("wait_duration")
    now = state_of(info).clock()
    alert = Alert(
        entity=run.project.entity,
        project=run.project.name,
        run_id=run.name,
        title=given["title"],
        text=given["text"],
        level=given["severity"],
        wait=timedelta(milliseconds=DEFAULT_WAIT_MS if wait_ms is None else wait_ms),
        at=now,
    )
    backend.alert_attempts.append(alert)
    if not any(earlier.covers(alert) for earlier in backend.alerts):
        backend.alerts.append(alert)
    return {"success": True}


@resolves("Mutation.stopRun")
def stop_run(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, bool]:
    run = state_of(info).run_by_id(given["id"])
    if run is None:
        raise HttpError(404, "run not found")
    if not info.context.backend.abilities.stop:
        raise HttpError(403, "permission denied")
    run.stop_requested = True
    return {"success": True}
