"""Standard streams that are full, closed or left: the exit code is the answer, whatever becomes of the text."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.miles import miles_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a run that is broken by its own values."""
    place = tmp_path_factory.mktemp("streams")
    miles_run(place, "bad", ppo_kl=0.3)
    return place


def shell(text, cwd, **environ):
    """Run a line of bash in which ``step0`` is the program."""
    program = f"{shlex.quote(sys.executable)} -m step0_wandb"
    kept = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": str(ROOT)}
    line = f"set -o pipefail; {text.replace('step0 ', f'{program} ')}"
    return subprocess.run(
        ["/bin/bash", "-c", line], cwd=cwd, env=kept | environ, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("step0 check bad | true", 3),
        ("step0 check bad --json > /dev/full", 3),
        ("step0 check bad >&- 2>&-", 3),
        ("step0 runs --store none.db >&- 2>&-", 6),
        ("step0 check - <&-", 8),
        ("step0 --version > /dev/full", 2),
    ],
)
def test_the_exit_code_is_the_same(folder, line, code):
    (bad,) = folder.rglob("*bad")
    done = shell(line.replace("bad", shlex.quote(str(bad))), folder)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    if "> /dev/full" in line and "2>" not in line:
        assert b"No space left on device" in done.stderr


def test_an_encoding_without_our_characters_loses_none_of_a_document_and_stops_no_text(folder):
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    shell("step0 sync . --store s.db", folder)
    document = json.loads(shell("step0 runs --json --store s.db", folder, **ascii_only).stdout)
    assert "·" in document["runs"][0]["setup"]
    done = shell("step0 runs --store s.db", folder, **ascii_only)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xb7" in done.stdout
