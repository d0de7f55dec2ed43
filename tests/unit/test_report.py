"""The report as plain blocks: what comes first, what is left out, and that no name is active in it."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from step0_wandb.publish.wandb import report as module
from step0_wandb.publish.wandb.report import (
    GENERATED,
    MARK,
    Bullets,
    Callout,
    Heading,
    Link,
    Markdown,
    Panels,
    Paragraph,
    build_report,
    code,
)
from step0_wandb.records import CheckResult
from tests.support.judged import START, judged, setup_range, weight_check

NOW = START + timedelta(days=30)
HOSTILE = "</script><img src=x>|**x** [a](https://evil.example) `b` $c$ \x1b]8;;x\x07\u202eend"


def build(runs, setups=(), **changes):
    return build_report(runs, setups, as_of=NOW, **changes)


def sections(report):
    """Return the blocks of each section by its heading; what stands before the first under ""."""
    found, here = {"": []}, ""
    for block in (*report.head, *report.body):
        if isinstance(block, Heading):
            here = block.text
            found[here] = []
        else:
            found[here].append(block)
    return found


def plain(line):
    return "".join(part if isinstance(part, str) else part.text for part in line)


def lines(blocks):
    """Return every line of text of some blocks."""
    found = []
    for block in blocks:
        match block:
            case Paragraph(line):
                found.append(plain(line))
            case Bullets(many):
                found += [plain(line) for line in many]
            case Callout(text) | Markdown(text):
                found.append(text)
    return found


def flagged(number, days, **changes):
    return judged(
        number,
        verdict=changes.pop("verdict", "broken"),
        created_at=NOW - timedelta(days=days),
        gap=0.0456,
        reasons=("gap 0.0456 is 3.0 times the center",),
        **changes,
    )


def test_broken_runs_that_still_run_come_first_then_the_last_seven_days_and_labeled_ones_apart():
    runs = [
        flagged(1, 20, state="running"),
        flagged(2, 6.9),
        flagged(3, 7.1),
        flagged(4, 1, verdict="suspect"),
        flagged(5, 20, verdict="suspect", state="running"),
        flagged(6, 1, label="exclude"),
        judged(7, label="broken", state="running"),
        judged(8, created_at=NOW),
    ]
    found = sections(build(runs))
    assert list(found)[:4] == [
        "",
        "Broken and still running",
        "Flagged in the last 7 days",
        "Labeled by people",
    ]
    who = {name: re.findall(r"qwen3-(\d+)", " ".join(lines(found[name]))) for name in list(found)[1:4]}
    assert who == {
        "Broken and still running": ["1"],
        "Flagged in the last 7 days": ["2", "4", "5"],
        "Labeled by people": ["7", "6"],
    }
    assert lines(found["Flagged in the last 7 days"])[-1] == "1 older flagged run: see the table of runs."


def test_the_head_says_that_the_report_is_generated_and_when():
    report = build([judged(1), flagged(2, 1), flagged(3, 1, verdict="suspect")])
    assert report.head[0] == Callout(GENERATED)
    assert "overwrites" in GENERATED
    assert lines(report.head)[1] == "3 runs: 1 broken, 1 suspect, 1 healthy. As of 2026-10-31 12:00 UTC."
    assert MARK in module.DESCRIPTION


def test_the_head_counts_every_run():
    runs = [
        judged(1),
        judged(2, verdict="pending"),
        judged(3, verdict="no-range"),
        judged(4, label="exclude"),
    ]
    head = lines(build(runs).head)[1]
    assert head.startswith("4 runs: 0 broken, 0 suspect, 1 no-range, 1 pending, 1 healthy, 1 excluded. As of")


def test_what_to_look_at_first_comes_before_the_reasons_and_once_where_runs_share_it():
    cause = "dropout is on"
    again = ("its config contradicts itself: dropout is on", "gap 0.0456 is 3.0 times the center")
    runs = [replace(flagged(number, 1), reasons=again) for number in (1, 2)] + [flagged(3, 2)]
    causes = dict.fromkeys((runs[0].run, runs[1].run), cause) | {runs[2].run: "new image"}
    common, shown = sections(build(runs, causes=causes))["Flagged in the last 7 days"]
    assert plain(common.line) == "Look first, in 2 runs: dropout is on"
    assert [plain(line).partition(" (miles")[0] for line in shown.lines] == [
        "qwen3-1: broken. gap 0.0456 is 3.0 times the center.",
        "qwen3-2: broken. gap 0.0456 is 3.0 times the center.",
        "qwen3-3: broken. Look first: new image. gap 0.0456 is 3.0 times the center.",
    ]


def test_only_the_head_changes_while_nothing_happens():
    runs = [judged(1), flagged(2, 1)]
    later = build_report(runs, (), as_of=NOW + timedelta(hours=1))
    assert later.body == build(runs).body
    assert later.head != build(runs).head


def test_a_run_is_told_with_link_verdict_reason_setup_user_time_and_state():
    [line] = sections(build([flagged(1, 1, state="running")]))["Broken and still running"][0].lines
    assert line[0] == Link("qwen3-1", "https://wandb.ai/team/grpo/runs/aa000001")
    assert plain(line[1:]) == (
        ": broken. gap 0.0456 is 3.0 times the center. (miles · Qwen3-0.6B, by mia, "
        "created 2026-10-30 12:00 UTC, running)"
    )


def test_tables_that_do_not_hold_everything_say_so(monkeypatch):
    assert sections(build([judged(1)]))["Charts and tables"] == [Panels()]
    monkeypatch.setattr(module.tables, "MOST_RUNS", 2)
    cut, _ = sections(build([judged(number) for number in range(3)]))["Charts and tables"]
    assert plain(cut.line) == (
        "The table of runs holds 2 of 3: flagged ones, then labeled ones, then the newest."
    )


def test_silence_does_not_look_like_health():
    found = sections(build([]))
    assert lines(found["Broken and still running"]) == ["No broken run is still running."]
    assert lines(found["Ranges"]) == ["No setup has a range yet."]
    assert lines(found[""])[1].startswith("0 runs: 0 broken, 0 suspect, 0 healthy.")


def test_every_setup_is_a_row_with_its_range_and_what_was_seen():
    setups = [
        setup_range(accepted=True),
        setup_range(
            setup="new", n=0, center=None, low=None, high=None, seen_low=None, seen_high=None, basis="none"
        ),
        setup_range(setup="old", n=30, note="this setup has moved x1.4; accept it if it is right"),
    ]
    table, notes = sections(build([], setups))["Ranges"]
    assert table.text.splitlines() == [
        "| setup | runs | center | range | seen | rests on |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        "| `old` | 30 | 0.0152 | 0.0140 to 0.0165 | 0.0148 to 0.0157 | its own 30 runs |",
        "| `miles · Qwen3-0.6B` | 17 | 0.0152 | 0.0140 to 0.0165 | 0.0148 to 0.0157 | its own 17 runs, accepted |",
        "| `new` | 0 | - | - | - | no range yet |",
    ]
    assert lines([notes]) == ["old: this setup has moved x1.4; accept it if it is right"]


def test_what_is_not_checked_is_told_with_the_switch_that_would_change_it():
    why = "no gap was logged: set actor_rollout_ref.rollout.calculate_log_probs=True"
    check = CheckResult("gap", "skipped", None, None, "no gap was logged")
    runs = [judged(n, profile="verl", checks=(check,), verdict="no-range", reasons=(why,)) for n in range(3)]
    assert lines(sections(build(runs))["What is not checked"]) == [f"gap in 3 verl runs: {why}"]


def test_charts_and_tables_come_from_the_syncs_own_run():
    assert sections(build([]))["Charts and tables"] == [Panels()]


def test_the_book_of_weight_checks_has_its_place():
    book = [weight_check(image="miles:v5"), weight_check("passed", runs=4)]
    found = sections(build([judged(1)], weights=book))
    assert lines(found["Weight checks"]) == [
        (
            "due: Qwen3-0.6B on miles:v5, 1 run; to compare the weights, add to a short run "
            '--num-rollout 2 --check-weight-update-equal or -e MILES_EXTRA_ARGS="--check-weight-update-equal"'
        ),
        "passed by qwen3-1: Qwen3-0.6B, 4 runs",
    ]
    assert found["Weight checks"][0].lines[1][2] == Link(
        "qwen3-1", "https://wandb.ai/team/grpo/runs/aa000001"
    )
    assert "Weight checks" not in sections(build([]))


def test_a_weight_check_of_a_run_that_is_shown_elsewhere_says_what_is_known():
    [line] = lines(sections(build([], weights=[weight_check("failed", notes=("or died",))]))["Weight checks"])
    assert line.startswith("failed: Qwen3-0.6B, 1 run; or died; to compare")


def test_flags_stay_whole_behind_the_longest_names():
    check = weight_check("failed", model="m" * 5000, image="i" * 5000, notes=("n" * 5000,))
    found = sections(build([], weights=[check] * 40))["Weight checks"]
    assert lines(found)[0].endswith('or -e MILES_EXTRA_ARGS="--check-weight-update-equal"')
    assert len(lines(found)[0]) < 1000
    assert lines(found)[-1] == "10 lines more: see `step0-wandb weights`."


def test_a_long_report_is_shortened_with_a_count_of_what_was_left_out():
    runs = [flagged(number, 1, state="running", name=f"name-{number}-" + "x" * 5000) for number in range(300)]
    runs += [judged(1000 + number, setup=f"setup-{number}") for number in range(300)]
    setups = [setup_range(setup=f"setup-{number:03} " + "y" * 5000, note="z" * 5000) for number in range(300)]
    report = build(runs, setups)
    found = sections(report)
    assert len(found["Broken and still running"][0].lines) == module.MOST_RUNS
    assert lines(found["Broken and still running"])[-1] == "250 runs more: see the table of runs."
    assert "200 setups more: see the table of setups." in lines(found["Ranges"])
    assert len(json.dumps(report.blocks())) < 250_000


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://user@evil.example/", "data:text/html,x", None]
)
def test_a_run_whose_address_is_not_plain_gets_no_link(url):
    runs = [flagged(1, 1, state="running", url=url)]
    assert not [part for part in _parts(build(runs)) if isinstance(part, Link)]


def _parts(report):
    for block in report.body:
        match block:
            case Paragraph(line):
                yield from line
            case Bullets(many):
                yield from (part for line in many for part in line)


def test_no_name_is_active_anywhere():
    runs = [
        flagged(1, 1, state="running", name=HOSTILE, user=HOSTILE, setup=HOSTILE, profile=HOSTILE),
        judged(2, label="broken", reasons=(HOSTILE,), name=HOSTILE),
        judged(3, verdict="unchecked", profile=HOSTILE, reasons=(HOSTILE,)),
    ]
    report = build(
        runs,
        [setup_range(setup=HOSTILE, note=HOSTILE)],
        weights=[weight_check(model=HOSTILE, notes=(HOSTILE,))],
    )
    for block in report.body:
        if isinstance(block, Markdown):
            spans = re.sub(r"`[^`|\n]*`", "", block.text)
            assert not re.search(r"[<\[\]*$`]|https?:", spans), spans
    assert all(
        part.url == f"https://wandb.ai/team/grpo/runs/aa00000{n}"
        for n, part in enumerate((part for part in _parts(report) if isinstance(part, Link)), start=1)
    )
    assert all(text.isprintable() for text in lines(report.body) if "\n" not in text)


@pytest.mark.parametrize("text", [HOSTILE, "`" * 9, "|", "a\\", "\\|", "", "\n\n# h", "x" * 5000, "\u202e"])
def test_a_code_span_holds_whatever_is_in_it(text):
    span = code(text)
    assert re.fullmatch(r"`[^`|\n]+`", span)
    assert len(span) <= module.NAME_LENGTH + 2


def test_the_order_in_which_runs_arrive_does_not_matter():
    runs = [flagged(number, 1) for number in range(20)] + [judged(number) for number in range(20, 30)]
    setups = [setup_range(setup=str(number)) for number in range(5)]
    assert build(runs, setups) == build(runs[::-1], setups[::-1])
