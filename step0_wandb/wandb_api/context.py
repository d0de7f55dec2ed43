"""What every request needs from outside the process: the key, the time, and how long to try."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from step0_wandb.wandb_api.client import GraphQLClient
    from step0_wandb.wandb_api.credentials import Places, Server
    from step0_wandb.wandb_api.rate_limit import RateLimiter


@dataclass(frozen=True)
class Context:
    """What reading and writing W&B needs from outside the process.

    Attributes
    ----------
    places : Places
        Where the wandb client would look for server and key.
    give_up_s : float
        Seconds without a good page after which a source is given up; 0 asks once.
    at_most_s : float
        Seconds after which a client asks no more, whatever it is answered.
    file_hosts : tuple of str
        More hosts that files of the server may be read from.
    progress : callable
        Called with the source, the runs read so far, and the runs of the source where that is known.
    """

    places: Places
    clock: Callable[[], datetime]
    give_up_s: float = 120.0
    at_most_s: float = 3600.0
    file_hosts: tuple[str, ...] = ()
    progress: Callable[[str, int, int | None], None] = lambda _source, _runs, _total: None

    def server(self) -> Server:
        """Return the server that the wandb client would use.

        Raises
        ------
        UsageError
            Its address is not a valid one.
        """
        from step0_wandb.wandb_api.credentials import find_server

        return find_server(self.places)

    def client(self) -> GraphQLClient:
        """Return a client for the server that the wandb client would use.

        Raises
        ------
        CredentialsError
            No key was found.
        """
        from step0_wandb.wandb_api.client import GraphQLClient
        from step0_wandb.wandb_api.credentials import find_account
        from step0_wandb.wandb_api.http import HttpLimits

        usual_s = HttpLimits().deadline_s
        limits = HttpLimits(
            deadline_s=min(usual_s, self.give_up_s or usual_s),
            give_up_s=self.give_up_s,
            at_most_s=self.at_most_s,
        )
        account = find_account(self.places)
        return GraphQLClient(account, limiter=self._limiter, environ=self.places.environ, limits=limits)

    @cached_property
    def _limiter(self) -> RateLimiter:
        """Return the one rate limiter of all sources."""
        from step0_wandb.wandb_api.rate_limit import RateLimiter

        return RateLimiter()
