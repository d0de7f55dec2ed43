"""Draw the README's pictures of the page anew: the demo's page in Debian's chromium, light and dark.

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

from step0_wandb.app.sync import Job, run_sync
from step0_wandb.demo import write_demo
from step0_wandb.settings.load import load_settings
from tests.browser.chromium import QUIET, program

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page

PICTURES = Path(__file__).parents[2] / "docs" / "images"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PARTS = {"page": ("header", "#flagged > section >> nth=1"), "setups": (".legend", "article.pane >> nth=1")}
"""Each picture, and the elements that it begins and ends with."""
NOW = datetime(2026, 11, 30, 7, tzinfo=UTC)
WIDTH, MARGIN = 1100, 12
COLOURS = 255
"""Text on a flat ground looks the same in so few, in half the bytes."""


def picture(part: str, scheme: str) -> Path:
    """Return where the picture of a part of the page in one color scheme lies."""
    return PICTURES / f"{part}-{scheme}.png"


def demo_page(folder: Path) -> Path:
    """Write the demo and its page as they are at a fixed time."""
    demo = write_demo(folder / "step0-demo", now=NOW)
    run_sync(Job(load_settings(demo.settings, cwd=demo.directory, environ={}), clock=lambda: NOW))
    return demo.directory / "step0.html"


def clip(page: Page, part: str) -> FloatRect:
    """Return the rectangle that the picture of a part shows, in CSS pixels of the whole page."""
    first, last = (page.locator(selector).bounding_box() for selector in PARTS[part])
    assert first
    assert last
    top, bottom = max(0.0, first["y"] - MARGIN), last["y"] + last["height"] + MARGIN
    return {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}


def main() -> None:
    """Draw and save all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = demo_page(Path(folder))
        browser = playwright.chromium.launch(executable_path=program(), args=[*QUIET])
        for part, scheme in itertools.product(PARTS, SCHEMES):
            page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme=scheme)
            page.goto(page_file.as_uri())
            path = picture(part, scheme)
            picture_bytes = page.screenshot(full_page=True, clip=clip(page, part))
            Image.open(io.BytesIO(picture_bytes)).quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
                path, optimize=True
            )
            print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")  # noqa: T201 - what the script is for
        browser.close()


if __name__ == "__main__":
    main()
