"""HTTP to one address: bounded in time and size, no redirects, no ambient settings.

The `timeout` of requests bounds each read alone: an answer that comes byte by byte could take forever.
Here the whole request has a deadline. When it passes, a timer thread shuts the socket down.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from step0_wandb import __version__
from step0_wandb.errors import UsageError
from step0_wandb.wandb_api.faults import CERTIFICATE, NO_CONNECTION, TOO_LARGE, TOO_SLOW, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

USER_AGENT = f"step0-wandb/{__version__}"
_CHUNK = 1 << 16
_FAILURES = (requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, ValueError)
"""What a request raises: requests lets errors of the layers below it through, for a host's name of 70
characters, say, or a chunk of negative size."""
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""Those of requests, then the one that the Go part of the wandb client knows."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How long and how much one may wait and take.

    Attributes
    ----------
    connect_s, deadline_s : float
        Seconds to connect, and for a whole request.
    give_up_s : float
        Seconds without a good page after which reading is given up.
    at_most_s : float
        Seconds after which reading ends even if every page is good.
    body_bytes : int
        Largest answer, unpacked.
    """

    connect_s: float = 10.0
    deadline_s: float = 30.0
    give_up_s: float = 120.0
    at_most_s: float = 3600.0
    body_bytes: int = 64 * _MIB


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpTransport:
    """Posts to one URL, or reads it, and follows no redirect, so that the key goes to no other host.

    Parameters
    ----------
    url : str
        Where every request goes.
    headers : mapping
        Sent with every request; the key is in them.
    environ : mapping
        ``HTTPS_PROXY``, ``NO_PROXY``, ``REQUESTS_CA_BUNDLE`` and their kin are read from it.

    Raises
    ------
    UsageError
        The CA bundle does not exist.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, environ: Mapping[str, str], limits: HttpLimits
    ) -> None:
        self._url = url
        self._limits = limits
        self._session = requests.Session()
        self._session.trust_env = False
        # It would read the target of a redirect that is not followed, and fail where it is not a URL.
        self._session.get_redirect_target = lambda _response: None  # type: ignore[assignment, method-assign]
        self._session.headers.update(headers)
        self._session.proxies.update(_proxies(url, environ))
        self._session.verify = _ca_bundle(environ)
        self._adapter = _CuttableAdapter()
        self._session.mount(f"{urlsplit(url).scheme}://", self._adapter)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def post(self, body: bytes) -> Reply:
        """Send `body` as JSON and return the whole answer.

        Raises
        ------
        RequestFailed
            No answer, not in time, not whole, or too large.
        """
        return self._send("POST", body)

    def get(self) -> Reply:
        """Return what lies at the URL.

        Raises
        ------
        RequestFailed
            As `post`.
        """
        return self._send("GET", None)

    def _send(self, method: str, body: bytes | None) -> Reply:
        begun, adapter = time.monotonic(), self._adapter
        adapter.was_cut = False
        timer = threading.Timer(self._limits.deadline_s, adapter.cut)
        timer.daemon = True
        timer.start()
        try:
            reply = self._whole(method, body)
        except _FAILURES as error:
            # A read that waits as long may end before the timer; requests calls that a lost connection.
            late = adapter.was_cut or time.monotonic() - begun >= self._limits.deadline_s
            raise self._failure(error, late=late) from None
        finally:
            timer.cancel()
        if adapter.was_cut:  # a cut answer without a length looks whole
            raise self._too_slow()
        return reply

    def _whole(self, method: str, body: bytes | None) -> Reply:
        timeout = (self._limits.connect_s, self._limits.deadline_s)
        with self._session.request(
            method, self._url, data=body, stream=True, timeout=timeout, allow_redirects=False
        ) as response:
            received = bytearray()
            for chunk in response.iter_content(_CHUNK):
                received += chunk
                if len(received) > self._limits.body_bytes:
                    raise RequestFailed(TOO_LARGE, f"over {self._limits.body_bytes // _MIB} MiB")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status_code, headers, bytes(received))

    def _too_slow(self) -> RequestFailed:
        return RequestFailed(TOO_SLOW, f"not within {self._limits.deadline_s:g} s")

    def _failure(self, error: Exception, *, late: bool) -> RequestFailed:
        """Return what an error means; its own text may name proxies with their passwords."""
        if late or isinstance(error, requests.Timeout):
            return self._too_slow()
        if isinstance(error, requests.exceptions.SSLError):
            return RequestFailed(CERTIFICATE)
        if isinstance(error, requests.exceptions.ProxyError):
            return RequestFailed(NO_CONNECTION, "the proxy does not answer")
        return RequestFailed(NO_CONNECTION, _innermost(error))


def _innermost(error: BaseException) -> str:
    """Return what the operating system says, such as `Connection refused`."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        inner = seen.args[0] if seen.args and isinstance(seen.args[0], BaseException) else None
        seen = getattr(seen, "reason", None) or seen.__cause__ or seen.__context__ or inner
        if not isinstance(seen, BaseException):
            break
    return ""


def _proxies(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    def variable(name: str) -> str:
        return environ.get(name) or environ.get(name.upper()) or ""

    scheme = urlsplit(url).scheme
    proxy = variable(f"{scheme}_proxy") or variable("all_proxy")
    if not proxy or requests.utils.should_bypass_proxies(url, no_proxy=variable("no_proxy")):
        return {}
    return {scheme: proxy}


def _ca_bundle(environ: Mapping[str, str]) -> str | bool:
    for name in _BUNDLES:
        if path := environ.get(name):
            if not Path(path).exists():
                raise UsageError(f"The CA bundle {path} (from {name}) does not exist")
            return path
    return True


class _CuttableAdapter(HTTPAdapter):
    """Knows the socket of the request under way, so that a timer can cut it; one request at a time.

    A read timeout, or a deadline checked between reads of the body, would leave the headers unbounded.
    With ``Connection: close`` the connection forgets its socket before the body is read, so the socket
    is remembered here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.was_cut = False
        self._connection: Any = None
        self._socket: Any = None

    def cut(self) -> None:
        """Shut the socket down, which wakes up whatever waits for it."""
        self.was_cut = True
        sock = getattr(self._connection, "sock", None) or self._socket
        if isinstance(sock, socket.socket):
            with suppress(OSError):  # it was gone already
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # of the plain socket, also below TLS

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        """Return a pool whose connections tell this adapter when they are used."""
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        if not hasattr(pool.ConnectionCls, "cuttable"):
            adapter = self

            class Cuttable(pool.ConnectionCls):  # type: ignore[misc]
                cuttable = True

                def connect(self) -> None:
                    adapter._connection = self
                    super().connect()

                def getresponse(self) -> Any:
                    adapter._connection, adapter._socket = self, self.sock
                    return super().getresponse()

            pool.ConnectionCls = Cuttable
        return pool
