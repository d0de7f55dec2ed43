"""``step0-wandb doctor``: what would be used, and whether it works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from step0_wandb.app.doctor import Checkup
    from step0_wandb.sources.server.diagnose import Finding

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@without("fail_on", "quiet")
def doctor(
    session: Session,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE", help="What a sync would read; default: the sources in the settings."
        ),
    ] = None,
    *,
    test_alert: Annotated[
        bool, typer.Option("--test-alert", help="Send one alert to each W&B project, and to the webhook.")
    ] = False,
) -> None:
    """Check settings, sources, key, store, alerts and reports.

    Example: step0-wandb doctor my-team/my-project --test-alert
    """
    from step0_wandb.app.doctor import Checkup

    checkup = Checkup(session.loaded, session.job().context(), tuple(sources or ()))
    found = list(checkup.findings())
    if test_alert:
        found += _test(checkup, session)
    if session.as_json:
        output.print_json(json_documents.document("doctor", findings=found))
    else:
        _print(found)
    raise typer.Exit(next((finding.exit_code for finding in found if finding.outcome == "fail"), 0))


def _test(checkup: Checkup, session: Session) -> list[Finding]:
    """Send the test alerts, or say which they would be."""
    from step0_wandb.app.doctor import place_of
    from step0_wandb.sources.server.diagnose import Finding

    if session.dry_run:
        return [
            Finding("test alert", "ok", f"would send to {place_of(message)}: {message.title}")
            for message in checkup.test_messages()
        ]
    sent = list(checkup.test_alerts())
    return sent or [
        Finding("test alert", "warn", "nothing to test: no W&B project among the sources, and no webhook")
    ]


def _print(found: list[Finding]) -> None:
    out = output.console()
    for finding in found:
        text = f"{clean(finding.name)}: {clean(finding.what)}"
        output.print_item(finding.outcome, text, out, style=STYLES[finding.outcome])
