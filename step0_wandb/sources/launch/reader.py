"""A launch as the config that its run would log, with what of it is open."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.profiles.model_names import names_with
from step0_wandb.sources.launch.command_line import parse_command
from step0_wandb.sources.launch.documents import SUFFIXES, read_document
from step0_wandb.sources.launch.shell_script import MOST_BYTES, ShellScript
from step0_wandb.sources.launch.shell_values import SHUT, Word, is_open, shown
from step0_wandb.text.paths import is_there
from step0_wandb.text.redact import redact, scrub
from step0_wandb.text.secret_names import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from step0_wandb.records import Json
    from step0_wandb.sources.launch.command_line import CommandLine, LaunchSetting
    from step0_wandb.sources.launch.shell_script import Command

_FEWEST_SETTINGS = 2
"""Settings of a command from which it may start a training."""
_MOST_COMMANDS = 200
_WORDS = re.compile(r"[a-z][a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Launch:
    """What one launch would start.

    Attributes
    ----------
    config : mapping
        What is known of the config, without secrets.
    origin : str
        Where it was read: ``run.sh, line 40``.
    program : str
        What is started, without its arguments.
    unknown : mapping of str to str
        Config keys that are set to something that only running the script would tell, and to what.
    notes : tuple of str
        What could not be read.
    is_whole : bool
        Whether a key that is not in the config is surely not set.
    mentions : mapping of str to int
        How often each word stands in the launch; tells frameworks with the same flags apart.
    is_logged : bool
        Whether the config is that of a run, which says everything that the framework took.
    """

    config: Mapping[str, Json]
    origin: str
    program: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_whole: bool = True
    mentions: Mapping[str, int] = field(default_factory=dict)
    is_logged: bool = False


def read_launch(path: Path) -> list[Launch]:
    """Return the launches that a file may be: a config file is one, a script has one a command.

    Raises
    ------
    UsageError
        The file is too large, cannot be read, or holds nothing that could be a launch.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is too large for a launch: {path.stat().st_size:,} bytes")
        if path.suffix.lower() in SUFFIXES:
            return [_of_document(path)]
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if path.suffix == ".py":
        raise UsageError(
            f"{path} is a Python file, which is known only when it runs",
            "Give the command line that it builds: step0-wandb lint -- COMMAND...",
        )
    script = ShellScript(path.absolute().parent)
    script.read(text, path.name)
    found = list(_of_script(script, path.absolute().parent, _mentions(f"{path.absolute()} {text}")))
    if not found:
        raise UsageError(
            f"{path} starts nothing with flags or overrides",
            "lint reads shell scripts and YAML, TOML or JSON.",
        )
    return found


def read_words(words: Sequence[str], folder: Path) -> Launch:
    """Return the launch that a command line would be; `folder` is where it would run."""
    line = parse_command([Word(text) for text in words])
    return _launch(line, "the command line", folder, mentions=_mentions(" ".join(words)))


def of_config(config: Mapping[str, Json], origin: str) -> Launch:
    """Return the launch whose config is known as it stands."""
    return _closed(config, {}, Launch({}, origin, is_logged=True))


def _of_document(path: Path) -> Launch:
    config, notes = read_document(path)
    return _closed(config, {}, Launch({}, path.name, notes=tuple(notes), is_whole=not notes))


def _of_script(script: ShellScript, folder: Path, mentions: Mapping[str, int]) -> Iterator[Launch]:
    for command in script.commands[-_MOST_COMMANDS:]:
        line = parse_command(command.words)
        if len(line.settings) >= _FEWEST_SETTINGS or any(item.is_file for item in line.settings):
            yield _launch(line, _place(command), folder, mentions=mentions, script=script)


def _place(command: Command) -> str:
    return f"{command.file}, line {command.line}"


def _launch(
    line: CommandLine,
    origin: str,
    folder: Path,
    *,
    mentions: Mapping[str, int],
    script: ShellScript | None = None,
) -> Launch:
    config: dict[str, Json] = {}
    unknown: dict[str, str] = {}
    notes: list[str] = []
    for item in line.settings:
        if item.is_file:
            config |= _from_file(item, folder, notes)
        elif item.maybe:
            unknown[item.key] = "set in a branch of the script"
        else:
            config[item.key] = item.value
            unknown.pop(item.key, None)
    is_whole = not (notes or line.has_extra)
    if script is not None:
        notes += script.notes
        notes += _taken(script.defaults)
        is_whole = is_whole and not script.notes
    if line.has_extra:
        notes.append("more arguments are added when it runs")
    launch = Launch(
        {}, origin, redact(shown(line.program)), notes=tuple(notes), is_whole=is_whole, mentions=mentions
    )
    return _closed(config, unknown, launch)


def _taken(defaults: Mapping[str, str]) -> Iterator[str]:
    told = [f"{name}={value}" for name, value in defaults.items() if not is_secret_name(name) and value]
    if told:
        yield redact(f"the script's own defaults were taken: {' '.join(told)}")


def _from_file(item: LaunchSetting, folder: Path, notes: list[str]) -> dict[str, Json]:
    """Return what a config file that the command line names gives, under its part of the config."""
    name = str(item.value)
    path = folder / name
    if is_open(name) or path.suffix.lower() not in SUFFIXES or not is_there(path) or not path.is_file():
        notes.append(f"{shown(name)} is not there: what it sets is open")
        return {}
    found, more = read_document(path)
    notes += more
    return {f"{item.key}.{key}": value for key, value in found.items()} if item.key else found


def _closed(config: Mapping[str, Json], unknown: Mapping[str, str], launch: Launch) -> Launch:
    """Return a launch with what is known of a config, without secrets, apart from what is open."""
    known: dict[str, Json] = {}
    still = dict(unknown)
    _split(config, "", known, still)
    return replace(
        launch,
        config=scrub(known),
        unknown={key: redact(text) for key, text in still.items() if not is_secret_name(key)},
        notes=tuple(map(redact, launch.notes)),
    )


def _split(config: Mapping[str, Json], prefix: str, known: dict[str, Json], unknown: dict[str, str]) -> None:
    for key, value in config.items():
        if isinstance(value, dict):
            inner: dict[str, Json] = {}
            _split(value, f"{prefix}{key}.", inner, unknown)
            known[key] = inner
        elif f"{prefix}{key}" in unknown:
            continue
        elif isinstance(value, str) and is_open(value) and not _names_a_model(value):
            unknown[f"{prefix}{key}"] = shown(value)
        else:
            known[key] = shown(value) if isinstance(value, str) else value


def _names_a_model(path: str) -> bool:
    """Return whether the end of a path names a model, whatever its beginning is."""
    rest = path[path.rindex(SHUT) + 1 :]
    return rest.startswith("/") and names_with().tells(rest)


def _mentions(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in _WORDS.findall(text.lower()):
        counts[word] = counts.get(word, 0) + 1
    return counts
