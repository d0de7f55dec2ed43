"""The page as a browser shows it: Debian's chromium, driven by playwright."""

import itertools
import os
import random

import pytest

from step0_wandb.publish.html.page import CARDS_OPEN, render_page
from tests.browser.chromium import QUIET, program
from tests.browser.screenshots import PARTS, SCHEMES, WIDTH, clip, picture
from tests.support.judged import RANGE, judged, setup_range

HOSTILE = "</script><img src=http://127.0.0.1:9/x onerror=console.error(1)>|**x**\u202e\x1b[31m"
READABLE = 4.5  # WCAG 2.2, success criterion 1.4.3, for text of normal size


def fleet():
    """Return a few dozen runs of all kinds, most of them with an address, one of each kind without."""
    other = setup_range(
        setup="miles · Qwen3-1.7B", center=0.0109, low=0.0096, high=0.0124, n=2, basis="pooled"
    )
    runs = [
        *(judged(n, gap=0.0148 + 0.00005 * n) for n in range(17)),
        judged(
            20,
            gap=0.0461,
            verdict="broken",
            name="wrong-checkpoint",
            state="running",
            reasons=("gap 0.0461",),
        ),
        judged(21, verdict="broken", name="dropout-0.1", ppo_kl=0.3, reasons=("ppo_kl 0.300 is not 0",)),
        judged(22, gap=float("nan"), verdict="broken", name="fp16-nan", reasons=("gap is nan",)),
        judged(23, gap=0.0, verdict="suspect", name="rollout-logprobs", reasons=("gap is exactly 0",)),
        judged(24, gap=0.018, verdict="suspect", name="new-image", url=None, reasons=("gap 0.0180",)),
        judged(25, gap=0.0174, verdict="suspect", name="longer-answers", label="healthy"),
        judged(26, gap=None, setup=None, verdict="no-step0", name="resumed", reasons=("begins at step 6",)),
        judged(27, setup=other.setup, gap=0.0109, range=other),
        judged(
            28, setup=other.setup, gap=0.0412, verdict="broken", name=HOSTILE, range=other, reasons=(HOSTILE,)
        ),
        judged(29, setup=other.setup, gap=0.0110, name="A" * 5000, range=other, url=None),
    ]
    return render_page(runs, [RANGE, other], title="team/grpo", as_of=None)


def crowd():
    """Return 5,000 runs in sixty setups, one in twenty broken; the last healthy one has no address."""
    chance = random.Random(5)  # noqa: S311 - any fixed numbers will do
    ranges = [setup_range(setup=f"miles · Model-{n}") for n in range(60)]
    runs = []
    for number in range(5000):
        home = ranges[0] if number % 2 else chance.choice(ranges)
        wrong = number % 20 == 0
        gap = 0.0152 * chance.lognormvariate(0, 0.02) * (3.0 if wrong else 1.0)
        runs.append(judged(number, setup=home.setup, gap=gap, verdict="broken" if wrong else "healthy"))
    runs[-1] = judged(4999, setup=ranges[0].setup, url=None, name="without-address")
    return render_page(runs, ranges, title="5,000 runs", as_of=None)


@pytest.fixture(scope="module")
def chromium():
    if program() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=[*QUIET])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    pages = {"fleet": fleet(), "crowd": crowd()}
    for name, html in pages.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in pages}


@pytest.fixture
def visit(chromium, files):
    """Open a page in a fresh context; it must neither ask for anything nor complain."""
    contexts, requests, complaints = [], [], []

    def _visit(name, *, width=1280, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(files[name])
        return page

    yield _visit
    for context in contexts:
        context.close()
    assert {url.split("#")[0] for url in requests} <= set(files.values())
    assert complaints == []


def overlap(one, other):
    return (
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
    )


def letters(box):
    """Return the part of a name's box that letters cover, without the halo around them."""
    return {"x": box["x"] + 4, "y": box["y"] + 4, "width": box["width"] - 8, "height": box["height"] - 8}


def contrast(page, selector):
    """Return WCAG's contrast ratio between a text and the nearest background behind it."""
    colors = page.locator(selector).first.evaluate("""element => {
        const text = getComputedStyle(element).color;
        let back = element;
        while (getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
        return [text, getComputedStyle(back).backgroundColor];
    }""")
    one, other = sorted(luminance(color) for color in colors)
    return (other + 0.05) / (one + 0.05)


def luminance(color):
    """Relative luminance as WCAG 2.2 defines it, of a color such as ``rgb(27, 31, 36)``."""
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_the_page_asks_for_nothing_but_itself_and_complains_of_nothing(visit):
    page = visit("fleet")
    assert page.title() == "team/grpo"
    assert page.locator("img, iframe, script[src]").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_text_is_readable_in_light_and_dark(visit, scheme):
    page = visit("fleet", scheme=scheme)
    dark = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.2
    assert dark == (scheme == "dark")
    kinds = (
        "h1",
        ".headline",
        ".hint",
        ".card h3 a",
        ".facts dt",
        ".t-broken",
        ".t-suspect",
        ".t-healthy",
        ".tag",
        "td",
    )
    assert {kind: contrast(page, kind) for kind in kinds if contrast(page, kind) < READABLE} == {}


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_no_width_makes_the_page_scroll_sideways(visit, width):
    page = visit("fleet", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_in_a_chart_cover_neither_each_other_nor_a_flagged_point(visit):
    page = visit("fleet", width=1280)
    for chart in page.locator("svg.chart").all():
        names = [letters(name.bounding_box()) for name in chart.locator("text.name").all()]
        points = [point.bounding_box() for point in chart.locator("use.broken, use.suspect").all()]
        assert names
        assert not any(overlap(one, other) for one, other in itertools.combinations(names, 2))
        assert not any(overlap(name, point) for name in names for point in points)


def test_the_points_stand_inside_the_chart_and_in_the_range_where_they_belong(visit):
    page = visit("fleet")
    chart = page.locator("svg.chart").first
    frame, band = chart.bounding_box(), chart.locator(".band").bounding_box()
    circles = [point.bounding_box() for point in chart.locator("circle.healthy").all()]
    assert len(circles) == 18
    inside = [
        circle
        for circle in circles
        if band["y"] <= circle["y"] + circle["height"] / 2 <= band["y"] + band["height"]
    ]
    assert len(inside) == 17  # the one that a person labeled healthy lies above
    assert all(frame["x"] <= circle["x"] < frame["x"] + frame["width"] for circle in circles)


def test_the_page_is_used_by_keyboard_alone(visit):
    page = visit("fleet")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText").split() == ["4", "broken"]
    page.keyboard.press("Enter")
    page.wait_for_url("**#broken")
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.split(':')[0].trim()"))
    assert {"wrong-checkpoint", "dropout-0.1", "fp16-nan", "rollout-logprobs", "new-image"} <= reached


def test_every_link_has_a_name_and_every_table_head_a_scope(visit):
    page = visit("fleet")
    assert (
        page.locator("a").evaluate_all("links => links.filter(link => !link.textContent.trim()).length") == 0
    )
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("svg.chart:not([aria-label])").count() == 0


def test_a_point_without_an_address_opens_the_folded_table_and_shows_its_row(visit):
    page = visit("crowd")
    row = page.locator("tr", has_text="without-address")
    assert not row.is_visible()
    page.locator("svg.chart a[href^='#']").first.click()
    assert row.is_visible()
    top = row.bounding_box()["y"]
    assert 0 <= top <= 900


def test_of_5000_runs_all_flagged_ones_are_there_and_only_the_first_are_unfolded(visit):
    page = visit("crowd")
    rows = page.locator("table.runs tr[id]").count()
    assert rows == page.locator("svg.chart a").count() < 3200
    assert page.locator("#broken").locator("xpath=ancestor::details").locator("tr[id]").count() == 250
    assert 0 < page.locator("section[aria-labelledby=h-recent] article:visible").count() <= CARDS_OPEN
    assert page.evaluate("document.documentElement.scrollHeight") < 15_000
    page.locator("nav a", has_text="healthy").click()
    assert page.locator("#healthy").is_visible()


def test_the_search_shows_what_matches_and_unfolds_it(visit):
    page = visit("crowd")
    page.fill("#search", "without-address")
    assert page.locator("table.runs tr[id]:visible").count() == 1
    assert page.locator("#found").inner_text() == "1 of the listed runs match"
    page.fill("#search", "")
    assert 0 < page.locator("section[aria-labelledby=h-recent] article:visible").count() <= CARDS_OPEN
    assert not page.locator("tr", has_text="without-address").is_visible()


def test_the_page_prints_on_white_whatever_the_screen_shows(visit):
    page = visit("fleet", scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF-")


def test_the_pictures_of_the_readme_show_what_they_are_named_after(visit):
    page = visit("fleet", width=WIDTH)
    shown = {part: clip(page, part) for part in PARTS}
    assert shown["page"]["y"] < 40
    assert shown["page"]["y"] + shown["page"]["height"] < shown["setups"]["y"]
    chart = page.locator("svg.chart").first.bounding_box()
    assert shown["setups"]["y"] < chart["y"]
    assert chart["y"] + chart["height"] < shown["setups"]["y"] + shown["setups"]["height"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("part", PARTS)
def test_a_picture_of_the_readme_is_small_and_as_wide_as_the_page(part, scheme):
    content = picture(part, scheme).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20]) == WIDTH
    assert len(content) < 100_000
