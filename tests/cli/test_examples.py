"""The example of every command's help runs as it stands, on the demo's runs."""

import re

import pytest

from step0_wandb.cli.app import app
from tests.support import command

IN_AN_EMPTY_FOLDER = {"demo", "settings"}
EXPECTED = {
    "check": 8,  # the demo's newest run is in its first rollout
    "doctor": 4,  # no key either
    "gate": 0,  # no key: not 3, so that the job goes on
}


def examples():
    """Return the example of each command, by its name."""
    found = {}
    for registered in app.registered_commands:
        lines = re.findall(r"^\s*Example: (.+)$", registered.callback.__doc__, re.MULTILINE)
        found[registered.name] = lines
    return found


EXAMPLES = examples()


@pytest.fixture(scope="module")
def place(fresh_demo):
    """Return a demo with the main job run on it, and a directory with the program."""
    folder = fresh_demo("examples")
    assert command.run("sync", cwd=folder).code == 0
    command.install(folder.parent)
    return folder


def test_every_command_has_one_example_that_begins_with_it():
    assert len(EXAMPLES) > 12
    for name, lines in EXAMPLES.items():
        assert len(lines) == 1, name
        assert lines[0].startswith(f"step0-wandb {name}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name, place, tmp_path):
    folder = tmp_path if name in IN_AN_EMPTY_FOLDER else place
    elsewhere = {"HOME": str(tmp_path), "WANDB_BASE_URL": "http://127.0.0.1:9"}
    done = command.run_line(EXAMPLES[name][0], cwd=folder, program=place.parent, **elsewhere)
    assert done.code == EXPECTED.get(name, 0), done.err
    assert "Traceback" not in done.err
