"""What a sync leaves in a project, read back: the state that travels, and the report's id.

These are light questions, so they do not need the wandb client, whose start takes seconds. The one thing
written here is a new, empty report: asked in a way that cannot make two of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import CredentialsError, SourceError, Step0Error
from step0_wandb.publish.wandb.process import ARTIFACT, FILE
from step0_wandb.wandb_api.client import RetryPolicy
from step0_wandb.wandb_api.download import Download
from step0_wandb.wandb_api.faults import NOT_FOUND, RequestFailed
from step0_wandb.wandb_api.http import HttpLimits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.credentials import Account

LIMITS = HttpLimits(deadline_s=60.0, body_bytes=32 << 20)
_TRIES = 3
_PAGE = 100
_FEW = RetryPolicy(attempts=3)

_STATE = """
query Step0State($entity: String!, $project: String!, $collection: String!, $files: [String!]) {
  project(name: $project, entityName: $entity) {
    artifactCollection(name: $collection) {
      artifactMembership(aliasName: "latest") {
        files(names: $files, first: 1) { edges { node { directUrl } } }
      }
    }
  }
}
"""
_REPORTS = """
query Step0Reports($entity: String!, $project: String!, $first: Int!, $after: String) {
  project(name: $project, entityName: $entity) {
    allViews(viewType: "runs", first: $first, after: $after) {
      edges { node { id description createdAt } }
      pageInfo { endCursor hasNextPage }
    }
  }
}
"""
_NEW_REPORT = """
mutation Step0NewReport(
  $entity: String, $project: String, $name: String, $title: String, $description: String, $spec: String!
) {
  upsertView(input: {
    entityName: $entity, projectName: $project, type: "runs", name: $name, displayName: $title,
    description: $description, createdUsing: WANDB_SDK, spec: $spec
  }) { view { id } }
}
"""
_NEW_PROJECT = """
mutation Step0NewProject($entity: String, $project: String) {
  upsertModel(input: {entityName: $entity, name: $project}) { project { id } }
}
"""
_EMPTY = {
    "version": 5,
    "panelSettings": {},
    "blocks": [{"type": "paragraph", "children": [{"text": "step0-wandb is writing this report."}]}],
    "width": "readable",
    "authors": [],
    "discussionThreads": [],
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The report that is looked for, or made.

    Attributes
    ----------
    known : str or None
        The id it had when it was last seen.
    mark : str
        What its description holds, and that of no other report.
    """

    known: str | None
    title: str
    description: str
    mark: str


@dataclass(frozen=True)
class Shelf:
    """The things of a sync in one project.

    Attributes
    ----------
    patient, once : GraphQLClient
        One that asks until it has an answer, and one that asks a single time.
    environ : mapping
        For proxies and CA bundle.
    """

    address: RemoteAddress
    account: Account
    patient: GraphQLClient
    once: GraphQLClient
    environ: Mapping[str, str] = field(repr=False)  # the key may be in it

    def state(self) -> bytes | None:
        """Return the document of the state that was last written; None where there is none.

        Raises
        ------
        SourceError, CredentialsError
            It cannot be reached.
        """
        try:
            project = self._ask(self.patient, _STATE, collection=ARTIFACT, files=[FILE])
        except RequestFailed as failure:
            # The project is there, it was just read; some servers call a missing artifact an error.
            if failure.fault is NOT_FOUND or "not found" in failure.detail.lower():
                return None
            raise self.patient.error(failure) from None
        collection = (project or {}).get("artifactCollection") or {}
        files = ((collection.get("artifactMembership") or {}).get("files") or {}).get("edges")
        if files is None:
            return None
        if not files or not (files[0].get("node") or {}).get("directUrl"):
            raise SourceError(f"the artifact {ARTIFACT} of {self.address} holds no {FILE}")
        return self._download(str(files[0]["node"]["directUrl"]))

    def report(self, wanted: Wanted) -> str:
        """Return the id of the report, which is made where there is none.

        Whether a lost answer meant a new report shows the list of reports: it is read again before
        another is made.

        Raises
        ------
        SourceError, CredentialsError
            It can be neither found nor made.
        """
        failure: Step0Error | None = None
        for _ in range(_TRIES):
            found = self._find(wanted)
            if found is not None:
                return found
            try:
                self._make(wanted)
            except CredentialsError:
                raise
            except Step0Error as error:
                failure = error
        raise failure or SourceError(f"{self.address} does not list the report that was made there")

    def _find(self, wanted: Wanted) -> str | None:
        marked = []
        for view in self._reports():
            if view["id"] == wanted.known:
                return str(view["id"])
            if wanted.mark in (view.get("description") or ""):
                marked.append((str(view.get("createdAt")), str(view["id"])))
        return min(marked)[1] if marked else None

    def _reports(self) -> Iterator[Mapping[str, Any]]:
        after = None
        while True:
            project = self._asked(self.patient, _REPORTS, first=_PAGE, after=after)
            if project is None:  # as wandb-workspaces does when it saves
                self._asked(self.patient, _NEW_PROJECT)
                return
            views = project.get("allViews") or {}
            yield from (edge["node"] for edge in views.get("edges") or () if edge and edge.get("node"))
            page = views.get("pageInfo") or {}
            after = page.get("endCursor")
            if not page.get("hasNextPage") or not after:
                return

    def _make(self, wanted: Wanted) -> None:
        texts = {"title": wanted.title, "description": wanted.description, "name": token_hex(6)}
        self._asked(self.once, _NEW_REPORT, spec=json.dumps(_EMPTY), **texts)

    def _asked(self, client: GraphQLClient, document: str, **variables: object) -> Mapping[str, Any] | None:
        try:
            return self._ask(client, document, **variables)
        except RequestFailed as failure:
            raise client.error(failure) from None

    def _ask(self, client: GraphQLClient, document: str, **variables: object) -> Mapping[str, Any] | None:
        home = {"entity": self.address.entity, "project": self.address.project}
        project: Mapping[str, Any] | None = client.ask(document, {**home, **variables}, _FEW).get("project")
        return project

    def _download(self, url: str) -> bytes:
        try:
            return Download(self.account, self.environ, LIMITS).read(url)
        except RequestFailed as failure:
            raise SourceError(f"the state of {self.address} cannot be read: {failure}") from None
