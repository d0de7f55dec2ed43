"""What every channel of alerts has, and the three ways in which sending can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from step0_wandb.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from step0_wandb.settings.load import Loaded
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.sources.server.diagnose import Finding
    from step0_wandb.store import Message
    from step0_wandb.wandb_api.context import Context


class OutOfReachError(SourceError):
    """The channel does not answer, or not to us; no other message would fare better."""


class RefusedError(SourceError):
    """The channel says no to this very message."""


class NotAllowedError(RefusedError):
    """The key may not alert there at all; only another key or another setting helps."""


class Sender(Protocol):
    """Sends the messages of one sync."""

    def send(self, message: Message) -> None:
        """Send one message, and return once the channel has accepted it.

        Raises
        ------
        OutOfReachError, RefusedError, SourceError
            After the last it may have been accepted.
        """


class Channel(Protocol):
    """One way in which alerts reach people.

    Attributes
    ----------
    name : str
        As the store, other machines and ``--json`` know it.
    label : str
        As people call it.
    turn_off : str
        The setting that turns the channel off.
    origins : frozenset of {"disk", "server"}
        Whose runs it alerts about.
    drops_repeats : bool
        Whether the channel itself drops a message whose title it had. Where it does not, machines that
        sync the same project agree first on which of them sends.
    """

    name: str
    label: str
    turn_off: str
    origins: frozenset[str]
    drops_repeats: bool

    def is_on(self, settings: AlertsSettings) -> bool:
        """Return whether the settings turn the channel on."""

    def audience(self, entity: str) -> str:
        """Return who reads about the runs of an entity; one digest goes to one audience."""

    def trial_targets(self, projects: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return the (entity, project) pairs that get a test message."""

    def sender(self, loaded: Loaded, context: Context) -> Sender:
        """Return what sends the messages of one sync.

        Raises
        ------
        Step0Error
            The channel is not set up as it must be.
        """

    def findings(
        self, loaded: Loaded, context: Context, projects: Sequence[tuple[str, str]]
    ) -> Iterator[Finding]:
        """Yield what `doctor` finds when it tries the channel without sending anything."""
