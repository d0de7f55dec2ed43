"""From a request to its answer: GraphQL, run streams, uploads and downloads."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from . import gql
from .filestream import post_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backend import Backend
    from .records import Request

OPEN_PATHS = ("/storage/", "/sdk/", "/elsewhere")
"""Signed urls and telemetry carry no key."""

NOT_LOGGED_IN = {
    "errors": [{"message": "user is not logged in", "path": ["viewer"]}],
    "data": {"viewer": None},
}


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, before faults."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One request with its body, decompressed, and the key's verdict."""

    request: Request
    body: bytes
    base_url: str

    @property
    def shared(self) -> bool:
        """Whether the writer is one of several (the client's shared mode)."""
        return self.request.headers.get("x-wandb-use-async-filestream") == "true"

    def json(self) -> dict[str, Any]:
        """Return the body as JSON; ``NaN`` is taken, as real servers take it."""
        parsed = json.loads(self.body or b"{}")
        if not isinstance(parsed, dict):
            raise ValueError("the body is no JSON object")  # noqa: TRY004 - one error for bad bodies
        return parsed


def reply(status: int, payload: Any) -> Response:
    """Return a JSON answer."""
    return Response(status, json.dumps(payload, allow_nan=False).encode())


def unpack(body: bytes, headers: dict[str, str]) -> bytes:
    """Return the body without its compression."""
    return gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body


def annotate(call: Call) -> None:
    """Write into the request log what kind of request this is."""
    request = call.request
    request.mutates = request.method != "GET" and not request.is_graphql
    if not request.is_graphql:
        return
    try:
        body = call.json()
    except ValueError:
        return
    request.query = str(body.get("query") or "")
    request.variables = body.get("variables") or {}
    document = gql.read_document(request.query)
    request.operations, request.fields = document.operations, document.fields
    request.mutates = document.mutates


def serve(backend: Backend, call: Call, spoil: str | None = None) -> tuple[Response, str | None]:
    """Execute a request; return the answer and the fault of a poisoned run that it has read."""
    path = call.request.path
    if not call.request.authorized and not path.startswith(OPEN_PATHS):
        return reply(401, NOT_LOGGED_IN), None
    try:
        if path == "/graphql":
            return serve_graphql(backend, call, spoil)
        for pattern, handler in ROUTES:
            match = re.fullmatch(pattern, path)
            if match:
                with backend.lock:
                    return handler(backend, call, *map(unquote, match.groups())), None
    except ValueError as error:
        return reply(400, {"errors": [{"message": str(error)}]}), None
    return reply(404, {"error": "not found"}), None


def serve_graphql(backend: Backend, call: Call, spoil: str | None) -> tuple[Response, str | None]:
    """Answer a GraphQL request."""
    context = gql.Context(backend, call.base_url, shared=call.shared, spoil=spoil)
    with backend.lock:
        answer = gql.answer(call.json(), context)
    payload = answer.payload
    if spoil and context.spoiled is None:
        payload = payload | {"errors": [*payload.get("errors", []), {"message": "internal error"}]}
    return reply(answer.status, payload), backend.faults.choose_poison(context.touched)


def serve_stream(backend: Backend, call: Call, entity: str, project: str, run_id: str) -> Response:
    """Take a post to a run's stream."""
    run = backend.state.run(entity, project, run_id)
    if run is None:
        return reply(404, {"error": "run not found"})
    return reply(200, post_stream(backend, run, call.json(), shared=call.shared))


def serve_storage(backend: Backend, call: Call, token: str) -> Response:
    """Take an upload, or give a file back."""
    file = backend.state.files.get(token)
    if file is None:
        return reply(404, {"error": "no such file"})
    if call.request.method == "PUT":
        file.content, file.updated_at = call.body, backend.state.clock()
        return Response(200)
    if file.content is None:
        return reply(404, {"error": "not uploaded"})
    return Response(200, file.content, "application/octet-stream")


def serve_artifact_file(backend: Backend, _call: Call, path: str) -> Response:
    """Give back a file of an artifact by its digest, as `entry.download()` asks for it."""
    digest, name = path.split("/")[-2:]
    encoded = base64.b64encode(bytes.fromhex(digest)).decode()
    for collection in backend.state.collections.values():
        for version in collection.committed:
            for file in version.files.values():
                if file.md5 == encoded and file.name.endswith(name):
                    return Response(200, file.content or b"", "application/octet-stream")
    return reply(404, {"error": "no such file"})


def serve_elsewhere(_backend: Backend, _call: Call, _rest: str) -> Response:
    """Answer what nobody should ask: a client that follows a redirect ends here."""
    return reply(200, {"data": {}})


ROUTES: list[tuple[str, Callable[..., Response]]] = [
    (r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", serve_stream),
    (r"/storage/(\w+)", serve_storage),
    (r"/artifactsV2/(.+)", serve_artifact_file),
    (r"/elsewhere(.*)", serve_elsewhere),
]
