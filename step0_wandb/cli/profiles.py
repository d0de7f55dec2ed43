"""``step0-wandb profiles``: the known frameworks, and the metrics read from each."""

from __future__ import annotations

from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.errors import UsageError
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import MISSING, clean, count
from step0_wandb.text.paths import write_new

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from step0_wandb.profiles.choice import Choice
    from step0_wandb.profiles.profile import Profile

WHAT = ("ppo_kl", "clip_frac", "gap", "step")


@without("fail_on")
def profiles(
    session: Session,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="With --new: a run directory, entity/project/run_id or a stored run's id."
        ),
    ] = None,
    *,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain", metavar="RUN", help="Explain why a run is read by its profile, and what is not read."
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option("--new", metavar="NAME", help="Write NAME.toml, a first profile guessed from RUN."),
    ] = None,
) -> None:
    """List the known frameworks, explain the choice for a run, or draft a new profile.

    Example: step0-wandb profiles --explain q06wr0ng
    """
    if (run is None) != (new is None) or (new and explain):
        raise UsageError("--new takes a name and a run", "Type `step0-wandb profiles --new NAME RUN`.")
    if new is not None and run is not None:
        _write_draft(new, run, session)
    elif explain is not None:
        _explain(explain, session)
    elif session.as_json:
        rows = [_document(profile) for profile in session.profiles.by_name.values()]
        output.print_json(json_documents.document("profiles", profiles=rows))
    else:
        _list(session.profiles.by_name.values())


def _write_draft(name: str, run: str, session: Session) -> None:
    """Write a first profile next to where the command runs, never over another file."""
    from step0_wandb.app.frameworks import draft_of

    file = Path(f"{name}.toml")
    draft = draft_of(name, run, session.job())
    if session.as_json:
        answer = {"file": str(file), "profile": draft.text, "unread": draft.unread}
        output.print_json(json_documents.document("new-profile", **answer))
    elif session.dry_run:
        output.console().print(draft.text, soft_wrap=True, end="")
    if session.dry_run:
        return
    write_new(file, draft.text, "Take another name, or move that file away.")
    output.tell(
        f"wrote {file}: check the lines marked `guess`, and the {count(len(draft.unread), 'name')} not read"
    )
    output.tell(f'then add it to step0.toml: [profiles] paths = ["./{file}"]')


def _explain(run: str, session: Session) -> None:
    from step0_wandb.app.frameworks import choice_of

    record, choice = choice_of(run, session.job())
    if session.as_json:
        output.print_json(json_documents.document("profile-choice", run=record.key, choice=choice))
        return
    out = output.console()
    if choice.chosen:
        out.print(f"{record.run_id} is read as {choice.chosen.title}: {choice.chosen.why}", soft_wrap=True)
    else:
        out.print(f"{record.run_id}: no profile knows any of its metric names", soft_wrap=True)
        out.print(f"  step0-wandb profiles --new NAME {clean(run)}  writes a first one", soft_wrap=True)
    _print_choice(choice)


def _print_choice(choice: Choice) -> None:
    out = output.console()
    for heading, lines in {
        "not as": [f"{claim.title} ({len(claim.shared)}): {claim.why}" for claim in choice.others],
        "reads": [f"{what}: {name}" for what, name in choice.reads.items()],
        "not logged": [f"{what}: {', '.join(names[:2])}" for what, names in choice.missing.items()],
        "not read": [
            f"{name} (read by {', '.join(readers)})" if readers else name
            for name, readers in choice.unread.items()
        ],
    }.items():
        for first, line in zip_longest([heading] if lines else [], lines, fillvalue=""):
            out.print(f"  {first:10}  {clean(line)}", soft_wrap=True)


def _document(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name,
        "title": profile.title,
        **{what: list(keys) for what, keys in _read_of(profile).items()},
        "gap_statistic": {gap.metric: gap.statistic for gap in profile.metrics.gap},
        "observables": {entry.name: list(entry.metrics) for entry in profile.observable},
        "switches": [entry.model_dump(include={"brings", "kind", "set", "why"}) for entry in profile.switch],
    }


def _list(known: Iterable[Profile]) -> None:
    out = output.console()
    for profile in known:
        out.print(f"{profile.name}: {profile.title}", style="bold", soft_wrap=True)
        for what, keys in _shown(profile).items():
            for heading, key in zip_longest([what], keys or [MISSING], fillvalue=""):
                out.print(f"  {heading:9}  {key}", soft_wrap=True)


def _read_of(profile: Profile) -> dict[str, Sequence[str]]:
    """Return the metric names that are read of a framework's runs, by what they are."""
    metrics = profile.metrics
    gaps = [gap.metric for gap in metrics.gap]
    return dict(zip(WHAT, (metrics.ppo_kl, metrics.clip_frac, gaps, profile.step.keys), strict=True))


def _shown(profile: Profile) -> dict[str, Sequence[str]]:
    """Return the same with what the gap metrics measure below their names: only like is compared with like."""
    gaps: list[str] = []
    for statistic, alike in groupby(profile.metrics.gap, key=lambda gap: gap.statistic):
        gaps += [*(gap.metric for gap in alike), f"  {statistic}"]
    return _read_of(profile) | {"gap": gaps, "also": _observables(profile), "switches": _switches(profile)}


def _observables(profile: Profile) -> list[str]:
    """Return the other checks of a framework's runs, each with the metric that is preferred."""
    return [f"{entry.name}: {entry.metrics[0]}" for entry in profile.observable]


def _switches(profile: Profile) -> list[str]:
    """Return what can be set, each with the checks that it brings; one setting a line."""
    lines: list[str] = []
    for entry in profile.switch:
        first, *others = entry.set.split() or ["by default"]
        lines += [f"{', '.join(entry.brings)}: {first}", *(f"  {other}" for other in others)]
    return lines
