"""The notebooks run from the first cell to the last, offline, and their saved outputs are useful and small."""

import json
import re
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.refresh import tidy
from tests.notebooks.running import NOTEBOOKS, execute

MOST_BYTES = 300_000
"""Of one notebook with its outputs."""


def code_cells(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]


def outputs(book):
    return [output for cell in code_cells(book) for output in cell.outputs]


def kinds(book):
    """Return which kinds of output each code cell shows, charts and tables and texts."""
    return [
        sorted({kind for output in cell.outputs for kind in output.get("data", {})})
        for cell in code_cells(book)
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_saved_in_it(path, tmp_path):
    fresh, saved = execute(path, tmp_path), nbformat.read(path, as_version=4)
    assert kinds(fresh) == kinds(saved)
    assert not [output for output in outputs(fresh) if output.output_type == "stream"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_outputs_are_complete_small_and_say_nothing_of_a_machine(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert [cell.execution_count for cell in code_cells(book)] == list(range(1, len(code_cells(book)) + 1))
    assert path.stat().st_size < MOST_BYTES
    assert any("image/png" in kind for kind in kinds(book))
    written = json.dumps([output.get("data", {}) for output in outputs(book)])
    assert not re.search(r"/(?:tmp|home|root|Users)\b|0x[0-9a-f]{6,}", written)


def test_all_four_are_there_open_with_a_title_and_say_what_they_need():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_tour",
        "02_one_broken_run",
        "03_setup_keys",
        "04_what_moves_the_gap",
    ]
    for path in NOTEBOOKS:
        first = nbformat.read(path, as_version=4).cells[0]
        assert first.cell_type == "markdown"
        assert first.source.startswith("# ")
        assert "step0-wandb[notebook]" in first.source


def test_tidying_takes_paths_and_times_away(tmp_path):
    output = nbformat.v4.new_output("display_data", {"text/plain": f"{tmp_path}/step0.db"}, metadata={"a": 1})
    cell = nbformat.v4.new_code_cell("1", outputs=[output], metadata={"execution": {"started": "now"}})
    book = nbformat.v4.new_notebook(
        cells=[cell], metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )
    tidied = tidy(book, Path(tmp_path)).cells[0]
    assert tidied.metadata == {}
    assert (tidied.outputs[0].data["text/plain"], tidied.outputs[0].metadata) == ("step0.db", {})
