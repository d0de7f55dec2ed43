"""Reading artifacts: collections, versions, aliases, files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.wandb_server.gql import resolves
from tests.support.wandb_server.paging import paginate
from tests.support.wandb_server.state import encode_id, stamp

from .accounts import state_of

if TYPE_CHECKING:
    from tests.support.wandb_server.library import Artifact, Collection
    from tests.support.wandb_server.paging import Connection
    from tests.support.wandb_server.state import Project, Run


def artifact_type(name: str, project: Project) -> dict[str, Any]:
    """Return an artifact type, which is no more than a name in a project."""
    return {
        "id": encode_id(f"ArtifactType:{name}"),
        "name": name,
        "description": None,
        "createdAt": stamp(project.created_at),
        "project": project,
    }


def membership(collection: Collection, artifact: Artifact | None) -> dict[str, Any] | None:
    """Return how a version belongs to its collection."""
    if artifact is None:
        return None
    return {
        "id": encode_id(f"ArtifactCollectionMembership:{artifact.serial}"),
        "versionIndex": artifact.version_index,
        "createdAt": stamp(artifact.made_at),
        "aliases": aliases(artifact, None),
        "artifactCollection": collection,
        "artifact": artifact,
    }


def find_artifact(info: Any, identifier: str) -> Artifact | None:
    """Return an artifact by its global id, else None."""
    versions = (version for one in state_of(info).collections.values() for version in one.versions)
    return next((version for version in versions if version.id == identifier), None)


@resolves("Query.artifact")
def artifact_by_id(_root: Any, info: Any, identifier: str) -> Artifact | None:
    return find_artifact(info, identifier)


@resolves("Query.clientIDMapping")
def client_id_mapping(_root: Any, info: Any, client_id: str) -> dict[str, str] | None:
    versions = (version for one in state_of(info).collections.values() for version in one.versions)
    return next(({"serverID": v.id} for v in versions if v.client_id == client_id), None)


def collections_of(info: Any, project: Project, type_name: str | None = None) -> list[Collection]:
    """Return the project's collections with at least one complete version."""
    return [
        one
        for one in state_of(info).collections.values()
        if one.project is project and type_name in {None, one.type_name} and one.committed
    ]


def find_collection(info: Any, project: Project, name: str) -> Collection | None:
    """Return a collection by its name."""
    return next((one for one in collections_of(info, project) if one.name == name), None)


@resolves("Project.artifactCollectionMembership")
def membership_by_name(project: Project, info: Any, name: str) -> dict[str, Any] | None:
    head, _, alias = name.partition(":")
    found = find_collection(info, project, head)
    return membership(found, found.find(alias or "latest")) if found else None


@resolves("Project.artifact")
def artifact_by_name(project: Project, info: Any, name: str) -> Artifact | None:
    found = membership_by_name(project, info, name)
    return found["artifact"] if found else None


@resolves("Project.artifactType")
def type_by_name(project: Project, info: Any, name: str) -> dict[str, Any] | None:
    return artifact_type(name, project) if collections_of(info, project, name) else None


@resolves("Project.artifactTypes")
def types(project: Project, info: Any, after: str | None = None, first: int | None = None) -> Connection:
    names = dict.fromkeys(one.type_name for one in collections_of(info, project))
    return paginate([artifact_type(name, project) for name in names], first, after)


@resolves("Project.artifactCollection")
def collection_by_name(project: Project, info: Any, name: str) -> Collection | None:
    return find_collection(info, project, name)


@resolves("Project.artifactCollections")
def collections(project: Project, info: Any, **page: Any) -> Connection:
    return paginate(collections_of(info, project), page.get("first"), page.get("after"))


@resolves("ArtifactType.artifactCollection")
def collection_of_type(kind: dict[str, Any], info: Any, name: str) -> Collection | None:
    found = find_collection(info, kind["project"], name)
    return found if found and found.type_name == kind["name"] else None


@resolves("ArtifactType.artifactCollections")
def collections_of_type(kind: dict[str, Any], info: Any, **page: Any) -> Connection:
    return paginate(collections_of(info, kind["project"], kind["name"]), page.get("first"), page.get("after"))


@resolves(
    "ArtifactSequence.createdAt", "ArtifactSequence.updatedAt", "Artifact.createdAt", "Artifact.updatedAt"
)
def made_at(source: Artifact | Collection, _info: Any) -> str:
    return stamp(source.made_at)


@resolves("ArtifactSequence.description", "Artifact.commitHash")
def nothing(_source: Any, _info: Any) -> None:
    return None


@resolves("ArtifactSequence.defaultArtifactType")
def default_type(collection: Collection, _info: Any) -> dict[str, Any]:
    return artifact_type(collection.type_name, collection.project)


@resolves("ArtifactSequence.tags")
def collection_tags(_collection: Collection, _info: Any) -> dict[str, Any]:
    return {"edges": []}


@resolves("ArtifactSequence.artifacts")
def versions(collection: Collection, _info: Any, **page: Any) -> Connection:
    return paginate(collection.committed, page.get("first"), page.get("after"))


@resolves("ArtifactSequence.artifactMembership")
def membership_by_alias(collection: Collection, _info: Any, alias_name: str) -> dict[str, Any] | None:
    return membership(collection, collection.find(alias_name))


@resolves("ArtifactSequence.latestArtifact")
def latest(collection: Collection, _info: Any) -> Artifact | None:
    return collection.aliases.get("latest")


@resolves("ArtifactSequence.digestAlgorithm", "Artifact.digestAlgorithm")
def digest_algorithm(_source: Any, _info: Any) -> str:
    return "MANIFEST_MD5"


@resolves("Artifact.artifactSequence")
def sequence(artifact: Artifact, _info: Any) -> Collection:
    return artifact.collection


@resolves("Artifact.artifactType")
def type_of(artifact: Artifact, _info: Any) -> dict[str, Any]:
    return artifact_type(artifact.collection.type_name, artifact.collection.project)


@resolves("Artifact.ttlDurationSeconds")
def ttl(_artifact: Artifact, _info: Any) -> int:
    return -1


@resolves("Artifact.ttlIsInherited")
def ttl_is_inherited(_artifact: Artifact, _info: Any) -> bool:
    return True


@resolves("Artifact.tags")
def tags(artifact: Artifact, _info: Any) -> list[dict[str, str]]:
    return [{"id": encode_id(f"Tag:{name}"), "name": name} for name in artifact.tag_names]


@resolves("Artifact.fileCount")
def file_count(artifact: Artifact, _info: Any) -> int:
    return len(artifact.files)


@resolves("Artifact.aliases")
def aliases(artifact: Artifact, _info: Any) -> list[dict[str, Any]]:
    return [
        {"id": encode_id(f"Alias:{name}"), "alias": name, "artifactCollection": artifact.collection}
        for name in artifact.alias_names
    ]


@resolves("Artifact.artifactMemberships")
def memberships(artifact: Artifact, _info: Any) -> dict[str, Any]:
    return {"edges": [{"node": membership(artifact.collection, artifact)}]}


@resolves("Artifact.currentManifest")
def current_manifest(artifact: Artifact, _info: Any) -> dict[str, Any] | None:
    file = next(iter(artifact.manifest.values()), None)
    return {"id": artifact.id, "file": file} if file else None


@resolves("Artifact.files", "ArtifactCollectionMembership.files")
def files(source: Any, _info: Any, names: list[str] | None = None, **page: Any) -> Connection:
    artifact: Artifact = source["artifact"] if isinstance(source, dict) else source
    wanted = [file for file in artifact.files.values() if names is None or file.name in names]
    return paginate(wanted, page.get("first"), page.get("after"))


@resolves("Artifact.createdBy")
def created_by(artifact: Artifact, _info: Any) -> Run | None:
    return artifact.run


@resolves("Artifact.usedBy")
def used_by(artifact: Artifact, _info: Any) -> Connection:
    return paginate(artifact.users, len(artifact.users), None)


@resolves("Run.outputArtifacts")
def output_artifacts(run: Run, info: Any, **page: Any) -> Connection:
    made = [v for one in state_of(info).collections.values() for v in one.versions if v.run is run]
    return paginate([v for v in made if v.state == "COMMITTED"], page.get("first"), page.get("after"))


@resolves("Run.inputArtifacts")
def input_artifacts(run: Run, info: Any, **page: Any) -> Connection:
    used = [v for one in state_of(info).collections.values() for v in one.versions if run in v.users]
    return paginate(used, page.get("first"), page.get("after"))
