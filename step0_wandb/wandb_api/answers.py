"""What the answers of a W&B server say: pages of runs, their configs and history rows."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeGuard

from step0_wandb.records import HistoryRow
from step0_wandb.text.nested import collect_numbers
from step0_wandb.wandb_api.queries import STEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.records import Json

SHAPE_ERRORS = (ValueError, TypeError, AttributeError, LookupError, RecursionError, OverflowError)
"""What reading an answer of an unknown shape raises."""

_YEARS = range(1970, 2200)

ODD_RUN = "the server describes it in an unknown way ({})"
"""Why a run is lost; the braces take the name of an error."""


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """What one look at a history showed.

    Attributes
    ----------
    rows : tuple of HistoryRow
        The whole rows, in order of their steps.
    steps : tuple of int
        The steps at which the sparse window has a metric, ascending; after down-sampling not all.
    keys : frozenset of str
        Everything that the run has logged, as its history and its summary say; empty where that was not asked.
    """

    rows: tuple[HistoryRow, ...] = ()
    steps: tuple[int, ...] = ()
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunNode:
    """One run as a page gives it.

    Attributes
    ----------
    config : mapping
        As logged, secrets included; scrub it before anything keeps it.
    line_count : int or None
        Number of rows in the history, where the server says.
    writers : tuple of str
        The random names of the processes that have written the run, where the server says.
    """

    name: str
    display_name: str = ""
    state: str = ""
    created_at: datetime | None = None
    heartbeat_at: datetime | None = None
    tags: tuple[str, ...] = ()
    group: str | None = None
    job_type: str | None = None
    user: str | None = None
    config: Mapping[str, Json] = field(default_factory=dict, repr=False)
    line_count: int | None = None
    writers: tuple[str, ...] = ()
    seen: HistoryPart = HistoryPart()


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of `runs`.

    Attributes
    ----------
    nodes : tuple of RunNode
        The runs that are whole.
    names : tuple of str
        The ids of all its runs, as far as they have one, also of those that cannot be read.
    missing : int
        Runs of the page that are not whole.
    end : str or None
        Where the next page begins; None after the last.
    """

    nodes: tuple[RunNode, ...]
    names: tuple[str, ...] = ()
    missing: int = 0
    end: str | None = None

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return the ids of the runs that are not among the nodes."""
        whole = {node.name for node in self.nodes}
        return tuple(name for name in self.names if name not in whole)


class UnreadableRun(ValueError):  # noqa: N818 - as RequestFailed
    """A run in an answer is not what the protocol says."""


def read_page(connection: Mapping[str, Any], strict: tuple[str, ...] = ()) -> RunPage:
    """Return the page of runs in an answer.

    Parameters
    ----------
    strict : tuple of str
        Fields that a run must have, where the answer came with errors and null means "could not be
        read".
    """
    raw = [(edge or {}).get("node") for edge in connection["edges"]]
    nodes = []
    for node in raw:
        # What is not whole is asked again by name, and told if it stays so.
        with suppress(UnreadableRun):
            if is_whole(node, strict):
                nodes.append(read_run(node))
    info = connection["pageInfo"]
    return RunPage(
        tuple(nodes),
        tuple(node["name"] for node in raw if is_whole(node, ())),
        len(raw) - len(nodes),
        info["endCursor"] if info["hasNextPage"] else None,
    )


def is_whole(node: Any, strict: tuple[str, ...]) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a run of an answer has a name, and is not null where `strict`."""
    if not isinstance(node, dict) or not isinstance(node.get("name"), str):
        return False
    return all(node.get(name) is not None for name in strict)


def read_run(node: Mapping[str, Any]) -> RunNode:
    """Return the run that a node of an answer describes.

    Raises
    ------
    UnreadableRun
        A value is not of the kind that the protocol says.
    """
    try:
        return RunNode(
            name=str(node["name"]),
            display_name=str(node.get("displayName") or ""),
            state=str(node.get("state") or ""),
            created_at=moment(node.get("createdAt")),
            heartbeat_at=moment(node.get("heartbeatAt")),
            tags=tuple(str(tag) for tag in node.get("tags") or ()),
            group=_text(node.get("group")),
            job_type=_text(node.get("jobType")),
            user=_text(user.get("username") if isinstance(user := node.get("user"), dict) else None),
            config=_config(node.get("config")),
            writers=_writers(node),
            line_count=None if (lines := node.get("historyLineCount")) is None else int(lines),
            seen=_history_of(node),
        )
    except SHAPE_ERRORS as error:
        raise UnreadableRun(ODD_RUN.format(type(error).__name__)) from error


def read_history(node: Mapping[str, Any]) -> HistoryPart:
    """Return the rows and steps in a node; the steps of all metrics together.

    Raises
    ------
    UnreadableRun
        As `read_run`.
    """
    try:
        return _history_of(node)
    except SHAPE_ERRORS as error:
        raise UnreadableRun(ODD_RUN.format(type(error).__name__)) from error


def _history_of(node: Mapping[str, Any]) -> HistoryPart:
    rows = [numbers(json.loads(text)) for text in node.get("history") or ()]
    ordered = sorted(rows, key=lambda row: row.get(STEP, math.inf))
    steps = {
        int(sample[STEP])
        for samples in node.get("sampledHistory") or ()
        for sample in samples or ()
        if sample.get(STEP) is not None
    }
    return HistoryPart(
        tuple(HistoryRow(values, order) for order, values in enumerate(ordered)),
        tuple(sorted(steps)),
        frozenset(
            (
                *((node.get("historyKeys") or {}).get("keys") or ()),
                *json.loads(node.get("summaryMetrics") or "{}"),
            )
        ),
    )


def read_samples(node: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return the rows of all specs of ``sampledHistory``, in order of their steps.

    Raises
    ------
    UnreadableRun
        As `read_run`.
    """
    try:
        rows = [numbers(row) for samples in node.get("sampledHistory") or () for row in samples or ()]
        return sorted(rows, key=lambda row: row[STEP])
    except SHAPE_ERRORS as error:
        raise UnreadableRun(ODD_RUN.format(type(error).__name__)) from error


def _writers(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entries of ``_wandb.e``, one a process, from the config or from what came of it alone."""
    if "wandbConfig" in node:
        internal = json.loads(node["wandbConfig"] or "{}")
    else:
        internal = (json.loads(node.get("config") or "{}") or {}).get("_wandb", {}).get("value", {})
    return tuple(sorted((internal or {}).get("e") or ()))


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _config(text: str | None) -> Mapping[str, Json]:
    """Return a config without W&B's wrapping, ``{"lr": {"desc": null, "value": 0.1}}``."""
    wrapped = json.loads(text or "{}")
    return {
        key: item["value"] if isinstance(item, dict) and "value" in item else item
        for key, item in ({} if wrapped is None else wrapped).items()
        if key != "wandb_version"
    }


def numbers(row: Mapping[str, Json]) -> dict[str, float]:
    """Return the numbers of a history row, nested keys joined by dots.

    Real servers send NaN and infinities as text, for which JSON has no numbers.

    Examples
    --------
    >>> numbers({"_step": 0, "train": {"ppo_kl": "NaN"}, "note": "warm", "done": True})
    {'_step': 0.0, 'train.ppo_kl': nan}
    """
    found: dict[str, float] = {}
    for name, value in row.items():
        collect_numbers(name, value, found)
    return found


def moment(text: str | None) -> datetime | None:
    """Return a time that the server wrote; UTC where it names no zone.

    Raises
    ------
    ValueError, OverflowError
        It is not a time of these centuries, which not every reader of the store could hold.

    Examples
    --------
    >>> moment("2026-11-30T02:24:57Z") == moment("2026-11-30T02:24:57")
    True
    """
    if not text:
        return None
    parsed = datetime.fromisoformat(text)
    parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    if parsed.year not in _YEARS:
        raise ValueError(f"the year {parsed.year}")
    return parsed
