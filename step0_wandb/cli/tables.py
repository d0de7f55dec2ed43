"""Tables that fit the terminal: each column says from which width on it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from step0_wandb.text.formatting import MISSING, clean, number, ratio, when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.table import Table
    from rich.text import Text

    from step0_wandb.app.observed import ObservedRange
    from step0_wandb.records import JudgedRun, SetupRange
    from step0_wandb.verdicts.weight_checks import WeightCheck

Item = TypeVar("Item")

ROOMY: Final = 110
"""Columns of a terminal from which on each thing has a column of its own."""
WIDE: Final = 150
"""Columns of a terminal that shows everything."""
STYLES: Final = {
    "broken": "bold red",
    "suspect": "yellow",
    "healthy": "green",
    "no-range": "cyan",
    "unchecked": "magenta",
    "pending": "dim",
    "no-step0": "dim",
    "failed": "bold red",
    "due": "yellow",
    "passed": "green",
}
"""Of verdicts, and of weight checks."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """One column of a table.

    Attributes
    ----------
    cell : callable
        What it says of an item.
    since, below : int
        It is shown in terminals of at least `since` and less than `below` columns.
    """

    heading: str
    cell: Callable[[Item], Text | str]
    right: bool = False
    since: int = 0
    below: int = 1_000_000


def table(columns: Iterable[Column[Item]], items: Iterable[Item], width: int) -> Table:
    """Return the table of some items, for a terminal of `width` columns."""
    shown = [column for column in columns if column.since <= width < column.below]
    result = table_of(*((column.heading, "right" if column.right else "left") for column in shown))
    for item in items:
        result.add_row(*(column.cell(item) for column in shown))
    return result


def table_of(*columns: str | tuple[str, str]) -> Table:
    """Return an empty table; a column is its heading, or its heading and how it is aligned."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        name, justify = (column, "left") if isinstance(column, str) else column
        result.add_column(name, justify=justify, overflow="fold", no_wrap=justify == "right")  # type: ignore[arg-type]
    return result


def verdict(run: JudgedRun) -> Text:
    """Return a run's verdict as a colored word, with the mark of a label."""
    from rich.text import Text

    text = Text(run.verdict, style=STYLES[run.verdict])
    if run.label:
        text.append(" (excluded)" if run.label == "exclude" else " (label)", style="dim")
    return text


def span(low: float | None, high: float | None) -> str:
    """Return an interval, or a dash where there is none."""
    return MISSING if low is None or high is None else f"{number(low)} to {number(high)}"


def run_id(run: JudgedRun | WeightCheck) -> str:
    """Return the last part of a run's key, by which the other commands know it too."""
    return run.run.rsplit("/", 1)[-1] if run.run else MISSING


def _cut(first: str, second: str = "") -> Text:
    """Return other people's text that ends in dots where its column ends; a second line is dim."""
    from rich.text import Text

    text = Text(clean(first), no_wrap=True, overflow="ellipsis")
    return text.append(f"\n{clean(second)}", style="dim") if second else text


def _whole(text: str) -> Text:
    from rich.text import Text

    return Text(clean(text))


def _status(item: WeightCheck) -> Text:
    from rich.text import Text

    return Text(item.status, style=STYLES[item.status])


def _marks(item: SetupRange) -> list[str]:
    marks = {
        "accepted": item.accepted,
        "not believed": not item.believed,
        "moved": item.moved is not None and item.moved > 1,
        "improved": item.moved is not None and item.moved < 1,
    }
    return [item.basis, *(mark for mark, holds in marks.items() if holds)]


RUNS: Final[tuple[Column[JudgedRun], ...]] = (
    Column("verdict", verdict),
    Column(
        "run",
        lambda run: _cut(run.name or run_id(run), f"{run_id(run)}  {run.setup or MISSING}"),
        below=ROOMY,
    ),
    Column("run", lambda run: _cut(run.name or run_id(run)), since=ROOMY),
    Column("id", lambda run: _cut(run_id(run)), since=ROOMY),
    Column("gap", lambda run: number(run.gap), right=True),
    Column("x center", lambda run: ratio(run.ratio or None), right=True),
    Column("ppo_kl", lambda run: number(run.ppo_kl), right=True),
    Column("clip_frac", lambda run: number(run.clip_frac), right=True, since=WIDE),
    Column("setup", lambda run: _cut(run.setup or MISSING), since=ROOMY),
    Column("user", lambda run: _cut(run.user or MISSING), since=WIDE),
    Column("created", lambda run: when(run.created_at), since=WIDE),
)

SETUPS: Final[tuple[Column[SetupRange], ...]] = (
    Column("setup", lambda item: _whole(item.setup)),
    Column("n", lambda item: str(item.n), right=True),
    Column("center", lambda item: number(item.center), right=True),
    Column(
        "range, seen",
        lambda item: _cut(span(item.low, item.high), span(item.seen_low, item.seen_high)),
        right=True,
        below=ROOMY,
    ),
    Column("range", lambda item: span(item.low, item.high), right=True, since=ROOMY),
    Column("seen", lambda item: span(item.seen_low, item.seen_high), right=True, since=ROOMY),
    Column("basis", lambda item: "\n".join(_marks(item)), below=ROOMY),
    Column("basis", lambda item: ", ".join(_marks(item)), since=ROOMY),
    Column(
        "spread",
        lambda item: MISSING if item.sigma is None else f"{100 * item.sigma:.1f} %",
        right=True,
        since=WIDE,
    ),
    Column("finds", lambda item: ratio(item.expects_from), right=True, since=WIDE),
    Column("last run", lambda item: when(item.last_run), since=WIDE),
)

OBSERVED: Final[tuple[Column[ObservedRange], ...]] = (
    Column("setup", lambda item: _whole(item["setup"])),
    Column("number", lambda item: item["observable"]),
    Column("n", lambda item: str(item["n"]), right=True),
    Column("center", lambda item: number(item["center"]), right=True),
    Column("expected", lambda item: span(item["low"], item["high"]), right=True),
    Column("seen", lambda item: span(item["seen_low"], item["seen_high"]), right=True, since=ROOMY),
)

WEIGHTS: Final[tuple[Column[WeightCheck], ...]] = (
    Column("weights", _status),
    Column("model", lambda item: _cut(item.model, item.image), below=ROOMY),
    Column("model", lambda item: _cut(item.model), since=ROOMY),
    Column("image", lambda item: _cut(item.image or MISSING), since=ROOMY),
    Column("runs", lambda item: str(item.runs), right=True),
    Column("last run", lambda item: when(item.last_run)[:10], since=ROOMY),
    Column("compared", lambda item: when(item.checked_at)[:10]),
    Column("by", lambda item: _cut(run_id(item))),
)
