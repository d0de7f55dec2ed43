"""Posts to a run's stream: history, summary, system metrics, console output, the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import Backend
    from .state import Run

ENDED = frozenset({"finished", "failed", "crashed", "killed"})


def post_stream(backend: Backend, run: Run, body: dict[str, Any], *, shared: bool) -> dict[str, Any]:
    """Write one post into the run, and tell the client whether somebody asked it to stop.

    Any post, also an empty one, is a heartbeat. A post to an ended run makes it running again
    where the server's abilities say so.
    """
    abilities, now = backend.abilities, backend.state.clock()
    was = run.state(now, abilities.heartbeat_timeout_s)
    run.heartbeat_at = now
    if was not in ENDED or abilities.resurrect:
        run.status = "preempting" if body.get("preempting") else "running"
    numbered = shared and abilities.shared_history == "append"
    for name, chunk in (body.get("files") or {}).items():
        write_chunk(run, name, chunk, append=numbered)
    if body.get("complete"):
        run.exit_code = body.get("exitcode") or 0
        run.status = "finished" if run.exit_code == 0 else "failed"
    return {"exitcode": None, "limits": {}, "stopped": run.stop_requested}


def write_chunk(run: Run, name: str, chunk: dict[str, Any], *, append: bool) -> None:
    """Write the lines of one of the stream's files; appended rows get the server's own numbers."""
    lines, offset = chunk["content"], chunk.get("offset") or 0
    if name == "wandb-history.jsonl":
        rows = [json.loads(line) for line in lines]
        if append:
            offset = len(run.rows)
            rows = [row | {"_step": number} for number, row in enumerate(rows, start=offset)]
        run.write_rows(offset, rows)
    elif name == "wandb-events.jsonl":
        run.events[offset:] = [json.loads(line) for line in lines]
    elif name == "wandb-summary.json" and lines:
        run.summary = json.loads(lines[-1])
    elif name == "output.log":
        run.log_lines[offset:] = lines
