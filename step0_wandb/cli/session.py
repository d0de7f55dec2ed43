"""What every command shares: its options, the settings behind them, and the clock."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

from step0_wandb.cli import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from step0_wandb.app.sync import Job
    from step0_wandb.profiles import Profiles
    from step0_wandb.records import JudgedRun
    from step0_wandb.settings.load import Loaded
    from step0_wandb.store import Store


def now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)


class FailOn(StrEnum):
    """The mildest verdict for which a command exits with 3."""

    broken = "broken"
    suspect = "suspect"
    no_range = "no-range"
    never = "never"

    def hit_by(self, run: JudgedRun) -> bool:
        """Return whether a run's verdict is at or above this one; excluded runs never count."""
        return self.covers(run.verdict, run.label)

    def covers(self, verdict: str, label: str | None) -> bool:
        """Return what `hit_by` does, of a run with this verdict and label."""
        order = ("broken", "suspect", "no-range")
        if self is FailOn.never or label == "exclude":
            return False
        return verdict in order[: order.index(self.value) + 1]


class LogFormat(StrEnum):
    """How lines on stderr look: for people, or one JSON object each."""

    text = "text"
    json = "json"


@dataclass(frozen=True)
class Session:
    """The shared options of one command, and what follows from them."""

    settings_file: Path | None = None
    store_file: Path | None = None
    as_json: bool = False
    dry_run: bool = False
    fail_on: FailOn | None = None
    quiet: bool = False
    verbose: bool = False
    log_format: LogFormat = LogFormat.text

    @cached_property
    def loaded(self) -> Loaded:
        """The settings."""
        return self.load()

    def load(self, **flags: str | None) -> Loaded:
        """Return the settings, with values from the command line; ``report_wandb`` sets ``report.wandb``."""
        from step0_wandb.errors import UsageError
        from step0_wandb.settings.load import environment, load_settings

        try:
            cwd = Path.cwd()
        except FileNotFoundError as error:
            raise UsageError("The working directory is gone", "Change to one that exists.") from error
        values = {name.replace("_", "."): value for name, value in flags.items()}
        values["store"] = str(cwd / self.store_file) if self.store_file else None
        return load_settings(self.settings_file, cwd=cwd, environ=environment(), flags=values)

    @cached_property
    def profiles(self) -> Profiles:
        """The known profiles, with the settings' changes to their setups."""
        from step0_wandb.app.sync import profiles_of

        return profiles_of(self.loaded)

    def job(self) -> Job:
        """Return the main job with these settings."""
        from step0_wandb.app.sync import Job

        return Job(self.loaded, dry_run=self.dry_run, clock=self.clock)

    def require_store(self) -> None:
        """Refuse to go on without a store, where no run and no setup can be known.

        Raises
        ------
        UsageError
            There is no store yet.
        """
        from step0_wandb.errors import UsageError
        from step0_wandb.store import store_exists

        if not store_exists(self.loaded.store):
            raise UsageError(
                f"No runs or setups are known: there is no store at {self.loaded.store} yet",
                "Create it with `step0-wandb sync SOURCE`.",
            )

    def open_store(self, *, write: bool = False) -> Store:
        """Open the store; reading never creates one."""
        from step0_wandb.store import Store

        return Store.open(self.loaded.store, mode="write" if write else "read")

    def clock(self) -> datetime:
        """Return the time now, in UTC."""
        return now()


_SHARED: dict[str, tuple[Any, Any]] = {
    "settings_file": (
        Annotated[
            Path | None,
            typer.Option(
                "--settings",
                metavar="FILE",
                help="Settings file; default: step0.toml here or in a parent directory.",
            ),
        ],
        None,
    ),
    "store_file": (
        Annotated[
            Path | None,
            typer.Option(
                "--store", metavar="FILE", help="Store file; default: step0.db next to the settings file."
            ),
        ],
        None,
    ),
    "as_json": (Annotated[bool, typer.Option("--json", help="Print one JSON document.")], False),
    "dry_run": (
        Annotated[
            bool, typer.Option("--dry-run", help="Print what would be sent or written, without doing it.")
        ],
        False,
    ),
    "fail_on": (
        Annotated[FailOn | None, typer.Option("--fail-on", help="Exit with 3 at this verdict or worse.")],
        None,
    ),
    "quiet": (
        Annotated[
            bool, typer.Option("--quiet", "-q", help="Print nothing unless something is new or wrong.")
        ],
        False,
    ),
    "verbose": (Annotated[bool, typer.Option("--verbose", "-v", help="Print more, and tracebacks.")], False),
    "log_format": (
        Annotated[
            LogFormat,
            typer.Option("--log-format", help="Format of the lines on stderr; json for log collectors."),
        ],
        LogFormat.text,
    ),
}


SHARED_NAMES: dict[str, bool] = {
    name: not isinstance(default, bool)
    for annotation, default in _SHARED.values()
    for option in annotation.__metadata__
    # Typer takes the first name of an annotated option for its default.
    for name in (option.default, *option.param_decls)
}
"""The names of the shared options, and whether each takes a value."""


class PlainCommand(TyperCommand):
    """A command whose help names its arguments without their Python types."""

    def __init__(self, *words: Any, **values: Any) -> None:
        super().__init__(*words, **values)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign] # noqa: ARG005 - typer names it


def command(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Register `function` as a command: its own parameters, then the shared options it asks for.

    The function's first parameter is the `Session`; its ``shared`` attribute names the shared options
    that make no sense for it (``without``).
    """
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())[1:]
    without = getattr(function, "without", ())
    shared = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for option, (annotation, default) in _SHARED.items()
        if option not in without
    ]

    def run(**values: Any) -> None:
        chosen = {option: values.pop(option) for option in _SHARED if option in values}
        session = Session(**chosen)
        log.configure(as_json=session.log_format is LogFormat.json, clock=session.clock)
        function(session, **values)

    parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *shared]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = function.__doc__
    app.command(name, cls=PlainCommand)(run)


def without(*options: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Leave shared options away from a command that has no use for them."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        function.without = options  # type: ignore[attr-defined]
        return function

    return mark
