"""What the page shows, in its order: counts, flagged runs of three parts of time, setups, checks, all runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from step0_wandb.plots.layout import STANDINGS
from step0_wandb.profiles.observables import catalog
from step0_wandb.publish.causes import shared_causes, together
from step0_wandb.publish.html.chart import draw, gravity, standing
from step0_wandb.records import ALIVE, FLAGGED, LEARNED
from step0_wandb.text.formatting import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from step0_wandb.plots.layout import Standing
    from step0_wandb.publish.html.chart import Chart
    from step0_wandb.records import JudgedRun, OutcomeName, SetupRange
    from step0_wandb.verdicts.coverage import Blind, Unchecked
    from step0_wandb.verdicts.weight_checks import WeightCheck

RECENT = timedelta(days=7)
NEWEST_AT_MOST = 100
"""Runs shown of each setup in addition to the flagged and labeled ones; of the older ones the number."""
FEWEST_EACH = 2
OBSERVED_AT_MOST = 4
"""Small charts of one setup."""
SMALL_PLOT_HEIGHT = 64.0
ROWS_AT_MOST = 3000
"""With so many setups that this would be passed, fewer of each: the page stays below 3 MB."""
OUTCOMES: tuple[OutcomeName, ...] = ("pass", "fail", "warn", "vacuous", "skipped")


@dataclass(frozen=True, slots=True)
class Tile:
    """How many runs have one standing, `labeled` of them by a person."""

    word: Standing
    amount: int
    labeled: int


@dataclass(frozen=True, slots=True)
class Section:
    """The flagged runs of one part of time, broken before suspect, those that still run first.

    `shared` are the causes that several of them have, and how many.
    """

    anchor: str
    title: str
    hint: str
    runs: tuple[JudgedRun, ...]
    shared: Mapping[str, int]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """A number of the step-0 row by which a run of the setup was flagged, in all its runs."""

    title: str
    chart: Chart


@dataclass(frozen=True, slots=True)
class Pane:
    """One setup: its chart, which of its runs are flagged, and the numbers that flagged them.

    `without_gap` counts the runs that have no place in the chart, `older` those that are left out.
    """

    setup: str
    range: SetupRange | None
    chart: Chart
    runs: int
    older: int
    without_gap: int
    flagged: tuple[JudgedRun, ...]
    observed: tuple[Observed, ...]


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
class Page:
    """All that the template shows."""

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


def build_page(
    runs: Sequence[JudgedRun],
    setups: Sequence[SetupRange],
    left_out: LeftOut,
    *,
    causes: Mapping[str, str],
    as_of: datetime | None,
) -> Page:
    """Return the page; see `page.render_page`.

    Parameters
    ----------
    causes : mapping of str to str
        What to look at first in a flagged run, by its key.
    """
    newest = _newest(runs)
    shown = _shown(newest)
    sections = _sections(newest, as_of, causes)
    panes = _panes(newest, setups, shown, left_out)
    groups = [_group(name, newest, shown, left_out) for name in STANDINGS]
    headline, mood = _headline(groups, sections)
    return Page(
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


def _sections(
    newest: Sequence[JudgedRun], as_of: datetime | None, causes: Mapping[str, str]
) -> tuple[Section, Section, Section]:
    """Return what is wrong now, in the last days, and earlier."""
    moment = as_of or next((run.created_at for run in newest if run.created_at), None)
    now: list[JudgedRun] = []
    recent: list[JudgedRun] = []
    earlier: list[JudgedRun] = []
    for run in _in_order_of_cards(newest):
        is_recent = moment and run.created_at and run.created_at >= moment - RECENT
        (now if run.state in ALIVE else recent if is_recent else earlier).append(run)
    running = "Still running: stop and fix the broken runs, look at the suspect ones."
    return (
        _section("now", "Now", running, now, causes),
        _section("recent", "Last 7 days", "Ended. Fix the cause before the next launch.", recent, causes),
        replace(_section("earlier", "Earlier", "Older than 7 days.", earlier, causes), folded=True),
    )


def _section(
    anchor: str, title: str, hint: str, runs: Sequence[JudgedRun], causes: Mapping[str, str]
) -> Section:
    return Section(anchor, title, hint, tuple(together(runs, causes)), shared_causes(runs, causes))


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
        observed=tuple(_observed(kept)),
    )


def _observed(runs: Sequence[JudgedRun]) -> Iterator[Observed]:
    """Yield a small chart of each number that is compared with other runs, and by which one is flagged."""
    found = [(run, check) for run in runs for check in run.checks if check.check.startswith(LEARNED)]
    flagged: dict[str, set[str]] = {}
    for run, check in found:
        if check.outcome in ("fail", "warn"):
            flagged.setdefault(check.check, set()).add(run.run)
    for name in sorted(flagged, key=lambda name: (-len(flagged[name]), name))[:OBSERVED_AT_MOST]:
        values = [
            replace(run, gap=check.value, ratio=None)
            for run, check in found
            if check.check == name and check.value is not None
        ]
        definition = catalog().get(name)
        title = definition.title if definition else name.removeprefix(LEARNED)
        yield Observed(title, draw(values, None, plot_height=SMALL_PLOT_HEIGHT, named=flagged[name]))


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
