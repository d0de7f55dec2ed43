"""What alerts say, and what a webhook is sent."""

import json
import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.errors import SourceError, UsageError
from step0_wandb.publish.alerts.delivery import WandbAlerts
from step0_wandb.publish.alerts.text import (
    Stake,
    digest_text,
    digest_title,
    run_line,
    run_text,
    run_title,
    setup_text,
    setup_title,
    stake_text,
)
from step0_wandb.publish.alerts.webhook import webhook_body, webhook_refusal, webhook_url
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
STAKE = Stake(gpus=64, since=timedelta(hours=6), as_of=datetime(2026, 11, 30, 3, 12, tzinfo=UTC))


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
        "megatron_to_hf_mode is bridge, raw in the healthy runs",
        "load is /b, /a in the healthy runs",
        "x",
    ]
    assert run_text(BROKEN, STAKE, findings).splitlines() == [
        REASON,
        "qwen3-3 by mia, miles · Qwen3-0.6B",
        "running: 64 GPUs, 6 h since step 0 = 384 GPU-h (at 03:12 UTC)",
        "- megatron_to_hf_mode is bridge, raw in the healthy runs",
        "- load is /b, /a in the healthy runs",
        "https://wandb.ai/team/grpo/runs/aa000003",
        'Answer: tag the run step0-ok, step0-bad or step0-skip, or: step0-wandb label aa000003 healthy --why "..."',
    ]


def test_what_still_runs_is_told_of_setups_and_in_lines_too():
    assert "seen in 2 runs, 1 run still running: qwen3-3 by mia, " in setup_text(
        SETUP, "moved", [BROKEN, judged(4)]
    )
    assert run_line(BROKEN).startswith("broken, running: qwen3-3 by mia: gap 0.0461 is 3.0 times")


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
    for text in (run_text(run, STAKE, [words] * 3), setup_text(words, words, [run] * 9), run_line(run)):
        assert len(text) < 2500
        assert is_harmless(text)


def test_only_a_plain_web_address_becomes_a_link():
    assert "javascript" not in run_text(judged(1, url="javascript:alert(1)"), STAKE, [])


def test_a_command_that_people_copy_is_one_word_a_name():
    text = run_text(judged(1, run="team/rl/x; rm -rf ~"), STAKE, [])
    assert "step0-wandb label 'x; rm -rf ~' healthy" in text


@pytest.mark.parametrize(
    ("state", "stake", "said"),
    [
        ("running", Stake(64, timedelta(hours=6)), "running: 64 GPUs, 6 h since step 0 = 384 GPU-h"),
        ("running", Stake(8, timedelta(hours=2.54)), "running: 8 GPUs, 2.5 h since step 0 = 20 GPU-h"),
        ("running", Stake(8, timedelta(minutes=12)), "running: 8 GPUs, 12 min since step 0"),
        (
            "running",
            Stake(1, timedelta(hours=30.4), "its start"),
            "running: 1 GPU, 30 h since its start = 30 GPU-h",
        ),
        ("running", Stake(None, timedelta(hours=6)), "running: 6 h since step 0"),
        ("running", Stake(), "running"),
        ("crashed", Stake(64), "crashed: 64 GPUs"),
        ("crashed", Stake(64, timedelta(hours=6)), "crashed: 64 GPUs"),
    ],
)
def test_what_a_run_costs_is_told_as_far_as_it_is_known(state, stake, said):
    assert stake_text(state, stake) == said


def test_a_digest_lists_ten_and_counts_the_rest():
    runs = [judged(at, verdict="broken", reasons=(REASON,)) for at in range(11)]
    runs.append(judged(11, state="running"))
    url = "https://wandb.ai/team/grpo/runs/aa000000"
    text = digest_text([run_line(run) for run in runs], runs, url)
    assert text.startswith("12 new alerts, 1 run still running:\n- broken: qwen3-0 by mia: gap 0.0461")
    assert digest_text(["x"], runs[:1], url).startswith("1 new alert:\n- x\n")
    assert "qwen3-9 " in text
    assert "qwen3-10" not in text
    assert "and 2 more: step0-wandb runs" in text
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
    WandbAlerts(client).send(MESSAGE)
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
        WandbAlerts(client).send(MESSAGE)
    assert client.runs == ["bad"]


# ── the webhook ─────────────────────────────────────────────────────────────


def test_a_webhook_gets_slacks_json_with_its_three_signs_escaped():
    body = webhook_body("Broken at step 0: a", "x < y & <!channel>")
    assert json.loads(body) == {"text": "*Broken at step 0: a*\nx &lt; y &amp; &lt;!channel&gt;"}


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
