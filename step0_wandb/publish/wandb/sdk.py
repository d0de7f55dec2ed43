"""The one place that writes with the wandb client and wandb-workspaces, as a program of its own.

It reads one job as JSON from stdin, and prints a line for each part. `process` starts it, as a file: in a
process of its own the client can neither touch a run, settings or handlers of the caller, nor outlive a
deadline. When the program that started it is gone, it removes the folder it works in and ends; the
client's service process, which watches it, does the same.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import threading
import time
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import wandb

UPLOAD_S = 60
SETTINGS: Mapping[str, Any] = {
    "console": "off",
    "silent": True,
    "program": "step0-wandb",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "init_timeout": float(UPLOAD_S),
    "finish_timeout": float(UPLOAD_S),
    "finish_timeout_raises": True,
    "x_file_stream_transmit_interval": 1,
    "x_file_stream_retry_max": 4,
    "x_file_transfer_retry_max": 4,
}
"""Of the sync's own run: nothing of the machine, its code or its output is sent, nothing waits for ever."""
TRIES = 2
LOOK_S = 0.2
"""How often it looks whether it is still wanted."""
VERDICTS = ("broken", "suspect", "no-range", "unchecked", "healthy")


def main() -> None:
    """Do the job that stdin names."""
    parent = os.getppid()
    watch = threading.Thread(target=_end_with_parent, args=(parent,), daemon=True)
    watch.start()
    job = json.load(sys.stdin)
    if job["parent"] != parent:  # it was gone before this program began
        _leave()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(
            2, 1
        )  # what the client prints is not an answer, and its service process must not hold our pipe
        for part in write(job):
            answers.write(f"{json.dumps(part)}\n")
            answers.flush()


def write(job: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Write what a job names; yield each part once the client is done with it, or why it failed.

    The tables come first, since the report's panels need the run. A part that fails does not keep the
    others from being written. What a run logs is sent when the run has ended.

    Parameters
    ----------
    job : mapping
        As `process.WriteJob` gives it.
    """
    answers: list[dict[str, str]] = []
    with own_run(job) as run:
        if job["tables"]:
            answers.append(_try("tables", log_tables, run, job))
        if job["report"]:
            answers.append(_try("report", save_report, job))
        if job["state"]:
            answers.append(_try("state", log_state, run, job))
    yield from answers
    yield {"part": "end"}


def own_run(job: Mapping[str, Any]) -> wandb.Run:
    """Return the sync's own run of a project, resumed or begun."""
    import wandb

    known = wandb.Settings.model_fields
    return wandb.init(
        entity=job["entity"],
        project=job["project"],
        id=job["run"],
        name=job["run"],
        job_type=job["run"],
        resume="allow",
        settings=wandb.Settings(**{name: SETTINGS[name] for name in SETTINGS if name in known}),
    )


def _try(part: str, act: Callable[..., None], *arguments: Any) -> dict[str, str]:
    """Write one part and return the answer; the client gives up at once at an answer that is garbled.

    Each part may be tried twice: a row is sent once the client has all it needs, a report is saved at its
    id, and a state that did arrive is the same version again.
    """
    answer = {"part": part}
    for _ in range(TRIES):
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the other parts go on
            answer = {"part": part, "error": f"{type(error).__name__}: {error}"}
        else:
            return {"part": part}
    return answer


def log_tables(run: wandb.Run, job: Mapping[str, Any]) -> None:
    """Log the tables, the counts and the chart as one row, so that panels show them together."""
    import wandb

    tables = job["tables"]
    row: dict[str, Any] = {**tables["metrics"], "step0/written": tables["written"]}
    for name, table in tables["tables"].items():
        row[name] = wandb.Table(columns=table["columns"], data=table["rows"], allow_mixed_types=True)
    if job["picture"]:
        picture = Path("gaps.png").absolute()
        picture.write_bytes(b64decode(job["picture"]))
        row["gaps"] = wandb.Image(str(picture))
    run.log(row)


def log_state(run: wandb.Run, job: Mapping[str, Any]) -> None:
    """Log the shared state as a new version of its artifact, and wait until the client has sent it."""
    import wandb

    state = job["state"]
    summary = {name: state[name] for name in ("schema", "written_at", "runs")}
    artifact = wandb.Artifact(job["artifact"], job["artifact"], metadata=summary)
    with artifact.new_file(job["file"], encoding="utf-8") as file:
        json.dump(state, file, sort_keys=True, ensure_ascii=True, allow_nan=False)
    run.log_artifact(artifact).wait(timeout=UPLOAD_S)


def save_report(job: Mapping[str, Any]) -> None:
    """Save the report over the one of its id."""
    v2 = _workspaces()

    report = job["report"]
    made = v2.Report(
        entity=job["entity"],
        project=job["project"],
        title=report["title"],
        description=report["description"],
        blocks=[_block(block, job) for block in report["blocks"]],
    )
    made.id = report["id"]
    made.save()


def _block(block: Mapping[str, Any], job: Mapping[str, Any]) -> Any:
    """Return the block of wandb-workspaces for one of `report`'s."""
    v2 = _workspaces()

    match block["kind"]:
        case "heading":
            return v2.H2(block["text"])
        case "callout":
            return v2.CalloutBlock(block["text"])
        case "markdown":
            return v2.MarkdownBlock(block["text"])
        case "paragraph":
            return v2.P(_line(block["line"]))
        case "bullets":
            return v2.UnorderedList(items=[_line(line) for line in block["lines"]])
        case "panels":
            return _panels(job)
    raise ValueError(f"no block of wandb-workspaces is known for {block['kind']!r}")


def _line(line: Sequence[Any]) -> list[Any]:
    v2 = _workspaces()

    return [part if isinstance(part, str) else v2.Link(part["text"], part["url"]) for part in line]


def _panels(job: Mapping[str, Any]) -> Any:
    """Return the panels of what the own run logs, one below the other."""
    v2 = _workspaces()

    panels = (
        v2.MediaBrowser(
            title="Gap of each run over its setup's range",
            media_keys=["gaps"],
            num_columns=1,
            layout=v2.Layout(y=0, w=24, h=14),
        ),
        v2.LinePlot(
            title="Runs by verdict",
            x="WallTime",
            y=[f"verdicts/{verdict}" for verdict in VERDICTS],
            layout=v2.Layout(y=14, w=24, h=8),
        ),
        v2.WeavePanelSummaryTable(table_name="runs", layout=v2.Layout(y=22, w=24, h=12)),
        v2.WeavePanelSummaryTable(table_name="setups", layout=v2.Layout(y=34, w=24, h=12)),
    )
    own = v2.Runset(
        entity=job["entity"],
        project=job["project"],
        name=job["run"],
        filters=f"JobType = '{job['run']}'",
    )
    return v2.PanelGrid(runsets=[own], hide_run_sets=True, panels=list(panels))


def _workspaces() -> Any:
    """Return the package that writes reports; it is slow to import, and its stubs name nothing."""
    return importlib.import_module("wandb_workspaces.reports.v2")


def _end_with_parent(parent: int) -> None:
    """Wait until the program that started this one is gone; then end."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    _leave()


def _leave() -> None:
    """Remove the folder that the parent can no longer remove, and end."""
    folder = Path.cwd()
    for _ in range(3):  # the client's service process may still write into it
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    main()
