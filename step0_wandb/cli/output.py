"""How answers look in a terminal: data on stdout, messages on stderr (see `log`)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Literal

from step0_wandb.cli import log, tables
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import MISSING, clean, key_text, number, when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

    from step0_wandb.records import CheckResult, Json, JudgedRun
    from step0_wandb.text.summary import Line

tell, warn, error = log.tell, log.warn, log.error
"""The one door to stderr."""

OUTCOME_STYLES = {
    "pass": "green",
    "fail": "bold red",
    "warn": "yellow",
    "vacuous": "magenta",
    "skipped": "dim",
}
OUTCOME_WORDS = {"vacuous": "proves nothing here"}


UNBROKEN = 1000
"""Columns where no terminal sets an end: lines stay whole for `grep` and editors."""


def console(*, err: bool = False) -> Console:
    """Return a console on stdout or stderr; names are text there, never markup."""
    from rich.console import Console

    from step0_wandb.settings.load import environment

    # Rich keeps bold where NO_COLOR is set; without a color system it sends no escape at all.
    system: Literal["auto"] | None = None if environment().get("NO_COLOR") else "auto"
    out = Console(stderr=err, markup=False, highlight=False, emoji=False, color_system=system)
    if not out.is_terminal and "COLUMNS" not in environment():
        out.width = UNBROKEN
    return out


def print_json(value: Mapping[str, Json]) -> None:
    """Print one document."""
    sys.stdout.write(json_documents.dumps(dict(value)) + "\n")


def print_stamped(text: str, clock: Callable[[], datetime]) -> None:
    """Print one line, with the time where no terminal shows it: logs want to know when."""
    out = console()
    out.print(clean(text) if out.is_terminal else log.stamped(clean(text), clock()))


def checks_table(checks: Iterable[CheckResult], reasons: Sequence[str] = ()) -> Table:
    """Return the checks of one run; a message that is among the printed `reasons` is left out."""
    from rich.text import Text

    table = tables.table_of("check", "outcome", ("value", "right"), ("limit", "right"), "")
    for item in checks:
        word = OUTCOME_WORDS.get(item.outcome, item.outcome)
        table.add_row(
            item.check,
            Text(word, style=OUTCOME_STYLES[item.outcome]),
            number(item.value),
            number(item.limit),
            Text("" if item.message in reasons else clean(item.message)),
        )
    return table


def print_run(run: JudgedRun, out: Console) -> None:
    """Print one run: its verdict and reasons, then every check."""
    from rich.text import Text

    out.print(
        Text.assemble(tables.verdict(run), "  ", Text(clean(run.name) or key_text(run.run), style="bold")),
        soft_wrap=True,
    )
    for reason in run.reasons:
        out.print(_indented(reason, 2))
    where = [key_text(run.run), run.setup or "no setup", run.state, f"user {run.user}" if run.user else ""]
    out.print(Text("  " + " | ".join(clean(part) for part in where if part), style="dim"))
    if run.created_at:
        out.print(Text(f"  created {when(run.created_at)}", style="dim"))
    for earlier in run.earlier:
        began = f", {when(earlier.created_at)}," if earlier.created_at else ""
        gap = "" if earlier.gap is None else f", gap {number(earlier.gap)}"
        out.print(
            Text(f"  started again: start {earlier.start}{began} was {earlier.verdict}{gap}", style="dim")
        )
    if run.verdict not in ("pending", "no-step0"):
        out.print(checks_table(run.checks, run.reasons))


def print_run_short(run: JudgedRun, out: Console) -> None:
    """Print one flagged run with its reasons."""
    from rich.text import Text

    name = clean(run.name) or key_text(run.run)
    user = f" ({clean(run.user)})" if run.user else ""
    out.print(
        Text.assemble(tables.verdict(run), "  ", Text(name, style="bold"), Text(user, style="dim")),
        soft_wrap=True,
    )
    for reason in run.reasons:
        out.print(_indented(reason, 4))
    out.print(Text(f"    {clean(run.url or key_text(run.run))}", style="dim"), soft_wrap=True)


def _indented(text: str, columns: int) -> Padding:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(clean(text)), (0, 0, 0, columns), expand=False)


def print_headline(text: str, out: Console, *, bad: bool) -> None:
    """Print the first line of an answer."""
    from rich.text import Text

    out.print(Text(clean(text), style="bold red" if bad else "bold"), soft_wrap=True)


def print_item(name: str, text: str, out: Console, *, style: str = "dim") -> None:
    """Print one line of an answer: what it is about, then the text, wrapped below itself."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=max(7, len(name)))
    grid.add_column()
    grid.add_row(Text(name, style=style), Text(clean(text)))
    out.print(grid)


def print_lines(lines: Iterable[Line], out: Console, *, loud: str) -> None:
    """Print the lines of an answer as one table; those about `loud` stand out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for line in lines:
        style = "bold red" if line.about == loud else "dim"
        grid.add_row(Text(line.about, style=style), Text(clean(line.text)))
    out.print(grid)


def nothing(what: str, *, filtered: bool) -> str:
    """Return what to print in place of an empty table, and how to fill it."""
    if filtered:
        return f"No {what} match. Drop a filter to see more."
    return f"No {what} yet. Read a project or a directory with `step0-wandb sync SOURCE`."


def plain_value(value: object) -> str:
    """Return a config value or setting as one line of text."""
    if value is None:
        return MISSING
    if isinstance(value, str):
        return clean(value)
    return clean(json.dumps(value, ensure_ascii=False, default=str))
