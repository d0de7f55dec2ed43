"""HTTP to one address: bounded in time and size, no redirects, no ambient settings.

The `timeout` of requests bounds each read, so that an answer that drips in lasts for ever. Here a
request has a deadline as a whole: when it passes, its socket is shut down from a timer thread.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from step0_wandb.errors import UsageError
from step0_wandb.wandb_api.faults import CERTIFICATE, NO_CONNECTION, TOO_LARGE, TOO_SLOW, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CHUNK = 1 << 16
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""Those of requests, then the one that the Go part of the wandb client knows."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much one may wait and take.

    Attributes
    ----------
    connect_s, deadline_s : float
        Seconds to connect, and for a whole request.
    patience_s : float
        Seconds without a good page after which a source is given up.
    body_bytes : int
        Largest answer, unpacked.
    """

    connect_s: float = 10.0
    deadline_s: float = 30.0
    patience_s: float = 120.0
    body_bytes: int = 64 * _MIB


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """The seam between queries and the network."""

    def post(self, body: bytes) -> Reply:
        """Send `body` as JSON; raise `RequestFailed` where no whole answer comes back."""


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
        self, url: str, headers: Mapping[str, str], *, environ: Mapping[str, str], limits: Limits
    ) -> None:
        self._url = url
        self._limits = limits
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update(headers)
        self._session.proxies.update(_proxies(url, environ))
        self._session.verify = _ca_bundle(environ)
        self._session.mount(f"{urlsplit(url).scheme}://", _CuttableAdapter())

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
        begun = time.monotonic()
        with _deadline(self._limits.deadline_s) as watch:
            try:
                reply = self._whole(method, body)
            except requests.RequestException as error:
                # A read that waits as long may end before the watch; requests calls that a lost connection.
                late = watch.expired or time.monotonic() - begun >= self._limits.deadline_s
                raise self._failure(error, late=late) from None
            if watch.expired:  # a cut answer without a length looks whole
                raise RequestFailed(TOO_SLOW, f"not within {self._limits.deadline_s:g} s")
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

    def _failure(self, error: requests.RequestException, *, late: bool) -> RequestFailed:
        """Return what an error means; its own text may name proxies with their passwords."""
        if late or isinstance(error, requests.Timeout):
            return RequestFailed(TOO_SLOW, f"not within {self._limits.deadline_s:g} s")
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


class _Watch:
    """Knows the connection of the request under way, and cuts it when the time is up."""

    def __init__(self) -> None:
        self.expired = False
        self._lock = threading.Lock()
        self._connection: Any = None
        self._over = False

    def see(self, connection: Any) -> None:
        with self._lock:
            self._connection = connection

    def end(self) -> None:
        with self._lock:
            self._over = True

    def cut(self) -> None:
        with self._lock:
            if self._over:
                return
            self.expired = True
            sock = getattr(self._connection, "sock", None)
            if isinstance(sock, socket.socket):
                try:
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)  # under TLS as well: wakes the reader
                except OSError:
                    return  # it was gone already


_watch: ContextVar[_Watch | None] = ContextVar("_watch", default=None)


@contextmanager
def _deadline(seconds: float) -> Iterator[_Watch]:
    watch = _Watch()
    timer = threading.Timer(seconds, watch.cut)
    timer.daemon = True
    token = _watch.set(watch)
    timer.start()
    try:
        yield watch
    finally:
        watch.end()
        timer.cancel()
        _watch.reset(token)


class _Cuttable:
    """Shows a connection to the watch of its request; mixed into the connection class of a pool."""

    def connect(self) -> None:
        self._show()
        super().connect()  # type: ignore[misc]

    def request(self, *arguments: Any, **options: Any) -> None:
        self._show()
        super().request(*arguments, **options)  # type: ignore[misc]

    def _show(self) -> None:
        if watch := _watch.get():
            watch.see(self)


class _CuttableAdapter(HTTPAdapter):
    """Makes every connection cuttable, also those through a proxy."""

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        if not issubclass(pool.ConnectionCls, _Cuttable):
            pool.ConnectionCls = type("Cuttable", (_Cuttable, pool.ConnectionCls), {})
        return pool
