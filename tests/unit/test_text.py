import json
import sys
import unicodedata
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from step0_wandb.text.formatting import clean, count, number, ratio, shorten, web_url, when
from step0_wandb.text.json_documents import dumps

HOSTILE = st.text(st.sampled_from("\x1b\x9b\x9d\x07\x9c[]\\;0m\u202eaP_\n"), max_size=60)


@pytest.mark.parametrize(
    ("dirty", "harmless"),
    [
        ("qwen3-0.6B ok", "qwen3-0.6B ok"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;new window title\x07name", "name"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        ("\x1b]0;never ended", "0;never ended"),
        ("\x1bcreset", "reset"),
        ("two\r\nlines\tand\u2028more", "two  lines and more"),
        ("bell\x07, backspace\x08, null\x00, delete\x7f", "bell, backspace, null, delete"),
        ("safe\u202egpj.exe\u2066\u2069", "safegpj.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("中文 и кириллица 🚀", "中文 и кириллица 🚀"),
    ],
)
def test_what_steers_a_terminal_is_removed_from_a_name(dirty, harmless):
    assert clean(dirty) == harmless


@given(st.one_of(st.text(), HOSTILE))
@example("\x1b\x1b[31m[31m")
def test_a_cleaned_text_holds_no_control_or_format_character_and_can_be_encoded(text):
    cleaned = clean(text)
    assert not {unicodedata.category(char) for char in cleaned} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    cleaned.encode()


@given(st.text())
def test_cleaning_twice_changes_nothing_more(text):
    assert clean(clean(text)) == clean(text)


@given(st.text(), st.integers(3, 100))
def test_a_shortened_text_never_exceeds_its_limit_and_keeps_both_ends(text, limit):
    short = shorten(text, limit)
    assert len(short) <= limit
    if len(text) > limit:
        assert len(short) == limit
        assert short[0] == text[0]
        assert short[-1] == text[-1]
    else:
        assert short == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0152341, "0.0152"),
        (0.0140, "0.0140"),
        (0.0461, "0.0461"),
        (3.66e-05, "3.66e-05"),
        (-5.4e-06, "-5.4e-06"),
        (1e-10, "1e-10"),
        (0.000366, "0.000366"),
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (12.04, "12.0"),
        (9.996, "10.0"),
        (99.96, "100"),
        (999.7, "1000"),
        (1234.5, "1234"),
        (5_000_000.0, "5000000"),
        (6.02e23, "6.02e+23"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (None, "-"),
    ],
)
def test_a_figure_is_short_and_keeps_three_digits(value, text):
    assert number(value) == text


@given(st.floats(-1e300, 1e300))
def test_a_printed_figure_is_within_half_a_percent_of_the_value(value):
    assert float(number(value)) == pytest.approx(value, rel=0.0051, abs=sys.float_info.min)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0021, "0.00210"),
        (0.55, "0.55"),
        (1.184, "1.18"),
        (3.03, "3.0"),
        (13.2, "13.2"),
        (250.4, "250"),
        (None, "-"),
        (float("inf"), "inf"),
    ],
)
def test_a_ratio_is_finer_close_to_one(value, text):
    assert ratio(value) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (5000, "5,000 runs")]
)
def test_an_amount_agrees_with_its_noun(amount, text):
    assert count(amount, "run") == text


def test_a_time_is_told_in_utc_whatever_zone_it_came_in():
    shanghai = timezone(timedelta(hours=8))
    assert when(datetime(2026, 11, 30, 1, 5, 59, tzinfo=shanghai)) == "2026-11-29 17:05 UTC"
    assert when(datetime(2026, 11, 30, 1, 5, tzinfo=UTC)) == "2026-11-30 01:05 UTC"
    assert when(None) == "-"


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="without a time zone"):
        when(datetime(2026, 11, 30))  # noqa: DTZ001 - the missing zone is the point


@pytest.mark.parametrize(
    "url",
    [
        "https://wandb.ai/team/project/runs/7f3a",
        "http://wandb.internal:8080/team/project/runs/7f3a?nw=x",
        "https://wandb.ai/team/%E4%B8%AD/runs/7f3a",
    ],
)
def test_web_addresses_may_be_linked(url):
    assert web_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java\nscript:alert(1)",
        " https://wandb.ai/a",
        "data:text/html,<script>alert(1)</script>",
        "file:///etc/passwd",
        "//wandb.ai/a",
        "/relative",
        "https://",
        "https://[broken",
        "https://wandb.ai@evil.example/a",
        "https://wandb.ai/\u202egpj",
    ],
)
def test_nothing_else_is_ever_linked(url):
    assert web_url(url) is None


def test_a_json_document_says_everything_and_steers_no_terminal():
    name = "-".join(map(chr, range(0x10000))) + "😀"
    text = dumps({"name": name})
    assert json.loads(text) == {"name": name}
    marks = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    steering = {
        char
        for char in text.replace("\n", "")
        if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} or unicodedata.bidirectional(char) in marks
    }
    assert not steering
    assert "😀" in text
