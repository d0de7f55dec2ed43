"""The surroundings in which the real wandb client works with the double and with nothing else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from .server import WandbServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def client_environment(server: WandbServer, folder: Path) -> dict[str, str]:
    """Return the variables that point the client at `server` and keep its files in `folder`.

    The process must not have used wandb with another server before, or ``wandb.teardown()`` since.
    """
    return {
        "WANDB_BASE_URL": server.url,
        "WANDB_API_KEY": server.api_key,
        "WANDB_DIR": str(folder),
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_CONFIG_DIR": str(folder / "config"),
        "WANDB_DATA_DIR": str(folder / "data"),
        "WANDB_ARTIFACT_DIR": str(folder / "artifacts"),
        "NETRC": str(folder / "netrc"),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
        "WANDB_X_GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
        "WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "1",  # whole seconds; 15, as it comes
    }


@contextmanager
def client_online(folder: Path, **variables: str) -> Iterator[WandbServer]:
    """Give a server to which the client of this process logs, with its files and the work in `folder`."""
    import wandb

    with WandbServer() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in (client_environment(server, folder) | variables).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        yield server
        wandb.teardown()


def detached(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a program that is to have a client of its own.

    wandb hands its service process down to its children (``WANDB_SERVICE``). A child that dies then
    ends nothing: its run stays ``running``, as it would not on another machine.
    """
    return {name: value for name, value in environ.items() if name != "WANDB_SERVICE"}
