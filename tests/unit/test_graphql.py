"""Retries, patience, politeness and silence about secrets, with a transport that plays a script."""

from __future__ import annotations

import base64
import copy
import json
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import reduce
from operator import getitem

import pytest

from step0_wandb.errors import CredentialsError, SourceError
from step0_wandb.wandb_api import faults
from step0_wandb.wandb_api.client import ONE_RUN, PAGE, PROBE, GraphQLClient, RetryPolicy
from step0_wandb.wandb_api.credentials import Account, Server
from step0_wandb.wandb_api.faults import FAULTS, RequestFailed, fault_of_status
from step0_wandb.wandb_api.http import HttpLimits, Reply
from step0_wandb.wandb_api.rate_limit import RateLimiter
from tests.support.server_source import SleepyTime

KEY = "0123456789abcdef" * 3
BASIC = base64.b64encode(f"api:{KEY}".encode()).decode()
QUERY = "query { viewer { username } }"
GOOD = Reply(200, {}, b'{"data": {"viewer": {"username": "ada"}}}')
SERVER = Server("https://wandb.example.com", "https://wandb.example.com", "the argument")


class Script:
    """A transport that plays replies and failures in turn; the last goes on for ever."""

    def __init__(self, *events):
        self.events = list(events)
        self.bodies = []

    def post(self, body):
        self.bodies.append(json.loads(body))
        event = self.events.pop(0) if len(self.events) > 1 else self.events[0]
        if isinstance(event, RequestFailed):
            raise event
        return event


class Bench:
    """A client on a script."""

    def __init__(self, *events, give_up_s=120.0, per_second=1e6):
        self.time = SleepyTime()
        self.script = Script(*events)
        self.limiter = RateLimiter(per_second=per_second, clock=self.time.clock())
        self.client = GraphQLClient(
            Account(SERVER, KEY, "the argument"),
            limiter=self.limiter,
            environ={},
            limits=HttpLimits(give_up_s=give_up_s),
            transport=self.script,
        )

    def ask(self, retry=PAGE):
        return self.client.ask(QUERY, {}, retry)


def status(code, **headers):
    return Reply(code, {name.replace("_", "-"): value for name, value in headers.items()}, b"<html>no</html>")


def errors(message, data=None):
    return Reply(200, {}, json.dumps({"errors": [{"message": message}], "data": data}).encode())


def test_a_good_answer_is_its_data():
    bench = Bench(GOOD)
    assert bench.ask() == {"viewer": {"username": "ada"}}
    assert bench.script.bodies == [{"query": QUERY, "variables": {}}]
    assert (bench.client.requests, bench.client.bytes_read) == (1, len(GOOD.body))


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504, 520])
def test_passing_trouble_is_asked_again(code):
    bench = Bench(status(code), status(code), GOOD)
    assert bench.ask()["viewer"]["username"] == "ada"
    assert bench.client.requests == 3


@pytest.mark.parametrize(
    ("code", "error", "exit_code"),
    [
        (400, SourceError, 5),
        (401, CredentialsError, 4),
        (403, CredentialsError, 4),
        (404, SourceError, 5),
        (302, SourceError, 5),
        (405, SourceError, 5),
        (413, SourceError, 5),
        (501, SourceError, 5),
    ],
)
def test_what_will_not_change_is_asked_once(code, error, exit_code):
    bench = Bench(status(code))
    with pytest.raises(RequestFailed) as caught:
        bench.ask()
    told = bench.client.error(caught.value)
    assert type(told) is error
    assert told.exit_code == exit_code
    assert bench.client.requests == 1
    assert "https://wandb.example.com" in told.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 99999,
        b"<html>sign in</html>",
        b'{"data": {"vie',
        b"[]",
        b'"text"',
        b"null",
        b"{}",
        b'{"data": 1}',
    ],
)
def test_what_is_no_graphql_answer_is_asked_again_and_then_told(body):
    bench = Bench(Reply(200, {}, body))
    with pytest.raises(RequestFailed) as caught:
        bench.ask()
    assert caught.value.fault is faults.NO_WANDB_ANSWER
    assert bench.client.requests == 3


NODES = {"edges": [{"node": {"name": "a", "url": "u"}}], "pageInfo": {"hasNextPage": False}}
ANSWER = {
    "viewer": {"teams": NODES},
    "project": {"runs": NODES, "run": {"files": NODES, "historyKeys": {"keys": {}}}, "allViews": NODES},
}


def places(value, path=()):
    """Return the path of every object and list below a value."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, dict | list):
            yield (*path, name)
            yield from places(part, (*path, name))


@pytest.mark.parametrize("odd", ["text", 7, True, [1]], ids=repr)
def test_what_is_not_as_the_schema_says_is_no_answer(odd):
    taken = []
    for path in places(ANSWER):
        answer = copy.deepcopy(ANSWER)
        *parents, last = path
        reduce(getitem, parents, answer)[last] = odd
        bench = Bench(Reply(200, {}, json.dumps({"data": answer}).encode()))
        try:
            taken.append((path, bench.ask()))
        except RequestFailed as error:
            if error.fault is not faults.NO_WANDB_ANSWER or "not what W&B's schema says" not in str(error):
                taken.append((path, error))
    assert taken == []


def test_json_declared_as_a_web_page_is_taken_for_what_it_is():
    bench = Bench(Reply(200, {"content-type": "text/html"}, GOOD.body))
    assert bench.ask() == {"viewer": {"username": "ada"}}


def test_graphql_errors_are_asked_again_and_leave_their_data():
    partial = {"project": {"runs": {"edges": []}}}
    bench = Bench(errors("context deadline exceeded", partial))
    with pytest.raises(RequestFailed, match="context deadline exceeded") as caught:
        bench.ask()
    assert caught.value.fault is faults.QUERY_ERROR
    assert caught.value.data == partial
    assert bench.client.requests == 3


@pytest.mark.parametrize(("how", "attempts"), [(PAGE, 3), (ONE_RUN, 6), (RetryPolicy(attempts=2), 2)])
def test_after_its_attempts_a_question_is_to_be_asked_smaller(how, attempts):
    bench = Bench(status(502))
    with pytest.raises(RequestFailed) as caught:
        bench.ask(how)
    assert caught.value.fault.smaller
    assert bench.client.requests == attempts


def test_waits_double_from_half_a_second():
    bench = Bench(status(502))
    with pytest.raises(RequestFailed):
        bench.ask(ONE_RUN)
    assert bench.time.naps == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_retry_after_is_obeyed_to_the_second():
    bench = Bench(status(429, retry_after="7"), status(503, retry_after="3"), GOOD)
    bench.ask()
    assert [round(nap, 3) for nap in bench.time.naps] == [7.0, 3.0]


def test_retry_after_may_be_a_date():
    moment = datetime.now(UTC) + timedelta(seconds=30)
    bench = Bench(status(429, retry_after=format_datetime(moment, usegmt=True)), GOOD)
    bench.ask()
    assert 27 < bench.time.naps[0] <= 30


def test_wandbs_rate_limit_headers_are_obeyed():
    bench = Bench(status(429, ratelimit_remaining="0", ratelimit_reset="9"), GOOD)
    bench.ask()
    assert bench.time.naps == [9.0]


def test_an_answer_that_uses_up_the_rate_holds_the_next_request():
    last = Reply(200, {"ratelimit-remaining": "0", "ratelimit-reset": "5"}, GOOD.body)
    bench = Bench(last, GOOD)
    bench.ask()
    bench.ask()
    assert bench.time.naps == [5.0]


@pytest.mark.parametrize(
    "text",
    [
        "Sat, 01 Jan 2000 00:00:00 -0000",
        "Sat, 01 Jan 100000000000000000000 00:00:00 GMT",
        "9" * 400,
        "\u0663",
        "soon",
        "",
        "-3",
        "nan",
        "inf",
        "1e999",
        "Wed, 99 Foo",
    ],
)
def test_a_senseless_wait_is_no_wait_of_the_servers(text):
    bench = Bench(status(429, retry_after=text), GOOD)
    bench.ask()
    assert sum(bench.time.naps) <= 0.5


@pytest.mark.parametrize("text", ["4102444800", "99999999999999999999", "86400"])
def test_a_rate_limit_that_resets_years_ahead_holds_the_next_request_a_minute_at_most(text):
    bench = Bench(Reply(200, {"ratelimit-remaining": "0", "ratelimit-reset": text}, GOOD.body), GOOD)
    bench.ask()
    bench.ask()
    assert bench.time.naps == [60.0]


def test_a_rate_limit_that_names_the_moment_holds_until_then():
    reset = int(datetime.now(UTC).timestamp()) + 20
    bench = Bench(Reply(200, {"ratelimit-remaining": "0", "ratelimit-reset": str(reset)}, GOOD.body), GOOD)
    bench.ask()
    bench.ask()
    assert 0 < sum(bench.time.naps) <= 20


def test_rate_limits_are_no_reason_to_ask_smaller():
    bench = Bench(*[status(429, retry_after="1")] * 20, GOOD)
    bench.ask()
    assert bench.client.requests == 21


def test_a_dead_server_is_given_up_when_patience_ends():
    bench = Bench(RequestFailed(faults.NO_CONNECTION, "Connection refused"))
    with pytest.raises(SourceError) as caught:
        bench.ask(PROBE)
    assert bench.time.now <= 120
    assert bench.time.now > 60
    assert "Connection refused" in caught.value.message
    assert "given up after 120 s without a good page" in caught.value.message


def test_a_server_that_asks_to_wait_longer_than_patience_is_given_up_at_once():
    bench = Bench(status(429, retry_after="3600"))
    with pytest.raises(SourceError, match="asks to wait"):
        bench.ask()
    assert bench.time.naps == []


def test_patience_begins_again_with_every_good_page():
    pages = [status(502), status(502), GOOD] * 200
    bench = Bench(*pages, give_up_s=10)
    for _ in range(200):
        bench.ask()
    assert bench.time.now > 200


def test_patience_does_not_run_while_nothing_is_asked():
    bench = Bench(GOOD, status(502), GOOD, give_up_s=10)
    bench.ask()
    bench.time.now += 600
    assert bench.ask() == {"viewer": {"username": "ada"}}


def test_a_light_answer_is_no_progress():
    bench = Bench(*[event for _ in range(100) for event in (status(502), status(502), status(502), GOOD)])

    def go_on():
        while True:
            with pytest.raises(RequestFailed):
                bench.ask()
            bench.ask(PROBE)

    with pytest.raises(SourceError, match="given up"):
        go_on()
    assert bench.time.now <= 120


def test_a_page_that_took_as_long_as_a_request_may_is_asked_smaller_at_once():
    bench = Bench(GOOD)

    class Slow:
        def post(self, _body):
            bench.time.now += 31
            raise RequestFailed(faults.TOO_SLOW)

    bench.client._transport = Slow()
    with pytest.raises(RequestFailed):
        bench.ask()
    assert bench.client.requests == 1


def test_a_redirect_to_what_is_not_a_url_is_told():
    with pytest.raises(RequestFailed) as caught:
        Bench(Reply(302, {"location": "http://[::1/x"}, b"")).ask()
    assert caught.value.fault is faults.REDIRECT


def test_the_key_is_in_no_text():
    echo = f"bad key {KEY} in Basic {BASIC}\x1b[31m"
    told = []
    for reply in (errors(echo), Reply(400, {}, errors(echo).body), Reply(200, {}, echo.encode())):
        bench = Bench(reply)
        with pytest.raises(RequestFailed) as caught:
            bench.ask()
        told += [
            str(caught.value),
            repr(caught.value),
            str(bench.client.error(caught.value)),
            repr(bench.client),
        ]
    everything = " ".join(told)
    assert KEY not in everything
    assert BASIC not in everything
    assert "\x1b" not in everything
    assert "bad key ***" in everything


@pytest.mark.parametrize("before", [0, 60, 100, 119, 2000, 2040])
def test_no_part_of_the_key_is_in_a_text_that_was_cut(before):
    bench = Bench(Reply(200, {}, ("-" * before + KEY).encode()))
    with pytest.raises(RequestFailed) as caught:
        bench.ask()
    assert "0123" not in str(caught.value)


def test_every_row_of_the_table_says_what_is_kept():
    assert all(fault.kept and fault.event for fault in FAULTS)
    assert {fault.error for fault in FAULTS} == {SourceError, CredentialsError}
    assert len({fault.event for fault in FAULTS}) == len(FAULTS)


def test_every_status_but_success_has_a_row():
    assert [code for code in range(200, 600) if fault_of_status(code) is None] == list(range(200, 300))
    assert all(fault_of_status(code) in FAULTS for code in range(300, 600))


def test_no_more_than_four_requests_are_under_way():
    limiter = RateLimiter(per_second=1e6)
    under_way, peak, lock, full = 0, 0, threading.Lock(), threading.Barrier(4)

    def work():
        nonlocal under_way, peak
        with limiter.slot():
            with lock:
                under_way += 1
                peak = max(peak, under_way)
            full.wait(timeout=10)  # breaks if the four places are not all taken at one time
            with lock:
                under_way -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert peak == 4


def test_one_polite_rate_holds_for_all_clients():
    bench = Bench(GOOD, per_second=20)
    other = GraphQLClient(
        Account(SERVER, KEY, "the argument"), limiter=bench.limiter, environ={}, transport=Script(GOOD)
    )
    for _ in range(10):
        bench.ask()
        other.ask(QUERY, {})
    assert bench.time.now == pytest.approx(19 / 20)


def test_a_wait_that_one_source_is_asked_for_holds_the_others():
    bench = Bench(status(429, retry_after="7"), GOOD)
    with bench.limiter.slot():
        pass
    bench.ask()
    before = bench.time.now
    assert before >= 7
    bench.limiter.hold(5)
    with bench.limiter.slot():
        assert bench.time.now >= before + 5
