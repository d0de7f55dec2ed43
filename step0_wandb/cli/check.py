"""``step0-wandb check``: judge one run against the store's ranges."""

from __future__ import annotations

from typing import Annotated

import typer

from step0_wandb.cli import completion, output
from step0_wandb.cli.session import FailOn, Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.summary import SummaryFile, append_summary, refuse_two_answers  # noqa: TC001 - as above
from step0_wandb.cli.sync import PARTLY, VERDICT
from step0_wandb.text import json_documents

NO_STEP0 = 8


_Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A run directory, a .wandb file, entity/project/run_id, a stored run's id, a console log, or - for "
        "stdin.",
    ),
]
_EveryRollout = Annotated[
    bool,
    typer.Option(
        "--every-rollout",
        help="Also judge the first step of each rollout, and the gap after the first update.",
    ),
]
_Setup = Annotated[
    str | None,
    typer.Option(
        "--setup",
        metavar="TEXT",
        help="Judge a console log by the range of this setup.",
        autocompletion=completion.setups,
    ),
]


@without("dry_run")
def check(
    session: Session,
    source: _Source,
    *,
    every_rollout: _EveryRollout = False,
    setup: _Setup = None,
    summary: SummaryFile = None,
) -> None:
    """Judge one run against the store's ranges; write nothing.

    Example: step0-wandb check ./wandb/latest-run
    """
    from step0_wandb.app.check import basis_of, gravest_first, judge_start, read_one
    from step0_wandb.app.diff import title as title_of

    refuse_two_answers(session, summary)
    asked = every_rollout or session.loaded.settings.checks.every_rollout
    policies = read_one(source, session.job(), every_rollout=asked, setup=setup)
    basis = basis_of(policies[0].record, session.job())
    if basis.origin:
        output.tell(basis.origin)
    runs = gravest_first(judge_start(one, session.loaded, basis) for one in policies)
    run, problems = runs[0], policies[0].problems
    for problem in problems:
        output.warn(f"problem: {problem.where}: {problem.what}")
    if session.as_json:
        output.print_json(json_documents.document("check", run=run, policies=runs))
    else:
        for policy in runs:
            output.print_run(policy, output.console())
    is_written = append_summary(summary, f"{title_of(run)} is {run.verdict}", runs, session)
    if any(map((session.fail_on or FailOn.broken).hit_by, runs)):
        raise typer.Exit(VERDICT)
    if run.verdict in ("pending", "no-step0"):
        raise typer.Exit(NO_STEP0)
    raise typer.Exit(PARTLY if problems or not is_written else 0)
