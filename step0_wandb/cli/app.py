"""The program: its commands, and how every failure becomes one to three lines and an exit code."""

from __future__ import annotations

import re
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from step0_wandb import __version__
from step0_wandb.cli import (
    INTERRUPTED,
    check,
    demo,
    diff,
    doctor,
    explain,
    gate,
    label,
    lint,
    log,
    mute,
    output,
    profiles,
    ranges,
    report,
    runs,
    settings,
    streams,
    sync,
    weights,
)
from step0_wandb.cli.session import SHARED_NAMES, command, now
from step0_wandb.errors import Step0Error, UsageError
from step0_wandb.text import json_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


app = typer.Typer(
    name="step0-wandb",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    rich_markup_mode=None,
    epilog="Options that all commands share, such as --settings, --store and --json, may come before the command.",
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "sync": sync.sync,
    "check": check.check,
    "lint": lint.lint,
    "gate": gate.gate,
    "runs": runs.runs,
    "ranges": ranges.ranges,
    "weights": weights.weights,
    "explain": explain.explain,
    "diff": diff.diff,
    "label": label.label,
    "accept": label.accept,
    "mute": mute.mute,
    "report": report.report,
    "demo": demo.demo,
    "doctor": doctor.doctor,
    "settings": settings.settings,
    "profiles": profiles.profiles,
}
for _name, _function in _COMMANDS.items():
    command(app, _name, _function)


def _version(asked: bool) -> None:  # noqa: FBT001 - typer calls it with the flag alone
    if asked:
        typer.echo(f"step0-wandb {__version__}")
        raise typer.Exit


@app.callback()
def about(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find broken RL post-training runs at their first optimizer step, from what they log to W&B."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and leave with its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.unraisablehook = _interrupt_again
    standard = streams.take_over(as_json="--json" in words)
    code = run(words)
    if why := standard.lost():
        code = code or UsageError.exit_code
        output.error(UsageError(f"Cannot write to standard output: {why}"))
    sys.exit(code)


def _interrupt_again(what: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that Python dropped, since it came while a finalizer ran."""
    if what.exc_type is KeyboardInterrupt:
        threading.Timer(0.02, signal.raise_signal, (signal.SIGINT,)).start()
    else:
        sys.__unraisablehook__(what)


def run(words: Sequence[str]) -> int:
    """Run the program on its words and return the exit code; only the outermost frame catches all."""
    as_json = "--json" in words
    words = _with_optional_values(_command_first(words))
    log.configure(as_json=False, clock=now)
    try:
        code = app(args=list(words), prog_name="step0-wandb", standalone_mode=False)
    except Step0Error as error:
        return _fail(error, as_json=as_json)
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            return error.exit_code
        return _fail(UsageError(error.format_message(), _help_of(words)), as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        output.tell("Interrupted. What was stored so far is kept.")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame
        if "-v" in words or "--verbose" in words:
            traceback.print_exc()
        return _fail(_bug(error), as_json=as_json)
    return code if isinstance(code, int) else 0


def _command_first(words: Sequence[str]) -> list[str]:
    """Return the words with the shared options that stand before the command moved behind it."""
    rest = list(words)
    moved: list[str] = []
    while rest and rest[0].startswith("-"):
        name, is_joined, _ = rest[0].partition("=")
        if name not in SHARED_NAMES:
            break
        size = 2 if SHARED_NAMES[name] and not is_joined else 1
        moved, rest = moved + rest[:size], rest[size:]
    return [*rest[:1], *moved, *rest[1:]] if rest and rest[0] in _COMMANDS else list(words)


def _with_optional_values(words: Sequence[str]) -> list[str]:
    """Return the words with a value for a bare ``sync --wandb``; typer has no optional values."""
    if not words or words[0] != "sync":
        return list(words)
    following = [*words[1:], "-"]
    is_bare = [
        word == "--wandb" and not _PROJECT.fullmatch(after)
        for word, after in zip(words, following, strict=True)
    ]
    return ["--wandb=same" if bare else word for word, bare in zip(words, is_bare, strict=True)]


_PROJECT = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def _fail(error: Step0Error, *, as_json: bool) -> int:
    if as_json:
        typer.echo(json_documents.dumps(json_documents.error_document(error)))
    output.error(error)
    return error.exit_code


def _help_of(words: Sequence[str]) -> str:
    named = next((word for word in words if word in _COMMANDS), "")
    return f"See `step0-wandb {named} --help`." if named else "See `step0-wandb --help`."


def _bug(error: Exception) -> Step0Error:
    return Step0Error(
        f"Unexpected error (a bug): {type(error).__name__}: {error}",
        "Run the command again with -v and report the output.",
    )
