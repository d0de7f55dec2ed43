"""``step0-wandb runs``: the verdict of each run."""

from __future__ import annotations

import csv
import io
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from step0_wandb.cli import completion, output, tables
from step0_wandb.cli.moments import moment_of
from step0_wandb.cli.session import FailOn, Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.sync import VERDICT
from step0_wandb.errors import UsageError
from step0_wandb.records import VERDICTS, SetupRange
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from step0_wandb.records import JudgedRun
    from step0_wandb.store.verdicts import RunFilters

Order = Literal["verdict", "created", "gap", "ratio"]
CSV_COLUMNS = (
    *("run", "name", "url", "user", "group", "created_at", "state", "profile", "setup"),
    *("ppo_kl", "clip_frac", "gap", "gap_metric", "verdict", "label", "ratio", "p_value", "reasons"),
)


_Verdict = Annotated[
    list[str] | None,
    typer.Option(
        "--verdict",
        metavar="V,V",
        help="Only these verdicts, such as broken,suspect.",
        autocompletion=completion.verdicts,
    ),
]
_Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Only runs created since then: 24h, 7d or a date such as 2026-11-30.",
    ),
]
_User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only runs of this user.")]
_Setup = Annotated[
    str | None,
    typer.Option(
        "--setup",
        metavar="TEXT",
        help="Only setups whose label contains this text.",
        autocompletion=completion.setups,
    ),
]
_Project = Annotated[
    str | None,
    typer.Option("--project", metavar="P", help="Only runs of this project: entity/project, or its name."),
]
_Sort = Annotated[
    Order, typer.Option("--sort", help="Order: the worst verdict, the newest, or the largest first.")
]
_Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Show only the first N.")]
_Everything = Annotated[bool, typer.Option("--all", help="Also show runs of no known framework.")]
_AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]


@without("dry_run")
def runs(  # noqa: PLR0913 - one parameter an option
    session: Session,
    *,
    verdict: _Verdict = None,
    since: _Since = None,
    user: _User = None,
    setup: _Setup = None,
    project: _Project = None,
    sort: _Sort = "verdict",
    limit: _Limit = None,
    everything: _Everything = False,
    as_csv: _AsCsv = False,
) -> None:
    """List runs and their verdicts, worst first.

    Example: step0-wandb runs --verdict broken,suspect --since 7d
    """
    names = _verdicts(verdict or ())
    if as_csv and session.as_json:
        raise UsageError("runs takes either --json or --csv")
    after = moment_of("--since", since, now=session.clock()) if since else None
    filters: RunFilters = {
        "verdict": names or None,
        "since": after,
        "user": user,
        "setup": setup and setup.strip('"'),
    }
    fail_on = session.fail_on or FailOn.never
    with session.open_store() as store:
        if session.as_json and sort == "verdict":
            documents = (one for one in store.verdicts.documents(**filters) if _is_of(one["run"], project))
            is_hit = _stream(documents, limit, fail_on)
            raise typer.Exit(VERDICT if is_hit else 0)
        found: Sequence[JudgedRun] = store.verdicts.runs(**filters)
    found = _sorted([run for run in found if _is_of(run.run, project)], sort)
    filtered = any((names, since, user, setup, project))
    if session.as_json:
        _stream(map(json_documents.plain, found), limit, fail_on)
    elif as_csv:
        sys.stdout.write(_csv(_of_frameworks(found, everything=everything)[:limit]))
    else:
        _print(found, _of_frameworks(found, everything=everything), limit, filtered=filtered)
    raise typer.Exit(VERDICT if any(fail_on.hit_by(run) for run in found) else 0)


def _verdicts(texts: Sequence[str]) -> list[str]:
    """Return the verdicts of a repeated option that may hold several, separated by commas."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in VERDICTS]:
        raise UsageError(f"--verdict: unknown verdict {unknown[0]!r}", f"Known: {', '.join(VERDICTS)}.")
    return names


def _print(
    found: Sequence[JudgedRun], shown: Sequence[JudgedRun], limit: int | None, *, filtered: bool
) -> None:
    """Print the table, then what it leaves out and what is not checked."""
    from step0_wandb.verdicts.coverage import coverage

    out = output.console()
    none = (
        output.nothing("runs", filtered=filtered)
        if filtered or not found
        else "No runs of a known framework."
    )
    out.print(tables.table(tables.RUNS, shown[:limit], out.width) if shown else none)
    if limit and len(shown) > limit:
        output.print_item("note", f"{count(len(shown) - limit, 'more run')}; raise --limit to see more", out)
    if len(found) > len(shown):
        left_out = count(len(found) - len(shown), "run")
        output.print_item("note", f"{left_out} of no known framework left out (see --all)", out)
    for line in coverage(shown):
        output.print_item("not checked:", line, out)


def _of_frameworks(found: Sequence[JudgedRun], *, everything: bool) -> Sequence[JudgedRun]:
    """Return the runs of known frameworks; of the others nothing can ever be said."""
    from step0_wandb.verdicts.coverage import UNREAD

    if everything:
        return found
    return [run for run in found if not any(reason.startswith(UNREAD) for reason in run.reasons)]


def _is_of(key: str, project: str | None) -> bool:
    own = key.rpartition("/")[0]
    return project is None or project in (own, own.rpartition("/")[2])


def _stream(documents: Iterable[Any], limit: int | None, fail_on: FailOn) -> bool:
    """Print runs as they are read, one a line; return whether one of all has a verdict to fail on."""
    write, is_hit, end = sys.stdout.write, False, ""
    write('{\n  "runs": [')
    for at, run in enumerate(documents):
        if limit is None or at < limit:
            if isinstance(used := run["range"], dict) and "sigma" in used and "moved_since" in used:
                run["range"] = SetupRange(**used)
            write(f"{end}\n    {json_documents.compact(run)}")
            end = ","
        is_hit = is_hit or fail_on.covers(run["verdict"], run["label"])
    write(f'{end and chr(10) + "  "}],\n  "schema": "step0/runs/1"\n}}\n')
    return is_hit


def _sorted(found: Sequence[JudgedRun], order: Order) -> Sequence[JudgedRun]:
    """Return the runs in an order; values that are not finite come first, missing ones last."""
    if order == "verdict":
        return found
    if order == "created":
        known = [run for run in found if run.created_at]
        newest = sorted(known, key=lambda run: run.created_at, reverse=True)  # type: ignore[arg-type,return-value]
        return [*newest, *(run for run in found if not run.created_at)]

    def largest_first(run: JudgedRun) -> float:
        value: float | None = getattr(run, order)
        if value is None:
            return math.inf
        return -value if math.isfinite(value) else -math.inf

    return sorted(found, key=largest_first)


def _csv(found: Iterable[JudgedRun]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for run in found:
        writer.writerow(_cell(getattr(run, name)) for name in CSV_COLUMNS)
    return text.getvalue()


def _cell(value: object) -> object:
    """Return a value for a cell; other people's text must not become a formula of a spreadsheet."""
    if isinstance(value, tuple):
        value = "; ".join(value)
    if isinstance(value, str):
        text = clean(value)
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return "" if value is None else value.isoformat() if hasattr(value, "isoformat") else value
