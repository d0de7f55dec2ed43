"""Questions to the double without any client, for the tests of the double itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from .server import WandbServer

START = datetime(2026, 10, 1, tzinfo=UTC)
VIEWER = "{ viewer { id } }"
RUNS = """
query Page($project: String!, $filters: JSONString, $order: String = "+created_at", $first: Int, $after: String) {
  project(name: $project, entityName: "lab") {
    runCount(filters: $filters)
    runs(filters: $filters, order: $order, first: $first, after: $after) {
      totalCount
      edges { cursor node { name state } }
      pageInfo { hasNextPage endCursor }
    }
  }
}
"""
NESTED = """
{ project(name: "rl", entityName: "lab") {
    runs(order: "+created_at") { edges { node { name sampledHistory(specs: ["{\\"keys\\": [\\"_step\\"]}"]) } } } } }
"""
ALERT = """
mutation Alert($title: String!) {
  notifyScriptableRunAlert(input: {
    entityName: "lab", projectName: "rl", runName: "r", title: $title, text: "t", waitDuration: 60000
  }) { success }
}
"""


def ask(server: WandbServer, query: str, **variables: Any) -> requests.Response:
    """Post one GraphQL query, and follow no redirect."""
    return requests.post(
        f"{server.url}/graphql",
        json={"query": query, "variables": variables},
        auth=("api", server.api_key),
        timeout=10,
        allow_redirects=False,
    )


def names(response: requests.Response) -> list[str]:
    """Return the run ids of an answer to `RUNS`."""
    runs = response.json()["data"]["project"]["runs"]
    return [edge["node"]["name"] for edge in runs["edges"]]


def project_of_three(server: WandbServer) -> None:
    """Put the runs a, b and c into lab/rl, an hour apart, each with one row."""
    for number, name in enumerate(("a", "b", "c")):
        server.add_run("lab", "rl", name, created_at=START + timedelta(hours=number), rows=[{}])
