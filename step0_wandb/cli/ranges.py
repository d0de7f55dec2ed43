"""``step0-wandb ranges``: the range of each setup."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import completion, output, tables
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import clean, count, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from step0_wandb.records import SetupRange

FEW = 4
"""With fewer lone setups there is no note about what splits them."""


_Setup = Annotated[
    str | None,
    typer.Option(
        "--setup",
        metavar="TEXT",
        help="Only setups whose label contains this text.",
        autocompletion=completion.setups,
    ),
]


@without("dry_run", "fail_on")
def ranges(
    session: Session,
    setup: _Setup = None,
    observable: Annotated[
        str | None,
        typer.Option(
            "--observable", metavar="NAME", help="Another number of the row instead, such as entropy."
        ),
    ] = None,
    *,
    all_observables: Annotated[
        bool, typer.Option("--all-observables", help="All numbers that are learned from the healthy runs.")
    ] = False,
) -> None:
    """Show each setup's range: where the gap of its next healthy run is expected.

    Example: step0-wandb ranges --setup Qwen3-0.6B
    """
    from step0_wandb.store.kept import load_goodness

    if observable or all_observables:
        _print_observed(session, setup, None if all_observables else observable)
        return
    with session.open_store() as store:
        found = [item for item in store.verdicts.ranges() if not setup or setup.lower() in item.setup.lower()]
        metrics = {item.gap_metric for item in found}
        amount = sum(store.verdicts.counts().values())
        fits = [fit for fit in load_goodness(store) if fit.gap_metric in metrics]
    if session.as_json:
        output.print_json(json_documents.document("ranges", setups=found, goodness_of_fit=fits))
        return
    out = output.console()
    out.print(tables.table(tables.SETUPS, found, out.width) if found else _nothing(amount, setup))
    for item in found:
        if item.note:
            output.print_item("note", f"{item.setup}: {item.note}", out)
    if session.verbose:
        _print_known(found, out)
    for fit in fits:
        output.print_item("fit", str(fit), out)
    if note := splitting_note(found):
        output.print_item("note", note, out)


def _print_known(setups: Sequence[SetupRange], out: Console) -> None:
    from step0_wandb.verdicts.reference_gaps import published_for

    for item in setups:
        if item.ppo_kl_noise is not None:
            noise = f"ppo_kl up to {number(item.ppo_kl_noise)} is normal noise of its healthy runs"
            output.print_item("noise", f"{item.setup}: {noise}", out)
        for known in published_for(item.setup):
            output.print_item("published", f"{item.setup}: {known.describe(item.center)}", out)


def _print_observed(session: Session, setup: str | None, observable: str | None) -> None:
    from step0_wandb.app.observed import observed_ranges

    with session.open_store() as store:
        every = [item.setup for item in store.verdicts.ranges()]
        some = [name for name in every if setup.lower() in name.lower()] if setup else None
        found = observed_ranges(store, session.loaded, some, observable) if every and some != [] else []
    if session.as_json:
        output.print_json(json_documents.document("ranges", observables=found))
        return
    out = output.console()
    if found:
        out.print(tables.table(tables.OBSERVED, found, out.width))
    else:
        out.print(output.nothing("setups", filtered=setup is not None))


def _nothing(stored_runs: int, setup: str | None) -> str:
    """Return what to print in place of an empty table."""
    if stored_runs and setup is None:
        return f"No ranges yet: no step 0 to learn from in {count(stored_runs, 'stored run')}."
    return output.nothing("setups", filtered=setup is not None)


def splitting_note(setups: Sequence[SetupRange]) -> str:
    """Return what to do about the key that splits most setups down to one run; empty where none does."""
    key = splitting_key(setups)
    if key is None:
        return ""
    profiles = {item.profile for item in setups if item.n <= 1}
    table = f"setup.{profiles.pop()}" if len(profiles) == 1 else "setup.PROFILE"
    return (
        f"most setups have one run, mostly because of {clean(key)}: if it does not change the gap, drop it "
        f'with `[{table}] drop = ["{clean(key)}"]` in step0.toml'
    )


def splitting_key(setups: Sequence[SetupRange]) -> str | None:
    """Return the part of the setups that leaves most of them with one run, where most have no more.

    It is the one without which most of the lone runs would share a setup with others.
    """
    lone = [item.setup for item in setups if item.n <= 1]
    if len(lone) <= len(setups) / 2 or len(lone) < FEW:
        return None
    keys = {part.split("=")[0] for label in lone for part in _parts(label)}
    joined = {key: _joined(key, lone) for key in sorted(keys)}
    best = max(joined, key=lambda key: joined[key], default=None)
    return best if best and joined[best] > len(lone) / 2 else None


def _joined(key: str, labels: Sequence[str]) -> int:
    """Return how many setups would share their label with another one if the key did not count."""
    merged = Counter(
        (*label.split(" · ")[:2], *(part for part in _parts(label) if not part.startswith(f"{key}=")))
        for label in labels
    )
    return sum(times for times in merged.values() if times > 1)


def _parts(label: str) -> list[str]:
    return " ".join(label.split(" · ")[2:]).split()
