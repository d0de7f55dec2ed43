"""The pages of the documentation, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"(<!-- begin: ([\w-]+) -->\n).*?(<!-- end: \2 -->\n)", re.DOTALL)


def pages() -> list[Path]:
    """Return every page, the README first."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of one language in a page."""
    return [text for name, text in _BLOCK.findall(path.read_text(encoding="utf-8")) if name == language]


def names_of_generated(text: str) -> list[str]:
    """Return the names of the generated parts of a page."""
    return [name for _, name, _ in _GENERATED.findall(text)]


def with_generated(text: str, parts: dict[str, str]) -> str:
    """Return a page with its generated parts as they should be."""
    return _GENERATED.sub(lambda found: f"{found[1]}\n{parts[found[2]].strip()}\n\n{found[3]}", text)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site both make it."""
    text = re.sub(r"[^\w\s-]", "", heading.replace("`", "").strip().lower())
    return re.sub(r"\s", "-", text)


def anchors(path: Path) -> set[str]:
    """Return the anchors of all headings of a page."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
