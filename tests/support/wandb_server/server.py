"""`WandbServer`: the double as tests hold it."""

from __future__ import annotations

import secrets
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from .abilities import Abilities
from .backend import Backend
from .faults import Faults
from .gql import load_schema
from .sampling import to_json
from .state import State
from .transport import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .records import Alert, Request
    from .state import Project, Run


def now() -> datetime:
    """Return the present in UTC."""
    return datetime.now(UTC)


def wrap_config(config: Mapping[str, Any]) -> str:
    """Return a config as W&B keeps it."""
    return to_json({key: {"desc": None, "value": value} for key, value in config.items()})


class WandbServer:
    """A W&B server on loopback that the real client, unmodified, works with.

    Parameters
    ----------
    entity : str
        Default entity of the key.
    username : str
        Whose key it is; the user of the runs that the client logs.
    clock : callable
        Returns the present; replace it (also later, ``server.clock = ...``) to let time pass.
    port : int
        0 takes a free one.

    Examples
    --------
    >>> with WandbServer() as server:
    ...     run = server.add_run("lab", "rl", "r1", rows=[{"train/ppo_kl": 0.0}])
    ...     server.faults.next("502")
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        entity: str = "lab",
        username: str = "ada",
        *,
        clock: Callable[[], datetime] = now,
        port: int = 0,
        abilities: Abilities | None = None,
    ) -> None:
        load_schema()
        self.state = State(entity, clock)
        viewer = self.state.user(username)
        self.backend = Backend(self.state, viewer, secrets.token_hex(20), Faults(), abilities or Abilities())
        self._listener = Listener(self.backend, "127.0.0.1", port)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Cut every connection and give the port back."""
        self._listener.shutdown()
        self._thread.join()
        self.faults.clear()
        self._listener.cut_connections()
        self._listener.server_close()

    @property
    def url(self) -> str:
        """Return the base url, as in ``WANDB_BASE_URL``."""
        return self._listener.url

    @property
    def api_key(self) -> str:
        """Return the only key that the server takes."""
        return self.backend.api_key

    @property
    def requests(self) -> list[Request]:
        """Return the log of all requests, oldest first; ``clear()`` it between two measurements."""
        return self.backend.requests

    @property
    def alerts(self) -> list[Alert]:
        """Return the alerts that people received."""
        return self.backend.alerts

    @property
    def alert_attempts(self) -> list[Alert]:
        """Return every alert that was accepted, with those dropped as doubles."""
        return self.backend.alert_attempts

    @property
    def latency_s(self) -> float:
        """How long every answer is held back, in seconds."""
        return self.backend.latency_s

    @latency_s.setter
    def latency_s(self, seconds: float) -> None:
        self.backend.latency_s = seconds

    @property
    def faults(self) -> Faults:
        """What goes wrong; assign ``Faults(rate=0.2, seed=1)`` for random trouble."""
        return self.backend.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self.backend.faults.release()
        self.backend.faults = faults

    @property
    def abilities(self) -> Abilities:
        """What the server can do."""
        return self.backend.abilities

    @abilities.setter
    def abilities(self, abilities: Abilities) -> None:
        self.backend.abilities = abilities

    @property
    def clock(self) -> Callable[[], datetime]:
        """What the server takes for the present."""
        return self.state.clock

    @clock.setter
    def clock(self, clock: Callable[[], datetime]) -> None:
        self.state.clock = clock

    @property
    def peak_in_flight(self) -> int:
        """Return the most requests that were under way at one time."""
        return max((request.in_flight for request in self.requests), default=0)

    def project(self, entity: str, name: str) -> Project:
        """Return a project, made where there is none; ``.hidden = True`` takes it from view."""
        with self.backend.lock:
            return self.state.ensure_project(entity, name)

    def run(self, entity: str, project: str, run_id: str) -> Run:
        """Return a run as the server has it; raise KeyError where it has none."""
        return self.state.projects[entity, project].runs[run_id]

    def rows(self, entity: str, project: str, run_id: str) -> list[dict[str, Any]]:
        """Return the history rows that have arrived, none where there is no such run yet."""
        found = self.state.run(entity, project, run_id)
        return list(found.rows) if found else []

    def add_run(  # noqa: PLR0913 - a run has that much
        self,
        entity: str,
        project: str,
        run_id: str,
        *,
        config: Mapping[str, Any] | str | None = None,
        rows: Iterable[Mapping[str, Any]] = (),
        state: str = "finished",
        created_at: datetime | None = None,
        heartbeat_at: datetime | None = None,
        name: str | None = None,
        tags: Iterable[str] = (),
        user: str | None = None,
        **attributes: Any,
    ) -> Run:
        """Put a run into the server without any request.

        Parameters
        ----------
        config : mapping or str
            As the user wrote it; or the JSON that W&B keeps, ``{"lr": {"value": 0.1}}``: that is fast.
        rows : iterable of mappings
            History rows; one without ``_step`` gets its position.
        heartbeat_at : datetime
            Now for a running run, the creation for another, unless given.
        **attributes
            Any further attribute of `Run`: ``group``, ``job_type``, ``notes``, ``summary`` ...
        """
        with self.backend.lock:
            home = self.state.ensure_project(entity, project)
            run = self.state.create_run(home, run_id, user or self.backend.viewer.username)
            run.display_name, run.status, run.tags = name or run_id, state, tuple(tags)
            run.config_json = config if isinstance(config, str) else wrap_config(config or {})
            run.write_rows(0, [dict(row) for row in rows])
            run.created_at = (created_at or run.created_at).astimezone(UTC).replace(microsecond=0)
            run.heartbeat_at = heartbeat_at or (self.clock() if state == "running" else run.created_at)
            for attribute, value in attributes.items():
                setattr(run, attribute, value)
        return run

    def delete_run(self, entity: str, project: str, run_id: str) -> None:
        """Take a run away, as its owner does on the web page."""
        with self.backend.lock:
            del self.state.projects[entity, project].runs[run_id]
