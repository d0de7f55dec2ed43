"""A config as the expressions of a profile see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from step0_wandb.text.nested import lookup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from step0_wandb.profiles.profile import Profile
    from step0_wandb.records import Json


class Scope(Mapping[str, Any]):
    """A config as expressions see it; named parts are worked out when asked for."""

    def __init__(self, profile: Profile, config: Mapping[str, Json]) -> None:
        self.model_names = profile.model_names
        self._profile = profile
        self._config = config

    def __getitem__(self, path: str) -> Any:
        if path in self._profile.let:
            return self._profile.let[path].value(self)
        value = self._profile.logged(self._config, path)
        return lookup(self._profile.defaults, path) if value is None else value

    def __contains__(self, path: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)
