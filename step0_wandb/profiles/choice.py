"""Why a run is given to one profile and not to another, and which of its metric names nobody reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from step0_wandb.profiles.catalog import Profiles
    from step0_wandb.profiles.profile import Profile
    from step0_wandb.records import Json

_BOOKKEEPING = ("_", "system/", "system.")
"""What the names begin with that the W&B client logs by itself."""


@dataclass(frozen=True, slots=True)
class ProfileClaim:
    """A profile that has metric names in common with a run.

    Attributes
    ----------
    shared : tuple of str
        These names.
    why : str
        Why the run is, or is not, given to it.
    """

    name: str
    title: str
    shared: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Which profile a run is given to.

    Attributes
    ----------
    chosen : ProfileClaim or None
        None where no profile has a name in common with the run.
    others : tuple of ProfileClaim
        The other profiles that have, those with most names first.
    reads : mapping of str to str
        By check or purpose the metric that the chosen profile reads of this run.
    missing : mapping of str to tuple of str
        By check the names that it would read, where the run has none of them.
    unread : mapping of str to tuple of str
        The names that it does not read, each with the profiles that would.
    """

    chosen: ProfileClaim | None
    others: tuple[ProfileClaim, ...]
    reads: Mapping[str, str]
    missing: Mapping[str, tuple[str, ...]]
    unread: Mapping[str, tuple[str, ...]]


def explain_choice(
    profiles: Profiles, opening: AbstractSet[str], names: AbstractSet[str], config: Mapping[str, Json]
) -> Choice:
    """Return why a run is given to its profile.

    Parameters
    ----------
    opening : set of str
        The names of the first row that has a metric of any profile, which decides.
    names : set of str
        Every metric name of the run.
    """
    picked = profiles.pick(opening, config)
    shared = {name: profile.metrics.names & opening for name, profile in profiles.by_name.items()}
    ranked = sorted((name for name in shared if shared[name]), key=lambda name: (-len(shared[name]), name))
    claims = {
        name: ProfileClaim(
            name,
            profiles.by_name[name].title,
            tuple(sorted(shared[name])),
            _why(profiles.by_name[name], picked, shared, config),
        )
        for name in ranked
    }
    purposes = names_read(picked) if picked else {}
    read = frozenset[str]().union(*purposes.values())
    return Choice(
        chosen=claims[picked.name] if picked else None,
        others=tuple(claim for claim in claims.values() if picked and claim.name != picked.name),
        reads={what: name for what, own in purposes.items() if (name := _first(own, names))},
        missing={what: own for what, own in purposes.items() if own and not _first(own, names)},
        unread={
            name: _readers(profiles, name)
            for name in sorted(names - read)
            if not name.startswith(_BOOKKEEPING)
        },
    )


def names_read(profile: Profile) -> dict[str, tuple[str, ...]]:
    """Return the metric names that a profile reads, in order of preference, by what it reads them for."""
    metrics, rollouts = profile.metrics, profile.rollouts
    purposes = {
        "ppo_kl": metrics.ppo_kl,
        "clip_frac": metrics.clip_frac,
        "gap": tuple(gap.metric for gap in metrics.gap),
        "step": (*profile.step.keys, *profile.step.context),
        "entropy": metrics.entropy,
        "mark": metrics.marks,
    }
    if rollouts:
        purposes |= {"learning_rate": rollouts.learning_rate, "grad_norm": rollouts.grad_norm}
    for entry in profile.observable:
        purposes[entry.name] = (*purposes.get(entry.name, ()), *entry.metrics, *entry.minus)
    return purposes


def _why(
    profile: Profile,
    picked: Profile | None,
    shared: Mapping[str, AbstractSet[str]],
    config: Mapping[str, Json],
) -> str:
    """Return why a profile is the picked one, or is not, in the order in which `Profiles.pick` decides."""
    count = len(shared[profile.name])
    meant = profile.prefer is not None and profile.prefer.holds(profile.scope(config))
    condition = profile.prefer.text if profile.prefer else ""
    if picked is None or profile.name == picked.name:
        return f"its config says so: {condition}" if meant else "it has most of the run's metric names"
    if profile.prefer and not meant:
        return f"its config does not say so: {condition}"
    if count < len(shared[picked.name]):
        return f"it has fewer of the names than {picked.name}"
    return f"it has as many of the names, and {picked.name} goes first"


def _first(own: tuple[str, ...], names: AbstractSet[str]) -> str | None:
    return next((name for name in own if name in names), None)


def _readers(profiles: Profiles, name: str) -> tuple[str, ...]:
    known = profiles.by_name.items()
    return tuple(key for key, profile in known if any(name in own for own in names_read(profile).values()))
