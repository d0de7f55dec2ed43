"""What a sync keeps in the store with the verdicts, so that showing it needs no pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from step0_wandb.text import json_documents
from step0_wandb.verdicts.goodness import goodness_from_json
from step0_wandb.verdicts.weight_checks import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.store.store import Store
    from step0_wandb.verdicts.goodness import GoodnessOfFit
    from step0_wandb.verdicts.weight_checks import WeightCheck

_GOODNESS: Final = "goodness_of_fit"
_WEIGHTS: Final = "weights"
_COVERAGE: Final = "unseen"
_FINDINGS: Final = "findings"


def save_goodness(store: Store, found: Sequence[GoodnessOfFit]) -> None:
    """Write the goodness of fit of each gap metric."""
    store.notes.put(_GOODNESS, json_documents.plain(found))


def load_goodness(store: Store) -> tuple[GoodnessOfFit, ...]:
    """Return the goodness of fit of each gap metric as of the last verdicts."""
    return store.notes.load(_GOODNESS, goodness_from_json)


def save_weight_checks(store: Store, found: Sequence[WeightCheck]) -> None:
    """Write which model and image has had its weights compared."""
    store.notes.put(_WEIGHTS, json_documents.plain(found))


def load_weight_checks(store: Store) -> list[WeightCheck]:
    """Return the weight checks as of the last verdicts, what failed first."""
    return store.notes.load(_WEIGHTS, from_json)


def save_coverage(store: Store, lines: Sequence[str]) -> None:
    """Write what is not checked in the stored runs, one line a profile."""
    store.notes.put(_COVERAGE, list(lines))


def load_coverage(store: Store) -> tuple[str, ...]:
    """Return what is not checked in the stored runs, as of the last verdicts."""
    lines = store.notes.get(_COVERAGE)
    return tuple(map(str, lines)) if isinstance(lines, list) else ()


def save_findings(store: Store, found: Mapping[str, str]) -> None:
    """Write what to look at first in the gravest flagged runs, by run key."""
    store.notes.put(_FINDINGS, dict(found))


def load_findings(store: Store) -> dict[str, str]:
    """Return what to look at first in the gravest flagged runs, as of the last verdicts."""
    found = store.notes.get(_FINDINGS)
    return {key: str(text) for key, text in found.items()} if isinstance(found, dict) else {}
