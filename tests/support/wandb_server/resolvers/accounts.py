"""Users, entities, projects: who asks, and what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.wandb_server.gql import HttpError, resolves
from tests.support.wandb_server.paging import paginate
from tests.support.wandb_server.state import encode_id, stamp

if TYPE_CHECKING:
    from tests.support.wandb_server.paging import Connection
    from tests.support.wandb_server.state import Project, State, User

FEATURES = (
    "ARTIFACT_TAGS",
    "ARTIFACT_COLLECTION_MEMBERSHIP_FILES",
    "ARTIFACT_COLLECTION_MEMBERSHIP_FILE_DOWNLOAD_HANDLER",
    "TOTAL_COUNT_IN_FILE_CONNECTION",
    "FILESTREAM_GZIP",
    "MARK_RUN_FILES_UPLOADED",
    "PROJECT_ARTIFACT_COLLECTION_MEMBERSHIP",
)


def state_of(info: Any) -> State:
    """Return the server's database."""
    state: State = info.context.backend.state
    return state


def entity(name: str) -> dict[str, Any]:
    """Return an entity, of which the double knows no more than the name."""
    return {"id": encode_id(f"Entity:{name}"), "name": name, "isTeam": True}


@resolves("Query.viewer")
def viewer(_root: Any, info: Any) -> User:
    user: User = info.context.backend.viewer
    return user


@resolves("User.entity")
def default_entity(_user: User, info: Any) -> str:
    return state_of(info).entity


@resolves("User.teams")
def teams(_user: User, info: Any) -> dict[str, Any]:
    names = dict.fromkeys([state_of(info).entity, *(key[0] for key in state_of(info).projects)])
    return {"edges": [{"node": entity(name)} for name in names]}


@resolves("User.apiKeys")
def api_keys(_user: User, _info: Any) -> dict[str, Any]:
    return {"edges": []}


@resolves("User.flags")
def user_flags(_user: User, _info: Any) -> str:
    return "{}"


@resolves("User.admin", "Project.isBenchmark")
def never(_source: Any, _info: Any) -> bool:
    return False


@resolves("User.photoUrl", "User.deletedAt", "Project.description", "Query.organization")
def nothing(_source: Any, _info: Any, **_arguments: Any) -> None:
    return None


@resolves("Query.entity")
def find_entity(_root: Any, info: Any, name: str | None = None) -> dict[str, Any]:
    return entity(name or state_of(info).entity)


@resolves("Query.serverInfo")
def server_info(_root: Any, _info: Any) -> dict[str, Any]:
    return {"features": [{"name": name, "isEnabled": True} for name in FEATURES]}


@resolves("Query.project", "Query.model")
def project(_root: Any, info: Any, name: str | None = None, entity_name: str | None = None) -> Project | None:
    return state_of(info).project(entity_name, name)


@resolves("Query.models")
def projects(
    _root: Any,
    info: Any,
    entity_name: str | None = None,
    after: str | None = None,
    first: int | None = None,
) -> Connection:
    state = state_of(info)
    wanted = entity_name or state.entity
    visible = [p for p in state.projects.values() if p.entity == wanted and not p.hidden]
    return paginate(visible, first, after)


@resolves("Project.entity")
def project_entity(source: Project, _info: Any) -> dict[str, Any]:
    return entity(source.entity)


@resolves("Project.entityName")
def entity_name(source: Project, _info: Any) -> str:
    return source.entity


@resolves("Project.user")
def project_user(_source: Project, info: Any) -> User:
    user: User = info.context.backend.viewer
    return user


@resolves("Project.access")
def access(_source: Project, _info: Any) -> str:
    return "PRIVATE"


@resolves("Project.views")
def empty_views(_source: Project, _info: Any) -> str:
    return "{}"


@resolves("Project.createdAt")
def project_created_at(source: Project, _info: Any) -> str:
    return stamp(source.created_at)


@resolves("Mutation.upsertModel")
def upsert_model(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    state = state_of(info)
    if not given.get("name"):
        raise HttpError(400, "a project needs a name")
    inserted = state.project(given.get("entity_name"), given["name"]) is None
    made = state.ensure_project(given.get("entity_name"), given["name"])
    return {"project": made, "model": made, "inserted": inserted}
