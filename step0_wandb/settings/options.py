"""Every setting: its name, its default, what it may be, and a sentence about it."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from step0_wandb.records import ALPHA, BOUND_DEFAULTS, BROKEN_RATIO
from step0_wandb.text.durations import duration, duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

Duration = Annotated[timedelta, BeforeValidator(duration), PlainSerializer(duration_text, when_used="json")]


def _variable_name(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(
            "it must be the name of an environment variable; the URL itself is a secret and stays out of files"
        )
    return value


def _none_if_empty(value: object) -> object:
    """Return None for an empty text or list: TOML has no null."""
    return None if value in ("", [], ()) else value


OptionalText = Annotated[str | None, BeforeValidator(_none_if_empty)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RangesSettings(_Table):
    """How ranges are fitted and runs are judged by them."""

    alpha: float = Field(
        default=ALPHA, gt=0, lt=0.5, description="Share of healthy runs that may fall outside their range."
    )
    broken_ratio: float = Field(
        default=BROKEN_RATIO,
        gt=1,
        description="A gap above its range is broken from this many times the center, suspect below.",
    )
    observables_alpha: float = Field(
        default=ALPHA,
        gt=0,
        lt=0.5,
        description="Share of healthy runs that entropy, gradient norm and all other learned numbers together may flag.",
    )


def _bound(statistic: str, description: str) -> Any:
    return Field(default=BOUND_DEFAULTS[statistic], gt=0, description=description)


class BoundsSettings(_Table):
    """Values from which a run is broken, whatever its setup shows."""

    mean_abs: float = _bound("mean-abs", "Mean absolute log-prob difference, in nats.")
    k3: float = _bound("k3", "KL estimate between trainer and engine; suspect from a fifth of it.")
    signed_mean: float = _bound("signed-mean", "Absolute value of a signed mean log-prob difference.")
    probability: float = _bound("probability", "Mean absolute probability difference.")
    ratio: float = _bound("ratio", "Multiplicative probability error above 1.")
    log_perplexity: float = _bound("log-perplexity", "Difference of log-perplexities.")
    pearson: float = _bound("pearson", "Correlation of trainer and engine probabilities; broken below.")
    chi2: float = _bound("chi2", "Chi-square a token.")
    ess: float = _bound("ess", "Effective sample size; broken below.")

    def by_statistic(self) -> dict[str, float]:
        """Return the bounds by the names of `records.BOUND_DEFAULTS`."""
        return {name.replace("_", "-"): bound for name, bound in self.model_dump().items()}


class SetupSettings(_Table):
    """Changes to the config keys that split a profile's runs into setups; one table per profile."""

    add: tuple[str, ...] = Field(default=(), description="More config keys that split setups.")
    drop: tuple[str, ...] = Field(default=(), description="Keys of the profile that should not split setups.")
    keys: Annotated[tuple[str, ...] | None, BeforeValidator(_none_if_empty)] = Field(
        default=None,
        description="Config keys to use instead of the profile's list; empty: the profile's list.",
    )


class ModelSettings(_Table):
    """How the model is found in the path of a checkpoint."""

    generic: tuple[str, ...] = Field(
        default=(), description="More parts of paths that name no model, such as a team's folder."
    )


class AlertsSettings(_Table):
    """Which verdicts raise an alert, and where else to send it."""

    levels: tuple[Literal["broken", "suspect"], ...] = Field(
        default=("broken", "suspect"),
        description="Verdicts to alert on; suspect runs only if above their range.",
    )
    since: Duration = Field(
        default=timedelta(hours=24),
        description="No alerts for runs older than this that are no longer running.",
    )
    digest: int = Field(
        default=5, ge=1, description="More new alerts than this in one sync are combined into one."
    )
    wandb: bool = Field(default=True, description="Send alerts to W&B too, about runs that are there.")
    webhook_env: Annotated[str | None, BeforeValidator(_variable_name), BeforeValidator(_none_if_empty)] = (
        Field(
            default=None,
            description="Name of an environment variable that holds a URL for Slack-style JSON; empty: none.",
        )
    )


class ReportSettings(_Table):
    """Where a sync publishes: an HTML page, and tables and a report in W&B."""

    html: OptionalText = Field(default=None, description="Path of the HTML page; empty: no page.")
    wandb: OptionalText = Field(
        default=None,
        description='"same": each project its own report; or one "entity/project"; empty: none.',
    )
    home: OptionalText = Field(
        default=None,
        description=(
            'One entity/project for the run step0-sync, the shared state and, with wandb = "same", the report '
            "of all sources; empty: each project its own."
        ),
    )
    state: bool = Field(
        default=True,
        description="Keep ranges, labels and what was alerted in W&B too, for machines without the store.",
    )


class ProfilesSettings(_Table):
    """More frameworks than the built-in ones."""

    paths: tuple[str, ...] = Field(default=(), description="Profiles: TOML files, or directories of them.")


class ChecksSettings(_Table):
    """What is checked beyond the first optimizer step."""

    every_rollout: bool = Field(
        default=False,
        description="Check ppo_kl and clip_frac at the first step of every rollout, not only of the first.",
    )


class ServerSettings(_Table):
    """How long a sync waits for a W&B server, and where that may keep files."""

    give_up: Duration = Field(
        default=timedelta(seconds=120), description="How long to retry a failing request."
    )
    file_hosts: tuple[str, ...] = Field(
        default=(),
        description="More hosts that its files may be read from, next to its own domain and the clouds' object stores.",
    )


class Settings(_Table):
    """Every setting; the defaults work without any file."""

    sources: tuple[str, ...] = Field(
        default=(), description="What `sync` reads: entity/project, or directories of W&B runs."
    )
    store: OptionalText = Field(
        default=None,
        description="The SQLite file that holds all results; empty: step0.db next to this file.",
    )
    ranges: RangesSettings = RangesSettings()
    bounds: BoundsSettings = BoundsSettings()
    setup: dict[str, SetupSettings] = Field(default_factory=dict)
    model: ModelSettings = ModelSettings()
    checks: ChecksSettings = ChecksSettings()
    alerts: AlertsSettings = AlertsSettings()
    report: ReportSettings = ReportSettings()
    profiles: ProfilesSettings = ProfilesSettings()
    server: ServerSettings = ServerSettings()


HEADING = """\
# Settings of step0-wandb. Lines with a bare # show the defaults; remove the # to change one.
# Paths are relative to this file. `step0-wandb settings` shows the values in use and where they come from.
"""
EXAMPLE_PROFILE = "miles"


def commented_file() -> str:
    """Return a settings file with every setting in it, each commented out at its default.

    Sentences follow ``# ``, settings follow a bare ``#``. Without the bare ``#`` the file sets the defaults.
    """
    return "\n".join([HEADING, *_own_lines(Settings), *_tables()]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        if name == "setup":
            yield from _table_lines(f"#[setup.{EXAMPLE_PROFILE}]", SetupSettings)
        elif isinstance(field.default, _Table):
            yield from _table_lines(f"[{name}]", type(field.default))


def _table_lines(heading: str, table: type[_Table]) -> Iterator[str]:
    yield f"# {(table.__doc__ or '').strip()}"
    yield heading
    yield from _own_lines(table)


def _own_lines(table: type[_Table]) -> Iterator[str]:
    """Yield the lines of a table's plain values, then a blank one."""
    defaults = table().model_dump(mode="json")
    for name, field in table.model_fields.items():
        if isinstance(defaults[name], dict):
            continue
        yield f"# {field.description}"
        yield f"#{name} = {_toml(defaults[name], field.annotation)}"
    yield ""


def _toml(value: Any, annotation: object) -> str:
    """Return a default as TOML; None becomes an empty text or list."""
    if value is None:
        value = [] if "tuple" in str(annotation) else ""
    return json.dumps(value, ensure_ascii=False)
