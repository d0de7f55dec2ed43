"""The framework of one run: why it is read by this profile, and a first profile where none fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from step0_wandb.app.later_rollouts import paths_of
from step0_wandb.app.run_selector import find_run
from step0_wandb.app.sync import profiles_of
from step0_wandb.errors import NoStep0Error, UsageError
from step0_wandb.profiles.choice import explain_choice
from step0_wandb.profiles.draft import draft_profile
from step0_wandb.sources.base import SourceMemory
from step0_wandb.step0.every_row import MOST_ROWS, EveryRow
from step0_wandb.step0.finder import Step0Finder
from step0_wandb.step0.policies import split_policies
from step0_wandb.store import Store, store_exists
from step0_wandb.text.paths import is_there, user_path
from step0_wandb.wandb_api.address import RemoteAddress, parse_address, safe_text

if TYPE_CHECKING:
    from step0_wandb.app.sync import Job
    from step0_wandb.profiles.choice import Choice
    from step0_wandb.profiles.draft import ProfileDraft
    from step0_wandb.records import RunRecord
    from step0_wandb.wandb_api.address import LocalAddress


def choice_of(text: str, job: Job) -> tuple[RunRecord, Choice]:
    """Return a run and why it is given to its profile.

    Raises
    ------
    UsageError, NoStep0Error, SourceError, CredentialsError
        As `read_first_rows`.
    """
    finder = Step0Finder(profiles_of(job.loaded))
    record = _one_policy(read_first_rows(text, job), finder)
    names = {name for row in record.rows for name in row.values}
    metrics = (row.values.keys() & finder.metrics for row in record.rows)
    opening = next((found for found in metrics if found), frozenset[str]())
    return record, explain_choice(finder.profiles, opening, names, record.config)


def draft_of(name: str, text: str, job: Job) -> ProfileDraft:
    """Return a first profile, guessed from the names and the config of a run.

    Raises
    ------
    UsageError
        No metric of the run looks like one that a profile needs; and as `read_first_rows`.
    NoStep0Error, SourceError, CredentialsError
        As `read_first_rows`.
    """
    record = read_first_rows(text, job)
    return draft_profile(name, record.run_id, record.rows, record.config)


def read_first_rows(text: str, job: Job) -> RunRecord:
    """Return a run with its first rows, whatever they hold.

    Raises
    ------
    UsageError
        The text names no run, or several.
    NoStep0Error
        The run has logged nothing yet.
    SourceError, CredentialsError
        It cannot be read.
    """
    text = _source_of(safe_text(text), job)
    address = parse_address(text)
    record = (
        _from_server(address, job) if isinstance(address, RemoteAddress) else _from_disk(text, address, job)
    )
    if not any(row.values for row in record.rows):
        raise NoStep0Error(
            f"{text} has logged no numbers yet", "Its framework is known by the names of its metrics."
        )
    return record


def _source_of(text: str, job: Job) -> str:
    """Return the run directory or address of a run that the store knows by its id or name, else the text."""
    is_bare = "/" not in text and ":" not in text and not is_there(user_path(text))
    if not is_bare or not store_exists(job.loaded.store):
        return text
    with Store.open(job.loaded.store, mode="read") as store:
        key = find_run(store, text).partition("#")[0]
        path = paths_of(store).get(key)
    return f"file:{path}" if path else f"wandb:{key}"


def _from_server(address: RemoteAddress, job: Job) -> RunRecord:
    from step0_wandb.sources.server.first_rows import first_rows

    if address.run_id is None:
        raise UsageError(f"{address} is a project", "Name one run of it: entity/project/run_id.")
    return first_rows(job.context().client(), address, MOST_ROWS)


def _from_disk(text: str, address: LocalAddress, job: Job) -> RunRecord:
    from step0_wandb.sources.offline.source import OfflineSource

    source = OfflineSource(address.path, EveryRow(profiles_of(job.loaded)), clock=job.clock)
    records = [reading.record for reading in source.readings(SourceMemory())]
    if not records:
        raise NoStep0Error(
            f"{text} holds no run yet", "Its file is empty, or was just begun: try again soon."
        )
    if len({record.key for record in records}) > 1:
        raise UsageError(f"{text} holds {len(records)} runs", "Name the directory of one run.")
    return records[-1]


def _one_policy(record: RunRecord, finder: Step0Finder) -> RunRecord:
    """Return a run as it is; of one that trains several policies the first, under plain names."""
    first, *_ = split_policies(record, finder)
    return first if first.policy else replace(record, policy=None)
