"""Small expressions over a run's config, so that a profile is data and needs no code.

``rollout_top_p < 1 or rollout_top_k > 0`` reads config keys by their names. Dots go into nested
configs (``actor_rollout_ref.model.path``), ``key("odd-name")`` reads a key that is no identifier,
``has("slime_*")`` asks whether any key matches, ``model(x)`` names the model behind a path. A key
that is missing is None; arithmetic and order with None give None and False.
"""

from __future__ import annotations

import ast
import fnmatch
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import UsageError

if TYPE_CHECKING:
    from step0_wandb.records import Json

Scope = Mapping[str, Any]
_Thunk = Callable[[Scope], Any]

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITY: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_MEMBERSHIP: dict[type[ast.cmpop], bool] = {ast.In: True, ast.NotIn: False}


def lookup(config: Mapping[str, Json], path: str) -> Json:
    """Return the value under a dotted path, or None where there is none.

    A key that holds the dots itself beats the nested one.
    """
    if path in config:
        return config[path]
    head, dot, rest = path.partition(".")
    inner = config.get(head) if dot else None
    return lookup(inner, rest) if isinstance(inner, Mapping) else None


def model_name(path: object) -> str | None:
    """Return the model that a path or hub name stands for.

    The last part of the path; for a hub cache path the repository's name, not the snapshot hash.

    Examples
    --------
    >>> model_name("/data/models--Qwen--Qwen3-0.6B/snapshots/c1899de2")
    'Qwen3-0.6B'
    >>> model_name("Qwen/Qwen3-0.6B/")
    'Qwen3-0.6B'
    """
    if not isinstance(path, str):
        return None
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    for part in parts:
        if part.startswith("models--"):
            return part.rsplit("--", 1)[-1]
    return parts[-1] if parts else None


def as_number(value: object) -> object:
    """Return the number that a config value stands for, or the value itself."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "has": lambda scope, pattern: any(fnmatch.fnmatchcase(name, pattern) for name in scope),
    "key": lookup,
    "model": lambda _scope, path: model_name(path),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Examples
    --------
    >>> Expression.parse("data.train_batch_size == 256 and not bypass").value({"data": {"train_batch_size": 256}})
    True
    """

    text: str
    _run: _Thunk

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Compile an expression.

        Raises
        ------
        UsageError
            The text is no expression, or uses something that expressions do not have.
        """
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError) as error:
            message = error.msg if isinstance(error, SyntaxError) else str(error)
            raise UsageError(f"{text!r} is no expression: {message}") from error
        return cls(text, _compile(tree.body, text))

    def value(self, config: Scope) -> Any:
        """Return the expression's value for one config."""
        return self._run(config)

    def holds(self, config: Scope) -> bool:
        """Return whether the expression is true for one config."""
        return bool(self._run(config))


def _compile(node: ast.expr, text: str) -> _Thunk:  # noqa: C901, PLR0911 - one line a kind of node
    match node:
        case ast.Constant(value=value):
            return lambda _scope: value
        case ast.Name() | ast.Attribute():
            path = _path(node, text)
            return lambda scope: as_number(lookup(scope, path))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compile(operand, text)
            return lambda scope: not inner(scope)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda _scope: -number
        case ast.BoolOp(op=op, values=values):
            return _boolean(isinstance(op, ast.And), [_compile(value, text) for value in values])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _arithmetic(_ARITHMETIC[type(op)], _compile(left, text), _compile(right, text))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _comparison(op, _compile(left, text), _compile(right, text))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(_compile(test, text), _compile(body, text), _compile(orelse, text))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            parts = [_compile(item, text) for item in items]
            return lambda scope: [part(scope) for part in parts]
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _call(_FUNCTIONS[name], _compile(argument, text))
    raise UsageError(
        f"{text!r} uses {ast.unparse(node)!r}, which expressions do not have",
        "Allowed are config keys, numbers, texts, + - * / //, comparisons, in, and, or, not, "
        "x if y else z, has(), key() and model().",
    )


def _path(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value, text)}.{node.attr}"
    raise UsageError(f"{text!r} reads an attribute of something that is no config key")


def _boolean(is_and: bool, parts: list[_Thunk]) -> _Thunk:  # noqa: FBT001 - private, two call words
    def run(scope: Scope) -> Any:
        result: Any = None
        for part in parts:
            result = part(scope)
            if bool(result) != is_and:
                break
        return result

    return run


def _arithmetic(apply: Callable[[Any, Any], Any], left: _Thunk, right: _Thunk) -> _Thunk:
    def run(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            return None
        try:
            return apply(a, b)
        except (ZeroDivisionError, OverflowError):
            return None

    return run


def _comparison(op: ast.cmpop, left: _Thunk, right: _Thunk) -> _Thunk:
    if type(op) in _EQUALITY:
        equal = _EQUALITY[type(op)]
        return lambda scope: equal(left(scope), right(scope))
    if type(op) in _MEMBERSHIP:
        wanted = _MEMBERSHIP[type(op)]
        return lambda scope: _contains(right(scope), left(scope)) is wanted
    before = _ORDER[type(op)]

    def run(scope: Scope) -> bool:
        a, b = left(scope), right(scope)
        if isinstance(a, int | float) and isinstance(b, int | float):
            return before(a, b)
        return False

    return run


def _contains(container: Any, item: Any) -> bool:
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    return isinstance(container, list | dict) and item in container


def _choice(test: _Thunk, body: _Thunk, orelse: _Thunk) -> _Thunk:
    return lambda scope: body(scope) if test(scope) else orelse(scope)


def _call(function: Callable[..., Any], argument: _Thunk) -> _Thunk:
    return lambda scope: function(scope, argument(scope))
