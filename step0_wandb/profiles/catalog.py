"""The known profiles, and which of them a run belongs to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from step0_wandb.errors import UsageError
from step0_wandb.profiles.load import SHIPPED, parse_profile, read_file
from step0_wandb.profiles.observables import catalog_file
from step0_wandb.records import BOUND_DEFAULTS
from step0_wandb.text.paths import is_there

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from step0_wandb.profiles.profile import Profile
    from step0_wandb.records import Json


@dataclass(frozen=True, slots=True)
class Profiles:
    """The known profiles.

    Attributes
    ----------
    by_name : mapping of str to Profile
        In the order in which they are tried, a user's own first.
    fingerprint : str
        Changes when any profile changes, so that stored verdicts are computed again.
    """

    by_name: Mapping[str, Profile]
    fingerprint: str

    def pick(self, metrics: AbstractSet[str], config: Mapping[str, Json]) -> Profile | None:
        """Return the profile of a run by the metric names that it has.

        Variants whose ``prefer`` does not hold for the config are out, if another profile has a name in
        common with the run. Of those that share most names the one whose ``prefer`` holds wins, then the
        one that has no ``prefer``.
        """
        shared = {name: len(profile.metrics.names & metrics) for name, profile in self.by_name.items()}
        rivals = [self.by_name[name] for name, count in shared.items() if count]
        meant = [rival for rival in rivals if not rival.prefer or rival.prefer.holds(rival.scope(config))]
        rivals = meant or rivals
        most = max((shared[rival.name] for rival in rivals), default=0)
        return preferred([rival for rival in rivals if shared[rival.name] == most], config)

    def known_by(self, config: Mapping[str, Json]) -> Profile | None:
        """Return the profile of a run that has logged no metrics, by its config alone."""
        rivals = [
            profile
            for profile in self.by_name.values()
            if profile.known_by and all(profile.logged(config, key) is not None for key in profile.known_by)
        ]
        return preferred(rivals, config) if rivals else None

    def of_launch(
        self, config: Mapping[str, Json], command: str = "", mentions: Mapping[str, int] | None = None
    ) -> list[Profile]:
        """Return the profiles that a launch may be of, the likeliest first: by its command, then its keys.

        Parameters
        ----------
        command : str
            The command line without its arguments.
        mentions : mapping of str to int
            How often each word stands in the launch.
        """
        scores: dict[str, tuple[int, int, int, int]] = {}
        most: dict[frozenset[str], int] = {}
        for name, profile in self.by_name.items():
            launch = profile.launch
            has = {key for key in profile.own_keys if profile.logged(config, key) is not None}
            signs = sum(text in command for text in launch.commands) + len(has.intersection(launch.keys))
            words = sum((mentions or {}).get(word, 0) for word in launch.words)
            # A variant of which nothing but the keys that it shares with its base is there comes after the base.
            preference = (
                0 if profile.prefer is None else 1 if profile.prefer.holds(profile.scope(config)) else -1
            )
            if signs or has.intersection(profile.known_by):
                kin = profile.metrics.names
                most[kin] = max(most.get(kin, 0), len(has))
                scores[name] = (signs, words, preference, len(has))

        def rank(name: str) -> tuple[int, ...]:
            # Frameworks with the same metrics have the same flags: between them words decide, not the keys.
            signs, *rest = scores[name]
            return (signs, most[self.by_name[name].metrics.names], *rest)

        return [self.by_name[name] for name in sorted(scores, key=rank, reverse=True)]

    def comparing(self, config: Mapping[str, Json]) -> list[Profile]:
        """Return the profiles by whose flag a run compares the weights of both sides at its start."""
        return [
            profile
            for profile in self.by_name.values()
            if profile.weights and profile.weights.flag.holds(profile.scope(config))
        ]

    def with_setups(
        self,
        changes: Mapping[str, Mapping[str, Any]],
        generic: Iterable[str] = (),
        bounds: Mapping[str, float] | None = None,
    ) -> Profiles:
        """Return the profiles with other setup keys, names and bounds.

        Parameters
        ----------
        changes : mapping of str to mapping
            By profile name what `Profile.with_setup` takes: ``keys``, ``add`` and ``drop``.
        generic : iterable of str
            More words that name no model.
        bounds : mapping of str to float, optional
            By statistic the value from which a run is broken, as `records.BOUND_DEFAULTS`.

        Raises
        ------
        UsageError
            There is no such profile, or it has no such key to drop.
        """
        words = frozenset(word.lower() for word in generic)
        moved = {name: bound for name, bound in (bounds or {}).items() if bound != BOUND_DEFAULTS[name]}
        by_name = {
            name: profile.model_copy(update={"generic": profile.generic | words, "bounds": moved})
            if words or moved
            else profile
            for name, profile in self.by_name.items()
        }
        for name, change in changes.items():
            if name not in by_name:
                raise UsageError(
                    f"[setup.{name}] does not name a profile", f"There are: {', '.join(sorted(by_name))}."
                )
            by_name[name] = by_name[name].with_setup(**change)
        named = sorted((name, sorted(change.items())) for name, change in changes.items())
        text = repr((named, sorted(words), sorted(moved.items())) if moved else (named, sorted(words)))
        digest = hashlib.sha256((self.fingerprint + text).encode()).hexdigest()[:16]
        return Profiles(by_name, digest if changes or words or moved else self.fingerprint)


def preferred(rivals: Sequence[Profile], config: Mapping[str, Json]) -> Profile | None:
    """Return the profile whose ``prefer`` holds for a config, else the first that has none."""
    chosen = [rival for rival in rivals if rival.prefer and rival.prefer.holds(rival.scope(config))]
    general = [rival for rival in rivals if rival.prefer is None]
    return next(iter(chosen or general or rivals), None)


def load_profiles(paths: Iterable[Path] = ()) -> Profiles:
    """Read the shipped profiles, then those in `paths` (files or directories of TOML files).

    A profile of a user with the name of a shipped one replaces it.

    Raises
    ------
    UsageError
        A path does not exist, or a profile is not valid.
    """
    files = [file for path in paths for file in _files(path)]
    by_name: dict[str, Profile] = {}
    lists = (read_file(SHIPPED / "lists" / name) for name in ("model_names.toml", "causes.toml"))
    digest = hashlib.sha256(b"".join(lists) + catalog_file())
    for file in (*files, *sorted(SHIPPED.glob("*.toml"))):
        content = read_file(file)
        profile = parse_profile(file, content)
        by_name.setdefault(profile.name, profile)
        digest.update(content)
    return Profiles(by_name, digest.hexdigest()[:16])


def _files(path: Path) -> list[Path]:
    where = "See [profiles] paths in the settings."
    if not is_there(path):
        raise UsageError(f"The profile path {path} does not exist", where)
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"The profile path {path} has no TOML file in it", where)
    return files
