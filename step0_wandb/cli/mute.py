"""``step0-wandb mute``: no alerts of one setup for a while."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.label import find_setup
from step0_wandb.cli.runs import span_of
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.errors import UsageError
from step0_wandb.text.formatting import when

if TYPE_CHECKING:
    from step0_wandb.store import Retraction, Store


@without("as_json", "fail_on", "quiet", "verbose")
def mute(
    session: Session,
    setup: Annotated[str, typer.Argument(metavar="SETUP", help="A setup's label, or a unique part of it.")],
    until: Annotated[
        str | None, typer.Option("--until", metavar="SPAN", help="For how long, such as 12h or 7d.")
    ] = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Unmute the setup.")] = False,
) -> None:
    """Mute the alerts of a setup for a while.

    Alerts that were held back are sent afterward if they still apply.

    Example: step0-wandb mute "Qwen3-1.7B" --until 7d
    """
    from step0_wandb.store import Mute, Retraction

    if clear == (until is not None):
        raise UsageError(
            "mute takes either --until or --clear", "For example: step0-wandb mute SETUP --until 7d"
        )
    session.require_store()
    now = session.clock()
    with session.open_store(write=not session.dry_run) as store:
        name = find_setup(store, setup)
        if until is None:
            _clear(store, Retraction("mute", name, now), dry_run=session.dry_run)
            return
        end = now + span_of("--until", until)
        if session.dry_run:
            output.tell(f"would mute {name} until {when(end)}")
            return
        store.people.save(Mute(name, end, getpass.getuser(), now))
    output.tell(f"{name} muted until {when(end)}; its runs are still judged")


def _clear(store: Store, word: Retraction, *, dry_run: bool) -> None:
    if dry_run:
        output.tell(f"would unmute {word.name}")
    elif store.people.retract(word):
        output.tell(f"{word.name} unmuted")
    else:
        output.tell(f"{word.name} was not muted")
