"""GraphQL: the schema, the resolvers' registry, and one request from text to answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from graphql import (
    FieldNode,
    GraphQLError,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLUnionType,
    OperationDefinitionNode,
    OperationType,
    build_schema,
    execute_sync,
    parse,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphql import (
        DocumentNode,
        GraphQLSchema,
    )

    from .backend import Backend
    from .state import Run

Resolver = TypeVar("Resolver", bound="Callable[..., Any]")
RESOLVERS: dict[str, Callable[..., Any]] = {}
ABSTRACT = {"ArtifactCollection": "ArtifactSequence", "ArtifactCreator": "Run"}
"""What an interface or union always is here."""
PYTHON_NAMES = {"input": "given", "id": "identifier"}


def resolves(*coordinates: str) -> Callable[[Resolver], Resolver]:
    """Register a function ``(source, info, **arguments)`` as resolver of ``Type.field``.

    Arguments and input fields come in snake case; ``input`` comes as ``given``, ``id`` as ``identifier``.
    """

    def register(function: Resolver) -> Resolver:
        RESOLVERS.update(dict.fromkeys(coordinates, function))
        return function

    return register


class HttpError(GraphQLError):
    """An error that W&B also tells by the status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Context:
    """What the resolvers of one request share.

    Attributes
    ----------
    touched : dict
        Run ids that the request read, each with the costly fields it read of them.
    shared : bool
        Whether the writer is one of several (the client's shared mode).
    spoil : {None, "node", "history"}
        What of one run of the answer fails, where a fault asks for it.
    """

    backend: Backend
    base_url: str
    shared: bool = False
    touched: dict[str, set[str]] = field(default_factory=dict)
    spoil: str | None = None
    spoiled: Run | None = None

    def touch(self, run: Run, name: str) -> None:
        """Note that a costly field of a run is read, and fail it where a fault asks for it."""
        self.touched.setdefault(run.name, set()).add(name)
        if self.spoil == "history" and name == "sampledHistory" and self.spoiled in {None, run}:
            self.spoiled = run
            raise GraphQLError("internal error while reading the history")

    def touch_page(self, runs: Sequence[Run]) -> None:
        """Note that runs are part of the answer; where one is to be spoiled, it is the middle one."""
        for run in runs:
            self.touched.setdefault(run.name, set())
        if self.spoil and self.spoiled is None and runs:
            self.spoiled = runs[len(runs) // 2]


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed and validated query text."""

    node: DocumentNode | None
    errors: tuple[GraphQLError, ...]
    operations: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    mutates: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and payload of one GraphQL request."""

    status: int
    payload: dict[str, Any]


@cache
def snake_case(name: str) -> str:
    """Return ``history_keys`` for ``historyKeys``."""
    return re.sub("(?<=[a-z0-9])[A-Z]+", lambda match: "_" + match[0].lower(), name)


def read_attribute(source: Any, info: Any, **_arguments: Any) -> Any:
    """Resolve a field that is an attribute of a record, or an item of a dict."""
    name = info.field_name
    return source.get(name) if isinstance(source, dict) else getattr(source, snake_case(name))


@lru_cache(maxsize=1)
def load_schema() -> GraphQLSchema:
    """Return the executable schema; a field without a resolver is read from the record's attribute."""
    from . import resolvers

    texts = [path.read_text() for path in sorted((Path(__file__).parent / "schema").glob("*.graphql"))]
    schema = build_schema("\n".join(texts))
    for coordinate, resolver in resolvers.RESOLVERS.items():
        type_name, field_name = coordinate.split(".")
        kind = schema.type_map[type_name]
        if not isinstance(kind, GraphQLObjectType):
            raise TypeError(f"{type_name} has no fields to resolve")
        kind.fields[field_name].resolve = resolver
    for name, concrete in ABSTRACT.items():
        kind = schema.type_map[name]
        if not isinstance(kind, GraphQLInterfaceType | GraphQLUnionType):
            raise TypeError(f"{name} is not abstract")
        kind.resolve_type = lambda *_arguments, concrete=concrete: concrete
    use_snake_case(schema)
    return schema


def use_snake_case(schema: GraphQLSchema) -> None:
    """Hand arguments and input fields to the resolvers under the names that Python uses."""
    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLInputObjectType):
            for name, entry in kind.fields.items():
                entry.out_name = snake_case(name)
        elif isinstance(kind, GraphQLObjectType) and not kind.name.startswith("__"):
            for described in kind.fields.values():
                for name, argument in described.args.items():
                    argument.out_name = PYTHON_NAMES.get(name) or snake_case(name)


@lru_cache(maxsize=512)
def read_document(query: str) -> Document:
    """Parse and validate a query text, once for each text."""
    try:
        node = parse(query)
    except GraphQLError as error:
        return Document(None, (error,))
    operations = [item for item in node.definitions if isinstance(item, OperationDefinitionNode)]
    return Document(
        node,
        tuple(validate(load_schema(), node)),
        tuple(item.name.value for item in operations if item.name),
        tuple(
            selection.name.value
            for item in operations
            for selection in item.selection_set.selections
            if isinstance(selection, FieldNode)
        ),
        any(item.operation is OperationType.MUTATION for item in operations),
    )


def answer(body: dict[str, Any], context: Context) -> Answer:
    """Execute one request; an invalid query is an HTTP 400, as at W&B."""
    document = read_document(str(body.get("query") or ""))
    if document.errors or document.node is None:
        return Answer(400, {"errors": [error.formatted for error in document.errors]})
    result = execute_sync(
        load_schema(),
        document.node,
        context_value=context,
        variable_values=body.get("variables") or {},
        operation_name=body.get("operationName") or None,
        field_resolver=read_attribute,
    )
    if not result.errors:
        return Answer(200, {"data": result.data})
    payload = {"errors": [error.formatted for error in result.errors], "data": result.data}
    return Answer(error_status(result.errors), payload)


def error_status(errors: Sequence[GraphQLError]) -> int:
    """Return the HTTP status for the errors of an execution; raise those that are bugs of the double."""
    causes = [error.original_error for error in errors]
    for cause in causes:
        if cause is not None and not isinstance(cause, GraphQLError):
            raise cause
    refused = [cause.status for cause in causes if isinstance(cause, HttpError)]
    if refused:
        return refused[0]
    return 200 if any(error.path for error in errors) else 400  # 400: unusable variables
