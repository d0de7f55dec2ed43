"""Reports: saved, found and deleted as wandb-workspaces does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.wandb_server.gql import HttpError, resolves
from tests.support.wandb_server.library import View
from tests.support.wandb_server.paging import paginate
from tests.support.wandb_server.state import decode_id

from .accounts import state_of

if TYPE_CHECKING:
    from tests.support.wandb_server.paging import Connection
    from tests.support.wandb_server.state import Project

TEXTS = ("type", "name", "display_name", "description", "spec")


def find_view(info: Any, identifier: str) -> View | None:
    """Return a view by its global id; a report's url leaves out the padding."""
    kind, _, serial = decode_id(identifier.rstrip("=")).partition(":")
    return state_of(info).views.get(int(serial)) if kind == "View" and serial.isdigit() else None


@resolves("Query.view")
def view(_root: Any, info: Any, identifier: str) -> View | None:
    return find_view(info, identifier)


@resolves("Project.allViews")
def all_views(project: Project, info: Any, view_type: str | None = None, **query: Any) -> Connection:
    name = query.get("view_name")
    found = [
        view
        for view in state_of(info).views.values()
        if view.project is project and view.type == (view_type or "runs") and name in {None, view.name}
    ]
    return paginate(found, query.get("first"), query.get("after"))


@resolves("Mutation.upsertView")
def upsert_view(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Create a view, or change the one of that id; titles are not unique."""
    state = state_of(info)
    found = find_view(info, given["id"]) if given.get("id") else None
    if given.get("id") and found is None:
        raise HttpError(404, "view not found")
    inserted = found is None
    if found is None:
        project = state.project(given.get("entity_name"), given.get("project_name"))
        if project is None:
            raise HttpError(404, "project not found")
        now = state.clock()
        found = View(project, next(state.serial), info.context.backend.viewer, now, now)
        state.views[found.serial] = found
    for name in TEXTS:
        if given.get(name) is not None:
            setattr(found, name, given[name])
    found.changed_at = state.clock()
    return {"view": found, "inserted": inserted}


@resolves("Mutation.deleteView")
def delete_view(_root: Any, info: Any, given: dict[str, Any]) -> dict[str, Any]:
    found = find_view(info, given["id"])
    if found is None:
        raise HttpError(404, "view not found")
    del state_of(info).views[found.serial]
    return {"success": True, "pendingDrafts": False}
