"""One project that a sync writes to: what of the store concerns it, and what of that is news there."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from step0_wandb.store.kept import load_weight_checks
from step0_wandb.errors import UsageError
from step0_wandb.plots.picture import save_gaps
from step0_wandb.publish.wandb import process
from step0_wandb.publish.wandb.report import DESCRIPTION, MARK, TITLE, as_json, build_report
from step0_wandb.publish.wandb.state import Share, export_state, fingerprint
from step0_wandb.publish.wandb.tables import count_metrics, runs_table, setups_table
from step0_wandb.records import Problem
from step0_wandb.wandb_api.address import RemoteAddress, parse_address, safe_text
from step0_wandb.wandb_api.credentials import find_account, find_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from step0_wandb.publish.wandb.process import Done, Tables
    from step0_wandb.publish.wandb.report import Report
    from step0_wandb.publish.wandb.state import State
    from step0_wandb.wandb_api.context import Context
    from step0_wandb.records import Json, JudgedRun
    from step0_wandb.settings.load import Loaded
    from step0_wandb.publish.wandb.saved import Shelf
    from step0_wandb.store import Store

LIGHT_S = 30.0
"""Seconds after which a light question is given up."""
STARTUP_S = 60.0
"""Seconds that the wandb client gets beside the patience that the settings have with a server."""


@dataclass(frozen=True, slots=True)
class Target:
    """A project that a sync writes to.

    Attributes
    ----------
    share : Share
        What of the store concerns it.
    shows : bool
        Whether it gets tables and a report.
    travels : bool
        Whether it gets the state, and gave it to a new store.
    texts : tuple of str
        The sources that name it.
    """

    share: Share
    shows: bool
    travels: bool = True
    texts: tuple[str, ...] = ()

    @property
    def address(self) -> RemoteAddress:
        """Return the project."""
        entity, _, project = self.share.project.partition("/")
        return RemoteAddress(entity, project)

    def __str__(self) -> str:
        return self.share.project


@dataclass(frozen=True, slots=True)
class Written:
    """One thing that was written, or that would be.

    Attributes
    ----------
    what : {"tables", "report", "state"}
    where : str
        ``entity/project``.
    url : str or None
        The report's page, where it is known.
    """

    what: str
    where: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What was written, and what could not be."""

    written: tuple[Written, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """What a store remembers of writing to one project.

    Attributes
    ----------
    marks : mapping of str to str
        The fingerprint of each part as it was written last.
    report : str or None
        The id of the report.
    """

    marks: Mapping[str, str] = field(default_factory=dict)
    report: str | None = None

    @classmethod
    def of(cls, store: Store, target: Target) -> Memory:
        """Return what is remembered; nothing where the store has not met the project yet."""
        note = cast("dict[str, Json] | None", store.notes.get(f"wandb:{target}"))
        if note is None:
            return cls()
        return cls(cast("dict[str, str]", note["marks"]), cast("str | None", note["report"]))

    @staticmethod
    def has_met(store: Store, target: Target) -> bool:
        """Return whether the store knows what lay in the project when it came there first."""
        return store.notes.get(f"wandb:{target}") is not None

    def save(self, store: Store, target: Target) -> None:
        """Remember this from now on."""
        store.notes.put(f"wandb:{target}", {"marks": dict(self.marks), "report": self.report})


def targets(texts: Sequence[str], loaded: Loaded) -> tuple[Target, ...]:
    """Return the projects that a sync of these sources writes to, if anything.

    Raises
    ------
    UsageError
        The setting ``report.wandb`` is neither "same" nor a project.
    """
    setting = loaded.settings.report.wandb
    home = project_of(setting, "report.wandb") if setting and setting != "same" else None
    named: dict[str, list[str]] = {}
    for text in texts:
        if project := _project(text):
            named.setdefault(project, []).append(text)
    names = list(dict.fromkeys([*named, *([home] if home else [])]))
    found = (
        Target(
            Share(
                name,
                others=frozenset(names) - {name},
                takes_rest=name == names[0],
                everything=name == home,
            ),
            shows=setting == "same" or name == home,
            travels=loaded.settings.report.state,
            texts=tuple(named.get(name, ())),
        )
        for name in names
    )
    return tuple(target for target in found if target.shows or target.travels)


def shown_in(known: Sequence[Target], text: str | None, *, travels: bool) -> tuple[Target, ...]:
    """Return the targets that show tables and a report, or the one project that is asked for.

    A project that is no such target shows the runs of all sources.

    Raises
    ------
    UsageError
        `text` names no project; or none is named and there is none.
    """
    shown = tuple(target for target in known if target.shows)
    if text is None:
        if not shown:
            raise UsageError(
                "report.wandb is 'same', but no source is a W&B project", "Give --wandb ENTITY/PROJECT."
            )
        return shown
    project = project_of(text, "--wandb")
    same = tuple(target for target in shown if str(target) == project)
    return same or (Target(Share(project, everything=True), shows=True, travels=travels),)


def project_of(text: str, origin: str) -> str:
    """Return the ``entity/project`` that a text names.

    Raises
    ------
    UsageError
        It names none.
    """
    project = _project(text)
    if project is None:
        raise UsageError(f"{origin} = {safe_text(text)!r} does not name a W&B project", "Write entity/project.")
    return project


def _project(text: str) -> str | None:
    """Return the project of a source; None for a path, and for what names nothing."""
    try:
        address = parse_address(text)
    except UsageError:
        return None  # whoever reads the source says so
    return f"{address.entity}/{address.project}" if isinstance(address, RemoteAddress) else None


def shelf_of(address: RemoteAddress, context: Context) -> Shelf:
    """Return where the things of a sync lie in a project."""
    from step0_wandb.publish.wandb.saved import Shelf

    return Shelf(
        address,
        find_account(context.places),
        patient=replace(context, give_up_s=min(context.give_up_s, LIGHT_S)).client(),
        once=replace(context, give_up_s=0.0).client(),
        environ=context.places.environ,
    )


@dataclass(frozen=True)
class Content:
    """What a store has to say to one project.

    Attributes
    ----------
    runs : sequence of JudgedRun
        Those of the project's share.
    tables : Tables or None
        As `report`, None where the project shows neither.
    """

    target: Target
    runs: Sequence[JudgedRun]
    state: State
    tables: Tables | None = None
    report: Report | None = None

    @classmethod
    def of(cls, store: Store, target: Target, runs: Sequence[JudgedRun], *, now: datetime) -> Content:
        """Return the content for one project; `runs` are those of the whole store."""
        own = [run for run in runs if target.share.has(run.run)]
        state = export_state(store, target.share, own, now=now)
        if not target.shows:
            return cls(target, own, state)
        changed = store.notes.get("changed_at")
        as_of = datetime.fromisoformat(changed) if isinstance(changed, str) else now
        shown = {"runs": runs_table(own), "setups": setups_table(state.ranges)}
        tables = process.Tables(shown, count_metrics(own, state.ranges))
        book = [entry for entry in load_weight_checks(store) if any(map(target.share.takes, entry.projects))]
        report = build_report(own, state.ranges, as_of=as_of, weights=book)
        return cls(target, own, state, tables, report)

    def marks(self, report: str | None) -> dict[str, str]:
        """Return the fingerprint of each part, with the report at its id."""
        marks = {}
        if self.target.travels:
            marks["state"] = replace(self.state, report=report).fingerprint()
        if self.tables is not None:
            marks["tables"] = fingerprint(self.tables.document())
        if self.report is not None:
            body: list[Json] = [as_json(block) for block in self.report.body]
            marks["report"] = fingerprint([TITLE, DESCRIPTION, body])
        return marks

    def news(self, memory: Memory, *, anew: bool) -> set[str]:
        """Return the parts that differ from what was written last, or all of them.

        A project without runs gets nothing unless it is asked for. The state tells of the other parts,
        and so goes with them.
        """
        if not self.runs and not anew:
            return set()
        marks = self.marks(memory.report)
        found = {part for part in marks if anew or marks[part] != memory.marks.get(part)}
        return found | (marks.keys() & {"state"}) if found else found


def plan(content: Content, memory: Memory, *, anew: bool) -> Published:
    """Return what `write` would write."""
    parts = sorted(content.news(memory, anew=anew))
    return Published(tuple(Written(part, str(content.target)) for part in parts))


def write(store: Store, content: Content, memory: Memory, context: Context, *, anew: bool) -> Published:
    """Write what is news to a project, and remember what of it arrived.

    Raises
    ------
    Step0Error
        No key was found, or the report can be neither found nor made.
    """
    news, target = content.news(memory, anew=anew), content.target
    if not news:
        return Published()
    if "report" in news:
        memory = replace(memory, report=_report_id(target, memory, context))
        memory.save(store, target)
    done = _send(content, memory, news, context)
    marks = content.marks(memory.report)
    replace(memory, marks={**memory.marks, **{part: marks[part] for part in done.parts}}).save(store, target)
    page = _page(target, memory, context)
    return Published(
        tuple(Written(part, str(target), page if part == "report" else None) for part in done.parts),
        tuple(Problem(f"{target}: {part}", f"not written: {why}") for part, why in done.failures.items()),
    )


def _report_id(target: Target, memory: Memory, context: Context) -> str:
    from step0_wandb.publish.wandb.saved import Wanted

    return shelf_of(target.address, context).report(Wanted(memory.report, TITLE, DESCRIPTION, MARK))


def _page(target: Target, memory: Memory, context: Context) -> str | None:
    if not memory.report:
        return None
    app = find_server(context.places).app_url
    return f"{app}/{target}/reports/{TITLE.replace(' ', '-')}--{memory.report.rstrip('=')}"


def _send(content: Content, memory: Memory, news: set[str], context: Context) -> Done:
    """Let the wandb client write some parts."""
    address, places = content.target.address, context.places
    account, marks = find_account(places), content.marks(memory.report)
    others = {part: mark for part, mark in memory.marks.items() if part != "state"}
    with tempfile.TemporaryDirectory(prefix="step0-wandb-") as folder:
        picture = Path(folder) / "gaps.png"
        tables = content.tables if "tables" in news else None
        if tables is not None and save_gaps(picture, content.runs, content.state.ranges):
            tables = replace(tables, picture=picture)
        job = process.Job(
            entity=address.entity,
            project=address.project,
            tables=tables,
            report=content.report if "report" in news else None,
            report_id=memory.report,
            state=replace(content.state, report=memory.report, written=others)
            if content.target.travels
            else None,
            state_is_news=marks.get("state") != memory.marks.get("state"),
            marks=marks,
        )
        login = process.Login(account.server.base_url, account.key)
        return process.write(job, login, environ=places.environ, deadline_s=context.give_up_s + STARTUP_S)
