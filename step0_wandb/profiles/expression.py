"""Small expressions over a run's config, so that a profile is data and needs no code.

``rollout_top_p < 1 or rollout_top_k > 0`` reads config keys by their names. Dots go into nested
configs (``actor_rollout_ref.model.path``), ``key("odd-name")`` reads a key that is no identifier,
``has("slime_*")`` asks whether any key matches, ``model(x)`` names the model behind a path,
``family(x)`` the same without what conversions append to it. A key that is missing is None;
arithmetic and order with None give None and False.
"""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import UsageError
from step0_wandb.text.nested import lookup

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
"""How TOML and YAML spell what Python spells with a capital."""


_CONVERSIONS = re.compile(
    r"(?:[-_.](?:torch|dist|mcore|megatron|hf|ckpt|converted|bf16|fp16|(?:mx|nv)?fp[48]|int[48]|w\d+a\d+|awq|gptq"
    r"|dynamic|block|tp\d+|pp\d+|ep\d+))+$"
)
ALLOWED = (
    "Allowed are config keys, numbers, texts, + - * / //, comparisons, in, and, or, not, "
    "x if y else z, has(), key(), model() and family()."
)


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


def model_family(path: object) -> str | None:
    """Return the model behind a path, without what conversions and quantisations append to its name.

    Examples
    --------
    >>> model_family("/data/Qwen2.5-Math-7B_torch_dist") == model_family("Qwen/Qwen2.5-Math-7B-FP8")
    True
    """
    name = model_name(path)
    return name and _CONVERSIONS.sub("", name.lower())


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


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes
    ----------
    names : frozenset of str
        The config keys that it reads.

    Examples
    --------
    >>> Expression.parse("data.train_batch_size == 256 and not bypass").value({"data": {"train_batch_size": 256}})
    True
    """

    text: str
    names: frozenset[str]
    _run: _Thunk

    @classmethod
    def of_key(cls, path: str) -> Expression:
        """Return the expression that reads one config key, whatever its name looks like."""
        return cls(path, frozenset({path}), lambda scope: as_number(lookup(scope, path)))

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
            return cls(text, frozenset(_names(tree.body)), _compile(tree.body, text))
        except (SyntaxError, ValueError, RecursionError) as error:
            message = error.msg if isinstance(error, SyntaxError) else str(error)
            raise UsageError(f"{text!r} is no expression: {message}", ALLOWED) from error

    def value(self, config: Scope) -> Any:
        """Return the expression's value for one config."""
        return self._run(config)

    def holds(self, config: Scope) -> bool:
        """Return whether the expression is true for one config."""
        return bool(self._run(config))


def _compile(node: ast.expr, text: str) -> _Thunk:  # noqa: C901, PLR0911 - one line a kind of node
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return lambda _scope: value
        case ast.Name(id=word) if word in _WORDS:
            return lambda _scope: _WORDS[word]
        case ast.Name() | ast.Attribute():
            path = _path(node, text)
            return lambda scope: as_number(lookup(scope, path))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compile(operand, text)
            return lambda scope: not inner(scope)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _arithmetic(operator.mul, lambda _scope: -1, _compile(operand, text))
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
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return _compile_call(name, argument, text)
    raise _foreign(node, text)


def _compile_call(name: str, argument: ast.expr, text: str) -> _Thunk:
    match name, argument:
        case "has", ast.Constant(value=str() as pattern):
            return _has(pattern)
        case "key", ast.Constant(value=str() as path):
            return lambda scope: as_number(lookup(scope, path))
        case "model", _:
            inner = _compile(argument, text)
            return lambda scope: model_name(inner(scope))
        case "family", _:
            inner = _compile(argument, text)
            return lambda scope: model_family(inner(scope))
    raise _foreign(ast.Call(ast.Name(name), [argument], []), text)


def _foreign(node: ast.expr, text: str) -> UsageError:
    return UsageError(f"{text!r} uses {ast.unparse(node)!r}, which expressions do not have", ALLOWED)


def _has(pattern: str) -> _Thunk:
    """Return whether any key matches; a prefix, the usual pattern, is looked for in all keys at once."""
    prefix = pattern.removesuffix("*")
    if any(char in prefix for char in "*?["):
        return lambda scope: any(fnmatch.fnmatchcase(name, pattern) for name in scope)
    wanted = f"\n{prefix}" if prefix != pattern else f"\n{prefix}\n"
    return lambda scope: wanted in "\n".join(("", *scope, ""))


def _path(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value, text)}.{node.attr}"
    raise UsageError(f"{text!r} reads an attribute of something that is no config key", ALLOWED)


def _names(node: ast.expr) -> Iterator[str]:
    """Return the config keys that an expression reads, in their dotted form."""
    match node:
        case ast.Name(id=name):
            if name not in _WORDS:
                yield name
        case ast.Attribute():
            yield ast.unparse(node)
        case ast.Call(func=ast.Name(id="key"), args=[ast.Constant(value=str() as path)]):
            yield path
        case ast.Call(args=arguments):
            for argument in arguments:
                yield from _names(argument)
        case _:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from _names(child)


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
    if isinstance(container, str | dict):
        return isinstance(item, str) and item in container
    return isinstance(container, list) and item in container


def _choice(test: _Thunk, body: _Thunk, orelse: _Thunk) -> _Thunk:
    return lambda scope: body(scope) if test(scope) else orelse(scope)
