"""What a sync writes back to W&B: tables, a report, and the state that travels.

Each project that is read from a server gets the state; tables and a report go where ``[report] wandb``
says. What was written is remembered by its fingerprint, here and in the state, so that nothing is
written when nothing changed, also by a sync without a store of its own. Several stores may sync one
project: whoever writes reads what is there right before, and adds to it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING

from step0_wandb.errors import Step0Error
from step0_wandb.publish.wandb.state import DamagedStateError, fingerprint, import_state, read_state
from step0_wandb.records import Problem, SetupRange
from step0_wandb.text.formatting import count, span_text
from step0_wandb.publish.wandb.target import Content, Memory, Published, plan, shelf_of, write

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from step0_wandb.wandb_api.context import Context
    from step0_wandb.store import Label, Store
    from step0_wandb.wandb_api.address import RemoteAddress
    from step0_wandb.publish.wandb.target import Target, Written

_COLUMNS = [item.name for item in fields(SetupRange)]
DONE = "wandb:done"
"""The note that all is written of what the store says; None where it is not."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The projects that may be written to, and what kept others from it."""

    targets: tuple[Target, ...]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Travelling:
    """What to judge a run by where there is no store.

    Attributes
    ----------
    ranges : DataFrame
        In the form of `fit_ranges`, to be used as it stands.
    labels : mapping of str to Label
        By run key.
    said : str
        Where it comes from: ``ranges: my-team/rl, 14 min old, 212 runs``.
    """

    ranges: pd.DataFrame
    labels: Mapping[str, Label]
    said: str


def restore(
    store: Store, wanted: Sequence[Target], context: Context, *, unread: Collection[str] = ()
) -> Ready:
    """Take over what other syncs left in the projects, before anything is judged or told.

    So a store that is new, on a machine without a disk of its own, goes on where the last one stopped; and
    what another store has told since is not told again. A sync without news does not ask.

    Parameters
    ----------
    unread : collection of str
        Sources that could not be read this time; their projects are left alone.
    """
    ready: list[Target] = []
    problems: list[Problem] = []
    for target in wanted:
        if target.texts and set(target.texts) <= set(unread):
            continue
        try:
            if target.travels and (store.notes.stale or not Memory.has_met(store, target)):
                _meet(store, target, context)
        except DamagedStateError as error:
            problems.append(Problem(str(target), f"{error.message}; it is written anew"))
            Memory().save(store, target)
        except Step0Error as error:
            problems.append(Problem(str(target), f"nothing is written there: {error.message}"))
            continue
        ready.append(target)
    return Ready(tuple(ready), tuple(problems))


def _meet(store: Store, target: Target, context: Context) -> bool:
    """Take over the state of a project, and remember what was written there; return whether that is news."""
    known = Memory.of(store, target)
    found = shelf_of(target.address, context).state()
    state = read_state(found) if found is not None else None
    mark = state.fingerprint() if state else None
    if mark == known.marks.get("state"):
        known.save(store, target)
        return False
    with store.transaction():
        if state is None:  # somebody has deleted it
            marks = {part: kept for part, kept in known.marks.items() if part != "state"}
            Memory(marks, known.report).save(store, target)
        else:
            import_state(store, state, now=context.clock())
            marks = {**known.marks, **state.written, "state": str(mark)}
            Memory(marks, state.report or known.report).save(store, target)
    return True


def outdate(store: Store) -> None:
    """Note that W&B does not show what the store says; called in the transaction that changes it."""
    store.notes.put(DONE, None)


def publish(store: Store, ready: Ready, context: Context, *, dry_run: bool, anew: bool = False) -> Published:
    """Write what changed since it was written last.

    Parameters
    ----------
    dry_run : bool
        Say what would be written, and write nothing.
    anew : bool
        Write everything, changed or not.
    """
    places = [f"{target} {target.shows} {target.travels}" for target in ready.targets]
    done = fingerprint([places, store.outbox.sent()])
    if not ready.targets or (store.notes.get(DONE) == done and not anew):
        return Published(problems=ready.problems)
    runs = store.verdicts.runs()
    written: list[Written] = []
    problems = list(ready.problems)
    for target in ready.targets:
        content = Content.of(store, target, runs, now=context.clock())
        try:
            if dry_run:
                result = plan(content, Memory.of(store, target), anew=anew)
            else:
                result = _write(store, content, context, anew=anew)
        except Step0Error as error:
            problems.append(Problem(str(target), f"not written: {error.message}"))
            continue
        written += result.written
        problems += result.problems
    if not problems:
        store.notes.put(DONE, done)
    return Published(tuple(written), tuple(problems))


def _write(store: Store, content: Content, context: Context, *, anew: bool) -> Published:
    """Write the content of one project, with what another store has left there in the meantime."""
    target = content.target
    if target.travels and content.news(Memory.of(store, target), anew=anew):
        try:
            if _meet(store, target, context):
                content = Content.of(store, target, store.verdicts.runs(), now=context.clock())
        except DamagedStateError:
            pass  # `restore` has told, or the next sync will; it is written anew, and nothing can be lost of it
    return write(store, content, Memory.of(store, target), context, anew=anew)


def travelling_ranges(project: RemoteAddress, context: Context) -> Travelling | None:
    """Return the ranges that the last sync of a project left there; None where none has.

    Raises
    ------
    SourceError, CredentialsError
        The project cannot be reached, or the state cannot be read.
    UsageError
        A later version of this program has written the state.
    """
    import pandas as pd

    found = shelf_of(project, context).state()
    if found is None:
        return None
    state = read_state(found)
    ranges = pd.DataFrame([asdict(item) for item in state.ranges], columns=_COLUMNS)
    age = span_text(max(context.clock() - state.written_at, timedelta()))
    return Travelling(
        ranges.set_index("setup"),
        {label.run: label for label in state.labels},
        f"ranges: {state.project}, {age} old, {count(state.runs, 'run')}",
    )
