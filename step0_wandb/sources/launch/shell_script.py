"""The commands of a shell script with what is known of their words; nothing is executed.

Variables, arrays, defaults and sourced files are followed. What only running the script would tell (an
environment variable without a default, the output of a command, what a branch decides) stays open: such a
value is marked in the text and never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from step0_wandb.sources.launch.shell_values import (
    EXTRA,
    MOST_CHARS,
    MOST_WORDS,
    OPEN,
    SHUT,
    Word,
    added,
    arithmetic,
    cut,
    either,
    is_open,
    opened,
    shown,
)
from step0_wandb.sources.launch.shell_words import Lexer, Part
from step0_wandb.text.paths import is_there

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from step0_wandb.sources.launch.shell_values import Value
    from step0_wandb.sources.launch.shell_words import Token

MOST_BYTES = 1 << 20
_MOST_STATEMENTS, _DEEPEST = 20_000, 20
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_VARIABLE = re.compile(
    r"([A-Za-z_]\w*|[0-9@*#?$!-])(\[[^\]]*\])?(:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:)?(.*)", re.DOTALL
)
_OWN_FOLDER = re.compile(
    r"""dirname\s+(?:--\s+)?"?\$\{?(?:BASH_SOURCE(?:\[0\])?|0)\}?"?\s*\)"?([^"&;\s)]*)"""
)
_DECLARATIONS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SKIPPED = frozenset({"then", "do", "done", "{", "}", "!", "time", "else", "function", "fi", "esac"})
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_SHELLS = frozenset({"bash", "sh", "/bin/bash", "/bin/sh", "sbatch"})
_SHELL_TEXT = re.compile(r"-\w*c")
_HIGHEST = 8
"""Folders above a script in which a script that it calls is looked for."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its words, and where it stands."""

    words: tuple[Word, ...]
    line: int
    file: str


@dataclass(slots=True)
class _Branch:
    """An ``if`` or ``case`` whose arms are being read."""

    before: dict[str, Value]
    arms: list[dict[str, Value]] = field(default_factory=list)
    has_else: bool = False
    is_case: bool = False
    is_open: bool = False


class ShellScript:
    """Reads one script and what it sources.

    Attributes
    ----------
    commands : list of Command
        In their order, whatever branch they stand in.
    notes : list of str
        What could not be followed.
    defaults : dict of str to str
        Variables for which the script's own default was taken.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.commands: list[Command] = []
        self.notes: list[str] = []
        self.defaults: dict[str, str] = {}
        self._folder = folder
        self._values: dict[str, Value] = {}
        self._branches: list[_Branch] = []
        self._statements = 0
        self._file = ""
        self._depth = 0
        self._exported: set[str] = set()
        self._arguments: tuple[Word, ...] | None = None

    def read(self, text: str, name: str) -> None:
        """Read a script's text."""
        text = text.replace(OPEN, "").replace(SHUT, "").replace("\r\n", "\n")
        before, self._file = self._file, name
        statement: list[Token] = []
        joined_by = ""
        for token in Lexer(text).tokens():
            if not token.operator:
                statement.append(token)
                continue
            self._statement(statement, joined_by, token.operator)
            joined_by, statement = token.operator if statement else joined_by, []
        self._statement(statement, joined_by, "\n")
        self._file = before

    def _statement(self, tokens: list[Token], before: str, after: str) -> None:
        self._statements += 1
        if self._statements > _MOST_STATEMENTS:
            return
        pattern = tokens[-1].bare if tokens else ""
        tokens = self._without_keywords(tokens)
        branch = self._branches[-1] if self._branches and self._branches[-1].is_case else None
        if branch is not None and after == ")":
            branch.is_open, branch.has_else = True, branch.has_else or pattern == "*"
            return
        is_function = after == "(" and len(tokens) == 1
        if tokens and not is_function:
            self._run(tokens, is_conditional=before in ("&&", "||"))
        if branch is not None and after == ";;":
            self._next_arm(branch)
            branch.is_open = False

    def _without_keywords(self, tokens: list[Token]) -> list[Token]:
        """Follow the keywords at the beginning of a statement, and return what comes after them."""
        while tokens:
            word = tokens[0].bare
            if word in ("if", "case"):
                self._branches.append(_Branch(dict(self._values), is_case=word == "case"))
                if word == "case":
                    return []
            elif word in ("then", "elif", "else") and self._branches:
                branch = self._branches[-1]
                if branch.is_open:
                    self._next_arm(branch)
                branch.is_open, branch.has_else = word != "elif", branch.has_else or word == "else"
            elif word in ("fi", "esac") and self._branches:
                self._merge(self._branches.pop())
            elif word in ("for", "select") and len(tokens) > 1:
                self._values[tokens[1].bare] = opened(tokens[1].bare)
                return []
            elif word in ("while", "until"):
                pass
            elif word not in _SKIPPED:
                return tokens
            tokens = tokens[1:]
        return tokens

    def _next_arm(self, branch: _Branch) -> None:
        branch.arms.append(self._values)
        self._values = dict(branch.before)

    def _merge(self, branch: _Branch) -> None:
        """Go on behind a branch: what its arms do not agree on is open."""
        arms = [*branch.arms, *([self._values] if branch.is_open else [])]
        if not branch.has_else:
            arms.append(branch.before)
        merged = dict(branch.before)
        for name in dict.fromkeys(name for arm in arms for name in arm):
            values = [arm.get(name) for arm in arms]
            if any(value != values[0] for value in values):
                merged[name] = either(name, branch.before.get(name), values)
            elif values[0] is not None:
                merged[name] = values[0]
        self._values = merged

    def _run(self, tokens: list[Token], *, is_conditional: bool) -> None:
        if is_conditional:
            branch = _Branch(dict(self._values), is_open=True)
            self._simple(tokens)
            self._merge(branch)
        else:
            self._simple(tokens)

    def _simple(self, tokens: list[Token]) -> None:
        """Read a simple command: assignments, a declaration, or a program with its words."""
        if tokens[0].bare in _DECLARATIONS:
            for token in tokens[1:]:
                self._assign(token)
            if tokens[0].bare == "export":
                self._exported |= set(map(_name_of, tokens[1:]))
            return
        while tokens and self._assign(tokens[0]):
            if len(tokens) > 1:  # for the command behind it, which is its own process
                self._exported.add(_name_of(tokens[0]))
            tokens = tokens[1:]
        if words := tuple(self._expanded(tokens))[:MOST_WORDS]:
            self._command(words, tokens)

    def _command(self, words: tuple[Word, ...], tokens: Sequence[Token]) -> None:
        """Take what a command does to the script, or keep it with its words."""
        name = words[0].text
        here = next((token for token in tokens if token.here is not None), None)
        if name in ("source", ".") and len(words) > 1:
            self._source(words[1].text)
        elif name == "read":
            self._values[words[-1].text] = self._joined(here.parts) if here else (Word(EXTRA),)
        elif name == "eval":
            self._nested(" ".join(word.text for word in words[1:]), tokens[0].line)
        elif (at := _shell_at(words)) is not None and _SHELL_TEXT.fullmatch(words[at + 1].text):
            self._nested(words[at + 2].text, tokens[0].line)
        elif (at := _script_at(words)) is not None and (path := self._called(words[at].text)):
            self._nested(_text_of(path), tokens[0].line, path=path, arguments=words[at + 1 :])
        else:
            self.commands.append(Command(words, tokens[0].line, self._file))

    def _nested(
        self, text: str, line: int, *, path: Path | None = None, arguments: tuple[Word, ...] | None = None
    ) -> None:
        """Read a text that the script gives to a shell, or another script that it calls with `arguments`."""
        if self._depth >= _DEEPEST:
            return
        reader = ShellScript(path.parent if path else self._folder)
        reader._depth, reader._statements = self._depth + 1, self._statements
        reader._values = {
            name: value for name, value in self._values.items() if path is None or name in self._exported
        }
        reader._exported, reader._arguments = set(self._exported), arguments
        for mark, sign in ((OPEN, "${"), (SHUT, "}")):
            text = text.replace(mark, sign)
        reader.read(text, path.name if path else self._file)
        self.notes += reader.notes
        self.defaults |= reader.defaults
        self.commands += (
            Command(found.words, found.line if path else line, found.file) for found in reader.commands
        )

    def _called(self, text: str) -> Path | None:
        """Return the script that a command starts; where it is started from is not known."""
        if self._folder is None or is_open(text):
            return None
        places = [self._folder, *self._folder.parents[:_HIGHEST]]
        found = (folder / text for folder in places if is_there(folder / text))
        path = next(found, None)
        return path if path and path.is_file() and path.stat().st_size <= MOST_BYTES else None

    def _source(self, text: str) -> None:
        if is_open(text) or self._folder is None:
            self.notes.append(f"{shown(text)} is sourced and not read: its variables are open")
            return
        path = self._folder / text
        is_script = path.suffix in _SCRIPTS and is_there(path) and path.is_file()
        if not is_script or path.stat().st_size > MOST_BYTES or self._depth >= _DEEPEST:
            self.notes.append(f"{text} is sourced and not there: its variables are open")
            return
        folder, self._folder = self._folder, path.parent
        self._depth += 1
        self.read(_text_of(path), path.name)
        self._depth -= 1
        self._folder = folder

    def _assign(self, token: Token) -> bool:
        """Take an assignment; return whether it was one."""
        first = token.parts[0] if token.parts else None
        match = (
            _ASSIGNMENT.match(first.text) if first and first.kind == "text" and not first.is_quoted else None
        )
        if match is None or first is None:
            return False
        name, adds = match[1], bool(match[3])
        value: Value
        if token.array is not None:
            value = tuple(self._words_of(token.array))[:MOST_WORDS]
        else:
            rest = (Part("text", first.text[match.end() :]), *token.parts[1:])
            value = self._joined(rest)
        if match[2]:
            value = opened(name)
        elif adds:
            value = added(self._values.get(name, "" if isinstance(value, str) else ()), value)
        self._values[name] = value
        return True

    def _expanded(self, tokens: Iterable[Token]) -> list[Word]:
        return self._words_of(token.parts for token in tokens if token.here is None)

    def _words_of(self, words: Iterable[Sequence[Part]]) -> list[Word]:
        return [word for parts in words for word in self._word(parts)]

    def _word(self, parts: Sequence[Part]) -> list[Word]:
        """Return what one word of the script stands for: several words, or none."""
        done: list[Word] = []
        current, has_text = "", False
        for part in parts:
            value = self._value(part)
            if isinstance(value, tuple):
                done += value
            elif part.is_quoted or part.kind == "text":
                current, has_text = current + value, has_text or part.is_quoted or bool(value)
            else:
                pieces = value.split()
                if pieces and value[0].isspace() and current:
                    done.append(Word(current))
                    current = ""
                done += [Word(current + pieces[0]), *map(Word, pieces[1:-1])] if len(pieces) > 1 else []
                current = pieces[-1] if len(pieces) > 1 else current + "".join(pieces)
                has_text = has_text or bool(pieces)
        return [*done, Word(current[:MOST_CHARS])] if has_text and (current or not done) else done

    def _joined(self, parts: Iterable[Part]) -> str:
        """Return the value of a word that is not split."""
        values = (self._value(part) for part in parts)
        text = "".join(
            value if isinstance(value, str) else " ".join(word.text for word in value) for value in values
        )
        return text if len(text) <= MOST_CHARS else opened("...")

    def _value(self, part: Part) -> Value:
        if part.kind == "text":
            return part.text
        if part.kind == "command":
            own = _OWN_FOLDER.search(part.text)
            return f"{self._folder}{own[1]}" if own and self._folder else opened("...")
        if part.kind == "arithmetic":
            return arithmetic(part.text, self._values)
        if part.text in ("@", "*") and self._arguments is not None:
            return self._arguments
        return self._variable(part.text)

    def _variable(self, text: str) -> Value:
        """Return the value of what stands between the braces of an expansion."""
        match = _VARIABLE.fullmatch(text)
        if match is None:
            return opened("...")
        name, index, sign, rest = match[1], match[2] or "", match[3] or "", match[4]
        if name in "@*" or (index in ("[@]", "[*]") and name not in self._values):
            return (Word(EXTRA),)
        value = self._values.get(name)
        if isinstance(value, tuple):
            if index in ("[@]", "[*]"):
                return value
            value = value[0].text if value and not value[0].maybe else None
        elif value is not None and index in ("[@]", "[*]"):
            value = " ".join(value.split())
        elif index not in ("", "[0]"):
            value = None
        if sign.strip(":") in ("-", "="):
            taken = self._or_default(name, value, rest)
            if sign.endswith("="):
                self._values[name] = taken
            return taken
        if sign not in ("", "?", ":?"):
            value = cut(value, sign, rest)
        return opened(name) if value is None else value

    def _or_default(self, name: str, value: str | None, rest: str) -> str:
        if value is not None and (value or not rest):
            return value
        if self._depth >= _DEEPEST:
            return opened(name)
        self._depth += 1
        default = self._joined(Lexer(rest.strip("\"'")).quoted(""))
        self._depth -= 1
        if default:
            self.defaults[name] = shown(default)
        return default or opened(name)


def _shell_at(words: Sequence[Word]) -> int | None:
    """Return the place of a shell that is given a text: ``srun ... bash -c TEXT``."""
    return next((at for at, word in enumerate(words[:-2]) if word.text in _SHELLS), None)


def _script_at(words: Sequence[Word]) -> int | None:
    """Return the place of a script that is started, alone or by a shell."""
    before = ""
    for at, word in enumerate(words):
        if word.text.endswith(_SCRIPTS) and (at == 0 or before in _SHELLS):
            return at
        before = word.text
    return None


def _name_of(token: Token) -> str:
    """Return the name that a token assigns, or stands for."""
    first = token.parts[0].text if token.parts else ""
    return first.partition("=")[0].rstrip("+")


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
