"""What changes runs: the client's upserts, edits from the web page, uploads."""

from __future__ import annotations

import fnmatch
import json
import mimetypes
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
    "display_name": "display_name",
    "group_name": "group",
    "job_type": "job_type",
    "notes": "notes",
    "description": "description",
    "host": "host",
    "commit": "commit",
    "job_program": "program",
    "job_repo": "repo",
    "sweep": "sweep_name",
    "state": "status",
}
"""Fields of `upsertBucket` that are copied; null means unchanged."""


@resolves("Mutation.upsertBucket")
def upsert_bucket(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Create a run or change one; asked twice, it does the same as asked once."""
    state = state_of(info)
    run = find_bucket(info, given)
    inserted = run is None
    if run is None:
        project = state.ensure_project(given.get("entity_name"), given.get("model_name"))
        run = state.create_run(project, given["name"], info.context.backend.viewer.username)
    for argument, attribute in TEXTS.items():
        if given.get(argument) is not None:
            setattr(run, attribute, given[argument])
    if given.get("tags") is not None:
        run.tags = tuple(given["tags"])
    if given.get("config") is not None:
        write_config(run, json.loads(given["config"]), merge=info.context.shared)
    if given.get("summary_metrics") is not None:
        run.summary = json.loads(given["summary_metrics"])
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
    return state_of(info).run(wanted.get("entity_name"), wanted.get("model_name"), wanted["name"])


def write_config(run: Run, config: dict[str, Any], *, merge: bool) -> None:
    """Replace the config, or add to it where several writers share the run."""
    if merge:
        run.merge_config(config)
    else:
        run.config_json = to_json(config)


@resolves("Mutation.deleteRun")
def delete_run(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    run = state_of(info).run_by_id(given["id"])
    if run is None:
        raise HttpError(404, "run not found")
    del run.project.runs[run.name]
    return {"clientMutationId": None}


@resolves("Mutation.updateRunState")
def update_run_state(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, bool]:
    run = state_of(info).run_by_id(given["id"])
    if run is None:
        raise HttpError(404, "run not found")
    run.status = given["state"]
    return {"success": True}


@resolves("Mutation.modifyRuns")
def modify_runs(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Add and remove tags on the server, so that nobody's tags are written over."""
    if not info.context.backend.abilities.modify_runs:
        raise HttpError(400, 'Cannot query field "modifyRuns" on type "Mutation".')
    state = state_of(info)
    project = state.project(given.get("entity_name"), given.get("project_name"))
    if given.get("ids"):
        runs = [run for run in map(state.run_by_id, given["ids"]) if run]
    else:
        runs = matching_runs(project, given.get("filters"), info) if project else []
    for run in runs:
        kept = [tag for tag in run.tags if tag not in (given.get("remove_tags") or ())]
        run.tags = tuple(dict.fromkeys([*kept, *(given.get("add_tags") or ())]))
    return {"runsSQL": runs}


@resolves("Mutation.createRunFiles")
def create_run_files(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    run = state_of(info).run(given["entity_name"], given["project_name"], given["run_name"])
    if run is None:
        raise HttpError(404, f"run {given['run_name']} not found")
    files = [state_of(info).new_file(run.files, name) for name in given["files"]]
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
def file_url(file: StoredFile, info: Any, **_upload: bool | None) -> str:
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


@resolves("File.digest")
def digest(file: StoredFile, _info: Any) -> str:
    return file.md5


@resolves("File.uploadMultipartUrls")
def no_multipart(_file: StoredFile, _info: Any) -> None:
    return None
