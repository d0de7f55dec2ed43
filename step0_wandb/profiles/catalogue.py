"""The profiles that are known, and which of them a run belongs to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.profiles.profile import load_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from step0_wandb.profiles.profile import Profile
    from step0_wandb.records import Json

SHIPPED = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Profiles:
    """The known profiles.

    Attributes
    ----------
    by_name : mapping of str to Profile
        In the order in which they are tried.
    fingerprint : str
        Changes when any profile changes, so that stored verdicts are computed anew.
    """

    by_name: Mapping[str, Profile]
    fingerprint: str

    def pick(self, metrics: AbstractSet[str], config: Mapping[str, Json]) -> Profile | None:
        """Return the profile of a run by the metric names that it has.

        Of those that share most names with it the one whose ``prefer`` holds for the config wins,
        then the one that has no ``prefer``.
        """
        shared = {name: len(profile.metrics.names & metrics) for name, profile in self.by_name.items()}
        most = max(shared.values(), default=0)
        if not most:
            return None
        rivals = [self.by_name[name] for name, count in shared.items() if count == most]
        preferred = [rival for rival in rivals if rival.prefer and rival.prefer.holds(rival.scope(config))]
        general = [rival for rival in rivals if rival.prefer is None]
        return next(iter(preferred or general or rivals))


def load_profiles(paths: Iterable[Path] = ()) -> Profiles:
    """Read the shipped profiles, then those in `paths` (files or directories of TOML files).

    A profile of a user with the name of a shipped one replaces it.

    Raises
    ------
    UsageError
        A path does not exist, or a profile is not valid.
    """
    files = sorted(SHIPPED.glob("*.toml"))
    for path in paths:
        if not path.exists():
            raise UsageError(
                f"The profile path {path} does not exist", "See [profiles] paths in the settings."
            )
        files += sorted(path.glob("*.toml")) if path.is_dir() else [path]
    by_name: dict[str, Profile] = {}
    digest = hashlib.sha256()
    for file in files:
        profile = load_profile(file)
        by_name[profile.name] = profile
        digest.update(file.read_bytes())
    return Profiles(by_name, digest.hexdigest()[:16])
