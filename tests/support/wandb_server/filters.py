"""The Mongo-style filters and the orders of `runs`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .sampling import look_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from .state import Run

    Predicate = Callable[["Run"], bool]
    StateOf = Callable[["Run"], str]

PLAIN_FIELDS: dict[str, Callable[[Run], Any]] = {
    "createdAt": lambda run: run.created_at,
    "heartbeatAt": lambda run: run.heartbeat_at,
    "displayName": lambda run: run.display_name,
    "name": lambda run: run.name,
    "tags": lambda run: run.tags,
    "group": lambda run: run.group,
    "jobType": lambda run: run.job_type,
    "host": lambda run: run.host,
    "notes": lambda run: run.notes,
    "sweep": lambda run: run.sweep_name,
    "username": lambda run: run.user.username,
    "user": lambda run: run.user.username,
}
GROUPS: dict[str, Callable[[list[bool]], bool]] = {
    "$and": all,
    "$or": any,
    "$nor": lambda answers: not any(answers),
}


class FilterError(ValueError):
    """The filter is none that the server understands."""


def field_getter(name: str, state_of: StateOf) -> Callable[[Run], Any]:
    """Return what reads the field `name` of a run."""
    if name == "state":
        return state_of
    head, _, rest = name.partition(".")
    if head == "config" and rest:
        return lambda run: config_value(run, rest)
    if head in {"summary_metrics", "summaryMetrics"} and rest:
        return lambda run: look_up(run.summary, rest)
    camel = re.sub("_([a-z])", lambda match: match[1].upper(), name)
    if camel not in PLAIN_FIELDS:
        raise FilterError(f"unknown field in filter or order: {name}")
    return PLAIN_FIELDS[camel]


def config_value(run: Run, path: str) -> Any:
    """Return a config value; W&B takes the path with and without its ``.value``."""
    values = run.config_values
    found = look_up(values, path)
    if found is None:
        found = look_up(values, path.replace(".value", "", 1))
    return found


def comparable(value: Any, other: Any) -> tuple[Any, Any] | None:
    """Return both sides in one type, None where they cannot be compared."""
    if isinstance(value, datetime) and isinstance(other, str):
        moment = datetime.fromisoformat(other)
        return value, moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    numbers = isinstance(value, int | float) and isinstance(other, int | float)
    return (value, other) if numbers or type(value) is type(other) else None


def equal(value: Any, other: Any) -> bool:
    """Whether a field equals a value; a list of tags equals each of its tags."""
    if isinstance(value, tuple) and isinstance(other, str):
        return other in value
    pair = comparable(value, other)
    return value == other if pair is None else bool(pair[0] == pair[1])


def ordered(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison that is false where the two sides have no order."""

    def compare(value: Any, other: Any) -> bool:
        pair = comparable(value, other)
        return pair is not None and test(*pair)

    return compare


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": equal,
    "$ne": lambda value, other: not equal(value, other),
    "$gt": ordered(lambda value, other: value > other),
    "$gte": ordered(lambda value, other: value >= other),
    "$lt": ordered(lambda value, other: value < other),
    "$lte": ordered(lambda value, other: value <= other),
    "$in": lambda value, others: any(equal(value, other) for other in others),
    "$nin": lambda value, others: not any(equal(value, other) for other in others),
    "$exists": lambda value, wanted: (value is not None and value != ()) == bool(wanted),
    "$regex": lambda value, pattern: any(
        re.search(pattern, text) for text in (value if isinstance(value, tuple) else (value or "",))
    ),
}


def condition(get: Callable[[Run], Any], wanted: Any) -> Predicate:
    """Return the test of one field against a value or a dict of operators."""
    if not isinstance(wanted, dict):
        return lambda run: equal(get(run), wanted)
    unknown = wanted.keys() - OPERATORS.keys() - {"$not"}
    if unknown:
        raise FilterError(f"unknown operator in filter: {min(unknown)}")
    tests = [
        negated(condition(get, operand))
        if name == "$not"
        else lambda run, test=OPERATORS[name], operand=operand: test(get(run), operand)
        for name, operand in wanted.items()
    ]
    return lambda run: all(test(run) for test in tests)


def negated(test: Predicate) -> Predicate:
    """Return the opposite test."""
    return lambda run: not test(run)


def joined(join: Callable[[list[bool]], bool], parts: list[Predicate]) -> Predicate:
    """Return the test that several tests make together."""
    return lambda run: join([part(run) for part in parts])


def compile_filter(filters: Any, state_of: StateOf) -> Predicate:
    """Return the test that a filter, parsed from JSON, means.

    Raises
    ------
    FilterError
        Where the filter holds a field or an operator that W&B does not have.
    """
    tests: list[Predicate] = []
    for name, wanted in (filters or {}).items():
        if name in GROUPS:
            parts = [compile_filter(part, state_of) for part in wanted]
            tests.append(joined(GROUPS[name], parts))
        elif name == "$not":
            tests.append(negated(compile_filter(wanted, state_of)))
        else:
            tests.append(condition(field_getter(name, state_of), wanted))
    return lambda run: all(test(run) for test in tests)


def sort_runs(runs: list[Run], order: str | None, state_of: StateOf) -> list[Run]:
    """Return the runs in the asked order (``+created_at``, ``-config.lr.value``), ties by age.

    Without an order the newest come first, which is the server's habit and not promised.
    """
    order = order or "-created_at"
    get = field_getter(order.lstrip("+-"), state_of)
    known = [(get(run), run.serial, run) for run in runs]
    with_value = sorted((item for item in known if item[0] is not None), key=lambda item: item[:2])
    without = [item for item in known if item[0] is None]
    ranked = [item[2] for item in with_value]
    return (ranked[::-1] if order.startswith("-") else ranked) + [item[2] for item in without]
