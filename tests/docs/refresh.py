"""Write the generated parts of the documentation again.

Run ``python -m tests.docs.refresh`` after a change of checks, profiles, settings, commands or public functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docs import checks, limits, reference
from tests.docs.pages import names_of_generated, pages, with_generated

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {
    "api": reference.api,
    "checks": checks.overview,
    "commands": reference.commands,
    "family-bound": lambda: checks.family("bound"),
    "family-learned": lambda: checks.family("learned"),
    "frameworks": reference.frameworks,
    "json-fields": reference.run_fields,
    "limits": limits.table,
    "settings": reference.settings,
    "settings-file": reference.settings_file,
    "switches": reference.switches,
}


def part(name: str) -> str:
    """Return one generated part; ``check-NAME`` holds the facts of one check."""
    return checks.facts(name.removeprefix("check-")) if name.startswith("check-") else PARTS[name]()


def refreshed(path: Path) -> str:
    """Return a page with its generated parts as they should be."""
    text = path.read_text(encoding="utf-8")
    return with_generated(text, {name: part(name) for name in names_of_generated(text)})


def main() -> None:
    """Write every page whose generated parts have changed."""
    for path in pages():
        text = refreshed(path)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.name}")  # noqa: T201 - what the script is for


if __name__ == "__main__":
    main()
