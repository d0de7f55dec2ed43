"""The shared state read from its document, which everyone who may write to the project can change.

Every field is checked: texts and lists are bounded, times lie where runs can, and numbers are such that
SQLite holds them. Whatever fails makes the document damaged, never the sync.
"""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
)

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.publish.wandb.state import (
    MOST_ALERTED,
    MOST_PEOPLE,
    MOST_RANGES,
    MOST_RETRACTIONS,
    VERSION,
    Claim,
    State,
)
from step0_wandb.records import SetupRange
from step0_wandb.store import Accept, Label, Mute, Retraction
from step0_wandb.store.outbox import AlertLevel  # noqa: TC001 - pydantic reads it
from step0_wandb.text.formatting import clean, shorten

_NAME, _TEXT = 2_000, 2_000
"""The longest name that is read, and to how much other texts are shortened."""
_EARLIEST, _LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_MOST: Final = 1 << 53


class DamagedStateError(SourceError):
    """The document is not one of ours, or does not hold what it should."""


class NewerStateError(UsageError):
    """The document was written by a later version of this program."""


def read_state(text: str | bytes) -> State:
    """Return the state that a document holds.

    Raises
    ------
    NewerStateError
        A later version has written it.
    DamagedStateError
        It cannot be read.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedStateError(f"the state is not JSON: {shorten(clean(str(error)), 120)}") from None
    name, _, version = str(found.get("schema") if isinstance(found, dict) else "").rpartition("/")
    if name != "step0/state" or not (version.isascii() and version.isdecimal() and len(version) < 7):  # noqa: PLR2004
        raise DamagedStateError("the state has another form than step0-wandb gives it")
    if int(version) > VERSION:
        raise NewerStateError(
            f"the state was written by a later step0-wandb (version {int(version)}, known is {VERSION})",
            "Upgrade: pip install -U step0-wandb.",
        )
    try:
        return _Document.model_validate(found).state()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = shorten(clean(".".join(str(part) for part in first["loc"])), 80)
        raise DamagedStateError(f"the state is damaged: {where}: {first['msg']}") from None
    except RecursionError:
        raise DamagedStateError("the state is nested too deeply") from None


Record = TypeVar("Record", SetupRange, Label, Accept, Mute, Retraction, Claim)


def _checked(record: Record) -> Record:
    """Return a record with its times in UTC and its texts bounded.

    Raises
    ------
    ValueError
        A time has no zone, or lies where no run can; an integer is none that SQLite holds.
    """
    values: dict[str, Any] = {
        item.name: _checked_value(getattr(record, item.name)) for item in fields(record)
    }
    return type(record)(**values)


def _checked_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return _in_utc(value)
    if isinstance(value, str):
        return shorten(_encodable(value), _TEXT)
    if isinstance(value, int) and abs(value) > _MOST:
        raise ValueError("a number is too large")
    return value


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which neither SQLite nor UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        moment = datetime.min.replace(tzinfo=UTC)
    if not _EARLIEST <= moment <= _LATEST:
        raise ValueError("a time lies outside the years 2000 to 2200")
    return moment


_Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
_Short = Annotated[str, Field(max_length=_NAME), AfterValidator(_encodable)]
_Amount = Annotated[int, Field(ge=0, le=_MOST)]


class _Alerted(BaseModel):
    channel: Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9_-]+$")]
    subject: _Short
    level: AlertLevel
    at: _Moment


class _Document(BaseModel):
    """The records themselves say which fields there are; what a later program adds is ignored."""

    model_config = ConfigDict(extra="ignore")

    project: _Short
    written_at: _Moment
    runs: _Amount
    counts: Annotated[dict[_Short, _Amount], Field(max_length=100)] = Field(default_factory=dict)
    ranges: list[Annotated[SetupRange, AfterValidator(_checked)]] = Field(
        default_factory=list, max_length=MOST_RANGES
    )
    labels: list[Annotated[Label, AfterValidator(_checked)]] = Field(
        default_factory=list, max_length=MOST_PEOPLE
    )
    accepts: list[Annotated[Accept, AfterValidator(_checked)]] = Field(
        default_factory=list, max_length=MOST_PEOPLE
    )
    mutes: list[Annotated[Mute, AfterValidator(_checked)]] = Field(
        default_factory=list, max_length=MOST_PEOPLE
    )
    retractions: list[Annotated[Retraction, AfterValidator(_checked)]] = Field(
        default_factory=list, max_length=MOST_RETRACTIONS
    )
    alerted: list[_Alerted] = Field(default_factory=list, max_length=MOST_ALERTED)
    report: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9+/=_-]*$")] | None = None
    written: Annotated[dict[_Short, _Short], Field(max_length=10)] = Field(default_factory=dict)
    writer: _Short = ""
    token: _Short = ""
    claims: list[Annotated[Claim, AfterValidator(_checked)]] = Field(
        default_factory=list, max_length=MOST_RANGES
    )

    def state(self) -> State:
        return State(
            project=self.project,
            written_at=self.written_at,
            runs=self.runs,
            counts=self.counts,
            ranges=tuple(self.ranges),
            labels=tuple(self.labels),
            accepts=tuple(self.accepts),
            mutes=tuple(self.mutes),
            retractions=tuple(self.retractions),
            alerted=tuple({**dict(part), "at": part.at.isoformat()} for part in self.alerted),
            report=self.report,
            written=self.written,
            writer=self.writer,
            token=self.token,
            claims=tuple(self.claims),
        )
