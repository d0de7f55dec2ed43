"""``step0-wandb label`` and ``accept``: a person's word on a run, and on a setup."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.errors import UsageError
from step0_wandb.text.formatting import clean

if TYPE_CHECKING:
    from step0_wandb.store import Store


class Word(StrEnum):
    """What a person can say of a run."""

    healthy = "healthy"
    broken = "broken"
    exclude = "exclude"


Why = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason; it is shown everywhere.")]


@without("as_json", "fail_on", "quiet", "verbose")
def label(
    session: Session,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's key, its id, or its display name.")],
    word: Annotated[Word | None, typer.Argument(metavar="healthy|broken|exclude", help="The word.")] = None,
    why: Why = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Take the label back.")] = False,
) -> None:
    """Say what a run is; from the next sync on it beats the verdict.

    Example: step0-wandb label q06s0180 healthy --why "new image, checked by hand"
    """
    from step0_wandb.app.check import find_run
    from step0_wandb.store import Label, Retraction

    if clear == (word is not None):
        raise UsageError(
            "label takes either a word or --clear", "Such as: step0-wandb label RUN healthy --why TEXT"
        )
    if word and not why:
        raise UsageError("A label needs its reason", "Add --why TEXT: others will ask.")
    session.require_store()
    with session.open_store(write=not session.dry_run) as store:
        key = find_run(store, run)
        if session.dry_run:
            output.tell(f"would label {key}: {word.value if word else 'cleared'}")
        elif word and why:
            store.people.save(Label(key, word.value, why, getpass.getuser(), session.clock()))
            output.tell(f"{key} is labeled {word.value}; the next sync judges by it")
        elif not store.people.retract(Retraction("label", key, session.clock())):
            output.tell(f"{key} had no label from the shell; a tag is taken off in W&B")
        else:
            output.tell(f"the label of {key} is taken back; the next sync judges without it")


@without("as_json", "fail_on", "quiet", "verbose")
def accept(
    session: Session,
    setup: Annotated[
        str, typer.Argument(metavar="SETUP", help="A setup's label, or a part that only one has.")
    ],
    why: Why = None,
) -> None:
    """Say that a setup's level is right, though it moved or is high.

    Example: step0-wandb accept "Qwen3-1.7B" --why "new attention kernel"
    """
    from step0_wandb.store import Accept

    if not why:
        raise UsageError("An accepted setup needs its reason", "Add --why TEXT: others will ask.")
    session.require_store()
    with session.open_store(write=not session.dry_run) as store:
        name = find_setup(store, setup)
        if session.dry_run:
            output.tell(f"would accept {clean(name)}")
            return
        store.people.save(Accept(name, why, getpass.getuser(), session.clock()))
    output.tell(f"{clean(name)} is accepted; the next sync judges by it")


def find_setup(store: Store, text: str) -> str:
    """Return the label of the one setup that a person means.

    Raises
    ------
    UsageError
        The store has no such setup, or several.
    """
    names, said = [item.setup for item in store.verdicts.ranges()], text.lower()
    hits = (
        [name for name in names if name == text]
        or [name for name in names if name.lower().partition(" · ")[2] == said]  # all but the profile
        or [name for name in names if said in name.lower()]
    )
    if len(hits) == 1:
        return hits[0]
    if hits:
        shown = "; ".join(clean(name) for name in hits[:4])
        raise UsageError(f"{text!r} names {len(hits)} setups: {shown}", "Give the whole label of one.")
    raise UsageError(f"No setup of the store holds {text!r}", "`step0-wandb ranges` lists them.")
