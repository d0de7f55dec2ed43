import os
import random
import re
import stat
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.errors import UsageError
from step0_wandb.publish.html.page import (
    CARDS_AT_MOST,
    CARDS_OPEN,
    CHARTS_OPEN,
    Extras,
    render_page,
    write_page,
)
from step0_wandb.records import CheckResult
from tests.support.judged import RANGE, SETUP, judged, setup_range, weight_check

AS_OF = datetime(2026, 10, 3, 2, 16, tzinfo=UTC)
HOSTILE = "</script><img src=x onerror=alert(1)>|**x**\u202egpj.exe\x1b[31m\x00"
VOID = {"meta", "link", "input"}
SWITCH = "no gap is logged: set actor_rollout_ref.rollout.calculate_log_probs=True"


@dataclass
class Element:
    tag: str
    attributes: dict
    text: str = ""
    children: list = field(default_factory=list)

    def all(self, tag, css=None):
        found = [self] if self.tag == tag and (css is None or css in self.classes) else []
        return found + [hit for child in self.children for hit in child.all(tag, css)]

    @property
    def classes(self):
        return (self.attributes.get("class") or "").split()

    @property
    def words(self):
        return " ".join(self.text.split())


class Tree(HTMLParser):
    """Reads HTML as a tree and refuses elements that are not closed in turn."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open = [Element("document", {})]
        self.feed(html)
        self.close()
        assert [element.tag for element in self.open] == ["document"]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, dict(attrs))
        assert len(element.attributes) == len(attrs)
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag

    def handle_data(self, data):
        for element in self.open:
            element.text += data


def page(runs, setups=(RANGE,), *, title="team/grpo", as_of=AS_OF, **extras):
    return Tree(render_page(runs, setups, title=title, as_of=as_of, extras=Extras(**extras))).open[0]


def section(tree, heading):
    return next(part for part in tree.all("section") if part.all("h2")[0].words == heading)


def tags(tree):
    return [tree.tag, *(tag for child in tree.children for tag in tags(child))]


FLEET = [
    *(judged(number, gap=0.0148 + 0.0001 * number) for number in range(9)),
    judged(
        20,
        gap=0.0461,
        verdict="broken",
        name="wrong-ckpt",
        user="jonas",
        state="running",
        reasons=("gap 0.0461 is 3.0 times the center 0.0152", "second reason"),
    ),
    judged(21, verdict="broken", name="dropout", ppo_kl=0.3, reasons=("ppo_kl 0.300 is not 0",)),
    judged(22, gap=0.018, verdict="suspect", name="new-image", reasons=("gap 0.0180 is 1.18 times",)),
    judged(
        23,
        gap=None,
        setup=None,
        profile=None,
        verdict="no-step0",
        name="resumed",
        reasons=("begins at step 6",),
    ),
]


def test_the_verdicts_are_counted_before_anything_else():
    tiles = page(FLEET).all("nav")[0].all("li")
    assert [tile.words for tile in tiles] == ["2broken", "1suspect", "1no step 0", "9healthy"]


def test_what_is_broken_comes_first_with_who_started_it_and_whether_it_still_runs():
    tree = page(FLEET)
    headings = [heading.words for heading in tree.all("h2")]
    assert headings == ["Now", "Last 7 days", "Setups", "What is checked, and what is not", "Ranges", "Runs"]
    (first,) = section(tree, "Now").all("article")
    second, third = section(tree, "Last 7 days").all("article")
    assert third.all("a")[0].words == "new-image"
    assert first.all("a")[0].words == "wrong-ckpt"
    assert [reason.words for reason in first.all("li")] == [
        "gap 0.0461 is 3.0 times the center 0.0152",
        "second reason",
    ]
    assert "still running" in first.words
    assert "startedby jonas, 2026-10-02 08:00 UTC" in first.words
    assert "finished" in second.words
    assert "ppo_kl0.300" in second.words


def test_a_cause_that_runs_share_stands_once_above_them_and_is_not_repeated_as_a_reason():
    dropout = "dropout is on (attention_dropout 0.1)"
    reasons = (f"its config contradicts itself: {dropout}", "gap 0.0461 is 3.0 times the center")
    runs = [
        judged(1, verdict="broken", gap=0.0461, reasons=reasons),
        judged(2, verdict="broken", gap=0.0461, reasons=("gap 0.0461 alone",)),
        judged(3, verdict="broken", gap=0.0461, reasons=reasons),
    ]
    causes = {runs[0].run: dropout, runs[1].run: "another image", runs[2].run: dropout}
    found = page(runs, findings=causes)
    [shared] = found.all("p", "shared")
    assert shared.words == f"Look first, in 2 runs: {dropout}"
    assert [one.words for one in found.all("article", "card") if dropout in one.words] == []
    names = [link.words for one in found.all("article", "b-broken") for link in one.all("a")[:1]]
    assert names == ["qwen3-3", "qwen3-1", "qwen3-2"]


def test_a_number_that_flagged_a_run_has_a_small_chart_of_all_runs_of_its_setup():
    def checked(number, entropy, outcome="pass"):
        found = CheckResult("learned:entropy", outcome, entropy, None, "")
        verdict = "suspect" if outcome == "fail" else "healthy"
        return judged(number, verdict=verdict, checks=(found,), reasons=(f"entropy is {entropy}",))

    runs = [*(checked(number, 0.41) for number in range(5)), checked(5, 8.9, "fail")]
    [pane] = page(runs, [RANGE]).all("article", "pane")
    gaps, entropies = pane.all("svg", "chart")
    assert [heading.words for heading in pane.all("h4")] == ["entropy"]
    assert entropies.attributes["aria-label"].startswith("entropy of 6 runs")
    assert [name.words for name in entropies.all("text", "name")] == ["qwen3-5"]
    assert page(runs[:5], [RANGE]).all("h4") == []
    assert len(gaps.all("text", "name")) == 1


def test_the_headline_says_how_many_broken_runs_still_burn_gpus():
    headline = "1 broken run still running."
    assert page(FLEET).all("p", "headline")[0].words == headline
    headline = "1 broken run in the last 7 days, none still running."
    assert page([run for run in FLEET if run.state != "running"]).all("p", "headline")[0].words == headline
    headline = "No broken runs now or in the last 7 days, 1 suspect run."
    assert page([FLEET[-2]]).all("p", "headline")[0].words == headline


def test_a_project_whose_last_broken_run_is_40_days_old_is_green_on_top():
    tree = page([*FLEET[:9], FLEET[10]], as_of=AS_OF + timedelta(days=40))
    (headline,) = tree.all("p", "headline")
    assert "good" in headline.classes
    assert headline.words == (
        "No broken or suspect runs now or in the last 7 days; 9 of 10 runs healthy. 1 broken run earlier."
    )
    (fold,) = section(tree, "Earlier").all("details")
    assert "open" not in fold.attributes
    assert [card.all("a")[0].words for card in fold.all("article")] == ["dropout"]


def test_silence_does_not_look_like_health():
    unchecked = [judged(number, gap=None, verdict="unchecked") for number in range(30)]
    headline = page([*unchecked, judged(99)]).all("p", "headline")[0]
    assert headline.words == "No broken or suspect runs now or in the last 7 days; 1 of 31 runs healthy."


def test_labeled_runs_stand_apart_with_their_label_and_the_tools_own_verdict():
    cleared = judged(1, verdict="broken", label="healthy", name="cleared", gap=0.0461)
    left_out = judged(2, verdict="suspect", label="exclude", name="left-out")
    tree = page([judged(0), cleared, left_out])
    apart = section(tree, "Labeled").all("article")
    assert [card.all("a")[0].words for card in apart] == ["left-out", "cleared"]
    assert "labeled healthy" in apart[1].words
    assert "own verdict: broken" in apart[1].words
    assert [heading.words for heading in tree.all("h2")] == ["Labeled", "Setups", "Ranges", "Runs"]
    assert [tile.words for tile in tree.all("nav")[0].all("li")] == [
        "0broken",
        "0suspect",
        "2healthy1 by label",
        "1excluded",
    ]


def test_what_is_not_checked_is_told_with_the_switch_that_would_change_it():
    silent = [
        judged(
            n,
            profile="verl",
            gap=None,
            verdict="unchecked",
            reasons=(SWITCH,),
            checks=(CheckResult("gap", "skipped", None, None, SWITCH),),
        )
        for n in range(31)
    ]
    measured = [
        judged(40 + n, profile="verl", checks=(CheckResult("gap", "pass", 0.01, None, ""),)) for n in range(9)
    ]
    vacuous = judged(60, checks=(CheckResult("ppo_kl", "vacuous", 0.0, 1e-9, "the log-probs are reused"),))
    coverage, blind = section(page([*silent, *measured, vacuous]), "What is checked, and what is not").all(
        "table"
    )
    rows = [[cell.words for cell in row.children] for row in coverage.all("tr")]
    assert rows == [
        ["check", "pass", "fail", "warn", "proves nothing", "skipped"],
        ["ppo_kl", "0", "0", "0", "1", "0"],
        ["gap", "9", "0", "0", "0", "31"],
    ]
    assert [[cell.words for cell in row.children] for row in blind.all("tr")[1:]] == [
        ["gap", "31 of 40 verl runs", SWITCH],
        ["ppo_kl", "1 of 1 miles run", "the log-probs are reused"],
    ]


def test_a_run_that_could_not_be_judged_is_told_even_without_a_reason():
    blind = section(page([judged(verdict="pending", gap=None)]), "What is checked, and what is not")
    assert [cell.words for cell in blind.all("tr")[1].children] == [
        "pending",
        "1 of 1 miles run",
        "step 0 is not logged yet",
    ]


def test_checks_that_say_nothing_for_the_same_reason_share_a_line():
    why = "verl averages several optimizer steps into one row"
    checks = tuple(CheckResult(check, "skipped", 1e-5, None, why) for check in ("ppo_kl", "clip_frac"))
    blind = section(page([judged(profile="verl", checks=checks)]), "What is checked, and what is not")
    assert [[cell.words for cell in row.children] for row in blind.all("table")[1].all("tr")[1:]] == [
        ["ppo_kl, clip_frac", "1 of 1 verl run", why]
    ]


def test_a_run_without_step_0_has_no_checks_to_speak_of():
    checks = (CheckResult("gap", "skipped", None, None, "no gap was logged"),)
    waiting = judged(verdict="no-step0", gap=None, reasons=("begins at step 6",), checks=checks)
    (blind,) = section(page([waiting]), "What is checked, and what is not").all("table")
    assert [[cell.words for cell in row.children] for row in blind.all("tr")[1:]] == [
        ["no step 0", "1 of 1 miles run", "begins at step 6"]
    ]


def test_what_is_not_checked_for_the_same_reason_is_told_once():
    new = [
        judged(
            n,
            setup=f"miles · M{n}",
            gap=0.01 * n,
            verdict="no-range",
            checks=(
                CheckResult("gap", "skipped", 0.01 * n, None, f"gap 0.0{n}00: no other healthy run yet"),
            ),
        )
        for n in range(1, 6)
    ]
    silent = judged(
        9,
        profile="verl",
        gap=None,
        verdict="unchecked",
        reasons=(SWITCH,),
        checks=(CheckResult("gap", "skipped", None, None, SWITCH.split(":", maxsplit=1)[0]),),
    )
    blind = section(page([*new, silent]), "What is checked, and what is not").all("table")[1]
    assert [[cell.words for cell in row.children] for row in blind.all("tr")[1:]] == [
        ["gap", "5 of 5 miles runs", "no other healthy run yet"],
        ["gap", "1 of 1 verl run", SWITCH],
    ]


def test_every_setup_has_a_chart_whose_points_lead_to_their_runs():
    alone = judged(30, setup="miles · Qwen3-1.7B", gap=0.0109, verdict="no-range", range=None)
    local = judged(31, url=None, verdict="broken", gap=0.05)
    panes = page([*FLEET, alone, local]).all("article", "pane")
    assert {pane.all("h3")[0].words for pane in panes} == {SETUP, "miles · Qwen3-1.7B"}
    links = {link.attributes["href"] for link in panes[0].all("svg", "chart")[0].all("a")}
    rows = {row.attributes.get("id") for row in page([local]).all("tr")}
    assert {run.url for run in FLEET if run.gap is not None} < links
    assert {link[1:] for link in links if link.startswith("#")} <= rows
    assert "no range yet" in panes[1].words


def test_flagged_points_are_reached_by_keyboard_and_healthy_ones_do_not_stand_in_the_way():
    points = page(FLEET).all("svg", "chart")[0].all("a")
    stops = [point.words.split(":")[0] for point in points if point.attributes.get("tabindex") != "-1"]
    assert sorted(stops) == ["dropout", "new-image", "wrong-ckpt"]
    assert len(points) == 12


def test_a_setup_that_moved_or_is_not_believed_says_so():
    noted = setup_range(note="this whole setup lies above what Miles itself allows")
    assert "this whole setup lies above" in page([judged()], [noted]).all("article", "pane")[0].words


def test_the_book_of_weight_checks_has_its_own_table_with_flags_to_copy():
    book = [weight_check("failed", notes=("or died",), runs=1234), weight_check(image="v5", add=("-a", "-b"))]
    tree = page([judged(1)], weights=[*book, weight_check("passed")])
    rows = section(tree, "Weight checks").all("tr")[1:]
    flags = "--num-rollout 2 --check-weight-update-equal"
    assert [[cell.words for cell in row.children] for row in rows] == [
        [
            *("failed", "Qwen3-0.6B", "-", "1,234", "qwen3-1 2026-10-01 12:00 UTC"),
            f'or died {flags} -e MILES_EXTRA_ARGS="--check-weight-update-equal"',
        ],
        ["due", "Qwen3-0.6B", "v5", "1", "-", "-a -b"],
        ["passed", "Qwen3-0.6B", "-", "1", "qwen3-1 2026-10-01 12:00 UTC", ""],
    ]
    assert rows[0].all("a")[0].attributes["href"] == "https://wandb.ai/team/grpo/runs/aa000001"
    assert [code.text for code in rows[1].all("code")] == ["-a", "-b"]


def test_a_failed_weight_check_is_said_at_the_head_and_a_due_one_is_not():
    said = "1 weight check failed, or died before step 0"
    assert said in page([], weights=[weight_check("failed")]).all("header")[0].words
    assert "weight" not in page([], weights=[weight_check()]).all("header")[0].words


def test_how_well_runs_follow_what_ranges_assume_stands_above_the_ranges():
    fit = "train/diff: 212 healthy runs scatter as ranges assume"
    assert f"{fit}." in section(page([judged(1)], fits=[fit]), "Ranges").words
    assert "Weight checks" not in page([judged()]).words


def test_the_table_of_ranges_shows_what_each_range_rests_on():
    ceiling = setup_range(
        setup="slime · M",
        n=0,
        center=None,
        low=None,
        high=0.03,
        seen_low=None,
        seen_high=None,
        sigma=None,
        basis="ceiling",
    )
    exact = setup_range(
        setup="t",
        center=0.0,
        low=0.0,
        high=0.0,
        seen_low=0.0,
        seen_high=0.0,
        sigma=0.0,
        basis="exact",
        accepted=True,
    )
    metric = "train/train_rollout_logprob_abs_diff"
    rows = section(page([judged()], [RANGE, ceiling, exact]), "Ranges").all("tr")[1:]
    assert [[cell.words for cell in row.children] for row in rows] == [
        [SETUP, metric, "1", "17", "0.0152", "0.0140 to 0.0165", "0.0148 to 0.0157", "0.0190", "own"],
        ["slime · M", metric, "0", "0", "-", "up to 0.0300", "-", "-", "ceiling"],
        ["t", metric, "0", "17", "0", "exactly 0", "exactly 0", "0", "exact, accepted"],
    ]


def test_every_run_has_one_row_of_its_own():
    rows = section(page(FLEET), "Runs").all("tr")
    assert sorted(row.all("th")[0].words for row in rows if "id" in row.attributes) == sorted(
        run.name for run in FLEET
    )
    identifiers = re.findall(r'id="([^"]+)"', render_page(FLEET, [RANGE], title="t", as_of=None))
    assert len(identifiers) == len(set(identifiers))


def test_long_lists_are_complete_but_folded():
    broken = [judged(n, gap=0.05, verdict="broken") for n in range(50)]
    others = [judged(100 + n, setup=f"miles · M{n:02d}") for n in range(20)]
    tree = page(broken + others)
    cards = section(tree, "Last 7 days")
    assert len(cards.all("article")) == 50
    assert len(cards.all("details")[0].all("article")) == 50 - CARDS_OPEN
    assert len(section(tree, "Setups").all("details")[0].all("article")) == 21 - CHARTS_OPEN
    folded = {
        part.all("summary")[0].words: "open" in part.attributes
        for part in section(tree, "Runs").all("details")
    }
    assert folded == {"broken 50 runs": False, "healthy 20 runs": True}


def test_every_flagged_run_has_a_row_and_of_healthy_ones_the_newest_hundred_of_each_setup():
    runs = [judged(n, gap=0.0152) for n in range(250)]
    runs += [judged(1000 + n, gap=0.05, verdict="broken") for n in range(130)]
    tree = page(runs)
    rows = [row for row in section(tree, "Runs").all("tr") if "id" in row.attributes]
    assert len(rows) == 230
    assert tree.all("nav")[0].all("li")[2].words == "250healthy"
    assert "150 older runs not listed here: step0-wandb runs --verdict healthy" in tree.words
    assert "150 older runs not drawn" in section(tree, "Setups").words
    assert len(section(tree, "Last 7 days").all("article")) == CARDS_AT_MOST


def test_a_large_fleet_stays_below_three_megabytes():
    setups = [setup_range(setup=f"miles · Model-{n} · top_p=0.95 top_k=64") for n in range(60)]
    runs = [judged(n, setup=setups[n % 60].setup) for n in range(12_000)]
    assert len(render_page(runs, setups, title="t", as_of=None).encode()) < 3_000_000


def test_the_same_runs_give_the_same_bytes_in_whatever_order_they_come():
    shuffled = [*FLEET]
    random.Random(7).shuffle(shuffled)  # noqa: S311 - any fixed order will do
    ranges = [RANGE, setup_range(setup="a"), setup_range(setup="z")]
    first = render_page(FLEET, ranges, title="t", as_of=AS_OF)
    assert render_page(shuffled, ranges[::-1], title="t", as_of=AS_OF) == first


def test_an_empty_store_gives_a_page_that_says_so():
    tree = page([], [])
    assert "No run was read yet." in tree.words
    assert (
        tree.all("p", "headline")[0].words
        == "No broken or suspect runs now or in the last 7 days; 0 of 0 runs healthy."
    )


def test_the_time_of_the_last_sync_is_told_where_it_is_known():
    assert page([]).all("time")[0].words == "2026-10-03 02:16 UTC"
    assert page([], as_of=None).all("time") == []


def test_nothing_is_loaded_and_nothing_runs_but_the_search():
    tree = page(FLEET)
    assert not {"img", "iframe", "object", "embed", "form"} & set(tags(tree))
    (script,) = tree.all("script")
    policy = next(meta for meta in tree.all("meta") if meta.attributes.get("http-equiv"))
    digest = b64encode(sha256(script.text.encode()).digest()).decode()
    assert policy.attributes["content"].startswith(
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    )
    assert [link.attributes["href"] for link in tree.all("link")] == ["data:,"]
    assert "url(" not in tree.all("style")[0].text
    assert "@import" not in tree.all("style")[0].text
    uses = {use.attributes["href"] for use in tree.all("use")}
    assert uses <= {f"#{path.attributes['id']}" for path in tree.all("defs")[0].children}


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "https://a@b/c"]
)
def test_an_address_that_is_no_plain_web_address_is_never_linked(url):
    html = render_page([judged(url=url, verdict="broken", gap=0.05)], [RANGE], title="t", as_of=None)
    assert url not in html


def test_a_hostile_name_is_shown_as_text_without_its_control_characters():
    run = judged(name=HOSTILE, verdict="broken", gap=0.05, user=HOSTILE, group=HOSTILE, reasons=(HOSTILE,))
    book = [weight_check(model=HOSTILE, image=HOSTILE, notes=(HOSTILE,), add=(HOSTILE,))]
    extras = Extras(weights=book, fits=[HOSTILE])
    html = render_page([run], [setup_range(note=HOSTILE)], title=HOSTILE, as_of=None, extras=extras)
    tree = Tree(html).open[0]
    shown = "</script><img src=x onerror=alert(1)>|**x**gpj.exe"
    assert section(tree, "Last 7 days").all("a")[0].words == shown
    assert tree.all("h1")[0].words == shown
    assert not {"\u202e", "\x1b", "\x00"} & set(html)


def test_a_name_of_5000_characters_is_shortened_and_whole_in_its_title():
    name = "qwen" + "A" * 4992 + "7f3a"
    shown = section(page([judged(name=name, verdict="broken", gap=0.05)]), "Last 7 days").all("bdi")[0]
    assert shown.attributes["title"] == name
    assert len(shown.text) == 80
    assert shown.text.startswith("qwenA")
    assert shown.text.endswith("A7f3a")


def test_a_run_without_a_name_goes_by_its_key():
    for nothing in ("", " ", "\u202e"):
        assert section(page([judged(name=nothing)]), "Runs").all("th", None)[-1].words == "team/grpo/aa000000"


@given(st.text(st.characters(), min_size=1), st.text(st.characters(), min_size=1))
def test_no_text_whatever_adds_an_element_to_the_page(text, other):
    def fleet(text, other):
        spots = (CheckResult("gap", "skipped", None, None, other + "."),)
        run = judged(
            name=text, user=text + ".", group=other + ".", setup=other + ".", verdict="broken", gap=0.05
        )
        apart = judged(1, name=other, setup=other + ".", label="exclude", reasons=(text + ".",), checks=spots)
        return page([run, apart], [setup_range(setup=other + ".", note=text + ".")], title=text)

    assert tags(fleet(text, other)) == tags(fleet("x", "y"))


def test_the_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path):
    target = tmp_path / "page.html"
    target.write_text("old")
    target.chmod(0o640)
    write_page(target, "new · page")
    assert target.read_text(encoding="utf-8") == "new · page"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_new_file_is_for_its_owner_alone(tmp_path):
    write_page(tmp_path / "page.html", "new")
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o600


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path):
    (tmp_path / "served.html").write_text("old")
    (tmp_path / "page.html").symlink_to("served.html")
    write_page(tmp_path / "page.html", "new")
    assert (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "served.html").read_text() == "new"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_page(tmp_path / "pipe", "new")
        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("target", ["missing/page.html", "folder", "loop"])
def test_a_place_that_cannot_be_written_is_named(tmp_path, target):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match=f"cannot write the page .*{target}"):
        write_page(tmp_path / target, "new")


def test_when_writing_fails_the_old_page_stays_and_no_draft_is_left(tmp_path):
    target = tmp_path / "page.html"
    target.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_page(target, "half\ud800")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
