"""What a sync writes back to W&B, and what it takes over from the syncs of other machines.

Each project that is read from a server gets the shared state; tables and a report go where ``[report]
wandb`` says. What was written is remembered by its fingerprint, here and in the state, so that nothing is
written when nothing changed. W&B has no compare-and-set: who writes reads what is there before and after,
merges it, and writes again while the two differ.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from step0_wandb.errors import Step0Error
from step0_wandb.publish.wandb.claims import Claims
from step0_wandb.publish.wandb.project import ProjectSync, Published, remote_project
from step0_wandb.publish.wandb.state import fingerprint
from step0_wandb.publish.wandb.state_document import DamagedStateError, read_state
from step0_wandb.records import Problem, SetupRange
from step0_wandb.text.formatting import count, span_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from step0_wandb.publish.wandb.target import Target
    from step0_wandb.store import Label, Store, Subject
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.wandb_api.context import Context

_COLUMNS: Final = [item.name for item in fields(SetupRange)]
_DONE: Final = "wandb:done"
"""The note that all is written of what the store says; None where it is not."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The projects that may be written to, and what kept others from it."""

    projects: tuple[ProjectSync, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedRanges:
    """What to judge a run by where there is no store.

    Attributes
    ----------
    ranges : DataFrame
        In the form of `fit_ranges`, to be used as it stands.
    labels : mapping of str to Label
        By run key.
    origin : str
        Where it comes from: ``ranges: my-team/rl, 14 min old, 212 runs``.
    """

    ranges: pd.DataFrame
    labels: Mapping[str, Label]
    origin: str


def restore(
    store: Store, targets: Sequence[Target], context: Context, *, unread: Collection[str] = ()
) -> Ready:
    """Take over what other syncs left in the projects, before anything is judged or sent.

    So a new store, on a machine without a disk of its own, goes on where the last one stopped, and what
    another store has alerted since is not sent again. A sync without news does not ask.

    Parameters
    ----------
    unread : collection of str
        Sources that could not be read this time; their projects are left alone.
    """
    ready: list[ProjectSync] = []
    problems: list[Problem] = []
    has_news = store.notes.stale or bool(store.outbox.unsent())
    for target in targets:
        if target.texts and set(target.texts) <= set(unread):
            continue
        project = ProjectSync(store, target, context)
        try:
            if target.shares and (has_news or not project.is_known):
                project.exchange()
        except DamagedStateError as error:
            problems.append(Problem(str(target), f"{error.message}; it is written again"))
        except Step0Error as error:
            problems.append(Problem(str(target), f"nothing is written there: {error.message}"))
            continue
        ready.append(project)
    return Ready(tuple(ready), tuple(problems))


def mark_unpublished(store: Store) -> None:
    """Note that W&B does not show what the store says; called in the transaction that changes it."""
    store.notes.put(_DONE, None)


def publish(store: Store, ready: Ready, *, dry_run: bool, force: bool = False) -> Published:
    """Write what changed since it was written last.

    Parameters
    ----------
    dry_run : bool
        Return what would be written, and write nothing.
    force : bool
        Write everything, changed or not.
    """
    targets = [project.target for project in ready.projects]
    done = fingerprint([[f"{one} {one.shows} {one.shares}" for one in targets], store.outbox.sent()])
    if not targets or (store.notes.get(_DONE) == done and not force):
        return Published(problems=ready.problems)
    parts = [project.publish(dry_run=dry_run, force=force) for project in ready.projects]
    problems = (*ready.problems, *(problem for part in parts for problem in part.problems))
    if not problems and not dry_run:
        store.notes.put(_DONE, done)
    return Published(tuple(item for part in parts for item in part.written), problems)


def claim(ready: Ready, channel: str, subjects: Mapping[Subject, str]) -> set[Subject]:
    """Return which of the subjects this machine is to send, so that no two machines send the same.

    Parameters
    ----------
    channel : str
        One that does not drop repeats itself.
    subjects : mapping of Subject to str
        With the ``entity/project`` of each.
    """
    sharing = [project for project in ready.projects if project.target.shares]
    by_project: dict[ProjectSync, set[Subject]] = {}
    mine: set[Subject] = set()
    for subject, home in subjects.items():
        own = [project for project in sharing if str(project.target) == home]
        within = own or [project for project in sharing if project.target.scope.has_project(home)]
        if within:
            by_project.setdefault(within[0], set()).add(subject)
        else:
            mine.add(subject)
    for project, some in by_project.items():
        mine |= Claims(project, channel).win(some)
    return mine


def shared_ranges(project: RemoteAddress, context: Context) -> SharedRanges | None:
    """Return the ranges that the last sync of a project left there; None where none has.

    Raises
    ------
    SourceError, CredentialsError
        The project cannot be reached, or the state cannot be read.
    UsageError
        A later version of this program has written the state.
    """
    import pandas as pd

    remote = remote_project(project, context)
    versions = remote.versions()
    if not versions:
        return None
    state = read_state(remote.document(versions[0]))
    ranges = pd.DataFrame([asdict(item) for item in state.ranges], columns=_COLUMNS)
    age = span_text(max(context.clock() - state.written_at, timedelta()))
    return SharedRanges(
        ranges.set_index("setup"),
        {label.run: label for label in state.labels},
        f"ranges: {state.project}, {age} old, {count(state.runs, 'run')}",
    )
