"""``step0-wandb gate``: wait for the step 0 of a live run, judge it, and stop the run if it is broken."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import INTERRUPTED, output
from step0_wandb.cli.check import NO_STEP0
from step0_wandb.cli.moments import moment_of, span_of
from step0_wandb.cli.session import FailOn, Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.summary import SummaryFile, append_summary, refuse_two_answers  # noqa: TC001 - as above
from step0_wandb.cli.sync import PARTLY, VERDICT
from step0_wandb.text import json_documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.app.run_selector import Newest
    from step0_wandb.app.stop import Stopped
    from step0_wandb.records import Json, JudgedRun


_Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="entity/project/run_id, a run directory, or entity/project with --group or --name.",
    ),
]
_Timeout = Annotated[str, typer.Option("--timeout", metavar="SPAN", help="How long to wait for step 0.")]
_Group = Annotated[
    str | None,
    typer.Option("--group", metavar="G", help="Take the newest run whose group equals G or starts with G_."),
]
_Name = Annotated[
    str | None,
    typer.Option("--name", metavar="N", help="Take the newest run whose name equals N or starts with N_."),
]
_Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="SPAN",
        help="Consider runs created since then (a duration or a date), ended ones too. Default: 5m, and runs that had "
        "ended are ignored.",
    ),
]
_Rollouts = Annotated[
    int,
    typer.Option(
        "--rollouts",
        metavar="N",
        min=1,
        help="Wait for the first step of N rollouts; 2 shows whether the engine got the new weights.",
    ),
]
_Stop = Annotated[
    bool,
    typer.Option("--stop", help="Ask W&B to stop a run that is broken, or whose config contradicts itself."),
]
_OnBroken = Annotated[
    str | None,
    typer.Option(
        "--on-broken",
        metavar="CMD",
        help="Run this command if the run is broken, after --stop. It gets STEP0_RUN, STEP0_VERDICT, STEP0_REASON, "
        "STEP0_URL and STEP0_STOPPED (yes or no) in its environment.",
    ),
]


@without("dry_run")
def gate(  # noqa: PLR0913 - one parameter an option
    session: Session,
    run: _Run,
    *,
    timeout: _Timeout = "60m",
    group: _Group = None,
    name: _Name = None,
    since: _Since = None,
    rollouts: _Rollouts = 1,
    stop: _Stop = False,
    on_broken: _OnBroken = None,
    summary: SummaryFile = None,
) -> None:
    """Wait for the step 0 of a live run and judge it. Only exit code 3 says "broken".

    Example: step0-wandb gate my-team/rl --group qwen3 --stop || [ $? -ne 3 ] || ray job stop "$JOB"
    """
    from step0_wandb.app.diff import title as title_of
    from step0_wandb.app.gate import Gate, Patience
    from step0_wandb.app.stop import stop as stop_run

    refuse_two_answers(session, summary)
    tell = (lambda _line: None) if session.quiet else output.tell
    job, patience = session.job(), Patience(span_of("--timeout", timeout), tell=tell)
    newest = _newest(session, group, name, since) if group or name else None
    try:
        policies = Gate(job, patience).judged(run, newest, rollouts=rollouts)
    except KeyboardInterrupt:
        output.tell(f"Interrupted while waiting for {run}; the run was not touched.")
        raise typer.Exit(INTERRUPTED) from None
    for policy in () if session.as_json else policies:
        output.print_run(policy, output.console())
    broken = next((one for one in policies if one.must_stop), None)
    stopped = stop_run(broken, job, patience) if stop and broken else None
    if stopped:
        output.tell(f"stop: {stopped.message}")
    if on_broken and broken:
        _call(on_broken, broken, stopped)
    if session.as_json:
        output.print_json(_document(policies, stopped))
    headline = f"{title_of(policies[0])} is {policies[0].verdict}"
    is_written = append_summary(summary, headline, policies, session)
    code = _exit_code(policies, session.fail_on or FailOn.broken, must_stop=broken is not None)
    raise typer.Exit(code or (0 if is_written else PARTLY))


def _exit_code(policies: Sequence[JudgedRun], fail_on: FailOn, *, must_stop: bool) -> int:
    if any(map(fail_on.hit_by, policies)) or (must_stop and fail_on is not FailOn.never):
        return VERDICT
    return NO_STEP0 if policies[0].verdict in ("pending", "no-step0") else 0


def _newest(session: Session, group: str | None, name: str | None, since: str | None) -> Newest:
    from step0_wandb.app.run_selector import Newest

    begin = moment_of("--since", since or "5m", now=session.clock())
    return Newest(begin, group, name, over=since is not None)


def _call(command: str, run: JudgedRun, stopped: Stopped | None) -> None:
    """Run the launch script's own command; its output goes to stderr, apart from our answer."""
    from step0_wandb.settings.load import environment
    from step0_wandb.text.formatting import clean

    about = {
        "RUN": run.run,
        "VERDICT": run.verdict,
        "REASON": run.reasons[0] if run.reasons else "",
        "URL": run.url or "",
        "STOPPED": "yes" if stopped and stopped.stopped else "no",
    }
    given = {f"STEP0_{name}": clean(text) for name, text in about.items()}
    sys.stdout.flush()
    done = subprocess.run(  # noqa: S602 - typed by the person who starts the gate
        command, shell=True, check=False, stdout=sys.stderr.fileno(), env={**environment(), **given}
    )
    if done.returncode:
        output.tell(f"--on-broken: {command!r} exited with code {done.returncode}")


def _document(policies: Sequence[JudgedRun], stopped: Stopped | None) -> dict[str, Json]:
    """Return the answer as the document of the contract; ``run`` is the gravest policy."""
    asked = {"asked": bool(stopped and stopped.asked), "stopped": bool(stopped and stopped.stopped)}
    return json_documents.document("gate", run=policies[0], policies=policies, stop=asked)
