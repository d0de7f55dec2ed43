"""``step0-wandb profiles``: the known frameworks, and the metrics read from each."""

from __future__ import annotations

from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from step0_wandb.cli import output
from step0_wandb.cli.session import Session, without  # noqa: TC001 - typer reads the annotation
from step0_wandb.text import json_documents
from step0_wandb.text.formatting import MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from step0_wandb.profiles.profile import Profile

WHAT = ("ppo_kl", "clip_frac", "gap", "step")


@without("dry_run", "fail_on")
def profiles(session: Session) -> None:
    """List the known frameworks and the metrics read from each.

    Example: step0-wandb profiles
    """
    known = session.profiles.by_name.values()
    if session.as_json:
        rows = [
            {"name": profile.name, "title": profile.title}
            | {what: list(keys) for what, keys in _read_of(profile).items()}
            | {"gap_statistic": {gap.metric: gap.statistic for gap in profile.metrics.gap}}
            | {"observables": {entry.name: list(entry.metrics) for entry in profile.observable}}
            | {
                "switches": [
                    entry.model_dump(include={"brings", "kind", "set", "why"}) for entry in profile.switch
                ]
            }
            for profile in known
        ]
        output.print_json(json_documents.document("profiles", profiles=rows))
        return
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
