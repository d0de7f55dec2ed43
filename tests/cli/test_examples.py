"""The example of every command's help runs as it stands, on the demo's runs."""

import os
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from subprocess import run

import pytest

from step0_wandb.cli.app import app
from step0_wandb.demo import write_demo
from tests.support import command

ROOT = Path(__file__).parents[2]
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
def place(tmp_path_factory):
    """Return a demo with the main job run on it, and a directory with the program."""
    folder = write_demo(tmp_path_factory.mktemp("examples") / "step0-demo", now=datetime.now(UTC))
    assert command.run("sync", cwd=folder.directory).code == 0
    program = folder.directory.parent / "step0-wandb"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m step0_wandb "$@"\n')
    program.chmod(0o755)
    return folder.directory


def test_every_command_has_one_example_that_begins_with_it():
    assert len(EXAMPLES) > 12
    for name, lines in EXAMPLES.items():
        assert len(lines) == 1, name
        assert lines[0].startswith(f"step0-wandb {name}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name, place, tmp_path):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "STEP0_"))}
    own = {"PATH": f"{place.parent}:{kept['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    folder = tmp_path if name in IN_AN_EMPTY_FOLDER else place
    done = run(
        ["sh", "-c", EXAMPLES[name][0]],
        cwd=folder,
        env=kept | own | {"WANDB_BASE_URL": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXPECTED.get(name, 0), done.stderr
    assert "Traceback" not in done.stderr
