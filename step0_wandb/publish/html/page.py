"""The HTML page: one file that shows what is wrong now, lately and earlier, and loads nothing."""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from hashlib import blake2s, sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Literal

from step0_wandb.errors import UsageError
from step0_wandb.plots.layout import STANDINGS
from step0_wandb.publish.html.chart import draw, gravity, standing
from step0_wandb.records import ALIVE, FLAGGED
from step0_wandb.text.formatting import clean, count, number, ratio, shorten, web_url, when
from step0_wandb.verdicts.coverage import count_unchecked
from step0_wandb.verdicts.reference_gaps import published_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from jinja2 import Environment

    from step0_wandb.plots.layout import Standing
    from step0_wandb.publish.html.chart import Chart
    from step0_wandb.records import JudgedRun, OutcomeName, SetupRange
    from step0_wandb.verdicts.coverage import Blind, Unchecked
    from step0_wandb.verdicts.weight_checks import WeightCheck

RECENT = timedelta(days=7)
CARDS_OPEN = 12
CARDS_AT_MOST = 60
"""Cards of one section; the rest of its runs stand in the table of runs alone."""
NEWEST_AT_MOST = 100
"""Runs shown of each setup in addition to the flagged and labeled ones; of the older ones the number."""
FEWEST_EACH = 2
ROWS_AT_MOST = 3000
"""With so many setups that this would be passed, fewer of each: the page stays below 3 MB."""
CHARTS_OPEN = 12
ROWS_OPEN = 30
ROWS_TOGETHER = 100
LISTED_OPEN = 10

SEARCH = Path(__file__).with_name("search.js")
"""All of the page's script: it hides what does not match. Without it the page lacks the search box alone."""
OUTCOMES: tuple[OutcomeName, ...] = ("pass", "fail", "warn", "vacuous", "skipped")
BASIS = {
    "own": "",
    "pooled": "few runs: the width is not its own yet",
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
class Section:
    """The flagged runs of one part of time, broken before suspect, those that still run first."""

    anchor: str
    title: str
    hint: str
    runs: tuple[JudgedRun, ...]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Pane:
    """One setup: its chart, and which of its runs are flagged.

    `without_gap` counts the runs that have no place in the chart, `older` those that are left out.
    """

    setup: str
    range: SetupRange | None
    chart: Chart
    runs: int
    older: int
    without_gap: int
    flagged: tuple[JudgedRun, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often each outcome of one check was reached, in the order of `OUTCOMES`."""

    check: str
    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The runs with one standing, newest first; `older` ones are left out."""

    word: Standing
    runs: tuple[JudgedRun, ...]
    older: int = 0


@dataclass(frozen=True, slots=True)
class Checked:
    """The weight check of one model and image, and the run that it comes from."""

    check: WeightCheck
    run: JudgedRun | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Runs that the page counts and does not show: neither flagged nor labeled nor new in their setup.

    Attributes
    ----------
    amounts : mapping of (str or None, str) to int
        By setup and verdict.
    unchecked : Unchecked
        Of all runs, those that are shown too.
    """

    amounts: Mapping[tuple[str | None, str], int]
    unchecked: Unchecked

    def of_verdict(self, verdict: str) -> int:
        """Return how many runs with a verdict are left out."""
        return sum(amount for (_, name), amount in self.amounts.items() if name == verdict)


@dataclass(frozen=True, slots=True)
class Extras:
    """What else the store knows.

    Attributes
    ----------
    weights : sequence of WeightCheck
        The book of weight checks in its order; an empty one has no section.
    fits : sequence of str
        How well the healthy runs follow what ranges assume, one sentence a gap metric.
    findings : mapping of str to str
        What to look at first in a flagged run, by its key; see `flagged_first`.
    left_out : LeftOut or None
        What there is beyond the runs that the page is given; None: those are all.
    """

    weights: Sequence[WeightCheck] = ()
    fits: Sequence[str] = ()
    findings: Mapping[str, str] = field(default_factory=dict)
    left_out: LeftOut | None = None


NO_EXTRAS: Final = Extras()


@dataclass(frozen=True, slots=True)
class Page:
    """All that the template shows."""

    title: str
    as_of: datetime | None
    headline: str
    mood: Literal["alarm", "good", ""]
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
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
    extras: Extras = NO_EXTRAS,
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
    extras : Extras
        What else there is to show.

    Returns
    -------
    str
        The same bytes for the same input, whatever its order.
    """
    left_out = extras.left_out or LeftOut({}, count_unchecked(runs))
    page = _page(runs, setups, left_out, title=title, as_of=as_of)
    known = {run.run: run for run in runs}
    book = [Checked(check, known.get(check.run or "")) for check in extras.weights]
    template = _environment().get_template("page.html.j2")
    return template.render(
        page=page, book=book, fits=extras.fits, findings=extras.findings, outcomes=OUTCOMES
    )


def flagged_first(runs: Sequence[JudgedRun], most: int) -> list[JudgedRun]:
    """Return at most so many flagged runs that nobody has labeled, in the order of their cards."""
    return _in_order_of_cards(_newest(runs))[:most]


def write_page(path: Path, html: str) -> None:
    """Write the page in one step, so that nobody ever reads half of it.

    A new file is for its owner alone, since configs may say much; an old one keeps the mode it had. Anything but a regular file (``/dev/stdout``) is written to directly.

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
        with open(draft, "x", encoding="utf-8", opener=_private) as file:
            file.write(html)
        if path.exists():
            draft.chmod(path.stat().st_mode)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@cache
def _environment() -> Environment:
    """Return the template environment: every string is cleaned, then escaped, in one place."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    script = SEARCH.read_text(encoding="utf-8")
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
        search=Markup(script),  # noqa: S704 - our own file
        search_hash=b64encode(sha256(script.encode()).digest()).decode(),
        CARDS_AT_MOST=CARDS_AT_MOST,
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
    runs: Sequence[JudgedRun],
    setups: Sequence[SetupRange],
    left_out: LeftOut,
    *,
    title: str,
    as_of: datetime | None,
) -> Page:
    newest = _newest(runs)
    shown = _shown(newest)
    sections = _sections(newest, as_of)
    panes = _panes(newest, setups, shown, left_out)
    groups = [_group(name, newest, shown, left_out) for name in STANDINGS]
    headline, mood = _headline(groups, sections)
    return Page(
        title=title,
        as_of=as_of,
        headline=headline,
        mood=mood,
        tiles=tuple(
            Tile(group.word, len(group.runs) + group.older, sum(run.label is not None for run in group.runs))
            for group in groups
            if group.runs or group.word in {"broken", "suspect", "healthy"}
        ),
        sections=tuple(section for section in sections if section.runs),
        labeled=tuple(run for run in newest if run.label is not None),
        panes=tuple(sorted((pane for pane in panes if pane.chart.points), key=_pane_order)),
        coverage=_coverage(left_out.unchecked),
        blind=left_out.unchecked.blind_spots(),
        setups=panes,
        groups=tuple(group for group in groups if group.runs),
    )


def _newest(runs: Sequence[JudgedRun]) -> list[JudgedRun]:
    return sorted(sorted(runs, key=lambda run: run.run), key=_age)


def _age(run: JudgedRun) -> float:
    return -run.created_at.timestamp() if run.created_at else 0.0


def newest_each(setups: int) -> int:
    """Return how many of the newest runs of each setup are shown, where there are so many setups."""
    return max(FEWEST_EACH, min(NEWEST_AT_MOST, ROWS_AT_MOST // max(1, setups)))


def _shown(newest: Sequence[JudgedRun]) -> set[str]:
    """Return the keys of the runs that have a row and a point: flagged, labeled, or new in their setup."""
    room = newest_each(len({run.setup for run in newest}))
    taken: Counter[str | None] = Counter()
    shown = set()
    for run in newest:
        if standing(run) in FLAGGED or run.label is not None:
            shown.add(run.run)
        elif taken[run.setup] < room:
            taken[run.setup] += 1
            shown.add(run.run)
    return shown


def _group(name: Standing, newest: Sequence[JudgedRun], shown: set[str], left_out: LeftOut) -> Group:
    runs = [run for run in newest if standing(run) == name]
    kept = tuple(run for run in runs if run.run in shown)
    return Group(name, kept, len(runs) - len(kept) + left_out.of_verdict(name))


def _in_order_of_cards(runs: Sequence[JudgedRun]) -> list[JudgedRun]:
    """Return the flagged runs without a label: broken ones first, of these those that still burn GPUs."""
    flagged = [run for run in runs if run.label is None and standing(run) in FLAGGED]
    return sorted(flagged, key=lambda run: (standing(run) != "broken", run.state not in ALIVE))


def _sections(newest: Sequence[JudgedRun], as_of: datetime | None) -> tuple[Section, Section, Section]:
    """Return what is wrong now, in the last days, and earlier."""
    moment = as_of or next((run.created_at for run in newest if run.created_at), None)
    now: list[JudgedRun] = []
    recent: list[JudgedRun] = []
    earlier: list[JudgedRun] = []
    for run in _in_order_of_cards(newest):
        is_recent = moment and run.created_at and run.created_at >= moment - RECENT
        (now if run.state in ALIVE else recent if is_recent else earlier).append(run)
    return (
        Section(
            "now", "Now", "Still running: stop and fix the broken runs, look at the suspect ones.", tuple(now)
        ),
        Section("recent", "Last 7 days", "Ended. Fix the cause before the next launch.", tuple(recent)),
        Section("earlier", "Earlier", "Older than 7 days.", tuple(earlier), folded=True),
    )


def _headline(
    groups: Sequence[Group], sections: tuple[Section, Section, Section]
) -> tuple[str, Literal["alarm", "good", ""]]:
    """Return in one sentence what matters now, and its mood; silence must not look like health."""
    now, recent, earlier = (Counter(standing(run) for run in section.runs) for section in sections)
    if now["broken"]:
        return f"{count(now['broken'], 'broken run')} still running.", "alarm"
    if recent["broken"]:
        return f"{count(recent['broken'], 'broken run')} in the last 7 days, none still running.", "alarm"
    if suspects := now["suspect"] + recent["suspect"]:
        return f"No broken runs now or in the last 7 days, {count(suspects, 'suspect run')}.", ""
    amounts = {group.word: len(group.runs) + group.older for group in groups}
    healthy, runs = amounts["healthy"], sum(amounts.values())
    past = f" {count(earlier['broken'], 'broken run')} earlier." if earlier["broken"] else ""
    text = (
        f"No broken or suspect runs now or in the last 7 days; {healthy:,} of {count(runs, 'run')} healthy."
    )
    return text + past, "good" if healthy else ""


def _panes(
    runs: Sequence[JudgedRun], setups: Sequence[SetupRange], shown: set[str], left_out: LeftOut
) -> tuple[Pane, ...]:
    older: Counter[str | None] = Counter()
    for (setup, _), amount in left_out.amounts.items():
        older[setup] += amount
    ranges = {setup.setup: setup for setup in setups}
    members: dict[str, list[JudgedRun]] = {setup: [] for setup in ranges}
    for run in runs:
        if run.setup is not None:
            members.setdefault(run.setup, []).append(run)
    panes = (_pane(setup, members[setup], ranges.get(setup), shown) for setup in sorted(members))
    return tuple(
        replace(pane, runs=pane.runs + older[pane.setup], older=pane.older + older[pane.setup])
        for pane in panes
    )


def _pane(setup: str, runs: Sequence[JudgedRun], setup_range: SetupRange | None, shown: set[str]) -> Pane:
    kept = [run for run in runs if run.run in shown]
    return Pane(
        setup=setup,
        range=setup_range,
        chart=draw(kept, setup_range),
        runs=len(runs),
        older=len(runs) - len(kept),
        without_gap=sum(run.gap is None for run in runs),
        flagged=tuple(sorted((run for run in kept if standing(run) in FLAGGED), key=gravity)),
    )


def _pane_order(pane: Pane) -> tuple[int, str]:
    """Setups with a broken run come first, then those with a suspect one."""
    gravest = min((FLAGGED.index(standing(run)) for run in pane.flagged), default=len(FLAGGED))
    return gravest, pane.setup


def _coverage(unchecked: Unchecked) -> tuple[Coverage, ...]:
    """Return the outcomes of each check among the runs that have a step 0."""
    amounts = unchecked.outcomes
    names = sorted({check for check, _ in amounts}, key=lambda name: (_place(name), name))
    checks = [check for check in names if any(amounts[check, outcome] for outcome in OUTCOMES)]
    return tuple(Coverage(check, tuple(amounts[check, outcome] for outcome in OUTCOMES)) for check in checks)


def _place(check: str) -> int:
    order = ("ppo_kl", "clip_frac", "gap", "gap-zero", "every-rollout", "first-update")
    return order.index(check) if check in order else len(order)
