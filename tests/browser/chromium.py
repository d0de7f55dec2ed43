"""Debian's chromium, started so that it asks for nothing of its own."""

import shutil

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def program() -> str | None:
    """Return the path of the program, None where it is not installed."""
    return shutil.which("chromium")
