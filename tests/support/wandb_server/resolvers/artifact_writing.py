"""Writing artifacts, in the client's order: create, manifest, files, manifest again, commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.wandb_server.gql import HttpError, resolves
from tests.support.wandb_server.library import Artifact, Collection
from tests.support.wandb_server.paging import paginate

from .accounts import state_of
from .artifacts import find_artifact

if TYPE_CHECKING:
    from tests.support.wandb_server.state import Project


def require_artifact(info: Any, identifier: str) -> Artifact:
    """Return an artifact by its global id; an unknown one is an HTTP 404."""
    found = find_artifact(info, identifier)
    if found is None:
        raise HttpError(404, "artifact not found")
    return found


def ensure_collection(info: Any, project: Project, name: str, type_name: str) -> Collection:
    """Return the collection of that name, made where there is none."""
    state = state_of(info)
    key = (project.entity, project.name, name)
    if key not in state.collections:
        state.collections[key] = Collection(project, name, type_name, next(state.serial), state.clock())
    return state.collections[key]


@resolves("Mutation.createArtifact")
def create_artifact(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Artifact]:
    """Start a version; one with the content of an earlier version is that version."""
    state = state_of(info)
    project = state.ensure_project(given["entity_name"], given["project_name"])
    name = given.get("artifact_collection_name") or given["artifact_collection_names"][0]
    collection = ensure_collection(info, project, name, given["artifact_type_name"])
    wanted = tuple(item["alias"] for item in given.get("aliases") or ())
    same = next((v for v in collection.committed if v.digest == given["digest"]), None)
    if same and given.get("enable_digest_deduplication"):
        collection.aliases |= dict.fromkeys(wanted, same)
        return {"artifact": same}
    made = Artifact(
        collection,
        next(state.serial),
        len(collection.versions),
        given["digest"],
        given.get("client_id"),
        state.clock(),
        run=project.runs.get(given.get("run_name") or ""),
        description=given.get("description"),
        metadata=given.get("metadata"),
        history_step=given.get("history_step"),
        tag_names=tuple(item["tag_name"] for item in given.get("tags") or ()),
        wanted_aliases=wanted,
    )
    collection.versions.append(made)
    return {"artifact": made}


@resolves("Mutation.createArtifactManifest")
def create_manifest(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    artifact = require_artifact(info, given["artifact_id"])
    artifact.manifest.clear()
    file = state_of(info).new_file(artifact.manifest, given["name"])
    return {"artifactManifest": {"id": artifact.id, "file": file}}


@resolves("Mutation.createArtifactFiles")
def create_files(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return upload urls, in the order of the question."""
    made = []
    for spec in given["artifact_files"]:
        artifact = require_artifact(info, spec["artifact_id"])
        file = state_of(info).new_file(artifact.files, spec["name"])
        file.artifact = artifact
        made.append(file)
    return {"files": paginate(made, len(made), None)}


@resolves("Mutation.commitArtifact")
def commit(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Artifact]:
    artifact = require_artifact(info, given["artifact_id"])
    artifact.commit()
    return {"artifact": artifact}


@resolves("Mutation.updateArtifact")
def update(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Artifact]:
    artifact = require_artifact(info, given["artifact_id"])
    for name in ("description", "metadata"):
        if given.get(name) is not None:
            setattr(artifact, name, given[name])
    dropped = {tag["tag_name"] for tag in given.get("tags_to_delete") or ()}
    added = [tag["tag_name"] for tag in given.get("tags_to_add") or ()]
    artifact.tag_names = tuple(name for name in (*artifact.tag_names, *added) if name not in dropped)
    return {"artifact": artifact}


@resolves("Mutation.deleteArtifact")
def delete(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Artifact]:
    artifact = require_artifact(info, given["artifact_id"])
    artifact.state = "DELETED"
    for name in artifact.alias_names:
        del artifact.collection.aliases[name]
    return {"artifact": artifact}


@resolves("Mutation.useArtifact")
def use(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Artifact]:
    artifact = require_artifact(info, given["artifact_id"])
    run = state_of(info).run(given["entity_name"], given["project_name"], given["run_name"])
    if run is None:
        raise HttpError(404, f"run {given['run_name']} not found")
    if run not in artifact.users:
        artifact.users.append(run)
    return {"artifact": artifact}


@resolves("Mutation.addAliases")
def add_aliases(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, bool]:
    artifact = require_artifact(info, given["artifact_id"])
    artifact.collection.aliases |= {item["alias"]: artifact for item in given["aliases"]}
    return {"success": True}


@resolves("Mutation.deleteAliases")
def delete_aliases(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, bool]:
    artifact = require_artifact(info, given["artifact_id"])
    for item in given["aliases"]:
        artifact.collection.aliases.pop(item["alias"], None)
    return {"success": True}
