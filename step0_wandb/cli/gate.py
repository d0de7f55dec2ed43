"""``step0-wandb gate``: wait for the step 0 of a live run, judge it, and stop the run if it is broken."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb import documents
from step0_wandb.cli import output
from step0_wandb.cli.check import NO_STEP0
from step0_wandb.cli.runs import span_of
from step0_wandb.cli.session import FailOn, Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.sync import VERDICT

if TYPE_CHECKING:
    from step0_wandb.gate import Newest, Stopped
    from step0_wandb.records import JudgedRun


@without("dry_run", "log_format")
def gate(  # noqa: PLR0913 - one parameter an option
    session: Session,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="entity/project/run_id, a run directory, or entity/project with --group or --name.",
        ),
    ],
    *,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="How long to wait for step 0.")
    ] = "60m",
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="G", help="The newest run whose group is G or begins with G_."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="N", help="The newest run whose name is N or begins with N_."),
    ] = None,
    since: Annotated[
        str,
        typer.Option("--since", metavar="SPAN", help="Of runs created this long before the call, or later."),
    ] = "5m",
    stop: Annotated[bool, typer.Option("--stop", help="Ask W&B to stop a broken run.")] = False,
    on_broken: Annotated[
        str | None, typer.Option("--on-broken", metavar="CMD", help="Run this command on a broken run alone.")
    ] = None,
) -> None:
    """Wait for the step 0 of a live run and judge it. Only exit code 3 says "broken".

    Example: step0-wandb gate my-team/rl --group qwen3 --stop; [ $? -ne 3 ] || ray job stop "$JOB"
    """
    from step0_wandb import gate as waiting

    patience = waiting.Patience(span_of("--timeout", timeout), told=output.tell)
    newest = _newest(session, group, name, since) if group or name else None
    job = session.job()
    found = waiting.judge_when_there(run, job, patience, newest)
    is_broken = found.verdict == "broken" and found.label != "exclude"
    stopped = waiting.stop(found, job, patience) if stop and is_broken else None
    _print(found, stopped, session)
    if on_broken and is_broken:
        # The launch script's own command, typed by who starts it.
        subprocess.run(on_broken, shell=True, check=False)  # noqa: S602
    if (session.fail_on or FailOn.broken).hit_by(found):
        raise typer.Exit(VERDICT)
    raise typer.Exit(NO_STEP0 if found.verdict in ("pending", "no-step0") else 0)


def _newest(session: Session, group: str | None, name: str | None, since: str) -> Newest:
    from step0_wandb.gate import Newest

    return Newest(session.clock() - span_of("--since", since), group, name)


def _print(run: JudgedRun, stopped: Stopped | None, session: Session) -> None:
    if session.as_json:
        asked = {"asked": bool(stopped and stopped.asked), "stopped": bool(stopped and stopped.stopped)}
        output.print_json(documents.document("gate", run=run, stop=asked))
    else:
        output.print_run(run, output.console())
    if stopped:
        output.tell(f"stop: {stopped.says}")
