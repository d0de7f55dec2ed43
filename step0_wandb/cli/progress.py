"""Progress on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from step0_wandb.cli import output
from step0_wandb.text.formatting import clean, count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def reading(*, quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a callback that takes a source, how many of its runs were read, and how many there are."""
    if quiet or not sys.stderr.isatty():
        yield lambda _source, _runs, _total: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=output.console(err=True), transient=True) as bar:
        task = bar.add_task("reading")
        yield lambda source, runs, total: bar.update(
            task,
            description=f"reading {clean(source)}: {count(runs, 'run')}"
            + (f" of {total:,}" if total else ""),
        )


@contextmanager
def writing(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that takes how many of how many example runs are written."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.progress import Progress

    with Progress(console=output.console(err=True), transient=True) as bar:
        task = bar.add_task("writing example runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
