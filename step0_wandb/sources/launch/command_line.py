"""A command line as the config that the framework would log: flags, overrides, and the files they name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from step0_wandb.sources.launch.shell_values import EXTRA, is_open

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from step0_wandb.records import Json
    from step0_wandb.sources.launch.shell_values import Word

OVERRIDE = re.compile(r"(~|\+{0,2})([A-Za-z_][\w./@-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)(?:(=)(.*))?", re.DOTALL)
_FILE = re.compile(r"[^=]*\.(?:ya?ml|toml|json)")
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None, "none": None}
_PREFIXES = ("no-", "no_")


@dataclass(frozen=True, slots=True)
class LaunchSetting:
    """One thing that a command line sets.

    Attributes
    ----------
    key : str
        As W&B would have it; of a `file` the part of the config that it gives, empty for all of it.
    value : JSON value
        Of a `file` its path.
    maybe : bool
        Whether only a branch of the script sets it.
    """

    key: str
    value: Json
    maybe: bool = False
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line in its parts.

    Attributes
    ----------
    program : str
        What is started, with what stands before it.
    settings : tuple of Setting
        In their order: a later one beats an earlier one.
    has_extra : bool
        Whether arguments are added that are not known.
    """

    program: str
    settings: tuple[LaunchSetting, ...]
    has_extra: bool


def parse_command(words: Sequence[Word]) -> CommandLine:
    """Return what a command line starts, and what it sets.

    Examples
    --------
    >>> from step0_wandb.sources.launch.shell_values import Word
    >>> line = parse_command([Word(text) for text in "python3 train.py --hf-checkpoint /m/Qwen3-0.6B --colocate".split()])
    >>> line.program, [(item.key, item.value) for item in line.settings]
    ('python3 train.py', [('hf_checkpoint', '/m/Qwen3-0.6B'), ('colocate', True)])
    """
    words = _behind_launcher(words)
    begin = _arguments_at(words)
    arguments = words[begin:]
    return CommandLine(
        " ".join(word.text for word in words[:begin]),
        tuple(_settings(arguments)),
        any(word.text == EXTRA for word in arguments),
    )


def value_of(text: str) -> Json:
    """Return the value that a text on a command line stands for."""
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"":
        bare = bare[1:-1]
    return _WORDS.get(bare.lower(), bare)


def _behind_launcher(words: Sequence[Word]) -> Sequence[Word]:
    """Return the command that a job launcher is given behind ``--``."""
    at = next((at for at, word in enumerate(words) if word.text == "--"), None)
    is_launcher = at is not None and not any(_is_script(word.text) for word in words[:at])
    return words[at + 1 :] if at is not None and is_launcher else words


def _arguments_at(words: Sequence[Word]) -> int:
    """Return where the arguments of the program begin: behind the script or module, else behind its name."""
    for at, word in enumerate(words):
        if word.text in ("-m", "--module") and at + 1 < len(words):
            return at + 2
        if _is_script(word.text):
            return at + 1
    at = 0
    while at < len(words) and not _FLAG.match(words[at].text) and not OVERRIDE.fullmatch(words[at].text):
        if words[at].text == "@" or _FILE.fullmatch(words[at].text):
            break
        at += 1
    return at


def _is_script(text: str) -> bool:
    return text.endswith(".py") and not text.startswith("-")


def _settings(words: Sequence[Word]) -> Iterator[LaunchSetting]:
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1].text if at + 1 < len(words) else "--"
        at += 1
        if word.text == "@":
            yield LaunchSetting("", following, word.maybe, is_file=True)
            at += 1
        elif flag := _FLAG.fullmatch(word.text):
            key, is_joined = flag[1], flag[2] is not None
            if not is_joined and following == "@" and at + 1 < len(words):
                yield LaunchSetting(key, words[at + 1].text, word.maybe, is_file=True)
                at += 2
                continue
            is_value = not (is_joined or following in ("--", EXTRA) or _is_argument(following))
            at += is_value
            yield _flag(key, flag[3] if is_joined else following if is_value else None, maybe=word.maybe)
        elif override := OVERRIDE.fullmatch(word.text):
            value = None if override[1] == "~" else value_of(override[3])
            yield LaunchSetting(override[2].partition("@")[0].replace("/", "."), value, word.maybe)
        elif _FILE.fullmatch(word.text):
            yield LaunchSetting("", word.text, word.maybe, is_file=True)


def _is_argument(text: str) -> bool:
    """Return whether a word is an argument of its own, and so no value of the flag before it."""
    return bool(_FLAG.fullmatch(text) or OVERRIDE.fullmatch(text))


def _flag(name: str, text: str | None, *, maybe: bool) -> LaunchSetting:
    if name in ("config", "config-file", "config_file") and text and not is_open(text):
        return LaunchSetting("", text, maybe, is_file=True)
    key = name.replace("-", "_")
    if text is None and name.startswith(_PREFIXES):
        return LaunchSetting(key[3:], value=False, maybe=maybe)
    return LaunchSetting(key, True if text is None else value_of(text), maybe)
