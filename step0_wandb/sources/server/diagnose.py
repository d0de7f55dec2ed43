"""What a W&B server would do for us: the key, the server, the projects, and each ability tried once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from step0_wandb.errors import CredentialsError, SourceError, Step0Error
from step0_wandb.sources.server.history import first_query
from step0_wandb.sources.server.progress import Progress
from step0_wandb.text.formatting import clean, count
from step0_wandb.wandb_api.answers import read_page
from step0_wandb.wandb_api.batches import OWN, ProjectClient, RunQuery
from step0_wandb.wandb_api.client import RetryPolicy
from step0_wandb.wandb_api.credentials import find_account, find_server
from step0_wandb.wandb_api.faults import UNAUTHORIZED, RequestFailed
from step0_wandb.wandb_api.queries import ORDER, Fields, page_document, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.credentials import Account, Places

_ONCE = RetryPolicy(attempts=2)
_VIEWER = "query Step0Viewer { viewer { username entity teams { edges { node { name } } } } }"
_PROJECTS = (
    "query Step0Projects($entity: String!) { models(entityName: $entity, first: 100) "
    "{ edges { node { name } } pageInfo { hasNextPage } } }"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `doctor` looked at.

    Attributes
    ----------
    name : str
        What was looked at.
    outcome : {"ok", "warn", "fail"}
        ``warn``: it works, but not in the best way.
    what : str
        What was found, for people; never a secret.
    exit_code : int
        Of a failure, the exit code of the contract that it amounts to.
    """

    name: str
    outcome: Literal["ok", "warn", "fail"]
    what: str
    exit_code: int = 0


def diagnose(
    places: Places,
    addresses: Sequence[RemoteAddress],
    finder: Step0Finder,
    *,
    connect: Callable[[Account], GraphQLClient],
) -> list[Finding]:
    """Return what works with the W&B server that would be used, and what does not.

    Parameters
    ----------
    addresses : sequence of RemoteAddress
        The projects and runs that a sync would read; without any, a key is not needed.
    connect : callable
        Makes a client for an account, of little patience.
    """
    findings = []
    try:
        server = find_server(places)
        findings.append(Finding("server", "ok", f"{server.base_url} (from {server.origin})"))
        account = find_account(places)
    except Step0Error as error:
        if isinstance(error, CredentialsError) and not addresses:
            return [*findings, Finding("key", "warn", f"{error.message}; only W&B projects need one")]
        return [*findings, failure_of("key" if findings else "server", error)]
    findings.append(Finding("key", "ok", f"found in {account.key_origin}"))
    client = connect(account)
    try:
        viewer = _viewer(client)
        findings.append(
            Finding("login", "ok", f"the server answers; the key is {clean(str(viewer.get('username')))}'s")
        )
        findings += [_projects(client, entity) for entity in _entities(viewer)]
    except Step0Error as error:
        return [*findings, failure_of("login", error)]
    for address in addresses:
        findings += _abilities(client, address, finder)
    return findings


def failure_of(name: str, error: Step0Error) -> Finding:
    """Return the finding that an error amounts to."""
    said = " ".join(part for part in (f"{error.message}.", error.hint) if part)
    return Finding(name, "fail", said, error.exit_code)


def _viewer(client: GraphQLClient) -> Mapping[str, Any]:
    viewer = client.fetch(_VIEWER, {}, _ONCE).get("viewer")
    if not isinstance(viewer, dict):
        raise client.error(RequestFailed(UNAUTHORIZED, "nobody is logged in"))
    return viewer


def _entities(viewer: Mapping[str, Any]) -> list[str]:
    edges = (viewer.get("teams") or {}).get("edges") or ()
    names = [viewer.get("entity"), *(((edge or {}).get("node") or {}).get("name") for edge in edges)]
    return list(dict.fromkeys(str(name) for name in names if name))


def _projects(client: GraphQLClient, entity: str) -> Finding:
    found = client.fetch(_PROJECTS, {"entity": entity}, _ONCE).get("models") or {}
    names = [str(((edge or {}).get("node") or {}).get("name")) for edge in found.get("edges") or ()]
    more = " and more" if (found.get("pageInfo") or {}).get("hasNextPage") else ""
    return Finding(f"projects of {clean(entity)}", "ok", clean(", ".join(names) or "none") + more)


def _abilities(client: GraphQLClient, address: RemoteAddress, finder: Step0Finder) -> list[Finding]:
    """Return what of a project can be read, and how."""
    project, where, history = ProjectClient(client, address), str(address), first_query(finder.metrics)
    variables = {"filters": "{}", "first": 1, "after": None, "order": ORDER, "own": to_json(OWN)}
    labeled = {"labeled": to_json(Progress().labeled_filter())}
    findings = []
    try:
        answer = project.ask(page_document(Fields.NAME, ("labeled",)), variables | labeled, _ONCE)
        total = answer.get("total")
        runs = count(total, "run") if isinstance(total, int) else "how many runs, it does not say"
        findings.append(Finding(where, "ok", f"readable, {runs}"))
        findings.append(_nested(project, where, variables | history.variables()))
        first = [node.name for node in read_page(answer["runs"]).nodes]
        names = [address.run_id] if address.run_id else first
        batch = project.read_runs([RunQuery(name, history) for name in names], whole=True, retry=_ONCE)
    except RequestFailed as failure:
        return [*findings, failure_of(where, client.error(failure))]
    except Step0Error as error:
        return [*findings, failure_of(where, error)]
    wrong = [f"there is no run {name}" for name in batch.gone]
    wrong += [f"the run {run.name} cannot be read: {run.why}" for run in batch.lost]
    return [*findings, *(Finding(where, "fail", what, SourceError.exit_code) for what in wrong)]


def _nested(project: ProjectClient, where: str, variables: Mapping[str, object]) -> Finding:
    name = f"{where}: nested query"
    try:
        project.ask(page_document(Fields.ALL), variables, _ONCE)
    except RequestFailed as failure:
        return Finding(name, "warn", f"the server {failure}: runs are read by name, with more requests")
    return Finding(name, "ok", "histories come with each page of runs")
