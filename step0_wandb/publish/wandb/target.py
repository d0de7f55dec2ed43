"""The projects that a sync writes to, and what of the store each of them gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.publish.wandb.state import ProjectScope
from step0_wandb.wandb_api.address import RemoteAddress, parse_address, safe_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from step0_wandb.settings.load import Loaded


@dataclass(frozen=True, slots=True)
class Target:
    """A project that a sync writes to.

    Attributes
    ----------
    scope : Scope
        Which runs of the store belong to it.
    shows : bool
        Whether it gets tables and a report.
    shares : bool
        Whether it gets the shared state, and gave it to a new store.
    texts : tuple of str
        The sources that name it.
    """

    scope: ProjectScope
    shows: bool
    shares: bool = True
    texts: tuple[str, ...] = ()

    @property
    def address(self) -> RemoteAddress:
        """Return the project."""
        entity, _, project = self.scope.project.partition("/")
        return RemoteAddress(entity, project)

    def __str__(self) -> str:
        return self.scope.project


def targets(texts: Sequence[str], loaded: Loaded) -> tuple[Target, ...]:
    """Return the projects that a sync of these sources writes to, if anything.

    Raises
    ------
    UsageError
        The setting ``report.wandb`` is neither "same" nor a project, or ``report.home`` is not one.
    """
    setting = loaded.settings.report.wandb
    shown = project_of(setting, "report.wandb") if setting and setting != "same" else None
    named: dict[str, list[str]] = {}
    for text in texts:
        if project := _project(text):
            named.setdefault(project, []).append(text)
    if home := home_of(loaded):
        every = tuple(text for some in named.values() for text in some)
        found = _at_home(str(home), shown, loaded, every)
    else:
        found = _each(named, shown, loaded)
    return tuple(target for target in found if target.shows or target.shares)


def home_of(loaded: Loaded) -> RemoteAddress | None:
    """Return the one project that the sync's own run and the shared state live in, if the settings name one.

    Raises
    ------
    UsageError
        The setting ``report.home`` is not a project.
    """
    setting = loaded.settings.report.home
    if not setting:
        return None
    entity, _, project = project_of(setting, "report.home").partition("/")
    return RemoteAddress(entity, project)


def _at_home(home: str, shown: str | None, loaded: Loaded, texts: tuple[str, ...]) -> Iterator[Target]:
    """Yield the home of all sources, and the project that the report goes to where it is another one."""
    report = loaded.settings.report
    shows = report.wandb == "same" or shown == home
    yield Target(ProjectScope(home, everything=True), shows=shows, shares=report.state, texts=texts)
    if shown and shown != home:
        yield Target(ProjectScope(shown, everything=True), shows=True, shares=False, texts=texts)


def _each(named: Mapping[str, list[str]], shown: str | None, loaded: Loaded) -> Iterator[Target]:
    """Yield every project that is read, and the one that the report of all goes to."""
    names = list(dict.fromkeys([*named, *([shown] if shown else [])]))
    for name in names:
        yield Target(
            ProjectScope(
                name,
                others=frozenset(names) - {name},
                takes_rest=name == names[0],
                everything=name == shown,
            ),
            shows=loaded.settings.report.wandb == "same" or name == shown,
            shares=loaded.settings.report.state,
            texts=tuple(named.get(name, ())),
        )


def shown_in(known: Sequence[Target], text: str | None, *, shares: bool) -> tuple[Target, ...]:
    """Return the targets that show tables and a report, or the one project that is asked for.

    Any other project shows the runs of all sources.

    Raises
    ------
    UsageError
        `text` is not a project; or none is named and there is none.
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
    return same or (Target(ProjectScope(project, everything=True), shows=True, shares=shares),)


def project_of(text: str, origin: str) -> str:
    """Return the ``entity/project`` that a text names.

    Raises
    ------
    UsageError
        It is not one.
    """
    project = _project(text)
    if project is None:
        raise UsageError(
            f"{origin} = {safe_text(text)!r} does not name a W&B project", "Write entity/project."
        )
    return project


def _project(text: str) -> str | None:
    """Return the project of a source; None for a path, and for what names nothing."""
    try:
        address = parse_address(text)
    except UsageError:
        return None  # reading the source says so
    return f"{address.entity}/{address.project}" if isinstance(address, RemoteAddress) else None
