"""``step0-wandb label`` and ``accept``: what a person says about a run, and about a setup."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import Annotated

import typer

from step0_wandb.cli import completion, output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.errors import UsageError
from step0_wandb.text.formatting import clean


class LabelChoice(StrEnum):
    """The labels of the command line."""

    healthy = "healthy"
    broken = "broken"
    exclude = "exclude"


Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="entity/project/run_id, a bare run id, or a display name.",
        autocompletion=completion.run_ids,
    ),
]
Setup = Annotated[
    str,
    typer.Argument(
        metavar="SETUP", help="A setup's label, or a unique part of it.", autocompletion=completion.setups
    ),
]
Why = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason; teammates will see it.")]


@without("as_json", "fail_on", "quiet", "verbose")
def label(
    session: Session,
    run: Run,
    word: Annotated[
        LabelChoice | None, typer.Argument(metavar="healthy|broken|exclude", help="The label.")
    ] = None,
    why: Why = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the label.")] = False,
) -> None:
    """Label a run; the label overrides the verdict from the next sync on.

    Example: step0-wandb label q06s0180 healthy --why "new image, checked by hand"
    """
    from step0_wandb.app.run_selector import find_run
    from step0_wandb.store import Label, Retraction

    if clear == (word is not None):
        raise UsageError(
            "label takes either healthy, broken or exclude, or --clear",
            'For example: step0-wandb label RUN healthy --why "checked by hand"',
        )
    if word and not why:
        raise UsageError("A label needs a reason", 'Add --why "reason": teammates will see it.')
    session.require_store()
    with session.open_store(write=not session.dry_run) as store:
        key = find_run(store, run)
        if session.dry_run:
            output.tell(f"would {f'label {key} {word.value}' if word else f'remove the label from {key}'}")
        elif word and why:
            store.people.save(Label(key, word.value, why, getpass.getuser(), session.clock()))
            output.tell(f"{key} labeled {word.value} (takes effect at the next sync)")
        elif not store.people.retract(Retraction("label", key, session.clock())):
            output.tell(f"{key} has no label from the command line; remove a tag in W&B")
        else:
            output.tell(f"Label removed from {key} (takes effect at the next sync)")


@without("as_json", "fail_on", "quiet", "verbose")
def accept(
    session: Session,
    setup: Setup,
    why: Why = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Stop accepting the setup's level.")] = False,
) -> None:
    """Accept a setup's gap level as right, though it moved or is high.

    Example: step0-wandb accept "Qwen3-1.7B" --why "new attention kernel"
    """
    from step0_wandb.app.run_selector import find_setup
    from step0_wandb.store import Accept, Retraction

    if clear and why:
        raise UsageError("accept takes either --why or --clear")
    if not clear and not why:
        raise UsageError("Accepting a setup needs a reason", 'Add --why "reason": teammates will see it.')
    session.require_store()
    now = session.clock()
    with session.open_store(write=not session.dry_run) as store:
        name = find_setup(store, setup)
        shown = clean(name)
        if session.dry_run:
            output.tell(f"would stop accepting {shown}" if clear else f"would accept {shown}")
        elif why:
            store.people.save(Accept(name, why, getpass.getuser(), now))
            output.tell(f"{shown} accepted (takes effect at the next sync)")
        elif store.people.retract(Retraction("accept", name, now)):
            output.tell(f"{shown} no longer accepted (takes effect at the next sync)")
        else:
            output.tell(f"{shown} was not accepted")
