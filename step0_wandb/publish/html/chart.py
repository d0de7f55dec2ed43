"""Geometry of a setup's chart: each run's gap on a log axis, in time order, over the range.

Heights are in pixels and positions along the width in percent, so that a chart fits any width while
its marks and letters keep their size, without a script.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from step0_wandb.plots import layout
from step0_wandb.plots.layout import DRAWABLE, log_ticks
from step0_wandb.records import FLAGGED
from step0_wandb.text.formatting import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from step0_wandb.plots.layout import Standing
    from step0_wandb.records import JudgedRun, SetupRange

PLOT_HEIGHT = 160.0
LANE_HEIGHT = 26.0
MARGIN = 10.0
DATES_HEIGHT = 20.0
NAMED_AT_MOST = 8
NAME_LENGTH = 26
# A chart is about this wide on a screen; on a narrower one the names are left to the list below it.
NOMINAL_WIDTH = 450.0
WIDE_WIDTH = 1030.0
WIDE_ABOVE = 80
LETTER_WIDTH = 7.4
LINE_HEIGHT = 14.0
NAME_OFFSET = 10.0
# Less than a factor 2 would blow the noise of healthy runs up to the height of a real failure.
SMALLEST_SPAN = math.log(2.0)


def standing(run: JudgedRun) -> Standing:
    """Return what counts for a run: a person's label where there is one, else the verdict."""
    return layout.standing(run.verdict, run.label) or run.verdict


def gravity(run: JudgedRun) -> tuple[int, float, str]:
    """Return the sort key that puts the gravest run first."""
    return layout.gravity(standing(run), run.ratio, run.run)


@dataclass(frozen=True, slots=True)
class Tick:
    """A labeled height of the chart; `y` in pixels from the top."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Band:
    """The part of the height that the range covers, in pixels from the top."""

    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a flagged run, `dx` and `dy` pixels away from its point."""

    text: str
    dx: float
    dy: float
    anchor: Literal["start", "end"]


@dataclass(frozen=True, slots=True)
class Point:
    """One run: `x` in percent of the width, `y` in pixels from the top."""

    x: float
    y: float
    run: JudgedRun
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """All that the template needs to draw one setup.

    Attributes
    ----------
    height : float
        In pixels, the dates below the axis included.
    ticks : tuple of Tick
        Gap values on the log axis.
    lanes : tuple of Tick
        Separate rows for values that have no place on a log axis: ``nan, inf`` and ``0``.
    band : Band or None
        The range; None where there is none.
    center : float or None
        Height of the range's center.
    points : tuple of Point
        In time order, unknown times last.
    first, last : datetime or None
        When the first and the last run were created.
    """

    height: float
    ticks: tuple[Tick, ...]
    lanes: tuple[Tick, ...]
    band: Band | None
    center: float | None
    points: tuple[Point, ...]
    first: datetime | None
    last: datetime | None

    @property
    def wide(self) -> bool:
        """Whether the chart needs the whole width of the page."""
        return len(self.points) > WIDE_ABOVE

    @property
    def radius(self) -> float:
        """Return the radius of a healthy run's point; the more runs, the smaller."""
        crowded = ((40, 4.0), (200, 3.0), (1000, 2.2))
        return next((radius for limit, radius in crowded if len(self.points) <= limit), 1.6)


@dataclass(frozen=True, slots=True)
class LogAxis:
    """A log axis from `low` (at height `bottom`) to `high` (at height `top`)."""

    low: float
    high: float
    top: float
    bottom: float

    def y(self, value: float) -> float:
        """Return the height of a positive value, kept inside the axis."""
        value = min(max(value, self.low), self.high)
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.bottom - share * (self.bottom - self.top)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The rows of a chart from top to bottom: not finite, the log axis, zero."""

    not_finite: float | None
    axis: LogAxis | None
    zero: float | None
    bottom: float

    def y(self, gap: float) -> float:
        """Return the height of any gap; the rows exist for every gap they were laid out for."""
        row = self.not_finite if not math.isfinite(gap) else self.zero if gap <= 0 else None
        if row is None:
            return self.bottom if self.axis is None else self.axis.y(gap)
        return row


def draw(
    runs: Iterable[JudgedRun],
    setup_range: SetupRange | None,
    *,
    plot_height: float = PLOT_HEIGHT,
    named: Container[str] | None = None,
) -> Chart:
    """Lay out the runs of one setup; runs without a gap have no place in it.

    Parameters
    ----------
    plot_height : float
        Of the log axis, in pixels.
    named : container of str, optional
        The keys of the flagged runs that are named; None names all that there is room for.

    Examples
    --------
    >>> draw([], None).points
    ()
    """
    shown = sorted((run for run in runs if run.gap is not None), key=_by_time)
    frame = _frame([run.gap for run in shown if run.gap is not None], setup_range, plot_height)
    width = 100 / max(len(shown), 1)
    points = [
        Point(round((place + 0.5) * width, 2), round(frame.y(run.gap), 1), run)
        for place, run in enumerate(shown)
        if run.gap is not None
    ]
    times = [run.created_at for run in shown if run.created_at is not None]
    rows = ((frame.not_finite, "nan, inf"), (frame.zero, "0"))
    return Chart(
        height=frame.bottom + DATES_HEIGHT,
        ticks=_ticks(frame.axis),
        lanes=tuple(Tick(y, label) for y, label in rows if y is not None),
        band=_band(frame, setup_range),
        center=_center(frame, setup_range),
        points=_named(points, frame.bottom, named),
        first=times[0] if times else None,
        last=times[-1] if times else None,
    )


def _by_time(run: JudgedRun) -> tuple[bool, datetime, str]:
    return run.created_at is None, run.created_at or datetime.max.replace(tzinfo=UTC), run.run


def _frame(gaps: Sequence[float], setup_range: SetupRange | None, plot_height: float) -> _Frame:
    """Stack the rows that these gaps and this range need."""
    limits = [value for value in _limits(setup_range) if value is not None]
    positive = [gap for gap in gaps if math.isfinite(gap) and gap > 0] + [
        limit for limit in limits if limit > 0
    ]
    y, not_finite, axis, zero = MARGIN, None, None, None
    if not all(math.isfinite(gap) for gap in gaps):
        not_finite, y = y + LANE_HEIGHT / 2, y + LANE_HEIGHT + MARGIN / 2
    if positive:
        axis = _axis(positive, top=y, bottom=y + plot_height)
        y += plot_height
    if any(gap <= 0 for gap in gaps) or (limits and not any(limits)):
        y += MARGIN if positive else 0
        zero, y = y + LANE_HEIGHT / 2, y + LANE_HEIGHT
    return _Frame(not_finite, axis, zero, y)


def _axis(values: Sequence[float], *, top: float, bottom: float) -> LogAxis:
    drawable = [min(max(value, DRAWABLE[0]), DRAWABLE[1]) for value in values]
    low, high = math.log(min(drawable)), math.log(max(drawable))
    margin = max(0.08 * (high - low), (SMALLEST_SPAN - (high - low)) / 2)
    return LogAxis(math.exp(low - margin), math.exp(high + margin), top, bottom)


def _limits(setup_range: SetupRange | None) -> tuple[float | None, float | None]:
    if setup_range is None:
        return None, None
    return _finite(setup_range.low), _finite(setup_range.high)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _band(frame: _Frame, setup_range: SetupRange | None) -> Band | None:
    low, high = _limits(setup_range)
    if high is None:
        return None
    if high == 0:  # true on-policy: only 0 is right
        return None if frame.zero is None else Band(frame.zero - LANE_HEIGHT / 2, LANE_HEIGHT)
    if frame.axis is None:
        return None
    top = frame.axis.y(high)
    bottom = frame.axis.y(low) if low else frame.axis.bottom
    return Band(round(top, 1), round(bottom - top, 1))


def _center(frame: _Frame, setup_range: SetupRange | None) -> float | None:
    center = None if setup_range is None else _finite(setup_range.center)
    return None if center is None else round(frame.y(center), 1)


def _ticks(axis: LogAxis | None) -> tuple[Tick, ...]:
    if axis is None:
        return ()
    ticks: list[Tick] = []
    for value in log_ticks(axis.low, axis.high):
        y = round(axis.y(value), 1)
        if not ticks or ticks[-1].y - y >= LINE_HEIGHT:
            ticks.append(Tick(y, f"{value:g}"))
    return tuple(ticks)


@dataclass(frozen=True, slots=True)
class _Box:
    """A line of text: from `left` to `right`, its middle at `y`."""

    left: float
    right: float
    y: float

    def holds(self, other: _Box) -> bool:
        return self.left <= other.left and other.right <= self.right and other.y < self.y

    def touches(self, other: _Box) -> bool:
        return self.left < other.right and other.left < self.right and abs(self.y - other.y) < LINE_HEIGHT


def _named(points: Sequence[Point], bottom: float, keys: Container[str] | None) -> tuple[Point, ...]:
    """Name the gravest flagged runs, where their names cover neither each other nor a point."""
    width = WIDE_WIDTH if len(points) > WIDE_ABOVE else NOMINAL_WIDTH
    flagged = sorted((p for p in points if standing(p.run) in FLAGGED), key=lambda p: gravity(p.run))
    # Hundreds of healthy points leave no free place; there a name may lie over them.
    avoided = flagged if len(points) > WIDE_ABOVE else points
    taken = [_Box(p.x / 100 * width - 5, p.x / 100 * width + 5, p.y) for p in avoided]
    names: dict[str, Name] = {}
    wanted = [point for point in flagged if keys is None or point.run.run in keys]
    for point in wanted[:NAMED_AT_MOST]:
        name = _place(point, taken, _Box(0, width, bottom))
        if name is not None:
            names[point.run.run] = name
    return tuple(Point(point.x, point.y, point.run, names.get(point.run.run)) for point in points)


def _place(point: Point, taken: list[_Box], plot: _Box) -> Name | None:
    text = shorten(clean(point.run.name or point.run.run), NAME_LENGTH)
    length, x = LETTER_WIDTH * len(text), point.x / 100 * plot.right
    sides: tuple[Literal["start", "end"], ...] = ("start", "end")
    for dy in (0.0, -LINE_HEIGHT, LINE_HEIGHT, -2 * LINE_HEIGHT, 2 * LINE_HEIGHT):
        for anchor in sides:
            left = x + NAME_OFFSET if anchor == "start" else x - NAME_OFFSET - length
            box = _Box(left, left + length, point.y + dy)
            if plot.holds(box) and not any(box.touches(other) for other in taken):
                taken.append(box)
                return Name(text, NAME_OFFSET if anchor == "start" else -NAME_OFFSET, dy, anchor)
    return None
