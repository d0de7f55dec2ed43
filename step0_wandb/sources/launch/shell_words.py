"""The words of a shell script, with their quotes and expansions: read, never run.

Only what launch scripts are made of is told apart: words, array literals, operators, here-documents. What a
command substitution would print is not known, and stays unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_OPERATORS = ("&&", "||", ";;", "|&", ";&", "\n", ";", "|", "&", "(", ")")
_REDIRECTION = re.compile(r"(?:\d*|&)(?:>>|>&|>\||<>|<<<|<<-|<<|<&|>|<)")
_PLAIN = re.compile(r"""[^\s'"\\$`|&;()<>]+""")
_SPACE = frozenset(" \t\r")
_ENDS = frozenset(" \t\r\n;|&()<>")
"""What ends an unquoted word."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word.

    Attributes
    ----------
    kind : str
        ``text``; ``variable``, whose `text` is what stands between the braces; ``command``, a substitution.
    is_quoted : bool
        Whether it stays one word whatever is in it.
    """

    kind: Literal["text", "variable", "command", "arithmetic"]
    text: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A word, an array literal, or an operator.

    Attributes
    ----------
    operator : str
        Empty for words.
    array : tuple of tuple of Part, or None
        The words of ``NAME=( ... )``; None for anything else.
    here : str or None
        The text of a here-document that stands for this word; its parts are the word behind ``<<``.
    """

    line: int
    parts: tuple[Part, ...] = ()
    operator: str = ""
    array: tuple[tuple[Part, ...], ...] | None = None
    here: str | None = None

    @property
    def bare(self) -> str:
        """Return the word where it is plain unquoted text, such as a keyword; else nothing."""
        is_plain = len(self.parts) == 1 and self.parts[0].kind == "text" and not self.parts[0].is_quoted
        return self.parts[0].text if is_plain and self.array is None else ""


@dataclass(slots=True)
class Lexer:
    """Reads tokens off a script; forgives what does not end."""

    text: str
    at: int = 0
    line: int = 1
    _waiting: list[tuple[str, bool]] = field(default_factory=list)

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens in their order."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _SPACE or self.text.startswith("\\\n", self.at):
                self._skip(1 if char in _SPACE else 2)
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif match := _REDIRECTION.match(self.text, self.at):
                self._redirection(match[0])
            elif operator := next((one for one in _OPERATORS if self.text.startswith(one, self.at)), ""):
                token = Token(self.line, operator=operator)
                self._skip(len(operator))
                if operator == "\n":
                    yield from self._here_documents()
                yield token
            else:
                yield self._word_token()

    def words(self, ending: str) -> tuple[tuple[Part, ...], ...]:
        """Return the words up to an operator, which is taken as well."""
        found = []
        for token in self.tokens():
            if token.operator == ending:
                break
            if not token.operator and token.here is None:
                found.append(token.parts)
        return tuple(found)

    def _skip(self, chars: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + chars)
        self.at += chars

    def _redirection(self, sign: str) -> None:
        """Skip a redirection with its target; a here-document's text comes behind the line."""
        self._skip(len(sign))
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1
        target = self._word_token() if self.at < len(self.text) and self.text[self.at] != "\n" else None
        if sign.lstrip("0123456789&") in ("<<", "<<-") and target is not None:
            end = "".join(part.text for part in target.parts)
            is_plain = any(part.is_quoted for part in target.parts)
            self._waiting.append((end, is_plain))

    def _here_documents(self) -> Iterator[Token]:
        """Yield the here-documents that begin on the next line."""
        waiting, self._waiting = self._waiting, []
        for end, is_plain in waiting:
            line, lines = self.line, []
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                row = self.text[self.at : stop]
                self._skip(stop - self.at + 1)
                if row.strip("\t\r") == end:
                    break
                lines.append(row)
            body = "\n".join(lines)
            parts = (Part("text", body, is_quoted=True),) if is_plain else tuple(Lexer(body).quoted(""))
            yield Token(line, parts, here=body)

    def _word_token(self) -> Token:
        line, array = self.line, None
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "(" and len(parts) == 1 and _ARRAY.fullmatch(parts[0].text):
                self._skip(1)
                array = self.words(")")
            elif char in _ENDS:
                break
            else:
                parts += self._piece(char)
        return Token(line, tuple(_joined(parts)), array=array)

    def _piece(self, char: str) -> list[Part]:
        """Return the next piece of an unquoted word."""
        if char == "'" or self.text.startswith("$'", self.at):
            begin = self.at + (1 if char == "'" else 2)
            end = self.text.find("'", begin)
            end = len(self.text) if end < 0 else end
            piece = Part("text", self.text[begin:end], is_quoted=True)
            self._skip(end + 1 - self.at)
            return [piece]
        if char == '"':
            self._skip(1)
            return self.quoted('"') or [Part("text", "", is_quoted=True)]
        if char == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            self._skip(2)
            return [] if following == "\n" else [Part("text", following, is_quoted=True)]
        if char in "$`":
            return [self._expansion(is_quoted=False)]
        plain = _PLAIN.match(self.text, self.at)
        text = plain[0] if plain else char
        self._skip(len(text))
        return [Part("text", text)]

    def quoted(self, ending: str) -> list[Part]:
        """Return the pieces up to a closing quote, or to the end where there is none."""
        parts: list[Part] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if ending and char == ending:
                self._skip(1)
                break
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                following = self.text[self.at + 1]
                self._skip(2)
                parts += [Part("text", following, is_quoted=True)] if following != "\n" else []
            elif char in "$`":
                parts.append(self._expansion(is_quoted=True))
            else:
                self._skip(1)
                parts.append(Part("text", char, is_quoted=True))
        return _joined(parts)

    def _expansion(self, *, is_quoted: bool) -> Part:
        """Return what begins with a dollar sign or a backtick."""
        if self.text.startswith("$((", self.at):
            inner = self._balanced("(", ")", 1)
            return Part("arithmetic", inner[1:-1] if inner.endswith(")") else inner[1:], is_quoted)
        if self.text.startswith("$(", self.at):
            return Part("command", self._balanced("(", ")", 1), is_quoted)
        if self.text.startswith("${", self.at):
            return Part("variable", self._balanced("{", "}", 1), is_quoted)
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            end = len(self.text) if end < 0 else end
            inner = self.text[self.at + 1 : end]
            self._skip(end + 1 - self.at)
            return Part("command", inner, is_quoted)
        name = _NAME.match(self.text, self.at + 1)
        self._skip(1 + (len(name[0]) if name else 0))
        return Part("variable", name[0], is_quoted) if name else Part("text", "$", is_quoted)

    def _balanced(self, opening: str, closing: str, before: int) -> str:
        """Return what stands between two brackets, and go on behind them."""
        depth, at = 0, self.at + before
        begin = at + 1
        while at < len(self.text):
            char = self.text[at]
            at += 1
            if char == "\\":
                at += 1
            elif char == "'" and opening == "(" and (end := self.text.find("'", at)) >= 0:
                at = end + 1
            elif char in (opening, closing):
                depth += 1 if char == opening else -1
                if depth == 0:
                    break
        inner = self.text[begin : at - 1]
        self._skip(at - self.at)
        return inner


def _joined(parts: list[Part]) -> list[Part]:
    """Return the pieces with neighboring texts of one kind joined."""
    joined: list[Part] = []
    run: list[str] = []
    for at, part in enumerate(parts):
        run.append(part.text)
        following = parts[at + 1] if at + 1 < len(parts) else None
        if (
            part.kind == "text"
            and following
            and (following.kind, following.is_quoted) == ("text", part.is_quoted)
        ):
            continue
        joined.append(Part(part.kind, "".join(run), part.is_quoted))
        run = []
    return joined
