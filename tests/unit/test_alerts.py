"""What alerts say, and what a webhook is sent."""

import json
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.profiles.causes import Cause
from step0_wandb.publish.alerts.channels.wandb import WandbSender
from step0_wandb.publish.alerts.channels.webhook import webhook_body, webhook_refusal, webhook_url
from step0_wandb.publish.alerts.text import (
    Cost,
    DigestLine,
    clear_text,
    cost_text,
    digest_text,
    digest_title,
    run_line,
    run_text,
    run_title,
    setup_text,
    setup_title,
)
from step0_wandb.store import Message, Subject
from step0_wandb.wandb_api.credentials import Server
from step0_wandb.wandb_api.faults import (
    FORBIDDEN,
    NO_WANDB_ANSWER,
    NOT_FOUND,
    QUERY_ERROR,
    REFUSED,
    SERVER_ERROR,
    TOO_SLOW,
    RequestFailed,
)
from tests.support.judged import SETUP, judged

HOSTILE = st.text(st.characters(), max_size=300) | st.text("<>|`*@[](){}&\x1b\u202e\n x", max_size=300)
REASON = "gap 0.0461 is 3.0 times the center 0.0152 of 17 healthy runs (range 0.0140 to 0.0165)"
BROKEN = judged(3, verdict="broken", gap=0.0461, reasons=(REASON,), state="running")
COST = Cost(gpus=64, since=timedelta(hours=6), as_of=datetime(2026, 11, 30, 3, 12, tzinfo=UTC))


def is_harmless(text):
    kinds = {unicodedata.category(char) for char in text.replace("\n", "")}
    return not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"} and not set("<>|`*@") & set(text) and "](" not in text


# ── titles ──────────────────────────────────────────────────────────────────


@given(HOSTILE, st.sampled_from(["broken", "suspect"]))
def test_a_title_fits_and_is_harmless_whatever_the_run_id(run_id, level):
    title = run_title(run_id, level)
    assert len(title) < 64
    assert is_harmless(title)


@given(HOSTILE, HOSTILE)
def test_two_runs_never_share_a_title(one, other):
    assert (run_title(one, "broken") == run_title(other, "broken")) == (one == other)
    assert (digest_title(one) == digest_title(other)) == (one == other)


def test_a_title_holds_the_run_id_and_the_level():
    assert run_title("aqg8gbcd", "broken") == "Broken at step 0: aqg8gbcd"
    assert run_title("aqg8gbcd", "suspect") == "Suspect at step 0: aqg8gbcd"


def test_the_title_of_a_setup_tells_setups_levels_and_acceptances_apart():
    accepted = datetime(2026, 11, 30, tzinfo=UTC)
    long = f"{SETUP} · {'key=value ' * 20}"
    titles = [
        setup_title(SETUP, "moved"),
        setup_title(SETUP, "doubted"),
        setup_title(SETUP, "moved", accepted),
        setup_title(long, "moved"),
        setup_title(f"{long}!", "moved"),
    ]
    assert len(set(titles)) == len(titles)
    assert all(len(title) < 64 for title in titles)


# ── texts ───────────────────────────────────────────────────────────────────


def test_the_text_about_a_run_is_what_a_phone_needs():
    findings = [
        "megatron_to_hf_mode is bridge (healthy runs: raw)",
        "load is /b (healthy runs: /a)",
        "x",
    ]
    assert run_text(BROKEN, COST, [], findings).splitlines() == [
        REASON,
        "qwen3-3 by mia, miles · Qwen3-0.6B",
        "running: 64 GPUs, 6 h since step 0 = 384 GPU-h (at 03:12 UTC)",
        "- megatron_to_hf_mode is bridge (healthy runs: raw)",
        "- load is /b (healthy runs: /a)",
        "https://wandb.ai/team/grpo/runs/aa000003",
        'Answer: tag the run step0-ok, step0-bad or step0-skip, or run: step0-wandb label aa000003 healthy --why "..."',
    ]


def test_what_still_runs_is_told_of_setups_and_in_lines_too():
    assert "seen in 2 runs, 1 run still running:\n- qwen3-3 by mia https://" in setup_text(
        SETUP, "moved", [BROKEN, judged(4)]
    )
    assert run_line(BROKEN).text.startswith("broken, running: qwen3-3 by mia: gap 0.0461 is 3.0 times")


@given(HOSTILE)
def test_no_name_reason_or_finding_harms_the_text(words):
    run = judged(
        1,
        name=words,
        user=words,
        setup=words,
        state=words,
        reasons=(words,) * 5,
        url=words,
        run=f"a/b/{words}",
    )
    line = run_line(run, words)
    for text in (
        clear_text(run),
        digest_text([line, line, run_line(run, "another")], words),
        run_text(run, COST, [Cause("c", words, words, 1)], [words] * 3),
        setup_text(words, words, [run] * 9, words),
        line.text,
    ):
        assert len(text) < 3000
        assert is_harmless(text)


def test_only_a_plain_web_address_becomes_a_link():
    assert "javascript" not in run_text(judged(1, url="javascript:alert(1)"), COST, [], [])


def test_a_command_that_people_copy_is_one_word_a_name():
    text = run_text(judged(1, run="team/rl/x; rm -rf ~"), COST, [], [])
    assert "step0-wandb label 'x; rm -rf ~' healthy" in text


@pytest.mark.parametrize(
    ("state", "cost", "said"),
    [
        ("running", Cost(64, timedelta(hours=6)), "running: 64 GPUs, 6 h since step 0 = 384 GPU-h"),
        ("running", Cost(8, timedelta(hours=2.54)), "running: 8 GPUs, 2.5 h since step 0 = 20 GPU-h"),
        ("running", Cost(8, timedelta(minutes=12)), "running: 8 GPUs, 12 min since step 0"),
        (
            "running",
            Cost(1, timedelta(hours=30.4), "its start"),
            "running: 1 GPU, 30 h since its start = 30 GPU-h",
        ),
        ("running", Cost(None, timedelta(hours=6)), "running: 6 h since step 0"),
        ("running", Cost(), "running"),
        ("crashed", Cost(64), "crashed: 64 GPUs"),
        ("crashed", Cost(64, timedelta(hours=6)), "crashed: 64 GPUs"),
    ],
)
def test_what_a_run_costs_is_told_as_far_as_it_is_known(state, cost, said):
    assert cost_text(state, cost) == said


CAUSE = Cause("other-model", "ref_load names another model", "load the checkpoint of hf_checkpoint", 1)


def test_the_first_cause_stands_before_the_reasons_and_is_not_repeated():
    lines = run_text(BROKEN, COST, [CAUSE], [CAUSE.text, "load is /b", "x is 1"]).splitlines()
    assert lines[:2] == ["Likely: ref_load names another model", REASON]
    assert [line for line in lines if line.startswith("- ")] == ["- load is /b"]
    assert "Do: load the checkpoint of hf_checkpoint" in lines


def test_a_cause_that_all_runs_of_a_digest_share_is_said_once():
    runs = [judged(at, verdict="broken", reasons=(REASON,)) for at in range(3)]
    shared = digest_text([run_line(run, CAUSE.text) for run in runs], None)
    assert shared.count(CAUSE.text) == 1
    assert shared.splitlines()[1] == "Likely, all of them: ref_load names another model"
    mixed = digest_text([run_line(runs[0], CAUSE.text), run_line(runs[1], "dropout is 0.1")], None)
    assert [line for line in mixed.splitlines() if "ikely" in line] == [
        "  likely: ref_load names another model",
        "  likely: dropout is 0.1",
    ]


def test_an_all_clear_says_what_holds_now():
    assert clear_text(judged(3, reasons=())).splitlines() == [
        "qwen3-3 by mia, miles · Qwen3-0.6B: it is healthy now",
        "https://wandb.ai/team/grpo/runs/aa000003",
    ]
    labeled = judged(3, verdict="broken", label="exclude")
    assert clear_text(labeled).startswith("qwen3-3 by mia, miles · Qwen3-0.6B: a person labeled it exclude")


def test_a_title_holds_the_name_as_far_as_there_is_room():
    assert run_title("aqg8gbcd", "broken", "qwen3-math") == "Broken at step 0: qwen3-math aqg8gbcd"
    assert run_title("a" * 40, "broken", "qwen3-math") == run_title("a" * 40, "broken")
    assert len(run_title("aqg8gbcd", "clear", "x" * 500)) == 63


def test_a_digest_lists_ten_and_counts_the_rest():
    runs = [judged(at, verdict="broken", reasons=(REASON,)) for at in range(11)]
    runs.append(judged(11, state="running"))
    url = "https://wandb.ai/team/grpo/runs/aa000000"
    text = digest_text([run_line(run) for run in runs], url)
    assert text.startswith("12 new alerts, 1 run still running:\n- broken: qwen3-0 by mia: gap 0.0461")
    assert digest_text([DigestLine("x")], url).startswith("1 new alert:\n- x\n")
    assert "qwen3-9 " in text
    assert "qwen3-10" not in text
    assert "and 2 more: step0-wandb runs" in text
    assert "  https://wandb.ai/team/grpo/runs/aa000003\n" in text
    assert "https://wandb.ai/team/grpo\n" in text


# ── refusals ────────────────────────────────────────────────────────────────


class Stub:
    """A client that answers every alert on a run in one way, and takes those on the sync's own run."""

    server = Server("https://api.example.com", "https://example.com", "a test")

    def __init__(self, answer):
        self.answer = answer
        self.runs = []

    def ask(self, document, variables, _how):
        if "notifyScriptableRunAlert" not in document:
            return {"project": {"run": {"id": "1"}}}
        self.runs.append(variables["run"])
        if variables["run"] == "step0-sync":
            return {"notifyScriptableRunAlert": {"success": True}}
        if isinstance(self.answer, RequestFailed):
            raise self.answer
        return {"notifyScriptableRunAlert": self.answer}

    def error(self, failure):
        return failure.as_error("https://api.example.com")

    def waited_too_long(self, _more_s):
        return False


MESSAGE = Message(
    "wandb", "ERROR", "title", "text", "lab", "rl", "bad", None, (Subject("lab/rl/bad", "broken"),)
)


@pytest.mark.parametrize(
    "answer",
    [
        {"success": False},
        RequestFailed(FORBIDDEN),
        RequestFailed(NOT_FOUND),
        RequestFailed(REFUSED, "HTTP 422"),
        RequestFailed(QUERY_ERROR, "Permission denied"),
        RequestFailed(QUERY_ERROR, "run bad not found"),
    ],
    ids=str,
)
def test_a_no_moves_the_alert_to_the_syncs_own_run(answer):
    client = Stub(answer)
    WandbSender(client).send(MESSAGE)
    assert client.runs == ["bad", "step0-sync"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"success": None},
        RequestFailed(QUERY_ERROR, "context deadline exceeded"),
        RequestFailed(SERVER_ERROR, "HTTP 502"),
        RequestFailed(NO_WANDB_ANSWER, "<html>"),
        RequestFailed(TOO_SLOW),
    ],
    ids=str,
)
def test_after_anything_else_than_a_no_the_alert_may_be_out_and_is_moved_nowhere(answer):
    client = Stub(answer)
    with pytest.raises(SourceError):
        WandbSender(client).send(MESSAGE)
    assert client.runs == ["bad"]


# ── the webhook ─────────────────────────────────────────────────────────────


def posted(**changes):
    """Return what a webhook is sent of a message."""
    return json.loads(webhook_body(replace(MESSAGE, channel="webhook", **changes)))


def test_a_webhook_gets_slacks_json_with_its_three_signs_escaped():
    body = posted(title="Broken at step 0: a", text="x < y & <!channel>")
    assert body["text"] == "*Broken at step 0: a*\nx &lt; y &amp; &lt;!channel&gt;"


def test_slack_gets_title_reasons_and_a_button_to_the_run_in_plain_text():
    url = "https://wandb.ai/team/grpo/runs/aa000003"
    header, section, actions = posted(text=f"why\n{url}\n_x_ <b>", url=url)["blocks"]
    assert header == {"type": "header", "text": {"type": "plain_text", "text": "title", "emoji": False}}
    assert section["text"] == {"type": "plain_text", "text": "why\n_x_ <b>", "emoji": False}
    [button] = actions["elements"]
    assert (button["type"], button["url"], button["text"]["text"]) == ("button", url, "Open the run")


def test_slack_gets_no_button_to_an_address_that_is_not_plain():
    assert [block["type"] for block in posted(url="javascript:alert(1)")["blocks"]] == ["header", "section"]


@given(HOSTILE, HOSTILE)
def test_the_blocks_keep_slacks_limits_whatever_the_text(title, text):
    header, section = posted(title=title * 9, text=text * 99)["blocks"][:2]
    assert len(header["text"]["text"]) <= 150
    assert len(section["text"]["text"]) <= 3000


@pytest.mark.parametrize(
    ("name", "shown"),
    [("_x_", "ˍxˍ"), ("~x~", "∼x∼"), ("top_p and top_k", "top_p and top_k"), ("a _b c_ d", "a ˍb cˍ d")],  # noqa: RUF001 - look-alikes
)
def test_a_name_makes_no_italic_or_crossed_out_words(name, shown):
    assert posted(text=name)["text"].splitlines()[1] == shown


def test_the_url_of_a_webhook_comes_from_the_environment():
    assert webhook_url("HOOK", {"HOOK": " https://hooks.example.com/x "}) == "https://hooks.example.com/x"


@pytest.mark.parametrize(
    "value", [None, "", "hooks.example.com/secret", "file:///secret", "http://[secret", "https://"]
)
def test_what_is_no_url_is_refused_without_being_told(value):
    with pytest.raises(UsageError, match="HOOK") as caught:
        webhook_url("HOOK", {} if value is None else {"HOOK": value})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (200, ""),
        (204, ""),
        (302, "redirects elsewhere (HTTP 302), where nothing is sent"),
        (404, "refuses the message (HTTP 404)"),
    ],
)
def test_the_answer_of_a_webhook_is_told_by_its_status(status, said):
    assert webhook_refusal(status) == said
