"""What W&B's schema promises of the fields that are gone down into, and whether an answer keeps it.

A server keeps it by itself; a proxy, a mirror or a mock need not, and what is no object has no fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_READ = {"project", "run", "runs", "node", "pageInfo", "historyKeys", "keys", "files"}
_WRITTEN = {"artifactCollection", "artifactMembership", "allViews", "upsertView", "view", "upsertModel"}
_OBJECTS = _READ | _WRITTEN | {"viewer", "teams", "models", "stopRun"}
_LISTS = {"edges"}


def misfit(data: Mapping[str, Any], path: str = "data") -> str:
    """Return the first field that is not of the kind that the schema says; empty where all are.

    Null fits everywhere: so GraphQL says that something is not there. What a run says of itself is not
    looked at, so that one odd run spoils no page; who reads it judges it.

    Examples
    --------
    >>> misfit({"project": {"runs": {"edges": [{"node": None}]}}})
    ''
    >>> misfit({"project": {"runs": {"edges": "none"}}})
    'data.project.runs.edges'
    """
    for name, value in data.items():
        here = f"{path}.{name}"
        if value is None or name not in _OBJECTS | _LISTS:
            continue
        if not isinstance(value, list if name in _LISTS else dict):
            return here
        for part in value if name in _LISTS else (value,):
            if part is not None and not isinstance(part, dict):
                return here
            if odd := misfit(part or {}, here):
                return odd
    return ""
