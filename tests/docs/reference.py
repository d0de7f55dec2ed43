"""Reference pages from the package's own data: frameworks, settings, commands, Python API, JSON."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel, TypeAdapter

import step0_wandb as s0
from step0_wandb import errors, records
from step0_wandb.cli import app
from step0_wandb.settings.load import PREFIX
from step0_wandb.settings.options import Settings, SetupSettings, commented_file
from tests.docs.checks import PROFILES, code, table

if TYPE_CHECKING:
    from step0_wandb.profiles.profile import Profile

_SHARED = (
    "--settings",
    "--store",
    "--json",
    "--dry-run",
    "--fail-on",
    "--quiet",
    "--verbose",
    "--log-format",
)
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


# ── frameworks ──────────────────────────────────────────────────────────────


def switches() -> str:
    """Return what to set in each framework, and which checks it brings."""
    rows = [
        (
            profile.title if at == 0 else "",
            code(entry.set) if entry.set else "nothing: by default",
            ", ".join(map(code, entry.brings)),
            entry.why,
        )
        for profile in PROFILES.values()
        for at, entry in enumerate(profile.switch)
    ]
    return table(("framework", "set", "brings", "note"), rows)


def frameworks() -> str:
    """Return a section a framework: what is read, and what makes a setup."""
    return "\n\n".join(_framework(profile) for profile in PROFILES.values())


def _framework(profile: Profile) -> str:
    metrics = profile.metrics
    rows = [
        ("`ppo_kl`", ", ".join(map(code, metrics.ppo_kl)) or "not logged"),
        ("`clip_frac`", ", ".join(map(code, metrics.clip_frac)) or "not logged"),
        ("`gap`", ", ".join(code(gap.metric) for gap in metrics.gap) or "not logged"),
        ("step", ", ".join(map(code, profile.step.keys))),
        ("a setup is", ", ".join(key.label for key in profile.setup)),
        ("also checked", ", ".join(code(entry.name) for entry in profile.observable) or "-"),
        ("console log", "read" if profile.console and profile.console.kind != "none" else "not read"),
        (
            "weight comparison",
            code(profile.weights.add[0].replace("{more}", "")) if profile.weights else "none",
        ),
    ]
    return f"## {profile.title}\n\n" + table(("what", "read from"), rows)


# ── settings and commands ───────────────────────────────────────────────────


def settings() -> str:
    """Return one table for each table of the settings file."""
    parts = [_settings_table("", Settings, "Top level, above any table.")]
    for name, field in Settings.model_fields.items():
        if name == "setup":
            parts.append(_settings_table("setup.NAME", SetupSettings, (SetupSettings.__doc__ or "").strip()))
        elif isinstance(field.default, BaseModel):
            model = type(field.default)
            parts.append(_settings_table(name, model, (model.__doc__ or "").strip()))
    return "\n\n".join(parts)


def _settings_table(name: str, model: type[BaseModel], about: str) -> str:
    defaults = model().model_dump(mode="json")
    rows = []
    for key, field in model.model_fields.items():
        if isinstance(defaults[key], dict):
            continue
        dotted = f"{name}.{key}".strip(".")
        variable = "-" if name.startswith("setup") else code(PREFIX + dotted.replace(".", "_").upper())
        default = (
            "-" if defaults[key] in (None, [], ()) else code(json.dumps(defaults[key], ensure_ascii=False))
        )
        rows.append((code(key), default, variable, field.description or ""))
    heading = f"## `[{name}]`\n\n" if name else "## Sources and store\n\n"
    return f"{heading}{about}\n\n" + table(("key", "default", "environment", "meaning"), rows)


def settings_file() -> str:
    """Return the file that `settings --init` writes."""
    return f"```toml\n{commented_file()}```"


def commands() -> str:
    """Return one section a command: what it does, its own options, an example; shared options once."""
    found = typer.main.get_command(app.app).commands  # type: ignore[attr-defined]
    parts = [_command(name, command) for name, command in found.items()]
    every = {_key(option): option for command in found.values() for option in command.params}
    rows = [_option(every[name]) for name in _SHARED]
    return "\n\n".join([*parts, "## Shared options\n\n" + table(("option", "meaning"), rows)])


def _command(name: str, command: Any) -> str:
    about, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
    own = [_option(option) for option in command.params if _key(option) not in _SHARED and _key(option)]
    words = [_argument(each) for each in command.params if not _key(each)]
    usage = f"`step0-wandb {' '.join([name, *words])}`"
    options = "\n\n" + table(("option", "meaning"), own) if own else ""
    return f"## `{name}`\n\n{usage}\n\n{about.strip()}{options}\n\n```sh\n{example.strip()}\n```"


def _key(option: Any) -> str:
    """Return the name of an option; empty for an argument."""
    return next((name for name in option.opts if name.startswith("--")), "")


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    shown = name if argument.required or name.startswith("[") else f"[{name}]"
    return shown + ("..." if argument.nargs == -1 and "..." not in shown else "")


def _option(option: Any) -> tuple[str, str]:
    metavar = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return code(f"{', '.join([*option.opts, *option.secondary_opts])}{metavar}"), (option.help or "").strip()


# ── the Python API ──────────────────────────────────────────────────────────


def api() -> str:
    """Return one section for each public function, from its docstring."""
    return "\n\n".join(_function(name) for name in s0.__all__ if name != "__version__")


def _function(name: str) -> str:
    function = getattr(s0, name)
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    signature = str(inspect.Signature(parameters))
    return f"## `{name}`\n\n```python\ns0.{name}{signature}\n```\n\n{markdown_of(function)}"


def markdown_of(thing: object) -> str:
    """Return a numpydoc docstring as Markdown: sections bold, entries as a list."""
    lead, *rest = _SECTION.split(inspect.getdoc(thing) or "")
    parts = [_text(lead)]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        if title == "Examples":
            parts.append(f"**{title}**\n\n```pycon\n{body.strip()}\n```")
        elif title in ("Notes", "References"):
            parts.append(f"**{title}**\n\n{_text(body)}")
        else:
            parts.append(f"**{title}**\n\n{_entries(body)}")
    return "\n\n".join(parts)


def _entries(body: str) -> str:
    lines = []
    for line in body.strip().splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            lines.append(f"- `{name}`" + (f" ({_plain(kind)})" if kind else ""))
        else:
            lines.append(f"  {_plain(line.strip())}")
    return "\n".join(lines)


def _text(text: str) -> str:
    return _plain(text.strip())


def _plain(text: str) -> str:
    return text.replace("``", "`").replace("::", ":").replace("<", "&lt;")


# ── JSON ────────────────────────────────────────────────────────────────────


MEANINGS = {
    "run": "key, `entity/project/run_id`, with `#policy` behind it where the run trains several",
    "name": "display name in W&B",
    "url": "page of the run; null for runs from disk",
    "user": "user name in W&B",
    "group": "group in W&B",
    "created_at": "in UTC, ISO 8601",
    "state": "as W&B has it: `running`, `finished`, `failed`, `crashed`, ...",
    "profile": "the framework",
    "setup": "label of the setup",
    "ppo_kl": "PPO KL of the first optimizer step",
    "clip_frac": "share of clipped tokens there",
    "gap": "gap between trainer and engine there",
    "gap_metric": "metric that the gap was read from",
    "label": "what a person said; it overrides the verdict",
    "checks": "every check that was asked",
    "check": "name of the check, see [Checks](checks/index.md)",
    "value": "the number that was judged",
    "limit": "the limit that it was compared with",
    "message": "a sentence; empty where the numbers say it all",
    "verdict": "verdict of that start",
    "expects_from": "smallest factor on the gap that is found with 95 %",
    "start": "which start of the run this is, from 1",
    "starts": "how many starts there are",
    "n": "healthy runs that the range rests on",
    "center": "geometric mean of their gaps",
    "low": "lower end of the range",
    "high": "upper end of the range",
    "seen_low": "smallest gap among them",
    "seen_high": "largest gap among them",
}
"""Of fields whose name says it in the code, and not to a reader who does not know it."""


def run_fields() -> str:
    """Return the fields of RUN, SETUP and of what stands in them."""
    kinds = {
        "RUN": records.JudgedRun,
        "SETUP": records.SetupRange,
        "CHECK": records.CheckResult,
        "EARLIER": records.EarlierStart,
        "MOVE": records.Move,
        "QUESTION": records.Question,
        "LEVEL": records.Level,
    }
    return "\n\n".join(f"### {name}\n\n{_fields(kind)}" for name, kind in kinds.items())


def _fields(kind: type[Any]) -> str:
    known = _described(kind)
    schema = TypeAdapter(kind).json_schema()
    shown = getattr(kind, "SHOWN_AS", {})
    names = [field.name for field in dataclasses.fields(kind) if shown.get(field.name, "") is not None]
    names += getattr(kind, "DERIVED", ())
    schema["properties"] |= {"moved": {"anyOf": [{"$ref": "Move"}, {"type": "null"}]}} if shown else {}
    rows = [
        (
            code(name),
            _type(schema["properties"].get(name, {"anyOf": [{"type": "number"}, {"type": "null"}]})),
            MEANINGS.get(name) or known.get(name, ""),
        )
        for name in names
    ]
    return table(("field", "type", "meaning"), rows)


def _described(kind: type[Any]) -> dict[str, str]:
    _, _, body = (inspect.getdoc(kind) or "").partition("Attributes\n----------\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in body.splitlines():
        if not line.startswith(" "):
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
        else:
            for name in names:
                found[name] = f"{found.get(name, '')} {_plain(line.strip())}".strip()
    return found


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if "$ref" in schema:
        names = {"CheckResult": "CHECK", "SetupRange": "SETUP", "EarlierStart": "EARLIER"}
        name = schema["$ref"].rpartition("/")[2]
        return names.get(name, name.upper())
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return "time" if schema.get("format") == "date-time" else schema.get("type", "any")


def exit_codes_of_errors() -> dict[str, int]:
    """Return the exit code of each kind of error."""
    found = [errors.Step0Error]
    for error in found:
        found += error.__subclasses__()
    return {error.__name__: error.exit_code for error in found}
