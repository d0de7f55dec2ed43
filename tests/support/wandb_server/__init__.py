"""A double of a W&B server: real HTTP and real GraphQL on loopback, and faults on demand.

The real, unmodified wandb client logs to it and reads from it; see `WandbServer`.
"""

from .abilities import Abilities
from .client import client_environment, client_online, detached
from .faults import ENDLESS, FINAL, KINDS, RETRIABLE, Faults
from .records import Alert, Request
from .server import WandbServer

__all__ = [
    "ENDLESS",
    "FINAL",
    "KINDS",
    "RETRIABLE",
    "Abilities",
    "Alert",
    "Faults",
    "Request",
    "WandbServer",
    "client_environment",
    "client_online",
    "detached",
]
