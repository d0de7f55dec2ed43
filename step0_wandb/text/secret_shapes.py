"""What looks like an access key, wherever it stands: by gitleaks' rules and by our own."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from step0_wandb.text.secret_names import rule_file

if TYPE_CHECKING:
    from collections.abc import Iterator

Span = tuple[int, int]

RULE_FILES = ("gitleaks.toml", "secrets.toml")

_SHORTEST = 9  # no text that holds a key is shorter: `://a:b@c.d`
_LONG_WORD = re.compile(r"[\w+/=.~%@:-]{9}")
_REST = re.compile(r"[\w+=%~-]*")
_FORTY_HEX = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])", re.IGNORECASE)
_NAMES_A_VERSION = re.compile(r"commit|revision|hash|(?<![a-z])sha(?![a-z])|sha\d*$", re.IGNORECASE)
_VERSION_BEFORE = re.compile(
    r"(?:commit|revision|hash|\bsha\d*|\brev)[\w.\"' -]{0,20}[:= ]{1,3}[\"']?$|@$", re.IGNORECASE
)
_BEFORE = 60
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,4096}={0,2}(?![A-Za-z0-9+/_-])")
_BASIC = re.compile(r"(?i:basic)\s{1,4}([A-Za-z0-9+/]{6,4096}={0,2})")
_PATH_GOES_ON = re.compile(r"/|\\(?!\\*[\"'])")  # a backslash before a quote escapes it


@dataclass(frozen=True)
class _Rule:
    """One shape of a key.

    Attributes
    ----------
    entropy : float
        Bits a character that a match has at least; words of a language have less.
    """

    regex: str
    entropy: float

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regex; most are never needed, and compiling all takes longer than a sync without news."""
        return re.compile(self.regex)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where the shape is."""
        for match in self.pattern.finditer(text):
            if not self.entropy or _entropy(match[0]) >= self.entropy:
                yield match.span()


@cache
def _rules() -> dict[str, list[_Rule]]:
    """Return the rules by each keyword, one of which a text has where a rule applies."""
    by_keyword: dict[str, list[_Rule]] = {}
    for name in RULE_FILES:
        for table in rule_file(name)["rules"]:
            rule = _Rule(table["regex"], table.get("entropy", 0.0))
            for keyword in table["keywords"]:
                by_keyword.setdefault(keyword, []).append(rule)
    return by_keyword


def key_spans(text: str, name: str = "") -> list[Span]:
    """Return where keys stand in a text, in its order and each to its end; they may overlap.

    Parameters
    ----------
    name : str
        What holds the text. Forty hex digits are one of W&B's older keys or a git commit: they pass
        where the name, or the text before them, speaks of a commit, revision, sha or hash, and where
        they are part of a path.
    """
    if len(text) < _SHORTEST or not _LONG_WORD.search(text):
        return []
    lowered = text.lower()
    found = {
        span
        for keyword, rules in _rules().items()
        if keyword in lowered
        for rule in rules
        for span in rule.spans(text)
    }
    found.update(_forty_hex(text, name))
    found.update(_encoded(text, lowered))
    spans: list[Span] = []
    for start, end in sorted(found):
        if not spans or end > spans[-1][1]:
            rest = _REST.match(text, end)
            spans.append((start, rest.end() if rest else end))
    return spans


def _forty_hex(text: str, name: str) -> Iterator[Span]:
    for match in _FORTY_HEX.finditer(text):
        start, end = match.span()
        in_path = text[start - 1 : start] in ("/", "\\") or _PATH_GOES_ON.match(text, end)
        before = text[max(0, start - _BEFORE) : start]
        alone = not in_path and not _VERSION_BEFORE.search(before)
        if alone and not _NAMES_A_VERSION.search(name):
            yield start, end


def _encoded(text: str, lowered: str) -> Iterator[Span]:
    """Yield words that hold a key in base64, and the user and password of HTTP's basic login."""
    for match in _BASE64.finditer(text):
        plain = _decoded(match[0])
        if plain and key_spans(plain):
            yield match.span()
    if "basic" in lowered:
        for match in _BASIC.finditer(text):
            if ":" in _decoded(match[1]):
                yield match.span(1)


def _decoded(word: str) -> str:
    """Return the ASCII text that a word is in base64; empty where it is none."""
    word = word.rstrip("=").translate({45: "+", 95: "/"})
    try:
        plain = base64.b64decode(word + "=" * (-len(word) % 4)).decode("ascii").rstrip("\n")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return plain if plain.isprintable() else ""


def _entropy(text: str) -> float:
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
