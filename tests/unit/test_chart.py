import itertools
import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.plots.layout import log_ticks
from step0_wandb.publish.html.chart import (
    LETTER_WIDTH,
    LINE_HEIGHT,
    NAMED_AT_MOST,
    NOMINAL_WIDTH,
    LogAxis,
    draw,
    standing,
)
from tests.support.judged import RANGE, START, judged, setup_range

ANY_GAP = st.floats(allow_nan=True, allow_infinity=True)


def heights(chart):
    return {point.run.run: point.y for point in chart.points}


def test_a_label_beats_the_verdict():
    assert standing(judged(verdict="broken")) == "broken"
    assert standing(judged(verdict="broken", label="healthy")) == "healthy"
    assert standing(judged(verdict="healthy", label="broken")) == "broken"
    assert standing(judged(verdict="broken", label="exclude")) == "excluded"


def test_equal_ratios_lie_equally_far_apart_on_the_axis():
    axis = LogAxis(low=0.01, high=1.0, top=0.0, bottom=100.0)
    assert [axis.y(value) for value in (0.01, 0.1, 1.0)] == pytest.approx([100.0, 50.0, 0.0])
    assert axis.y(0.02) - axis.y(0.06) == pytest.approx(axis.y(0.2) - axis.y(0.6))


def test_a_value_beyond_the_axis_is_drawn_at_its_edge():
    axis = LogAxis(low=0.01, high=1.0, top=0.0, bottom=100.0)
    assert axis.y(1e-300) == pytest.approx(100.0)
    assert axis.y(1e300) == pytest.approx(0.0)


@given(st.floats(-90, 90), st.floats(math.log10(2), 100))
def test_the_axis_always_shows_two_to_five_round_ticks_inside_it(low_exponent, decades):
    low, high = 10**low_exponent, 10 ** (low_exponent + decades)
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 5
    assert list(ticks) == sorted(set(ticks))
    assert all(low <= tick <= high for tick in ticks)
    assert all(len(f"{tick:.12e}".split("e")[0].replace(".", "").rstrip("0")) <= 3 for tick in ticks)


def test_runs_stand_in_the_order_of_time_whatever_order_they_come_in():
    runs = [judged(number) for number in range(5)]
    unknown = judged(9, created_at=None)
    chart = draw([unknown, *reversed(runs)], RANGE)
    assert [point.run for point in chart.points] == [*runs, unknown]
    assert [point.x for point in chart.points] == pytest.approx(
        [100 * (k + 0.5) / 6 for k in range(6)], abs=0.01
    )
    assert (chart.first, chart.last) == (START, START + timedelta(hours=4))


def test_the_band_holds_the_runs_inside_the_range_and_no_other():
    gaps = {"low": 0.0139, "in": 0.0150, "edge": 0.0164, "high": 0.0461}
    chart = draw([judged(run=name, gap=gap) for name, gap in gaps.items()], RANGE)
    inside = {name for name, y in heights(chart).items() if 0 <= y - chart.band.top <= chart.band.height}
    assert inside == {"in", "edge"}
    assert chart.band.top < chart.center < chart.band.top + chart.band.height


def test_a_setup_without_a_range_is_drawn_without_a_band():
    chart = draw([judged(gap=0.0136), judged(1, gap=0.0140)], None)
    assert chart.band is None
    assert chart.center is None
    assert len(chart.points) == 2
    assert len(chart.ticks) >= 2


def test_a_ceiling_alone_shades_everything_below_it():
    ceiling = setup_range(n=0, center=None, low=None, high=0.03, basis="ceiling")
    chart = draw([judged(run="above", gap=0.05), judged(run="below", gap=0.01)], ceiling)
    y = heights(chart)
    assert y["above"] < chart.band.top < y["below"] <= chart.band.top + chart.band.height
    assert chart.center is None


def test_gaps_that_no_log_axis_can_hold_get_rows_of_their_own():
    gaps = {"nan": math.nan, "inf": math.inf, "one": 0.015, "zero": 0.0, "minus": -0.01}
    chart = draw([judged(run=name, gap=gap) for name, gap in gaps.items()], RANGE)
    y = heights(chart)
    assert [lane.label for lane in chart.lanes] == ["nan, inf", "0"]
    assert [lane.y for lane in chart.lanes] == [y["nan"], y["zero"]]
    assert y["nan"] == y["inf"] < y["one"] < y["zero"] == y["minus"]


def test_in_true_on_policy_mode_the_band_is_the_row_of_zero():
    exact = setup_range(center=0.0, low=0.0, high=0.0, basis="exact")
    chart = draw([judged(run="right", gap=0.0), judged(run="wrong", gap=4e-4)], exact)
    y = heights(chart)
    assert chart.band.top < y["right"] < chart.band.top + chart.band.height
    assert y["wrong"] < chart.band.top
    assert chart.center == y["right"]


def test_a_run_without_a_gap_has_no_point():
    assert draw([judged(gap=None)], RANGE).points == ()


def test_more_runs_make_smaller_points():
    sizes = [
        draw([judged(number) for number in range(amount)], RANGE).radius for amount in (10, 100, 500, 2000)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_flagged_runs_are_named_and_healthy_ones_are_not():
    runs = [judged(number) for number in range(20)] + [
        judged(20, gap=0.0461, verdict="broken", name="wrong-ckpt")
    ]
    named = {point.run.name: point.name.text for point in draw(runs, RANGE).points if point.name}
    assert named == {"wrong-ckpt": "wrong-ckpt"}


def test_where_many_are_flagged_the_gravest_are_named():
    suspects = [judged(number, gap=0.018, verdict="suspect") for number in range(40)]
    broken = [
        judged(
            100 + number,
            gap=0.05 * 1.2**number,
            verdict="broken",
            created_at=START + timedelta(hours=10 * number),
        )
        for number in range(4)
    ]
    named = {point.run.run for point in draw(suspects + broken, RANGE).points if point.name}
    assert named >= {run.run for run in broken}
    assert len(named) <= NAMED_AT_MOST


@given(st.lists(st.floats(0.005, 5.0), min_size=1, max_size=60))
def test_names_cover_neither_each_other_nor_leave_the_chart(gaps):
    runs = [
        judged(number, gap=gap, verdict="broken", name="a-run-with-a-long-name-7f3a")
        for number, gap in enumerate(gaps)
    ]
    boxes = []
    for point in draw(runs, RANGE).points:
        if point.name:
            x, length = point.x / 100 * NOMINAL_WIDTH + point.name.dx, LETTER_WIDTH * len(point.name.text)
            boxes.append((x if point.name.anchor == "start" else x - length, length, point.y + point.name.dy))
    for (left, length, y), (other, other_length, other_y) in itertools.combinations(boxes, 2):
        assert left + length <= other or other + other_length <= left or abs(y - other_y) >= LINE_HEIGHT
    assert all(left >= 0 and left + length <= NOMINAL_WIDTH for left, length, _ in boxes)


@given(st.lists(ANY_GAP, min_size=1, max_size=20), ANY_GAP, ANY_GAP, ANY_GAP)
def test_whatever_numbers_come_every_mark_lies_inside_the_chart(gaps, low, center, high):
    runs = [judged(number, gap=gap, verdict="suspect", ratio=gap) for number, gap in enumerate(gaps)]
    chart = draw(runs, setup_range(low=min(low, high), center=center, high=max(low, high)))
    marks = (
        [point.y for point in chart.points]
        + [tick.y for tick in chart.ticks]
        + [lane.y for lane in chart.lanes]
    )
    marks += [chart.center] if chart.center is not None else []
    marks += [chart.band.top, chart.band.top + chart.band.height] if chart.band else []
    assert all(0 <= y <= chart.height for y in marks)
    assert chart.band is None or chart.band.height >= 0
