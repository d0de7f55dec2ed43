"""The book of weight checks: for which model and image trainer and engine were compared, and for which not.

Miles can compare the weights of both sides before the first rollout. A mismatch ends the job before it
logs a row: so a run with the flag and a step-0 row has passed, and one that ended without a row has
failed, or died before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from step0_wandb.profiles import Profile, Profiles
    from step0_wandb.records import Json, RunRecord

Status = Literal["failed", "due", "passed"]
ORDER: tuple[Status, ...] = ("failed", "due", "passed")
ONCE = "once is enough: a long run need not carry the flag"
FAILED = "failed, or died before step 0"


@dataclass(frozen=True, slots=True)
class WeightCheck:
    """What is known of one model and image.

    Attributes
    ----------
    image : str
        The container image, else the git commit, else empty: then the model alone counts.
    status : {"failed", "due", "passed"}
        Of the newest run that carried the flag; ``due`` where none did.
    run : str or None
        Key of that run.
    runs : int
        Runs of this model and image.
    notes : tuple of str
        Why a comparison proves less, and what else to know.
    add : tuple of str
        What to add to a short run so that it compares the weights, in each form that launchers take.
    """

    profile: str
    model: str
    image: str
    status: Status
    run: str | None
    checked_at: datetime | None
    runs: int
    notes: tuple[str, ...]
    add: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Carrier:
    """A run as the book sees it: its config, and whether a step 0 was found."""

    record: RunRecord
    profile: str | None
    found: bool


def weight_book(carriers: Iterable[Carrier], profiles: Profiles) -> list[WeightCheck]:
    """Return the book, what failed first; frameworks that cannot compare weights are not in it."""
    pages: dict[tuple[str, str, str], list[Carrier]] = {}
    for carrier in carriers:
        profile = profiles.by_name.get(carrier.profile or "")
        model = profile.model(carrier.record.config) if profile and profile.weights else None
        if profile and model:
            key = (profile.name, model, image_of(carrier.record.config))
            pages.setdefault(key, []).append(carrier)
    book = [_entry(profiles.by_name[key[0]], key[1], key[2], runs) for key, runs in pages.items()]
    return sorted(
        book, key=lambda entry: (ORDER.index(entry.status), entry.model, entry.image, entry.profile)
    )


def image_of(config: Mapping[str, Json]) -> str:
    """Return the image that a run was started in, as its client noted it, else its git commit.

    Examples
    --------
    >>> image_of({"_wandb": {"e": {"x7f3": {"docker": "radixark/miles:v5", "git": {"commit": "c1899de"}}}}})
    'radixark/miles:v5'
    """
    notes = list(_notes(config.get("_wandb")))
    return next((value for name in ("docker", "commit") for key, value in notes if key == name), "")


def _notes(value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in sorted(value.items()):
            if isinstance(inner, str) and inner:
                yield key, inner
            else:
                yield from _notes(inner)


def _entry(profile: Profile, model: str, image: str, runs: list[Carrier]) -> WeightCheck:
    weights = profile.weights
    assert weights is not None  # noqa: S101 - only profiles that have one get here
    newest = sorted(runs, key=lambda run: (str(run.record.created_at or ""), run.record.key))
    scope = profile.scope(newest[-1].record.config)
    more = weights.add_quantised if weights.quantised.holds(scope) else ""
    carried = [
        run for run in newest if weights.flag.holds(profile.scope(run.record.config)) and _is_over(run)
    ]
    last = carried[-1] if carried else None
    return WeightCheck(
        profile=profile.name,
        model=model,
        image=image,
        status="due" if last is None else "passed" if last.found else "failed",
        run=last.record.key if last else None,
        checked_at=last.record.created_at if last else None,
        runs=len(runs),
        notes=_notes_on(profile, last) if last else (),
        add=tuple(text.format(more=more) for text in weights.add),
    )


def _is_over(run: Carrier) -> bool:
    """Return whether a run has told what came of its comparison."""
    return run.found or not run.record.alive


def _notes_on(profile: Profile, run: Carrier) -> tuple[str, ...]:
    weights = profile.weights
    assert weights is not None  # noqa: S101 - as above
    scope = profile.scope(run.record.config)
    weaker = [entry.why for entry in weights.weaker if entry.when.holds(scope)]
    failed = [] if run.found else [FAILED]
    once = [ONCE] if run.found and weights.long.holds(scope) else []
    return (*failed, *weaker, *once)
