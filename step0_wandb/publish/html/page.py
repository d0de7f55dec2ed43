"""The HTML page: one file that shows every verdict, and needs neither a script nor a network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2s
from itertools import chain
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from step0_wandb.errors import UsageError
from step0_wandb.plots.layout import STANDINGS
from step0_wandb.publish.html.chart import draw, gravity, standing
from step0_wandb.records import ALIVE, FLAGGED
from step0_wandb.text.formatting import clean, count, number, ratio, shorten, web_url, when
from step0_wandb.verdicts.coverage import WITHOUT_STEP0, blind_spots
from step0_wandb.verdicts.reference_gaps import published_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from jinja2 import Environment

    from step0_wandb.plots.layout import Standing
    from step0_wandb.publish.html.chart import Chart
    from step0_wandb.records import JudgedRun, OutcomeName, SetupRange
    from step0_wandb.verdicts.coverage import Blind
    from step0_wandb.verdicts.weight_checks import WeightCheck

CARDS_OPEN = 12
CHARTS_OPEN = 12
ROWS_OPEN = 30
ROWS_TOGETHER = 100
LISTED_OPEN = 10

OUTCOMES: tuple[OutcomeName, ...] = ("pass", "fail", "warn", "vacuous", "skipped")
BASIS = {
    "own": "",
    "pooled": "width borrowed from other setups",
    "split": "runs differ by a factor; the lower level counts as healthy",
    "ceiling": "the framework's own limit",
    "exact": "true on-policy",
    "none": "no range yet",
}


@dataclass(frozen=True, slots=True)
class Tile:
    """How many runs have one standing, `labeled` of them by a person."""

    word: Standing
    amount: int
    labeled: int


@dataclass(frozen=True, slots=True)
class Pane:
    """One setup: its chart, and which of its runs are flagged.

    `without_gap` counts the runs that have no place in the chart.
    """

    setup: str
    range: SetupRange | None
    chart: Chart
    runs: int
    without_gap: int
    flagged: tuple[JudgedRun, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often each outcome of one check was reached, in the order of `OUTCOMES`."""

    check: str
    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The runs with one standing, newest first."""

    word: Standing
    runs: tuple[JudgedRun, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """The weight check of one model and image, and the run that it comes from."""

    check: WeightCheck
    run: JudgedRun | None


@dataclass(frozen=True, slots=True)
class Beside:
    """What else the store knows.

    Attributes
    ----------
    weights : sequence of WeightCheck
        The book of weight checks in its order; an empty one has no section.
    fits : sequence of str
        How well the healthy runs follow what ranges assume, one sentence a gap metric.
    findings : mapping of str to str
        What to look at first in a flagged run, by its key; see `flagged_first`.
    """

    weights: Sequence[WeightCheck] = ()
    fits: Sequence[str] = ()
    findings: Mapping[str, str] = field(default_factory=dict)


NOTHING_ELSE: Final = Beside()


@dataclass(frozen=True, slots=True)
class Page:
    """All that the template shows."""

    title: str
    as_of: datetime | None
    headline: str
    alarm: bool
    tiles: tuple[Tile, ...]
    flagged: tuple[Group, ...]
    labeled: tuple[JudgedRun, ...]
    panes: tuple[Pane, ...]
    coverage: tuple[Coverage, ...]
    blind: tuple[Blind, ...]
    setups: tuple[Pane, ...]
    groups: tuple[Group, ...]


def render_page(
    runs: Sequence[JudgedRun],
    setups: Sequence[SetupRange],
    *,
    title: str,
    as_of: datetime | None,
    beside: Beside = NOTHING_ELSE,
) -> str:
    """Return the whole page as HTML.

    Parameters
    ----------
    runs : sequence of JudgedRun
        In any order.
    setups : sequence of SetupRange
        The range of each setup; a setup without one gets a chart all the same.
    title : str
        Heading and title of the page.
    as_of : datetime or None
        When the sources were last read; left out where unknown.
    beside : Beside
        What else there is to show.

    Returns
    -------
    str
        The same bytes for the same input, whatever its order.
    """
    page = _page(runs, setups, title=title, as_of=as_of)
    known = {run.run: run for run in runs}
    book = [Checked(check, known.get(check.run or "")) for check in beside.weights]
    template = _environment().get_template("page.html.j2")
    return template.render(
        page=page, book=book, fits=beside.fits, findings=beside.findings, outcomes=OUTCOMES
    )


def flagged_first(runs: Sequence[JudgedRun], most: int) -> list[JudgedRun]:
    """Return at most so many flagged runs that nobody has labeled, in the order of their cards."""
    newest = _newest(runs)
    groups = (_unlabeled(run for run in newest if standing(run) == word) for word in FLAGGED)
    return list(chain.from_iterable(groups))[:most]


def write_page(path: Path, html: str) -> None:
    """Write the page in one step, so that nobody ever reads half of it.

    The file keeps the mode it had. Anything but a regular file (``/dev/stdout``) is written to directly.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(html, encoding="utf-8")
        else:
            _replace(path.resolve(), html)
    except (OSError, RuntimeError) as error:  # the latter is what links in a circle raise
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot write the page {path}: {why}") from error


def _replace(path: Path, html: str) -> None:
    draft = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(html)
        if path.exists():
            draft.chmod(path.stat().st_mode)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@cache
def _environment() -> Environment:
    """Return the template environment: every string is cleaned, then escaped, in one place."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("step0_wandb", "publish/html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    filters: tuple[Callable[..., object], ...] = (
        *(anchor, basis, href, published_for, standing, title_of),
        *(clean, count, number, ratio, shorten, when),
    )
    environment.filters.update({use.__name__: use for use in filters})
    environment.globals.update(
        CARDS_OPEN=CARDS_OPEN,
        CHARTS_OPEN=CHARTS_OPEN,
        LISTED_OPEN=LISTED_OPEN,
        ROWS_OPEN=ROWS_OPEN,
        ROWS_TOGETHER=ROWS_TOGETHER,
    )
    return environment


def _finalize(value: object) -> object:
    # Markup, what a macro returns, is a subclass of str and clean already.
    return clean(value) if type(value) is str else value


def anchor(key: str) -> str:
    """Return the fragment of a run or a setup: the same on every page it stands on."""
    return "x" + blake2s(key.encode(errors="replace"), digest_size=6).hexdigest()


def href(run: JudgedRun) -> str:
    """Return where a run's name leads: to W&B, or to its row where it has no web address."""
    return web_url(run.url) or f"#{anchor(run.run)}"


def title_of(run: JudgedRun) -> str:
    """Return a run's display name, or its key where it has none."""
    return clean(run.name).strip() or clean(run.run)


def basis(setup_range: SetupRange) -> str:
    """Return in words what a range rests on."""
    return BASIS.get(setup_range.basis, setup_range.basis)


def _page(
    runs: Sequence[JudgedRun], setups: Sequence[SetupRange], *, title: str, as_of: datetime | None
) -> Page:
    newest = _newest(runs)
    groups = [Group(word, tuple(run for run in newest if standing(run) == word)) for word in STANDINGS]
    panes = _panes(newest, setups)
    flagged = tuple(Group(group.word, _unlabeled(group.runs)) for group in groups if group.word in FLAGGED)
    return Page(
        title=title,
        as_of=as_of,
        headline=_headline(newest),
        alarm=any(standing(run) == "broken" and run.label is None for run in newest),
        tiles=tuple(
            Tile(group.word, len(group.runs), sum(run.label is not None for run in group.runs))
            for group in groups
            if group.runs or group.word in {"broken", "suspect", "healthy"}
        ),
        flagged=tuple(group for group in flagged if group.runs),
        labeled=tuple(run for run in newest if run.label is not None),
        panes=tuple(sorted((pane for pane in panes if pane.chart.points), key=_pane_order)),
        coverage=_coverage(newest),
        blind=blind_spots(newest),
        setups=panes,
        groups=tuple(group for group in groups if group.runs),
    )


def _newest(runs: Sequence[JudgedRun]) -> list[JudgedRun]:
    return sorted(sorted(runs, key=lambda run: run.run), key=_age)


def _age(run: JudgedRun) -> float:
    return -run.created_at.timestamp() if run.created_at else 0.0


def _unlabeled(runs: Iterable[JudgedRun]) -> tuple[JudgedRun, ...]:
    """Return the runs without a label, those that still burn GPUs first."""
    return tuple(sorted((run for run in runs if run.label is None), key=lambda run: run.state not in ALIVE))


def _headline(runs: Sequence[JudgedRun]) -> str:
    """Return in one sentence what matters; silence must not look like health."""
    amounts = Counter(standing(run) for run in runs if run.label is None)
    alive = sum(standing(run) == "broken" and run.label is None and run.state in ALIVE for run in runs)
    if amounts["broken"]:
        return f"{count(amounts['broken'], 'broken run')}, {alive or 'none'} of them still running."
    if amounts["suspect"]:
        return f"No broken runs, {count(amounts['suspect'], 'suspect run')}."
    healthy = sum(standing(run) == "healthy" for run in runs)
    return f"No broken or suspect runs; {healthy:,} of {count(len(runs), 'run')} healthy."


def _panes(runs: Sequence[JudgedRun], setups: Sequence[SetupRange]) -> tuple[Pane, ...]:
    ranges = {setup.setup: setup for setup in setups}
    members: dict[str, list[JudgedRun]] = {setup: [] for setup in ranges}
    for run in runs:
        if run.setup is not None:
            members.setdefault(run.setup, []).append(run)
    return tuple(_pane(setup, members[setup], ranges.get(setup)) for setup in sorted(members))


def _pane(setup: str, runs: Sequence[JudgedRun], setup_range: SetupRange | None) -> Pane:
    return Pane(
        setup=setup,
        range=setup_range,
        chart=draw(runs, setup_range),
        runs=len(runs),
        without_gap=sum(run.gap is None for run in runs),
        flagged=tuple(sorted((run for run in runs if standing(run) in FLAGGED), key=gravity)),
    )


def _pane_order(pane: Pane) -> tuple[int, str]:
    """Setups with a broken run come first, then those with a suspect one."""
    gravest = min((FLAGGED.index(standing(run)) for run in pane.flagged), default=len(FLAGGED))
    return gravest, pane.setup


def _coverage(runs: Sequence[JudgedRun]) -> tuple[Coverage, ...]:
    """Return the outcomes of each check among the runs that have a step 0."""
    amounts = Counter(
        (result.check, result.outcome)
        for run in runs
        if run.verdict not in WITHOUT_STEP0
        for result in run.checks
    )
    names = dict.fromkeys(result.check for run in runs for result in run.checks)
    checks = [check for check in names if any(amounts[check, outcome] for outcome in OUTCOMES)]
    return tuple(Coverage(check, tuple(amounts[check, outcome] for outcome in OUTCOMES)) for check in checks)
