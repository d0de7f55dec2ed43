"""``step0-wandb lint``: what a launch will be at its first step, before the GPUs start."""

from __future__ import annotations

from typing import Annotated

import typer

from step0_wandb.cli import completion, output
from step0_wandb.cli.session import FailOn, Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.summary import SummaryFile, refuse_two_answers, write_summary  # noqa: TC001 - as above
from step0_wandb.cli.sync import PARTLY, VERDICT
from step0_wandb.text import json_documents


@without("dry_run")
def lint(
    session: Session,
    launch: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | RUN | -- COMMAND...",
            help="A launch script, a config file (YAML, TOML, JSON), an earlier run, or a command line behind --.",
            autocompletion=completion.run_ids,
        ),
    ],
    *,
    framework: Annotated[
        str | None,
        typer.Option("--framework", metavar="NAME", help="The framework, where it is not recognized."),
    ] = None,
    summary: SummaryFile = None,
) -> None:
    """Read a launch before the GPUs start; run nothing, write nothing. Exits with 3 on a contradiction.

    Example: step0-wandb lint -- python3 train.py --hf-checkpoint Qwen/Qwen3-4B --hidden-dropout 0 --attention-dropout 0
    """
    from step0_wandb.app.lint import lint_text, lint_words
    from step0_wandb.publish.job_summary import launch_summary

    refuse_two_answers(session, summary)
    job = session.job()
    found = lint_text(launch[0], job, framework) if len(launch) == 1 else lint_words(launch, job, framework)
    if session.as_json:
        output.print_json(json_documents.document("lint", launch=found))
    else:
        out = output.console()
        output.print_headline(found.headline, out, bad=bool(found.contradictions))
        for line in found.lines():
            output.print_item(
                line.about, line.text, out, style="bold red" if line.about == "wrong" else "dim"
            )
    is_written = write_summary(summary, launch_summary(found.summary()), session)
    if found.contradictions and session.fail_on is not FailOn.never:
        raise typer.Exit(VERDICT)
    raise typer.Exit(0 if is_written else PARTLY)
