"""HTTP on loopback: connections, keep-alive, latency, and the faults that live on the wire."""

from __future__ import annotations

import base64
import email.utils
import json
import socket
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from . import faults
from .paging import encode_cursor
from .records import Request
from .routes import Call, Response, annotate, reply, serve, unpack

if TYPE_CHECKING:
    from .backend import Backend

PAGE = b"<!doctype html><html><body><h1>Please sign in to the proxy</h1></body></html>"
SPOILS = {"partial-node": "node", "partial-history": "history"}
CUT_BY_PEER = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError)


class Listener(ThreadingHTTPServer):
    """Accepts connections, a thread each, and can cut them all."""

    daemon_threads = False  # so that closing waits for the threads and no socket leaks
    request_queue_size = 128

    def __init__(self, backend: Backend, host: str, port: int) -> None:
        super().__init__((host, port), Handler)
        self.backend = backend
        self.open: set[socket.socket] = set()
        self.in_flight = 0
        self.served = 0  # lists without an end

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.backend.lock:
            self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.backend.lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base's names
        """Stay silent where a client goes away; anything else is a bug, and fails the test."""
        error = sys.exception()
        if error is not None and not isinstance(error, CUT_BY_PEER):
            raise error

    def cut_connections(self) -> None:
        """End every open connection."""
        with self.backend.lock:
            connections = list(self.open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it was gone already

    @property
    def url(self) -> str:
        """Return the base url."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Serves the requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing; the request log remembers."""

    def do_GET(self) -> None:
        self.respond()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def respond(self) -> None:
        """Read a request, log it, and answer it or play its fault."""
        backend, started = self.server.backend, time.perf_counter()
        raw = self.read_body()
        request = self.make_request(len(raw))
        call = Call(request, unpack(raw, request.headers), self.server.url)
        annotate(call)
        with backend.lock:
            self.server.in_flight += 1
            request.in_flight = self.server.in_flight
            backend.requests.append(request)
        try:
            if backend.latency_s:
                time.sleep(backend.latency_s)
            self.play(call)
        except CUT_BY_PEER:
            self.close_connection = True
        finally:
            request.seconds = time.perf_counter() - started
            with backend.lock:
                self.server.in_flight -= 1

    def read_body(self) -> bytes:
        """Return the body as sent; a client that dies while it sends has asked nothing."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            if len(body) < size:
                raise ConnectionAbortedError("the client went away within its request")
            return body
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def make_request(self, size: int) -> Request:
        """Return the log entry, without the value of `Authorization`."""
        headers = {key.lower(): value for key, value in self.headers.items()}
        given = headers.pop("authorization", "")
        expected = base64.b64encode(f"api:{self.server.backend.api_key}".encode()).decode()
        path = self.path.partition("?")[0]
        return Request(self.command, path, headers, authorized=given == f"Basic {expected}", bytes_in=size)

    def play(self, call: Call) -> None:
        """Answer, with whatever fault falls on this request."""
        backend = self.server.backend
        kind = backend.faults.choose(call.request)
        if kind in faults.UNEXECUTED:
            self.play_unexecuted(call, kind)
            return
        response, poison = serve(backend, call, SPOILS.get(kind or ""))
        if poison:
            kind = poison
            if kind in SPOILS:
                response, _ = serve(backend, call, SPOILS[kind])
        if kind in faults.UNEXECUTED:
            self.play_unexecuted(call, kind)
        else:
            self.play_executed(call, kind, response)

    def play_unexecuted(self, call: Call, kind: str) -> None:
        """Refuse a request, or leave it without an answer."""
        call.request.fault = kind
        if kind == "reset":
            self.reset()
        elif kind == "hang":
            self.server.backend.faults.hang()
            self.reset()
        else:
            self.send(call.request, self.refusal(kind))

    def play_executed(self, call: Call, kind: str | None, response: Response) -> None:
        """Send the answer, or what a fault leaves of it."""
        request = call.request
        request.fault = kind
        body = response.body
        if kind == "lost":
            self.send(request, self.refusal("502"))
        elif kind == "lost-reset":
            self.reset()
        elif kind == "slow":
            self.send(request, response, pieces=self.server.backend.faults.pieces)
        elif kind == "truncated":
            self.send(request, response, sent=len(body) // 2)
        elif kind == "malformed":
            self.send(request, Response(response.status, body[: len(body) // 2]))
        elif kind == "wrong-type":
            self.send(request, Response(response.status, body, "text/html; charset=utf-8"))
        elif kind == "slow-close":
            self.send(request, response, pieces=self.server.backend.faults.pieces, closing=True)
        elif kind in {*faults.ENDLESS, "null-runs"}:
            answer = json.loads(body)
            self.spoil_lists(answer.get("data"), kind)
            self.send(request, reply(response.status, answer))
        elif kind == "null-project":
            self.send(request, reply(200, {"data": dict.fromkeys(request.fields)}))
        else:
            self.send(request, response)

    def refusal(self, kind: str) -> Response:
        """Return the answer of a fault that executes nothing."""
        wait = self.server.backend.faults.retry_after_s
        if kind == "html":
            return Response(200, PAGE, "text/html")
        if kind == "empty":
            return Response(200)
        if kind == "redirect":
            elsewhere = f"http://localhost:{self.server.server_address[1]}/elsewhere"
            return Response(302, headers={"Location": elsewhere})
        if kind == "null-data":
            return reply(200, {"errors": [{"message": "context deadline exceeded"}], "data": None})
        headers = {"Retry-After": str(wait)} if kind in {"429", "503"} else {}
        if kind == "429-date":
            headers = {"Retry-After": email.utils.formatdate(time.time() + wait, usegmt=True)}
        elif kind == "429-ratelimit":
            headers = {"RateLimit-Remaining": "0", "RateLimit-Reset": str(wait)}
        return Response(faults.REFUSALS[kind], b"<html>upstream error</html>", "text/html", headers)

    def spoil_lists(self, value: Any, kind: str) -> None:
        """Give every list of an answer another page, or take the lists away."""
        for name, part in value.items() if isinstance(value, dict) else enumerate(value or ()):
            if isinstance(part, dict) and "pageInfo" in part:
                if kind == "null-runs":
                    value[name] = None
                    continue
                self.server.served += kind == "no-news"
                cursor = encode_cursor("0" * (1 + self.server.served))  # each of them is the beginning
                part["pageInfo"] = {"hasNextPage": True, "endCursor": cursor}
            elif isinstance(part, dict | list):
                self.spoil_lists(part, kind)

    def send(
        self,
        request: Request,
        response: Response,
        *,
        sent: int | None = None,
        pieces: int = 1,
        closing: bool = False,
    ) -> None:
        """Write head and body; `sent` bytes of it only, or in `pieces` with pauses."""
        request.status = response.status
        body = response.body[:sent]
        head = [f"HTTP/1.1 {response.status} Double"]
        head += [] if closing else [f"Content-Length: {len(response.body)}"]
        head += [f"Content-Type: {response.content_type}"]
        head += [f"{name}: {value}" for name, value in response.headers.items()]
        if sent is not None or closing:
            self.close_connection = True
            head.append("Connection: close")
        step = max(1, -(-len(body) // pieces))
        self.connection.sendall("\r\n".join([*head, "", ""]).encode() + body[:step])
        request.bytes_out = len(body[:step])
        for start in range(step, len(body), step):
            time.sleep(self.server.backend.faults.drip_s)
            self.connection.sendall(body[start : start + step])
            request.bytes_out += len(body[start : start + step])

    def reset(self) -> None:
        """Cut the connection as a crashing peer does, with RST instead of an orderly end."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.connection.close()
