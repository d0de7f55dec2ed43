import io
import math
import random
from datetime import UTC, datetime, timedelta
from statistics import NormalDist

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from step0_wandb import fit_ranges
from step0_wandb.errors import UsageError
from step0_wandb.plots import plot_fit, plot_gaps, plot_history
from step0_wandb.plots.drawing import LOOKS

START = datetime(2026, 10, 1, tzinfo=UTC)
SMALL, LARGE = "miles · Qwen3-0.6B", "miles · Qwen3-1.7B"

RANGES = pd.DataFrame(
    {
        "n": [17, 2],
        "center": [0.0152, 0.0109],
        "low": [0.0140, 0.0096],
        "high": [0.0165, 0.0124],
        "basis": ["own", "pooled"],
    },
    index=pd.Index([SMALL, LARGE], name="setup"),
)


def frame(*rows, **columns):
    """Return verdicts from (setup, gap, verdict, name), a day apart, with `columns` as given."""
    runs = pd.DataFrame(rows, columns=["setup", "gap", "verdict", "name"])
    days = [START + timedelta(days=day) for day in range(len(runs))]
    keys = [f"team/grpo/{place}" for place in range(len(runs))]
    return runs.assign(run=keys, created_at=pd.to_datetime(days), low=0.0140, high=0.0165, **columns)


VERDICTS = frame(
    (SMALL, 0.0150, "healthy", "a"),
    (SMALL, 0.0153, "healthy", "b"),
    (SMALL, 0.0461, "broken", "wrong-ckpt"),
    (SMALL, 0.0180, "suspect", "new-image"),
    (LARGE, 0.0109, "no-range", "c"),
)


@pytest.fixture
def ax():
    return Figure().subplots()


def marks(ax):
    """Return the drawn points by verdict, as (x, y) with six digits."""
    return {
        drawn.get_label(): [(round(x, 6), round(y, 6)) for x, y in drawn.get_offsets().tolist()]
        for drawn in ax.collections
        if drawn.get_label() in LOOKS
    }


def gaps(ax):
    return {word: [x for x, _ in points] for word, points in marks(ax).items()}


def texts(ax):
    return [text.get_text() for text in ax.texts]


def bands(ax):
    return [
        (band.get_paths()[0].get_extents().x0, band.get_paths()[0].get_extents().x1)
        for band in ax.collections
        if isinstance(band, PolyCollection)
    ]


def test_every_run_stands_at_its_gap_in_the_strip_of_its_setup(ax):
    assert plot_gaps(VERDICTS, RANGES, ax=ax) is ax
    assert gaps(ax) == {
        "healthy": [0.0150, 0.0153],
        "broken": [0.0461],
        "suspect": [0.0180],
        "no-range": [0.0109],
    }
    assert [label.get_text() for label in ax.get_yticklabels()] == [SMALL, LARGE]
    rows = {word: {round(y) for _, y in points} for word, points in marks(ax).items()}
    assert rows == {"healthy": {0}, "broken": {0}, "suspect": {0}, "no-range": {1}}
    assert ax.get_xscale() == "log"


def test_the_strips_show_their_ranges(ax):
    plot_gaps(VERDICTS, RANGES, ax=ax)
    assert bands(ax) == [(0.0140, 0.0165), (0.0096, 0.0124)]


def test_within_a_strip_the_oldest_run_is_on_top(ax):
    plot_gaps(VERDICTS.iloc[::-1], RANGES, ax=ax)
    heights = {x: y for points in marks(ax).values() for x, y in points}
    order = sorted(
        [0.0150, 0.0153, 0.0461, 0.0180], key=lambda gap: ax.transData.transform((gap, heights[gap]))[1]
    )
    assert order == [0.0180, 0.0461, 0.0153, 0.0150]


def test_flagged_runs_are_named_with_shape_and_gap_and_healthy_ones_are_not(ax):
    plot_gaps(VERDICTS, RANGES, ax=ax)
    assert texts(ax) == ["◆ wrong-ckpt  0.0461", "▲ new-image  0.0180"]


def test_where_a_strip_has_no_room_the_gravest_are_named_and_the_rest_counted(ax):
    many = frame(
        *((SMALL, 0.05 + 0.01 * n, "broken", f"run-{n}") for n in range(6)), (SMALL, 0.02, "suspect", "s")
    )
    many["ratio"] = many["gap"] / 0.0152
    plot_gaps(many, RANGES, ax=ax)
    assert texts(ax) == ["◆ run-5  0.100", "◆ run-4  0.0900", "◆ run-3  0.0800", "and 4 more"]


def test_what_no_log_axis_can_hold_stands_at_its_ends_and_says_so(ax):
    odd = frame(
        (SMALL, 0.0150, "healthy", "a"),
        (SMALL, math.nan, "broken", "fp16"),
        (SMALL, math.inf, "broken", "overflow"),
        (SMALL, 0.0, "suspect", "reused"),
        (SMALL, math.nan, "unchecked", "silent"),
    )
    plot_gaps(odd, RANGES, ax=ax)
    low, high = ax.get_xlim()
    assert gaps(ax) == {
        "healthy": [0.0150],
        "broken": pytest.approx([high, high], abs=1e-6),
        "suspect": pytest.approx([low], abs=1e-6),
    }
    assert {"0", "nan, inf"} < set(texts(ax))


def test_true_on_policy_setups_with_nothing_but_zeros_are_drawn(ax):
    exact = pd.DataFrame({"center": [0.0], "low": [0.0], "high": [0.0]}, index=[SMALL])
    plot_gaps(frame((SMALL, 0.0, "healthy", "a"), (SMALL, 0.0, "healthy", "b")), exact, ax=ax)
    assert len(marks(ax)["healthy"]) == 2
    assert bands(ax) == []


def test_a_label_beats_the_verdict_in_a_chart(ax):
    plot_gaps(VERDICTS.assign(label=[None, "broken", "healthy", "exclude", None]), RANGES, ax=ax)
    assert gaps(ax) == {
        "healthy": [0.0150, 0.0461],
        "broken": [0.0153],
        "excluded": [0.0180],
        "no-range": [0.0109],
    }


def test_setup_gap_and_verdict_are_enough_for_a_chart(ax):
    plot_gaps(VERDICTS[["setup", "gap", "verdict"]], RANGES[["center", "low", "high"]], ax=ax)
    assert sum(map(len, gaps(ax).values())) == 5


def test_a_setup_without_a_range_is_drawn_all_the_same(ax):
    plot_gaps(VERDICTS, RANGES[:1], ax=ax)
    assert gaps(ax)["no-range"] == [0.0109]
    missing = RANGES.assign(low=math.nan, high=math.nan, center=math.nan)
    bare = Figure().subplots()
    plot_gaps(VERDICTS, missing, ax=bare)
    assert bands(bare) == []


def test_no_runs_make_an_empty_chart(ax):
    plot_gaps(VERDICTS[:0], RANGES, ax=ax)
    assert marks(ax) == {}
    assert ax.get_legend() is None


def test_verdicts_differ_by_shape_as_well_as_by_color():
    shapes = [(look.marker, look.hollow) for look in LOOKS.values()]
    assert len(set(shapes)) == len(shapes)


def test_a_hostile_name_is_drawn_as_text(ax):
    plot_gaps(frame((SMALL, 0.0461, "broken", "$\\frac{$ \x1b[31m\u202e" + "A" * 5000)), RANGES, ax=ax)
    ax.figure.savefig(io.BytesIO(), format="png")
    assert texts(ax)[0].startswith(r"◆ \$\frac{\$ AAA")
    assert len(texts(ax)[0]) < 60


def test_nothing_is_kept_in_pyplot_and_no_setting_changes_when_axes_are_given(ax):
    import matplotlib.pyplot as plt

    before, backend, figures = dict(mpl.rcParams), mpl.get_backend(), plt.get_fignums()
    plot_gaps(VERDICTS, RANGES, ax=ax)
    plot_history(VERDICTS, RANGES, ax=Figure().subplots())
    assert plt.get_fignums() == figures
    assert (dict(mpl.rcParams), mpl.get_backend()) == (before, backend)


def test_without_axes_a_figure_is_made_that_grows_with_the_setups():
    import matplotlib.pyplot as plt

    one = plot_gaps(VERDICTS[:4], RANGES).figure
    two = plot_gaps(VERDICTS, RANGES).figure
    try:
        assert two.get_figheight() > one.get_figheight()
    finally:
        plt.close(one)
        plt.close(two)


@pytest.mark.parametrize("column", ["setup", "gap", "verdict"])
def test_a_missing_column_is_named(ax, column):
    with pytest.raises(UsageError, match=f"no column {column}"):
        plot_gaps(VERDICTS.drop(columns=column), RANGES, ax=ax)


def test_history_draws_one_setup_over_time(ax):
    plot_history(VERDICTS, setup=SMALL, ax=ax)
    days = date2num(VERDICTS["created_at"]).round(6).tolist()
    assert marks(ax) == {
        "healthy": [(days[0], 0.0150), (days[1], 0.0153)],
        "broken": [(days[2], 0.0461)],
        "suspect": [(days[3], 0.0180)],
    }
    assert ax.get_title(loc="left") == SMALL
    assert {"wrong-ckpt", "new-image"} == set(texts(ax))


def test_history_takes_the_setup_with_most_runs_unless_one_is_named(ax):
    plot_history(VERDICTS, ax=ax)
    assert ax.get_title(loc="left") == SMALL


def test_history_shows_the_range_that_each_run_was_judged_by(ax):
    moving = VERDICTS.assign(low=[0.010, 0.012, 0.014, 0.014, 0.0], high=[0.020, 0.018, 0.0165, 0.0165, 0.0])
    plot_history(moving, setup=SMALL, ax=ax)
    band = next(drawn for drawn in ax.collections if drawn.get_label() not in LOOKS)
    corners = band.get_paths()[0].vertices
    first, last = date2num(START), date2num(START + timedelta(days=3))
    assert {y for x, y in corners.tolist() if x == first} == {0.010, 0.020}
    assert {y for x, y in corners.tolist() if x == last} == {0.014, 0.0165}


def test_history_shows_the_range_of_the_next_run_where_it_is_given(ax):
    plot_history(VERDICTS, RANGES, setup=SMALL, ax=ax)
    assert sorted(line.get_ydata()[0] for line in ax.lines) == [0.0140, 0.0152, 0.0165]


def test_history_marks_where_an_epoch_begins(ax):
    plot_history(VERDICTS.assign(epoch=[0, 0, 1, 1, 0]), setup=SMALL, ax=ax)
    assert [line.get_xdata()[0] for line in ax.lines] == [date2num(START + timedelta(days=1.5))]
    assert " epoch 1" in texts(ax)


def test_history_refuses_a_setup_that_no_run_has(ax):
    with pytest.raises(UsageError, match=r"'elsewhere'\s.*miles · Qwen3-0\.6B"):
        plot_history(VERDICTS, setup="elsewhere", ax=ax)
    with pytest.raises(UsageError, match="created_at"):
        plot_history(VERDICTS.drop(columns="created_at"), ax=ax)


def fleet(setups=40, runs=12, log_sd=0.02):
    """Return healthy runs of many setups: ln(gap) normal about each setup's center."""
    chance = random.Random(11)  # noqa: S311 - any fixed numbers will do
    rows = [
        (f"miles · M{setup}", 0.01 * math.exp(setup / setups + log_sd * chance.gauss()))
        for setup in range(setups)
        for _ in range(runs)
    ]
    return pd.DataFrame(rows, columns=["setup", "gap"])


def points(ax):
    (drawn,) = [drawn for drawn in ax.collections if not isinstance(drawn, PolyCollection)]
    return drawn.get_offsets().tolist()


def outside_band(ax):
    """Count the points that lie outside the shaded band."""
    (band,) = [drawn for drawn in ax.collections if isinstance(drawn, PolyCollection)]
    ends = {}
    for x, y in band.get_paths()[0].vertices.tolist():
        ends.setdefault(x, []).append(y)
    return sum(not min(ends[x]) <= y <= max(ends[x]) for x, y in points(ax))


def test_runs_that_follow_the_fitted_distribution_lie_on_the_diagonal(ax):
    plot_fit(fleet(), ax=ax)
    assert ax.get_title(loc="left") == "480 healthy runs of 40 setups"
    assert outside_band(ax) <= 5
    assert all(abs(x - y) < 0.6 for x, y in points(ax))


def test_a_range_that_is_too_narrow_shows_as_points_beyond_the_band(ax):
    runs = fleet()
    center = runs.groupby("setup")["gap"].median()
    narrow = pd.DataFrame(
        {"n": 12, "center": center, "low": center, "high": center, "sigma": 0.01, "df": 100.0}
    )
    plot_fit(runs, narrow, ax=ax)
    assert outside_band(ax) > 100


def test_the_scores_are_the_standardised_residuals_where_the_distribution_is_normal(ax):
    gaps = [0.0149, 0.0150, 0.0152, 0.0153, 0.0155]
    runs = pd.DataFrame({"setup": SMALL, "gap": gaps})
    known = pd.DataFrame(
        {"n": [10**9], "center": [0.0150], "low": [0.014], "high": [0.016], "sigma": [0.02], "df": [1e9]},
        index=[SMALL],
    )
    plot_fit(runs, known, ax=ax)
    assert [y for _, y in points(ax)] == pytest.approx(
        [math.log(gap / 0.0150) / 0.02 for gap in gaps], abs=1e-6
    )
    # R: qbeta(0.5, 1:5, 5:1)
    medians = [NormalDist().inv_cdf(median) for median in (0.129449, 0.313810, 0.5, 0.686190, 0.870551)]
    assert [x for x, _ in points(ax)] == pytest.approx(medians, abs=1e-5)


def test_one_setup_can_be_looked_at_alone(ax):
    plot_fit(fleet(), setup="miles · M3", ax=ax)
    assert ax.get_title(loc="left") == "12 healthy runs of miles · M3"
    assert len(points(ax)) == 12


def test_broken_runs_are_no_part_of_the_fit(ax):
    runs = fleet(setups=5)
    broken = pd.DataFrame({"setup": "miles · M0", "gap": [0.05, 0.06]})
    plot_fit(pd.concat([runs, broken], ignore_index=True), ax=ax)
    assert ax.get_title(loc="left") == "60 healthy runs of 5 setups"


def test_too_few_runs_for_a_fit_are_told(ax):
    with pytest.raises(UsageError, match="only 2 healthy runs can be compared"):
        plot_fit(pd.DataFrame({"setup": SMALL, "gap": [0.015, 0.0152]}), ax=ax)
    with pytest.raises(UsageError, match="no run belongs to the setup 'elsewhere'"):
        plot_fit(fleet(), setup="elsewhere", ax=ax)
    with pytest.raises(UsageError, match="no column gap"):
        plot_fit(fleet().drop(columns="gap"), ax=ax)


def test_the_strips_of_another_number_have_its_values_and_its_range(ax):
    from step0_wandb import judge
    from tests.support.observed import CONFIGS, FINDER, frame, healthy_row, record

    miles = FINDER.profiles.by_name["miles"]
    runs = frame(
        [
            record(f"r{at}", healthy_row(miles) | {"rollout/entropy": 0.4 + at / 100}, CONFIGS["miles"])
            for at in range(5)
        ]
    )
    plot_gaps(judge(runs), fit_ranges(runs), observable="entropy", ax=ax)
    assert sorted(x for x, _ in marks(ax)["healthy"]) == pytest.approx([0.40, 0.41, 0.42, 0.43, 0.44])
    assert ax.get_xlabel() == "entropy at step 0"
    with pytest.raises(UsageError, match="observable 'entropi'"):
        plot_gaps(judge(runs), fit_ranges(runs), observable="entropi", ax=ax)
