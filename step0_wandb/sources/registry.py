"""Which address opens which source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from step0_wandb.wandb_api.address import LocalAddress, RemoteAddress, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from step0_wandb.sources.base import Source
    from step0_wandb.step0.finder import Step0Finder
    from step0_wandb.wandb_api.address import Address
    from step0_wandb.wandb_api.context import Context

    Opener = Callable[[Any, Step0Finder, Context], Source]


def _directories(address: LocalAddress, finder: Step0Finder, context: Context) -> Source:
    from step0_wandb.sources.offline.source import OfflineSource

    return OfflineSource(address.path, finder, clock=context.clock)


def _server(address: RemoteAddress, finder: Step0Finder, context: Context) -> Source:
    from step0_wandb.sources.server.source import ServerSource

    return ServerSource(address, context.client(), finder, clock=context.clock)


# The modules are imported by the openers: a sync of directories needs no HTTP client.
OPENERS: Mapping[type[Address], Opener] = {LocalAddress: _directories, RemoteAddress: _server}


def open_source(text: str, finder: Step0Finder, context: Context) -> Source:
    """Return the source that `text` names.

    Raises
    ------
    UsageError
        The text names none, or the path does not exist.
    CredentialsError
        No key was found for the server.
    """
    address = parse_address(text, server=context.server)
    return OPENERS[type(address)](address, finder, context)
