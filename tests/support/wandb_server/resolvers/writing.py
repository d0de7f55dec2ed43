"""What changes runs: the client's upserts, edits from the web page, uploads."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import mimetypes
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from tests.support.wandb_server.gql import HttpError, resolves
from tests.support.wandb_server.paging import paginate
from tests.support.wandb_server.sampling import to_json
from tests.support.wandb_server.state import encode_id, stamp

from .accounts import state_of
from .runs import matching_runs

if TYPE_CHECKING:
    from tests.support.wandb_server.paging import Connection
    from tests.support.wandb_server.state import Run, StoredFile

TEXTS = {
    "displayName": "display_name",
    "groupName": "group",
    "jobType": "job_type",
    "notes": "notes",
    "description": "description",
    "host": "host",
    "commit": "commit",
    "jobProgram": "program",
    "jobRepo": "repo",
    "sweep": "sweep_name",
    "state": "status",
}
"""Fields of `upsertBucket` that are copied; null means unchanged."""


@resolves("Mutation.upsertBucket")
def upsert_bucket(_root: Any, info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    """Create a run or change one; asked twice, it does the same as asked once."""
    state = state_of(info)
    run = find_bucket(info, input)
    inserted = run is None
    if run is None:
        project = state.ensure_project(input.get("entityName"), input.get("modelName"))
        run = state.create_run(project, input["name"], info.context.backend.viewer.username)
    for argument, attribute in TEXTS.items():
        if input.get(argument) is not None:
            setattr(run, attribute, input[argument])
    if input.get("tags") is not None:
        run.tags = tuple(input["tags"])
    if input.get("config") is not None:
        write_config(run, json.loads(input["config"]), merge=info.context.shared)
    if input.get("summaryMetrics") is not None:
        run.summary = json.loads(input["summaryMetrics"])
    return {"bucket": run, "inserted": inserted}


def find_bucket(info: Any, wanted: dict[str, Any]) -> Run | None:
    """Return the run that an upsert means, None where it is to be made."""
    if wanted.get("id"):
        found = state_of(info).run_by_id(wanted["id"])
        if found is None:
            raise HttpError(404, "run not found")
        return found
    if not wanted.get("name"):
        raise HttpError(400, "a run needs a name")
    return state_of(info).run(wanted.get("entityName"), wanted.get("modelName"), wanted["name"])


def write_config(run: Run, config: dict[str, Any], *, merge: bool) -> None:
    """Replace the config, or add to it where several writers share the run."""
    if merge:
        run.merge_config(config)
    else:
        run.config_json = to_json(config)


@resolves("Mutation.deleteRun")
def delete_run(_root: Any, info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    run = state_of(info).run_by_id(input["id"])
    if run is None:
        raise HttpError(404, "run not found")
    del run.project.runs[run.name]
    return {"clientMutationId": None}


@resolves("Mutation.updateRunState")
def update_run_state(_root: Any, info: Any, input: dict[str, Any]) -> dict[str, bool]:  # noqa: A002
    run = state_of(info).run_by_id(input["id"])
    if run is None:
        raise HttpError(404, "run not found")
    run.status = input["state"]
    return {"success": True}


@resolves("Mutation.modifyRuns")
def modify_runs(_root: Any, info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    """Add and remove tags on the server, so that nobody's tags are written over."""
    if not info.context.backend.abilities.modify_runs:
        raise HttpError(400, 'Cannot query field "modifyRuns" on type "Mutation".')
    state = state_of(info)
    project = state.project(input.get("entityName"), input.get("projectName"))
    if input.get("ids"):
        runs = [run for run in map(state.run_by_id, input["ids"]) if run]
    else:
        runs = matching_runs(project, input.get("filters"), info) if project else []
    for run in runs:
        kept = [tag for tag in run.tags if tag not in (input.get("removeTags") or ())]
        run.tags = tuple(dict.fromkeys([*kept, *(input.get("addTags") or ())]))
    return {"runsSQL": runs}


@resolves("Mutation.createRunFiles")
def create_run_files(_root: Any, info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    run = state_of(info).run(input["entityName"], input["projectName"], input["runName"])
    if run is None:
        raise HttpError(404, f"run {input['runName']} not found")
    files = [state_of(info).new_file(run.files, name) for name in input["files"]]
    return {"runID": run.id, "uploadHeaders": [], "files": files}


@resolves("Mutation.markRunFilesUploaded")
def mark_run_files_uploaded(_root: Any, _info: Any, **_arguments: Any) -> dict[str, bool]:
    return {"success": True}


def uploaded(run: Run) -> list[StoredFile]:
    """Return the run's files that did arrive."""
    return [file for file in run.files.values() if file.content is not None]


@resolves("Run.fileCount")
def file_count(run: Run, _info: Any) -> int:
    return len(uploaded(run))


@resolves("Run.files")
def run_files(
    run: Run, _info: Any, names: list[str] | None = None, pattern: str | None = None, **page: Any
) -> Connection:
    files = uploaded(run)
    if names:
        files = [file for file in files if file.name in names]
    elif pattern:
        glob = pattern.replace("%", "*").replace("_", "?")  # SQL's LIKE, as far as people use it
        files = [file for file in files if fnmatch.fnmatchcase(file.name, glob)]
    return paginate(files, page.get("first"), page.get("after"))


@resolves("File.url", "File.directUrl", "File.uploadUrl")
def file_url(file: StoredFile, info: Any, upload: bool = False) -> str:  # noqa: ARG001, FBT001, FBT002
    return f"{info.context.base_url}/storage/{file.token}"


@resolves("File.id")
def file_id(file: StoredFile, _info: Any) -> str:
    return encode_id(f"File:{file.token}")


@resolves("File.displayName", "File.storagePath")
def file_name(file: StoredFile, _info: Any) -> str:
    return file.name


@resolves("File.uploadHeaders")
def upload_headers(_file: StoredFile, _info: Any) -> list[str]:
    return []


@resolves("File.sizeBytes")
def size(file: StoredFile, _info: Any) -> int:
    return len(file.content or b"")


@resolves("File.mimetype")
def mimetype(file: StoredFile, _info: Any) -> str:
    return mimetypes.guess_type(file.name)[0] or "application/octet-stream"


@resolves("File.updatedAt")
def updated_at(file: StoredFile, _info: Any) -> str:
    return stamp(file.updated_at)


@resolves("File.md5", "File.digest")
def md5(file: StoredFile, _info: Any) -> str:
    return b64encode(hashlib.md5(file.content or b"", usedforsecurity=False).digest()).decode()


@resolves("File.uploadMultipartUrls")
def no_multipart(_file: StoredFile, _info: Any) -> None:
    return None
