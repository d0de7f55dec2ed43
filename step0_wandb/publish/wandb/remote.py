"""What earlier syncs left in a W&B project, read back: states, the report, and whether tables arrived.

These are light requests, so they do not need the wandb client, which takes seconds to start. The one
thing written here is a new, empty report, in a way that never leaves two of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from step0_wandb.errors import CredentialsError, SourceError, Step0Error
from step0_wandb.publish.wandb.process import ARTIFACT, FILE, RUN_ID
from step0_wandb.publish.wandb.report import DESCRIPTION, MARK, TITLE
from step0_wandb.publish.wandb.state_document import DamagedStateError
from step0_wandb.wandb_api.client import RetryPolicy
from step0_wandb.wandb_api.download import Download
from step0_wandb.wandb_api.faults import FORBIDDEN, NOT_FOUND, TOO_LARGE, RequestFailed
from step0_wandb.wandb_api.http import HttpLimits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.credentials import Account

LIMITS: Final = HttpLimits(deadline_s=60.0, body_bytes=4 << 20)
"""A state of 20,000 runs has about 3 MB."""
VERSIONS: Final = 20
"""Versions of the state that are looked at: more than machines write while one of them does."""
_TWINS: Final = timedelta(hours=1)
"""Reports that machines made at the same moment are no further apart."""
_TRIES = 3
_PAGE, _MOST_PAGES = 100, 50
_FEW = RetryPolicy(attempts=3)

_STATES = """
query Step0State($entity: String!, $project: String!, $collection: String!, $files: [String!], $first: Int!) {
  project(name: $project, entityName: $entity) {
    artifactCollection(name: $collection) {
      artifacts(first: $first, order: "-createdAt") {
        edges { node { id versionIndex files(names: $files, first: 1) { edges { node { directUrl } } } } }
      }
    }
  }
}
"""
_REPORTS = """
query Step0Reports($entity: String!, $project: String!, $first: Int!, $after: String) {
  project(name: $project, entityName: $entity) {
    allViews(viewType: "runs", first: $first, after: $after) {
      edges { node { id displayName description createdAt } }
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
_DELETE_REPORT = "mutation Step0DeleteReport($id: ID!) { deleteView(input: {id: $id}) { success } }"
_NEW_PROJECT = """
mutation Step0NewProject($entity: String, $project: String) {
  upsertModel(input: {entityName: $entity, name: $project}) { project { id } }
}
"""
_TABLES = """
query Step0Tables($entity: String!, $project: String!, $run: String!, $files: [String]) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { summaryMetrics files(names: $files, first: 10) { edges { node { name } } } }
  }
}
"""
_TOUCH = """
mutation Step0Touch($entity: String, $project: String, $run: String) {
  upsertBucket(input: {entityName: $entity, modelName: $project, name: $run, jobType: $run}) { bucket { id } }
}
"""
EMPTY_REPORT: Final = {
    "version": 5,
    "panelSettings": {},
    "blocks": [{"type": "paragraph", "children": [{"text": "step0-wandb is writing this report."}]}],
    "width": "readable",
    "authors": [],
    "discussionThreads": [],
}


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the state, by its id; the number grows with each version."""

    id: str
    number: int
    url: str | None


@dataclass(frozen=True, slots=True)
class _Report:
    """A report of ours: `token` is its own, unless a person made a copy of it."""

    id: str
    title: str
    description: str
    created_at: str

    @property
    def order(self) -> tuple[str, str]:
        return self.created_at, self.id

    @property
    def token(self) -> str:
        words = self.description.partition(MARK)[2].strip("() .").split()
        return words[0] if words else ""


@dataclass(frozen=True)
class RemoteProject:
    """What a sync left in one project.

    Attributes
    ----------
    patient, once : GraphQLClient
        One that asks until it has an answer, and one that asks a single time.
    environ : mapping
        For proxies and CA bundle.
    file_hosts : tuple of str
        More hosts that the state may be read from.
    """

    address: RemoteAddress
    account: Account
    patient: GraphQLClient
    once: GraphQLClient
    environ: Mapping[str, str] = field(repr=False)  # the key may be in it
    file_hosts: tuple[str, ...] = ()

    def versions(self) -> list[Version]:
        """Return the newest versions of the state, the newest first; empty where there is none.

        Raises
        ------
        SourceError, CredentialsError
            They cannot be listed.
        """
        try:
            project = self._ask(self.patient, _STATES, collection=ARTIFACT, files=[FILE], first=VERSIONS)
        except RequestFailed as failure:
            # The project is there, it was just read; some servers call a missing artifact an error.
            if failure.fault is NOT_FOUND or "not found" in failure.detail.lower():
                return []
            raise self.patient.error(failure) from None
        collection = (project or {}).get("artifactCollection") or {}
        found = [_version(node) for node in _nodes(collection.get("artifacts"))]
        return sorted(found, key=lambda version: -version.number)

    def document(self, version: Version) -> bytes:
        """Return the document of a version.

        Raises
        ------
        DamagedStateError
            The version does not hold one, or it is too large to be ours.
        SourceError
            It cannot be read.
        """
        if version.url is None:
            raise DamagedStateError(f"the artifact {ARTIFACT} does not hold {FILE}")
        try:
            return Download(self.account, self.environ, LIMITS, self.file_hosts).read(version.url)
        except RequestFailed as failure:
            if failure.fault is TOO_LARGE:
                raise DamagedStateError(f"the state is larger than {LIMITS.body_bytes >> 20} MB") from None
            raise SourceError(f"the state of {self.address} cannot be read: {failure}") from None

    # ── the report ──────────────────────────────────────────────────────────

    def report(self, known: str | None) -> str:
        """Return the id of the project's report, which is made where there is none.

        A report is ours by the mark in its description alone, whatever id is known. The list of reports
        shows whether a lost answer meant a new one: it is read again before another is made.

        Raises
        ------
        SourceError, CredentialsError
            It can be neither found nor made.
        """
        failure: Step0Error | None = None
        for _ in range(_TRIES):
            ours = self._our_reports()
            if ours:
                return self._surviving(ours, known)
            try:
                self._make_report()
            except CredentialsError:
                raise
            except Step0Error as error:
                failure = error
        raise failure or SourceError(f"{self.address} does not list the report that was made there")

    def has_report(self, report: str, fingerprint: str) -> bool:
        """Return whether a report is there as it was written."""
        return any(view.id == report and fingerprint in view.description for view in self._our_reports())

    def _our_reports(self) -> list[_Report]:
        return sorted((view for view in self._reports() if MARK in view.description), key=lambda v: v.order)

    def _surviving(self, ours: list[_Report], known: str | None) -> str:
        """Return the report that stays, and remove those that other machines made at the same moment.

        The oldest one with a token of its own stays. People's copies have the token of the original, and
        are theirs. So is what is not as young as the first.
        """
        originals: dict[str, _Report] = {}
        for view in ours:
            originals.setdefault(view.token, view)
        first = next((view for view in ours if view.id == known), ours[0])
        oldest = min(originals.values(), key=lambda view: view.order)
        if not _are_twins(oldest, first):
            return first.id
        for twin in originals.values():
            if twin.token and twin is not oldest and twin.title == TITLE and _are_twins(oldest, twin):
                self._fetch(self.patient, _DELETE_REPORT, id=twin.id)
        return oldest.id

    def _reports(self) -> Iterator[_Report]:
        after = None
        for _ in range(_MOST_PAGES):
            project = self._fetch(self.patient, _REPORTS, first=_PAGE, after=after)
            if project is None:  # as wandb-workspaces does when it saves
                self._fetch(self.patient, _NEW_PROJECT)
                return
            views = project.get("allViews") or {}
            for node in _nodes(views):
                names = ("id", "displayName", "description", "createdAt")
                yield _Report(*(str(node.get(name) or "") for name in names))
            page = views.get("pageInfo") or {}
            before, after = after, page.get("endCursor")
            if not page.get("hasNextPage") or not after or after == before:
                return

    def _make_report(self) -> None:
        description = described(token_hex(4), "")
        texts = {"title": TITLE, "description": description, "name": token_hex(6)}
        self._fetch(self.once, _NEW_REPORT, spec=json.dumps(EMPTY_REPORT), **texts)

    def describe(self, report: str, fingerprint: str) -> str:
        """Return the description to save with a report: its own token, and the fingerprint of what it says."""
        token = next((view.token for view in self._our_reports() if view.id == report), "")
        return described(token or token_hex(4), fingerprint)

    # ── the tables ──────────────────────────────────────────────────────────

    def has_tables(self, fingerprint: str) -> bool:
        """Return whether the own run shows the row of this fingerprint, and the files that it names."""
        run = self._own_run([])
        try:
            summary = json.loads(run.get("summaryMetrics") or "{}")
        except ValueError:
            return False
        if not isinstance(summary, dict) or summary.get(WRITTEN) != fingerprint:
            return False
        tables = [value for value in summary.values() if isinstance(value, dict)]
        paths = [
            str(table["path"]) for table in tables if table.get("_type") == "table-file" and "path" in table
        ]
        return {node.get("name") for node in _nodes(self._own_run(paths).get("files"))} >= set(paths)

    def _own_run(self, files: list[str]) -> Mapping[str, Any]:
        project = self._fetch(self.patient, _TABLES, run=RUN_ID, files=files)
        return (project or {}).get("run") or {}

    def may_write(self) -> bool:
        """Return whether the key may write to the own run, as far as the server says no by its status.

        The client's own message for a refusal is whatever the answer held, so it is asked once more.
        """
        try:
            self.once.ask(_TOUCH, {**self._home, "run": RUN_ID}, _FEW)
        except RequestFailed as failure:
            return failure.fault is not FORBIDDEN and "permission" not in failure.detail.lower()
        except Step0Error:
            pass
        return True

    # ── requests ────────────────────────────────────────────────────────────

    def _fetch(self, client: GraphQLClient, document: str, **variables: object) -> Mapping[str, Any] | None:
        try:
            return self._ask(client, document, **variables)
        except RequestFailed as failure:
            raise client.error(failure) from None

    def _ask(self, client: GraphQLClient, document: str, **variables: object) -> Mapping[str, Any] | None:
        answer = client.ask(document, {**self._home, **variables}, _FEW)
        project: Mapping[str, Any] | None = answer.get("project")
        return project

    @property
    def _home(self) -> dict[str, str]:
        return {"entity": self.address.entity, "project": self.address.project}


WRITTEN: Final = "step0/written"
"""The fingerprint of the tables, in the row of the own run that holds them."""


def described(token: str, fingerprint: str) -> str:
    """Return the description of a report: whose it is, which one, and what it says."""
    marks = " ".join(filter(None, (MARK, token, fingerprint)))
    return DESCRIPTION.replace(MARK, marks)


def _are_twins(one: _Report, other: _Report) -> bool:
    try:
        made = [datetime.fromisoformat(view.created_at) for view in (one, other)]
        return abs(made[0] - made[1]) <= _TWINS
    except (ValueError, TypeError, OverflowError):  # no date, or one without a time zone
        return False


def _version(node: Mapping[str, Any]) -> Version:
    files = _nodes(node.get("files"))
    url = next((str(file["directUrl"]) for file in files if file.get("directUrl")), None)
    number = node.get("versionIndex")
    return Version(str(node.get("id")), number if isinstance(number, int) else -1, url)


def _nodes(connection: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    edges = (connection or {}).get("edges") or ()
    return [edge["node"] for edge in edges if edge and edge.get("node")]
