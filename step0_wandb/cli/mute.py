"""``step0-wandb mute``: no alerts of one setup for a while."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.label import Setup  # noqa: TC001 - typer reads the annotation
from step0_wandb.cli.moments import moment_of, span_of
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.errors import UsageError
from step0_wandb.text.formatting import clean, when

_Span = Annotated[str | None, typer.Option("--for", metavar="SPAN", help="For how long, such as 12h or 7d.")]
_Until = Annotated[
    str | None, typer.Option("--until", metavar="DATE", help="Until when, such as 2027-01-01.")
]
_Clear = Annotated[bool, typer.Option("--clear", help="Unmute the setup.")]


@without("as_json", "fail_on", "quiet", "verbose")
def mute(
    session: Session,
    setup: Setup,
    span: _Span = None,
    until: _Until = None,
    *,
    clear: _Clear = False,
) -> None:
    """Mute the alerts of a setup for a while.

    Alerts that were held back are sent afterward if they still apply.

    Example: step0-wandb mute "Qwen3-1.7B" --for 7d
    """
    from step0_wandb.app.run_selector import find_setup
    from step0_wandb.store import Mute, Retraction

    if sum((clear, span is not None, until is not None)) != 1:
        raise UsageError(
            "mute takes one of --for, --until and --clear", "For example: step0-wandb mute SETUP --for 7d"
        )
    session.require_store()
    now = session.clock()
    end = now + span_of("--for", span) if span else moment_of("--until", until or "0s", now=now, ahead=True)
    if until and end <= now:
        raise UsageError(f"--until {until} is in the past", "To unmute a setup, use --clear.")
    with session.open_store(write=not session.dry_run) as store:
        name = find_setup(store, setup)
        shown = clean(name)
        if session.dry_run:
            output.tell(f"would unmute {shown}" if clear else f"would mute {shown} until {when(end)}")
        elif not clear:
            store.people.save(Mute(name, end, getpass.getuser(), now))
            output.tell(f"{shown} muted until {when(end)}; its runs are still judged")
        elif store.people.retract(Retraction("mute", name, now)):
            output.tell(f"{shown} unmuted")
        else:
            output.tell(f"{shown} was not muted")
