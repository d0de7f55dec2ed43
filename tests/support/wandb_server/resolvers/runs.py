"""Reading runs: pages, fields, histories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError

from tests.support.wandb_server import filters as mongo
from tests.support.wandb_server.gql import HttpError, resolves
from tests.support.wandb_server.paging import paginate
from tests.support.wandb_server.sampling import DEFAULT_SAMPLES, plain, sampled, thin_out, to_json, window
from tests.support.wandb_server.state import stamp

from .accounts import state_of

if TYPE_CHECKING:
    from tests.support.wandb_server.paging import Connection, Edge
    from tests.support.wandb_server.state import Project, Run


def run_state(run: Run, info: Any) -> str:
    """Return the state that the run has now."""
    timeout_s = info.context.backend.abilities.heartbeat_timeout_s
    return run.state(state_of(info).clock(), timeout_s)


def matching_runs(project: Project, filters: str | None, info: Any) -> list[Run]:
    """Return the project's runs that pass a filter (JSON), in no promised order."""
    everything = list(project.runs.values())
    try:
        wanted = json.loads(filters or "{}")
        test = mongo.compile_filter(wanted, lambda run: run_state(run, info))
        return [run for run in everything if test(run)] if wanted else everything
    except ValueError as error:
        raise HttpError(400, f"invalid filters: {error}") from error


@resolves("Project.runCount")
def run_count(project: Project, info: Any, filters: str | None = None) -> int:
    return len(matching_runs(project, filters, info))


@resolves("Project.runs")
def runs(
    project: Project, info: Any, first: int | None = None, after: str | None = None, **query: Any
) -> Connection:
    abilities = info.context.backend.abilities
    found = matching_runs(project, query.get("filters"), info)
    try:
        ranked = mongo.sort_runs(found, query.get("order"), lambda run: run_state(run, info))
        size = min(50 if first is None else first, abilities.max_page)
        page = paginate(ranked, size, after, stable=abilities.cursors == "stable")
    except ValueError as error:
        raise HttpError(400, f"invalid order or cursor: {error}") from error
    info.context.touch_page(page.nodes)
    return page


@resolves("RunEdge.node")
def run_node(edge: Edge, info: Any) -> Run:
    run: Run = edge.node
    if info.context.spoil == "node" and info.context.spoiled is run:
        raise GraphQLError("internal error while reading a run")
    return run


@resolves("Project.run")
def run_by_name(project: Project, info: Any, name: str) -> Run | None:
    found = project.runs.get(name)
    if found:
        info.context.touch_page([found])
    return found


@resolves("Project.bucket")
def bucket(project: Project, info: Any, name: str, *, missing_ok: bool = False) -> Run | None:
    found = run_by_name(project, info, name)
    if found is None and not missing_ok:
        raise HttpError(404, f"run {name} not found")
    return found


@resolves("Run.state")
def current_state(run: Run, info: Any) -> str:
    return run_state(run, info)


@resolves("Run.projectId")
def project_id(run: Run, _info: Any) -> int:
    return run.project.internal_id


@resolves("Run.config")
def config(run: Run, info: Any) -> str:
    info.context.touch(run, "config")
    return run.config_json


@resolves("Run.wandbConfig")
def wandb_config(run: Run, _info: Any, keys: list[str] | None = None) -> str:
    internal = run.config.get("_wandb", {}).get("value", {})
    return to_json({key: value for key, value in internal.items() if keys is None or key in keys})


@resolves("Run.createdAt")
def created_at(run: Run, _info: Any) -> str:
    return stamp(run.created_at)


@resolves("Run.heartbeatAt", "Run.updatedAt")
def heartbeat_at(run: Run, _info: Any) -> str:
    return stamp(run.heartbeat_at)


@resolves("Run.readOnly")
def read_only(run: Run, _info: Any) -> bool:
    return run.project.read_only


@resolves("Run.stopped", "Run.shouldStop")
def stopped(run: Run, _info: Any) -> bool:
    return run.stop_requested


@resolves("Run.summaryMetrics")
def summary_metrics(run: Run, _info: Any) -> str:
    return to_json(run.summary)


@resolves("Run.systemMetrics")
def system_metrics(run: Run, _info: Any) -> str:
    return to_json(run.events[-1] if run.events else {})


@resolves("Run.historyLineCount")
def history_line_count(run: Run, _info: Any) -> int:
    return len(run.rows)


@resolves("Run.eventsLineCount")
def events_line_count(run: Run, _info: Any) -> int:
    return len(run.events)


@resolves("Run.logLineCount")
def log_line_count(run: Run, _info: Any) -> int:
    return len(run.log_lines)


@resolves("Run.historyTail")
def history_tail(run: Run, _info: Any) -> str:
    return to_json([to_json(row) for row in run.rows[-1:]])


@resolves("Run.eventsTail")
def events_tail(run: Run, _info: Any) -> str:
    return to_json([to_json(row) for row in run.events[-1:]])


@resolves("Run.historyKeys")
def history_keys(run: Run, info: Any) -> dict[str, Any] | None:
    info.context.touch(run, "historyKeys")
    return run.history_keys


@resolves("Run.history")
def history(run: Run, info: Any, samples: int | None = None, **steps: int | None) -> list[str]:
    """Return whole rows; unlike in `sampledHistory`, `maxStep` is exclusive."""
    info.context.touch(run, "history")
    limit = steps.get("max_step")
    rows = window(run.rows, steps.get("min_step"), None if limit is None else limit - 1)
    return [to_json(row) for row in thin_out(rows, samples or DEFAULT_SAMPLES)]


@resolves("Run.events")
def events(run: Run, _info: Any, samples: int | None = None) -> list[str]:
    return [to_json(row) for row in thin_out(run.events, samples or DEFAULT_SAMPLES)]


@resolves("Run.sampledHistory")
def sampled_history(run: Run, info: Any, specs: list[str]) -> list[list[dict[str, Any]]]:
    inside_a_page = "edges" in info.path.as_list()
    if inside_a_page and not info.context.backend.abilities.nested_history:
        raise HttpError(400, "sampledHistory cannot be asked inside runs")
    info.context.touch(run, "sampledHistory")
    try:
        return [sampled(run.rows, spec) for spec in specs]
    except ValueError as error:
        raise HttpError(400, f"invalid spec: {error}") from error


@resolves("Run.parquetHistory")
def parquet_history(run: Run, _info: Any, live_keys: list[str]) -> dict[str, Any]:
    """Return no exported files and every row as live data, as for a young run."""
    rows = [plain({key: row[key] for key in live_keys if key in row}) for row in run.rows]
    return {"parquetUrls": [], "liveData": rows}


@resolves("Run.logLines")
def log_lines(
    run: Run, _info: Any, last: int | None = None, first: int | None = None, **paging: Any
) -> Connection:
    lines = [read_log_line(number, text) for number, text in enumerate(run.log_lines)]
    return paginate(lines[-last:] if last else lines, last or first or 1000, paging.get("after"))


def read_log_line(number: int, text: str) -> dict[str, Any]:
    """Return a line of console output, which travels as ``<timestamp> <line>``."""
    moment, _, line = text.partition(" ")
    level, moment = (
        ("error", moment.removeprefix("ERROR ")) if text.startswith("ERROR ") else ("info", moment)
    )
    return {"number": number, "timestamp": moment, "level": level, "label": "", "line": line}
