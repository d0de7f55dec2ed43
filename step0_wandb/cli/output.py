"""How answers look in a terminal: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from step0_wandb import documents
from step0_wandb.text import MISSING, clean, number, ratio, shorten, when

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from step0_wandb.errors import Step0Error
    from step0_wandb.records import CheckResult, Json, JudgedRun, SetupRange

STYLES = {
    "broken": "bold red",
    "suspect": "yellow",
    "healthy": "green",
    "no-range": "cyan",
    "unchecked": "magenta",
    "pending": "dim",
    "no-step0": "dim",
}
OUTCOME_STYLES = {
    "pass": "green",
    "fail": "bold red",
    "warn": "yellow",
    "vacuous": "magenta",
    "skipped": "dim",
}
OUTCOME_WORDS = {"vacuous": "proves nothing here"}


def console(*, err: bool = False) -> Console:
    """Return a console on stdout or stderr; names are text there, never markup."""
    from rich.console import Console

    return Console(stderr=err, markup=False, highlight=False, emoji=False, soft_wrap=False)


def print_json(value: Mapping[str, Json]) -> None:
    """Print one document."""
    sys.stdout.write(documents.dumps(dict(value)) + "\n")


def error(problem: Step0Error) -> None:
    """Print a failure: what failed, then what to do."""
    from rich.text import Text

    out = console(err=True)
    out.print(Text("error: ", style="bold red") + Text(clean(problem.message)), soft_wrap=True)
    if problem.hint:
        out.print(Text(clean(problem.hint)), soft_wrap=True)


def tell(text: str) -> None:
    """Print one line on stderr."""
    sys.stderr.write(clean(text) + "\n")


def runs_table(runs: Sequence[JudgedRun], out: Console) -> Table:
    """Return the table of runs: verdict, figures, setup, and under a flagged one its reasons."""
    from rich.text import Text

    table = table_of("verdict", "run", ("gap", "right"), ("x centre", "right"), ("ppo_kl", "right"), "setup")
    wide = out.width
    for run in runs:
        table.add_row(
            verdict(run),
            Text(shorten(clean(run.name or run.run), max(16, wide // 4))),
            number(run.gap),
            ratio(run.ratio),
            number(run.ppo_kl),
            Text(shorten(clean(run.setup or MISSING), max(24, wide // 3))),
        )
    return table


def setups_table(setups: Iterable[SetupRange], *, wide: bool) -> Table:
    """Return the table of setups: how many runs, and where the next healthy gap is expected."""
    from rich.text import Text

    more = (("spread", "right"), "last run") if wide else ()
    table = table_of(
        "setup", ("n", "right"), ("centre", "right"), ("range", "right"), ("seen", "right"), "basis", *more
    )
    for item in setups:
        spread = MISSING if item.sigma is None else f"{100 * item.sigma:.1f} %"
        last = when(item.last_run) if item.last_run else MISSING
        marks = [item.basis, *(["accepted"] if item.accepted else []), *(["moved"] if item.moved else [])]
        table.add_row(
            Text(clean(item.setup)),
            str(item.n),
            number(item.center),
            span(item.low, item.high),
            span(item.seen_low, item.seen_high),
            ", ".join(marks),
            *((spread, last) if wide else ()),
        )
    return table


def checks_table(checks: Iterable[CheckResult], said: Sequence[str] = ()) -> Table:
    """Return the checks of one run; what was `said` already is not said again."""
    from rich.text import Text

    table = table_of("check", "outcome", ("value", "right"), ("limit", "right"), "")
    for item in checks:
        word = OUTCOME_WORDS.get(item.outcome, item.outcome)
        table.add_row(
            item.check,
            Text(word, style=OUTCOME_STYLES[item.outcome]),
            number(item.value),
            number(item.limit),
            Text("" if item.message in said else clean(item.message)),
        )
    return table


def print_run(run: JudgedRun, out: Console) -> None:
    """Print one run: its verdict and reasons, then every check."""
    from rich.text import Text

    out.print(
        Text.assemble(verdict(run), "  ", Text(clean(run.name or run.run), style="bold")), soft_wrap=True
    )
    for reason in run.reasons:
        out.print(_indented(reason, 2))
    where = [run.run, run.setup or "no setup", run.state, f"user {run.user}" if run.user else ""]
    out.print(Text("  " + " | ".join(clean(part) for part in where if part), style="dim"))
    if run.created_at:
        out.print(Text(f"  created {when(run.created_at)}", style="dim"))
    if run.verdict not in ("pending", "no-step0"):
        out.print(checks_table(run.checks, run.reasons))


def verdict(run: JudgedRun) -> Text:
    """Return a run's verdict as a coloured word, with the mark of a label."""
    from rich.text import Text

    text = Text(run.verdict, style=STYLES[run.verdict])
    if run.label:
        text.append(" (excluded)" if run.label == "exclude" else " (label)", style="dim")
    return text


def print_run_short(run: JudgedRun, out: Console) -> None:
    """Print one flagged run with its reasons."""
    from rich.text import Text

    name = clean(run.name or run.run)
    user = f" ({clean(run.user)})" if run.user else ""
    out.print(
        Text.assemble(verdict(run), "  ", Text(name, style="bold"), Text(user, style="dim")), soft_wrap=True
    )
    for reason in run.reasons:
        out.print(_indented(reason, 4))
    out.print(Text(f"    {clean(run.url or run.run)}", style="dim"), soft_wrap=True)


def _indented(text: str, columns: int) -> Padding:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(clean(text)), (0, 0, 0, columns))


def print_item(name: str, text: str, out: Console) -> None:
    """Print one line of an answer: what it is about, then the text, wrapped below itself."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=7)
    grid.add_column()
    grid.add_row(Text(name, style="dim"), Text(clean(text)))
    out.print(grid)


def plain_value(value: object) -> str:
    """Return a config value or setting as one line of text."""
    if value is None:
        return MISSING
    if isinstance(value, str):
        return clean(value)
    return clean(json.dumps(value, ensure_ascii=False, default=str))


def span(low: float | None, high: float | None) -> str:
    """Return an interval, or a dash where there is none."""
    return MISSING if low is None or high is None else f"{number(low)} to {number(high)}"


def counts(numbers: Mapping[str, int]) -> str:
    """Return the verdict counts in one line, the gravest first."""
    return ", ".join(f"{numbers[name]} {name}" for name in STYLES if numbers.get(name)) or "no runs"


def table_of(*columns: str | tuple[str, str]) -> Table:
    """Return an empty table; a column is its heading, or its heading and how it is aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        name, justify = (column, "left") if isinstance(column, str) else column
        table.add_column(name, justify=justify, overflow="fold", no_wrap=justify == "right")  # type: ignore[arg-type]
    return table
