"""The state that travels: what another machine needs to go on, as one small JSON document.

It lies in W&B as an artifact of the sync's own run. A sync with an empty store starts from it, and a
single run is judged by its ranges where there is no store. Whoever may write to the project can change
it, so what is read back is taken apart field by field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (  # noqa: TC002 - pydantic reads the annotations
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
)

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.records import SetupRange
from step0_wandb.store import Accept, Label, Mute, Retraction
from step0_wandb.store.outbox import AlertLevel, Channel  # noqa: TC001 - as above
from step0_wandb.store.people import BY_TAG
from step0_wandb.text.json_documents import document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.records import Json, JudgedRun
    from step0_wandb.store import Store

VERSION = 1
"""Of the document; a reader refuses a later one and takes what it knows of an equal one."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_DIGITS = 12
"""Of a float in a fingerprint: the last bits differ between machines that fit the same runs."""


@dataclass(frozen=True, slots=True)
class Share:
    """What of a store concerns one project that a sync writes to.

    Attributes
    ----------
    project : str
        ``entity/project``.
    others : frozenset of str
        The other projects that the sync writes to.
    takes_rest : bool
        Whether runs of no such project (from directories) count as this one's: true of the first.
    everything : bool
        Whether runs of all sources are shown here: true of a report for several projects.
    """

    project: str
    others: frozenset[str] = frozenset()
    takes_rest: bool = False
    everything: bool = False

    def has(self, key: str) -> bool:
        """Return whether a run, by its key, belongs to the project."""
        return self.takes(key.rpartition("/")[0])

    def takes(self, home: str) -> bool:
        """Return whether the runs of a project belong to this one."""
        return self.everything or home == self.project or (self.takes_rest and home not in self.others)


@dataclass(frozen=True, slots=True)
class State:
    """What a store knows of the runs of one project beyond what W&B keeps of them.

    Attributes
    ----------
    project : str
        ``entity/project``.
    written_at : datetime
        In UTC.
    runs : int
        Runs that were judged.
    counts : mapping of str to int
        Runs by verdict.
    labels : tuple of Label
        From the shell; tags are read from the runs anyway.
    retractions : tuple of Retraction
        Labels and mutes that were taken back, which no other store is to bring back.
    alerted : tuple of dict
        As `Store.alerted` gives them.
    report : str or None
        Id of the project's report.
    written : mapping of str to str
        Fingerprints of what was last written beside this state, by part.
    """

    project: str
    written_at: datetime
    runs: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[SetupRange, ...] = ()
    labels: tuple[Label, ...] = ()
    accepts: tuple[Accept, ...] = ()
    mutes: tuple[Mute, ...] = ()
    retractions: tuple[Retraction, ...] = ()
    alerted: tuple[dict[str, Json], ...] = ()
    report: str | None = None
    written: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Json]:
        """Return the state as plain JSON."""
        return document("state", **{item.name: getattr(self, item.name) for item in fields(self)})

    def fingerprint(self) -> str:
        """Return what is the same for every state that says the same, whenever it was written."""
        return fingerprint({**self.document(), "written_at": None, "written": None})


def export_state(store: Store, share: Share, runs: Sequence[JudgedRun], *, now: datetime) -> State:
    """Return what of a store is to travel with one project.

    Parameters
    ----------
    runs : sequence of JudgedRun
        Those of the share.
    """
    setups = {run.setup for run in runs if run.setup}
    known = {item.setup for item in store.verdicts.ranges()}

    def concerns(name: str) -> bool:
        """Return whether a run or a setup of that name belongs to the share."""
        return name in setups if name in known else share.has(name)

    counts: dict[str, int] = {}
    for run in runs:
        counts[run.verdict] = counts.get(run.verdict, 0) + 1
    return State(
        project=share.project,
        written_at=now,
        runs=len(runs),
        counts=counts,
        ranges=tuple(item for item in store.verdicts.ranges() if item.setup in setups),
        labels=tuple(
            label for run, label in store.people.labels().items() if share.has(run) and label.who != BY_TAG
        ),
        accepts=tuple(accept for setup, accept in store.people.accepts().items() if concerns(setup)),
        mutes=tuple(mute for setup, mute in store.people.mutes().items() if concerns(setup)),
        retractions=tuple(word for word in store.people.retractions() if concerns(word.name)),
        alerted=tuple(item for item in store.outbox.sent() if concerns(str(item["subject"]))),
    )


def import_state(store: Store, state: State, *, now: datetime) -> None:
    """Take over what another store knows; of several words on the same thing the latest stays.

    Taking something back is a word too. So the stores of several machines that sync one project come to
    know the same, whichever of them writes last.
    """
    labels, accepts, mutes = store.people.labels(), store.people.accepts(), store.people.mutes()
    with store.transaction():
        for word in state.retractions:
            store.people.retract(word)
        retracted = {(word.what, word.name): word.at for word in store.people.retractions()}
        for label in state.labels:
            known = labels.get(label.run)
            is_later = known is None or known.who == BY_TAG or known.at < label.at
            if is_later and label.at > retracted.get(("label", label.run), _NEVER):
                store.people.save(label)
        for accept in state.accepts:
            is_later = accept.setup not in accepts or accepts[accept.setup].at < accept.at
            if is_later and accept.at > retracted.get(("accept", accept.setup), _NEVER):
                store.people.save(accept)
        for mute in state.mutes:
            is_later = mute.setup not in mutes or mutes[mute.setup].at < mute.at
            if is_later and mute.until > now and mute.at > retracted.get(("mute", mute.setup), _NEVER):
                store.people.save(mute)
        store.outbox.restore(state.alerted)


class DamagedStateError(SourceError):
    """The document is none of ours, or does not hold what it should."""


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
        raise DamagedStateError(f"the state is no JSON: {error}") from None
    name, _, version = str(found.get("schema") if isinstance(found, dict) else "").rpartition("/")
    if name != "step0/state" or not version.isdigit():
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
        where = ".".join(str(part) for part in first["loc"])
        raise DamagedStateError(f"the state is damaged: {where}: {first['msg']}") from None


def fingerprint(value: Any) -> str:
    """Return a short text that is the same for equal plain JSON, floats to 12 digits."""
    text = json.dumps(_rounded(value), sort_keys=True, ensure_ascii=True)
    return blake2b(text.encode("ascii"), digest_size=16).hexdigest()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


Record = TypeVar("Record", SetupRange, Label, Accept, Mute, Retraction)


def _in_utc(record: Record) -> Record:
    """Return a record with its times in UTC; a time without a zone says nothing."""
    values: dict[str, Any] = {item.name: getattr(record, item.name) for item in fields(record)}
    for name, value in values.items():
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError(f"{name} has no time zone")
            values[name] = value.astimezone(UTC)
    return type(record)(**values)


class _Alerted(BaseModel):
    channel: Channel
    subject: str
    level: AlertLevel
    at: AwareDatetime


class _Document(BaseModel):
    """The records themselves say which fields there are; what a later program adds is left aside."""

    model_config = ConfigDict(extra="ignore")

    project: str
    written_at: AwareDatetime
    runs: int = Field(ge=0)
    counts: dict[str, int] = Field(default_factory=dict)
    ranges: list[Annotated[SetupRange, AfterValidator(_in_utc)]] = Field(default_factory=list)
    labels: list[Annotated[Label, AfterValidator(_in_utc)]] = Field(default_factory=list)
    accepts: list[Annotated[Accept, AfterValidator(_in_utc)]] = Field(default_factory=list)
    mutes: list[Annotated[Mute, AfterValidator(_in_utc)]] = Field(default_factory=list)
    retractions: list[Annotated[Retraction, AfterValidator(_in_utc)]] = Field(default_factory=list)
    alerted: list[_Alerted] = Field(default_factory=list)
    report: str | None = None
    written: dict[str, str] = Field(default_factory=dict)

    def state(self) -> State:
        return State(
            project=self.project,
            written_at=self.written_at.astimezone(UTC),
            runs=self.runs,
            counts=self.counts,
            ranges=tuple(self.ranges),
            labels=tuple(self.labels),
            accepts=tuple(self.accepts),
            mutes=tuple(self.mutes),
            retractions=tuple(self.retractions),
            alerted=tuple({**dict(part), "at": part.at.astimezone(UTC).isoformat()} for part in self.alerted),
            report=self.report,
            written=self.written,
        )
