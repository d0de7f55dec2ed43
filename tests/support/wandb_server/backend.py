"""The double's brain: what it is, what it can do, and what was asked of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .abilities import Abilities

if TYPE_CHECKING:
    from .faults import Faults
    from .records import Alert, Request
    from .state import State, User


@dataclass(slots=True)
class Backend:
    """Shared by the server object, the HTTP handlers and the resolvers; guarded by `lock`."""

    state: State
    viewer: User
    api_key: str
    faults: Faults
    abilities: Abilities = field(default_factory=Abilities)
    latency_s: float = 0.0
    requests: list[Request] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    alert_attempts: list[Alert] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
