"""Names and values inside a text: a Namespace, JSON, YAML, a command line, an environment, a URL's query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from step0_wandb.text.secret_names import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELD = re.compile(
    r"(?<![\w.-])(?P<dashes>-{0,2}\+{0,2})(?P<name>[A-Za-z_][\w.-]{0,100})(?![\w.-])"
    r"(?:(?P<quote>\\{0,3}[\"']?)\s{0,4}(?P<sign>=>|:=|[=:])(?P<space>[ \t]{0,20})"
    r"|(?P<gap>\\{0,3}[\"']\s{0,4},\s{0,4}|[ \t]{1,20}))"
)
_VALUE_QUOTE = re.compile(r"(?:[rbuf]{0,2})(\\{0,3})([\"'])")
_BRACKETED = re.compile(r"[\w.]{0,100}[(\[{]")
_WORD = re.compile(r"[^\s,;&)\]}\"'<>]+")
_LINE = re.compile(r"[^\n,;}\"'<>]+")
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*\n(?:[ \t]+[^\n]*(?:\n|$)|[ \t]*\n)+")
_OPENING, _CLOSING = "([{", ")]}"


def secret_fields(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the values of secret names stand, in the order of the text.

    Understood are ``name=value``, ``name: value`` and ``"name": "value"`` with any quotes, also escaped
    ones, ``--name value``, ``--name=value``, and the same as a printed list.

    Examples
    --------
    >>> text = "Namespace(wandb_key='hunter2', eos_token='</s>') --hf-token abc"
    >>> [text[start:end] for start, end in secret_fields(text)]
    ["'hunter2'", 'abc']
    """
    end = 0
    for match in _FIELD.finditer(text):
        if match.end() <= end or not is_secret_name(match["name"]):
            continue
        if match["gap"] and not match["dashes"].startswith("-"):
            continue  # words of a sentence
        start = match.end()
        if match["gap"] and text[start : start + 1] == "-":
            continue  # an option without a value
        by_line = match["sign"] == ":" and bool(match["space"])
        end = _end_of_value(text, start, by_line=by_line)
        if end > start:
            yield start, end


def has_fields(text: str) -> bool:
    """Return whether a text consists of names and values, so that it tells something without one of them."""
    return "://" in text or any(
        match["sign"] or match["dashes"].startswith("-") for match in _FIELD.finditer(text)
    )


def _end_of_value(text: str, start: int, *, by_line: bool) -> int:
    """Return where the value ends that begins at `start`.

    Parameters
    ----------
    by_line : bool
        A value without quotes may have blanks, as in YAML and in headers.
    """
    if quoted := _VALUE_QUOTE.match(text, start):
        closing = quoted[1] + quoted[2]
        if quoted[1]:  # escaped: it ends with the same sign, escaped in the same way
            at = text.find(closing, quoted.end())
            return len(text) if at < 0 else at + len(closing)
        return _end_of_quoted(text, quoted.end(), closing)
    if opened := _BRACKETED.match(text, start):
        return _end_of_bracket(text, opened.end() - 1)
    if by_line and (block := _BLOCK.match(text, start)):
        return block.end() - block[0].endswith("\n")
    word = (_LINE if by_line else _WORD).match(text, start)
    return word.end() if word else start


def _end_of_quoted(text: str, at: int, closing: str) -> int:
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == closing:
            return at + 1
        else:
            at += 1
    return len(text)


def _end_of_bracket(text: str, at: int) -> int:
    """Return where the bracket that opens at `at` is closed again; brackets in quotes do not count."""
    depth = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign in "\"'":
            at = _end_of_quoted(text, at, sign)
        elif sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
            if depth <= 0:
                return at
    return len(text)
