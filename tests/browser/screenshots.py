"""Take the pictures of the documentation again: what the demo shows, in Debian's chromium, light and dark.

Run ``python -m tests.browser.screenshots`` after a change that the pictures show.
"""

from __future__ import annotations

import io
import itertools
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PIL import Image
from playwright.sync_api import sync_playwright

from step0_wandb.demo import write_demo
from tests.browser import facsimiles
from tests.browser.chromium import QUIET, program

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page

PICTURES = Path(__file__).parents[2] / "docs" / "images"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PARTS = {"page": ("header", "#flagged > section >> nth=1"), "setups": (".legend", "article.pane >> nth=1")}
"""Each picture, and the elements that it begins and ends with."""
NOW = datetime(2026, 11, 30, 7, tzinfo=UTC)
WIDTH, MARGIN, HIGHEST = 1100, 12, 900
LAUNCH = [
    "python",
    "train.py",
    "--hf-checkpoint",
    "/models/Qwen3-0.6B",
    "--ref-load",
    "/models/Qwen3-0.6B-Base_torch_dist",
]
EXPLAINED = 34
"""Lines of an explanation that its picture shows."""
COLORS = 255
"""Text on a flat ground looks the same in so few, in half the bytes."""


def picture(part: str, scheme: str) -> Path:
    """Return where the picture of a part of the page in one color scheme lies."""
    return PICTURES / f"{part}-{scheme}.png"


def pictured(folder: Path) -> dict[str, Path]:
    """Write the demo as it is at a fixed time, and one HTML file for each picture; return the files."""
    demo = write_demo(folder / "step0-demo", now=NOW)
    alert = facsimiles.alert(demo, "q06wr0ng", now=NOW)  # runs the main job
    page = demo.directory / "step0.html"
    drawn = {
        "alert": alert,
        "report": facsimiles.report(demo, now=NOW),
        "explain": facsimiles.terminal(demo, "explain", "q06wr0ng", first=EXPLAINED),
        "lint": facsimiles.terminal(demo, "lint", "--", *LAUNCH),
    }
    for name, text in drawn.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return dict.fromkeys(PARTS, page) | {name: folder / f"{name}.html" for name in drawn}


def clip(page: Page, part: str) -> FloatRect:
    """Return the rectangle that a picture shows, in CSS pixels of the whole page."""
    if part not in PARTS:
        body = page.locator("body").bounding_box()
        assert body
        return {"x": 0, "y": 0, "width": WIDTH, "height": min(body["height"], HIGHEST)}
    first, last = (page.locator(selector).bounding_box() for selector in PARTS[part])
    assert first
    assert last
    top, bottom = max(0.0, first["y"] - MARGIN), last["y"] + last["height"] + MARGIN
    return {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}


def main() -> None:
    """Take and save all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        files = pictured(Path(folder))
        browser = playwright.chromium.launch(executable_path=program(), args=[*QUIET])
        for part, scheme in itertools.product(files, SCHEMES):
            page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme=scheme)
            page.goto(files[part].as_uri())
            path = picture(part, scheme)
            picture_bytes = page.screenshot(full_page=True, clip=clip(page, part))
            Image.open(io.BytesIO(picture_bytes)).quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(
                path, optimize=True
            )
            print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")  # noqa: T201 - what the script is for
        browser.close()


if __name__ == "__main__":
    main()
