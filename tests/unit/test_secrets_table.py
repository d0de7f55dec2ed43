"""Sixty kinds of keys in forty places: none is left; three hundred texts that look alike: all are."""

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.text.redact import redact, scrub
from step0_wandb.text.secret_names import rule_file
from tests.support.secrets import CONTEXTS, core, harmless, tokens

TOKENS = tokens()
HARMLESS = harmless()


def test_the_table_is_as_large_as_it_says():
    assert len(TOKENS) >= 60
    assert len(CONTEXTS) >= 40
    assert len(set(HARMLESS)) >= 300
    assert all(len(core(kind, token)) >= 9 for kind, token in TOKENS.items())


def test_a_key_is_left_in_no_place():
    left = [
        (kind, place, scrubbed)
        for kind, token in TOKENS.items()
        for place, config in CONTEXTS.items()
        if core(kind, token) in json.dumps(scrubbed := scrub(config(token)))
    ]
    assert left == []


def test_a_key_is_left_in_no_text():
    left = [
        (kind, text)
        for kind, token in TOKENS.items()
        for config in CONTEXTS.values()
        for text in leaves(config(token))
        if core(kind, token) in redact(text)
    ]
    assert left == []


def test_what_only_looks_like_a_key_stays():
    written = [config for name, text in HARMLESS for config in ({name: text}, {"a": {name: [text]}})]
    assert [(config, scrub(config)) for config in written if scrub(config) != config] == []


def leaves(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [leaf for name, inner in value.items() for leaf in (name, *leaves(inner))]
    return [leaf for inner in value for leaf in leaves(inner)]


def test_a_rule_is_a_regex_that_python_takes_and_has_keywords_in_lower_case():
    for rule in (*rule_file("gitleaks.toml")["rules"], *rule_file("secrets.toml")["rules"]):
        assert re.compile(rule["regex"]), rule["id"]
        assert rule["keywords"], rule["id"]
        assert all(word == word.lower() for word in rule["keywords"]), rule["id"]


PIECES = (
    "a", "sk-", "eyJhbGciOiJIUzI1NiJ9.ey", "x=", "key=", "key: ", "'", "key=(", "://a:", "YWRtaW46", "basic ", "--key ",
    "a.b.", " ", "bearer a1b2", "hooks.slack.com/services/", "ssh-rsa AAAA", "machine password ", "pypi-AgEIcHlwaS5vcmc",
    "key: |\n a", "0123456789abcdef0123456789abcdef01234567 ", "-----BEGIN PRIVATE KEY-----", '\\"key\\": \\"', "token a1",
    "https://", "curl -u a:", "?sig=", "hf_", "AKIA", "dapi", "[", "{'key': [",
)  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_the_work_grows_as_the_text_does(piece):
    """Eight times the text is not 24 times the work; work that grows with the square would be 64 times."""
    text = piece * (100_000 // len(piece))
    part = text[: len(text) // 8]
    # The best of three each, so that what else runs on the machine, which also costs CPU time, decides nothing.
    assert min(work(text) for _ in range(3)) < 24 * min(work(part) for _ in range(3)) + 0.05


def work(text):
    begin = time.process_time()
    redact(text)
    return time.process_time() - begin


def test_a_text_beyond_all_measure_is_not_searched_but_goes():
    text = "a" * (1 << 20) + "b"
    assert redact(text) == "***"
    assert scrub({"note": text, "lr": 1}) == {"lr": 1}


@given(st.text(alphabet="ab:=-_'\"\\ \n{}[](),|>/@.0Kkey", max_size=80))
def test_redacting_twice_changes_nothing_and_no_text_breaks_it(text):
    once = redact(text)
    assert redact(once) == once
