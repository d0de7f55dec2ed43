"""Notebooks run from the first cell to the last, in a kernel that sees none of the user's settings."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of a fresh run in `folder`.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell fails.
    """
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(
        book, timeout=None, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    asyncio.run(client.async_execute(env=_environment(folder)))
    return book


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "STEP0_"))}
    own = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    return kept | own | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
