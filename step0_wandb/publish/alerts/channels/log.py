"""The log of the sync itself: where alerts about runs on disk go, which no server can be asked to raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from step0_wandb.settings.load import Loaded
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.sources.server.diagnose import Finding
    from step0_wandb.store import Message
    from step0_wandb.wandb_api.context import Context


class LogChannel:
    """Alerts that the command prints; to be printed is to be sent."""

    name = "log"
    label = "the log"
    turn_off = "alerts.levels = []"
    origins = frozenset({"disk"})
    drops_repeats = True

    def is_on(self, _settings: AlertsSettings) -> bool:
        """Return True: nothing has to be set up."""
        return True

    def audience(self, _entity: str) -> str:
        """Return the one audience: the log is read as a whole."""
        return ""

    def trial_targets(self, _projects: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return nothing: there is nothing to test."""
        return ()

    def sender(self, _loaded: Loaded, _context: Context) -> LogChannel:
        """Return the channel itself."""
        return self

    def send(self, message: Message) -> None:
        """Do nothing: the command prints what was sent."""

    def findings(
        self, _loaded: Loaded, _context: Context, _projects: Sequence[tuple[str, str]]
    ) -> Iterator[Finding]:
        """Yield nothing: there is nothing that could fail."""
        yield from ()
