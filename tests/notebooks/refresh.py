"""Run every notebook again and save it with small outputs that say nothing about this machine.

Run ``python -m tests.notebooks.refresh`` after a change that the outputs show.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat

from tests.notebooks.running import NOTEBOOKS, execute


def tidy(book: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Take away what differs from run to run: times of execution, and the path of the scratch folder."""
    book.metadata = {"kernelspec": book.metadata["kernelspec"], "language_info": {"name": "python"}}
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number:02d}"
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            for kind, content in output.get("data", {}).items():
                if kind.startswith("text/"):
                    output["data"][kind] = content.replace(f"{folder}/", "")
    return book


def main() -> None:
    """Execute and save all notebooks."""
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(tidy(execute(path, Path(folder)), Path(folder)), path)
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")  # noqa: T201 - what the script is for


if __name__ == "__main__":
    main()
