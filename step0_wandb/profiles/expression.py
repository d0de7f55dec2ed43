"""Small expressions over a run's config, so that a profile is data and needs no code.

``rollout_top_p < 1 or rollout_top_k > 0`` reads config keys by their names. Dots go into nested
configs (``actor_rollout_ref.model.path``), ``key("odd-name")`` reads a key that is not an identifier,
``has("slime_*")`` asks whether any key matches, ``model(x)`` names the model behind a path,
``differ(x, y)`` asks whether two paths name different models, ``surely_differ(x, y)`` whether neither
name is short for the other. A key that is missing is None;
arithmetic and order with None give None and False.
"""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Mapping  # noqa: TC003 - pydantic reads the fields of `Expression`
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from step0_wandb.errors import UsageError
from step0_wandb.profiles import architecture, model_names
from step0_wandb.text.nested import lookup

Scope = Mapping[str, Any]

ALLOWED = (
    "Allowed are config keys, numbers, texts, + - * / //, comparisons, in, and, or, not, "
    "x if y else z, has(), key(), model(), differ(), surely_differ(), architecture(), known_architecture() and agree()."
)


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


@dataclass(frozen=True)
class Expression:
    """An expression, compiled when it is first asked for its value.

    Attributes
    ----------
    names : frozenset of str
        The config keys that it reads.
    body : ast.expr
        What it compiles to.

    Examples
    --------
    >>> Expression.parse("data.train_batch_size == 256 and not bypass").value({"data": {"train_batch_size": 256}})
    True
    """

    text: str
    names: frozenset[str]
    body: Any = field(repr=False, compare=False)

    @classmethod
    def of_key(cls, path: str) -> Expression:
        """Return the expression that reads one config key, whatever its name looks like."""
        return cls(path, frozenset({path}), _call("read", _SCOPE, ast.Constant(path)))

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Read an expression.

        Raises
        ------
        UsageError
            The text is not an expression, or uses something that expressions do not have.
        """
        translator = _Translator(text)
        try:
            body = translator.visit(ast.parse(text.strip(), mode="eval").body)
            return cls(text, frozenset(translator.names), body)
        except (SyntaxError, ValueError, RecursionError) as error:
            message = error.msg if isinstance(error, SyntaxError) else str(error)
            raise UsageError(f"{text!r} is not an expression: {message}", ALLOWED) from error

    @cached_property
    def _run(self) -> Callable[[Scope], Any]:
        scope = ast.arguments([], [ast.arg("scope")], kwonlyargs=[], kw_defaults=[], defaults=[])
        tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(scope, self.body)))
        run: Callable[[Scope], Any] = eval(compile(tree, "<expression>", "eval"), _NAMESPACE)  # noqa: S307 - nothing but calls of `_NAMESPACE`, see `_Translator`
        return run

    def value(self, config: Scope) -> Any:
        """Return the expression's value for one config."""
        return self._run(config)

    def holds(self, config: Scope) -> bool:
        """Return whether the expression is true for one config."""
        return bool(self._run(config))


def _read(scope: Scope, path: str) -> Any:
    return as_number(lookup(scope, path))


def _model_names(scope: Scope) -> model_names.ModelNames:
    names: model_names.ModelNames = getattr(scope, "model_names", None) or model_names.names_with()
    return names


def _has(scope: Scope, pattern: str) -> bool:
    # A config has hundreds of keys. One search in all of them is 20 times faster than as many matches.
    start = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    if f"\n{start}" not in "\n".join(("", *scope)):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for name in scope)


def _contains(item: Any, container: Any) -> bool:
    if isinstance(container, str | dict):
        return isinstance(item, str) and item in container
    return isinstance(container, list) and item in container


def _for_numbers(apply: Callable[[Any, Any], Any], otherwise: object) -> Callable[[Any, Any], Any]:
    """Return the operator for two numbers, which gives `otherwise` for anything else."""

    def run(left: Any, right: Any) -> Any:
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return otherwise
        try:
            return apply(left, right)
        except (ZeroDivisionError, OverflowError):
            return otherwise

    return run


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: _for_numbers(operator.add, None),
    ast.Sub: _for_numbers(operator.sub, None),
    ast.Mult: _for_numbers(operator.mul, None),
    ast.Div: _for_numbers(operator.truediv, None),
    ast.FloorDiv: _for_numbers(operator.floordiv, None),
    ast.Lt: _for_numbers(operator.lt, otherwise=False),
    ast.LtE: _for_numbers(operator.le, otherwise=False),
    ast.Gt: _for_numbers(operator.gt, otherwise=False),
    ast.GtE: _for_numbers(operator.ge, otherwise=False),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.In: _contains,
    ast.NotIn: lambda item, container: not _contains(item, container),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "model": lambda scope, path: _model_names(scope).name(path),
    "differ": lambda scope, one, other: _model_names(scope).differ(one, other),
    "surely_differ": lambda scope, one, other: _model_names(scope).surely_differ(one, other),
    "architecture": lambda _scope, *parts: architecture.describe(*parts),
    "known_architecture": lambda scope, path: architecture.of_name(_model_names(scope).name(path) or ""),
    "agree": lambda _scope, one, other: architecture.agree(one, other),
}
_ARGUMENTS = {
    "model": 1,
    "differ": 2,
    "surely_differ": 2,
    "architecture": 5,
    "known_architecture": 1,
    "agree": 2,
}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
"""How TOML and YAML spell what Python spells with a capital."""
_SCOPE = ast.Name("scope", ast.Load())
_NAMESPACE: dict[str, Any] = {
    "__builtins__": {},
    "read": _read,
    "has": _has,
    **_FUNCTIONS,
    **{kind.__name__: apply for kind, apply in _OPERATORS.items()},
}
"""All that compiled code can reach: it has no other names, and no attributes."""


class _Translator(ast.NodeTransformer):
    """Turns what expressions have into calls of this module's functions, and refuses everything else."""

    def __init__(self, text: str) -> None:
        self.names: set[str] = set()
        self._text = text

    def generic_visit(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return node
            case ast.BoolOp() | ast.IfExp() | ast.List() | ast.UnaryOp(op=ast.Not()):
                return super().generic_visit(node)
            case ast.expr_context() | ast.boolop() | ast.Not():
                return node
        raise UsageError(f"{self._text!r} uses {ast.unparse(node)!r}, which expressions do not have", ALLOWED)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else self._key(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        path = ast.unparse(node)
        is_path = all(part.isidentifier() for part in path.split("."))
        return self._key(path) if is_path else self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        return self.generic_visit(ast.List(node.elts, node.ctx))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.USub):
            return self.visit_BinOp(ast.BinOp(ast.Constant(-1), ast.Mult(), node.operand))
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self._applied(node, node.op, node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) > 1:
            return self.generic_visit(node)
        return self._applied(node, node.ops[0], node.left, node.comparators[0])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(ast.Name("key"), [ast.Constant(str() as path)], []):
                return self._key(path)
            case ast.Call(ast.Name("has"), [ast.Constant(str())], []):
                return _call("has", _SCOPE, *node.args)
            case ast.Call(ast.Name(name), arguments, []) if len(arguments) == _ARGUMENTS.get(name):
                return _call(name, _SCOPE, *map(self.visit, arguments))
        return self.generic_visit(node)

    def _key(self, path: str) -> ast.expr:
        self.names.add(path)
        return _call("read", _SCOPE, ast.Constant(path))

    def _applied(self, node: ast.AST, kind: ast.AST, *operands: ast.expr) -> ast.AST:
        if type(kind) not in _OPERATORS:
            return self.generic_visit(node)
        return _call(type(kind).__name__, *(self.visit(operand) for operand in operands))


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
