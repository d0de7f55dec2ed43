"""Files that a W&B server points to: the key goes to that server alone, and no other host is asked unsigned."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urljoin, urlsplit

from step0_wandb.errors import SourceError
from step0_wandb.text.formatting import clean
from step0_wandb.wandb_api.client import RetryPolicy
from step0_wandb.wandb_api.faults import REDIRECT, RequestFailed, fault_of_status
from step0_wandb.wandb_api.http import USER_AGENT, HttpTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.credentials import Account
    from step0_wandb.wandb_api.http import HttpLimits

_TRIES = 3
_MOVED = range(300, 400)
_SIGNATURES = frozenset({"x-amz-signature", "x-goog-signature", "signature", "sig"})
"""Query parameters by which S3, Google, CloudFront and Azure recognize a signed address."""
_STORES = (
    "storage.googleapis.com",
    ".storage.googleapis.com",
    ".amazonaws.com",
    ".cloudfront.net",
    ".blob.core.windows.net",
    ".r2.cloudflarestorage.com",
    ".cwobject.com",
    ".cwlota.com",
)
"""Hosts of the object stores that W&B's clouds and self-hosted servers keep files in."""
_FEW = RetryPolicy(attempts=2)
_FILE = """
query Step0RunFile($entity: String!, $project: String!, $run: String!, $names: [String]) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { files(names: $names, first: 1) { edges { node { url } } } }
  }
}
"""


@dataclass(frozen=True, slots=True)
class Download:
    """Reads files for one account.

    Attributes
    ----------
    environ : mapping
        For proxies and CA bundle.
    hosts : tuple of str
        More hosts that the settings allow.
    """

    account: Account
    environ: Mapping[str, str] = field(repr=False)  # the key may be in it
    limits: HttpLimits
    hosts: tuple[str, ...] = ()
    sleep: Callable[[float], None] = time.sleep

    def read(self, url: str) -> bytes:
        """Return what lies at an address that the server gave, or behind the redirects that lead to it.

        Raises
        ------
        RequestFailed
            It cannot be read, or is too large.
        SourceError
            It lies at an address that is not to be asked.
        """
        for attempt in count(1):
            try:
                return self._body(urljoin(f"{self.account.server.base_url}/", url))
            except RequestFailed as failure:
                if attempt == _TRIES or not failure.fault.retried:
                    raise
                self.sleep(0.5 * 2**attempt)
            except ValueError as error:  # of urllib, such as a bracket that is not closed
                raise SourceError(f"the server points to what is not a valid address: {error}") from None
        raise AssertionError

    def _body(self, url: str) -> bytes:
        for _ in range(_TRIES):
            headers = self._headers(url)
            transport = HttpTransport(url, headers, environ=self.environ, limits=self.limits)
            try:
                reply = transport.get()
            finally:
                transport.close()
            if reply.status in _MOVED and reply.headers.get("location"):
                url = urljoin(url, reply.headers["location"])
                continue
            if fault := fault_of_status(reply.status):
                raise RequestFailed(fault, f"HTTP {reply.status}")
            return reply.body
        raise RequestFailed(REDIRECT, "and on")

    def _headers(self, url: str) -> dict[str, str]:
        """Return the headers for an address: with the key for the W&B server, without for storage."""
        headers = {"User-Agent": USER_AGENT}
        base, there = urlsplit(self.account.server.base_url), urlsplit(url)
        if (base.scheme, base.netloc) == (there.scheme, there.netloc):
            return {**headers, "Authorization": f"Basic {self.account.basic_auth}"}
        signed = _SIGNATURES & {name.lower() for name, _ in parse_qsl(there.query)}
        if there.scheme not in {"https", base.scheme} or there.username or not signed:
            raise SourceError("the server points to an unsigned address on another host, which is not asked")
        if there.hostname not in self.hosts and not _is_storage(there.hostname or "", base.hostname or ""):
            raise SourceError(
                f"the server points to {clean(there.netloc)}, which is not a known file store",
                "If it is yours, add it to [server] file_hosts.",
            )
        return headers


def _is_storage(host: str, server: str) -> bool:
    """Return whether files of a server may lie on a host: an object store's, or one of its own domain."""
    domain = server.split(".")[-2:]
    is_name = len(domain) > 1 and not domain[-1].isdecimal()  # an IP address has no domain
    return host == server or host.endswith(_STORES) or (is_name and host.split(".")[-2:] == domain)


def run_file(client: GraphQLClient, download: Download, address: RemoteAddress, name: str) -> bytes | None:
    """Return one file of a run; None where the run has none of that name.

    Raises
    ------
    SourceError, CredentialsError
        It cannot be read.
    """
    who = {"entity": address.entity, "project": address.project, "run": address.run_id}
    data = client.fetch(_FILE, {**who, "names": [name]}, _FEW)
    run = (data.get("project") or {}).get("run") or {}
    edges = (run.get("files") or {}).get("edges") or ()
    urls = [str(edge["node"]["url"]) for edge in edges if (edge.get("node") or {}).get("url")]
    try:
        return download.read(urls[0]) if urls else None
    except RequestFailed as failure:
        raise client.error(failure) from None
