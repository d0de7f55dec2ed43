"""Every page of the documentation is true: its blocks run, its links lead somewhere, its tables are the program's."""

import re
import shlex
from pathlib import Path

import matplotlib as mpl
import pytest
import yaml
from matplotlib import pyplot as plt

from step0_wandb.app.sync import profiles_of
from step0_wandb.checks.pages import documented_checks, page_of
from step0_wandb.errors import Step0Error
from step0_wandb.settings.load import load_settings
from tests.docs.pages import DOCS, ROOT, anchors, blocks, pages
from tests.docs.reference import commands, exit_codes_of_errors, run_fields
from tests.docs.refresh import refreshed
from tests.support import command

NO_STEP0 = 8
CONTRADICTION = 3
NO_KEY = 4
NOTHING_LISTENS = "http://127.0.0.1:9"
README = ROOT / "README.md"
CONSOLE_LINE = (
    "(MegatronTrainRayActor pid=2429) [2026-08-15 05:04:17.003 actor_cell0_rank8] log_utils.py:460 - step 0: "
    "{'train/ppo_kl': 0.0, 'train/pg_clipfrac': 0.0, 'train/train_rollout_logprob_abs_diff': 0.0151, 'train/step': 0}\n"
)
GENERATED = {"commands.md", "adding-a-framework.md"}
"""Pages whose blocks other tests run: the examples of the help, and the profile."""
PROGRAM = re.compile(r"^step0-wandb |\| step0-wandb ")


def lines():
    """Return each command line of the pages once, without those of the README, which its own test runs."""
    told = set("\n".join(blocks(README, "sh")).splitlines())
    some = (path for path in pages() if path.name not in GENERATED and path != README)
    found = (line for path in some for line in "\n".join(blocks(path, "sh")).splitlines())
    return [line for line in dict.fromkeys(found) if line and line not in told]


def expected(line):
    """Return the exit code of a line on the demo, whose newest run is in its first rollout, without a key."""
    if "my-team/" in line:
        return NO_KEY if "||" not in line else 0
    if " lint -- " in line:
        return CONTRADICTION
    return NO_STEP0 if "latest-run" in line else 0


@pytest.fixture(scope="module")
def place(fresh_demo):
    """Return a demo with the main job run on it."""
    folder = fresh_demo("pages")
    assert command.run("sync", cwd=folder).code == 0
    (folder / "train.log").write_text(CONSOLE_LINE)
    command.install(folder.parent)
    return folder


def test_generated_parts_are_what_the_package_says():
    stale = [path.name for path in pages() if refreshed(path) != path.read_text(encoding="utf-8")]
    assert stale == [], "run python -m tests.docs.refresh"


@pytest.mark.parametrize("line", [line for line in lines() if PROGRAM.search(line)])
def test_a_command_runs_on_the_demo(line, place, tmp_path):
    elsewhere = {"HOME": str(tmp_path), "WANDB_BASE_URL": NOTHING_LISTENS}
    done = command.run_line(line, cwd=place, program=place.parent, **elsewhere)
    assert done.code == expected(line), done.err


def test_every_other_line_of_shell_is_one_that_ci_runs():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [line for line in lines() if not PROGRAM.search(line) and line not in ci] == []


def test_python_blocks_run_on_the_demo(place):
    mpl.use("agg")
    program = "\n".join(block for path in pages() if path != README for block in runnable(path))
    names = {}
    with command.surroundings(place.parent, {}):
        exec(program, names)  # noqa: S102 - the pages are ours
    plt.close("all")
    assert len(names["flagged"]) == 4


def runnable(path):
    """Return the Python blocks of a page; those of a single call with its signature are generated."""
    return [block for block in blocks(path, "python") if not re.fullmatch(r"s0\.\w+\(.*\)\n", block)]


@pytest.mark.parametrize(
    "path", [path for path in pages() if path.name not in GENERATED], ids=lambda path: path.stem
)
def test_settings_are_accepted(path, tmp_path):
    for block in blocks(path, "toml"):
        (tmp_path / "step0.toml").write_text(block, encoding="utf-8")
        assert profiles_of(load_settings(cwd=tmp_path, environ={}))


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_every_link_leads_to_a_file_and_a_heading(path):
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    broken = []
    for one, other in links:
        file, _, anchor = (one or other).partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            broken.append(one or other)
    assert broken == []


def test_every_check_has_its_page_and_section():
    for name in documented_checks():
        file, _, anchor = page_of(name).partition("#")
        assert (ROOT / file).is_file(), name
        assert not anchor or anchor in anchors(ROOT / file), name
    assert page_of("my-own") is None


def test_explain_names_the_page_of_what_failed(place):
    out = " ".join(command.run("explain", "q06dr0p1", cwd=place).out.split())
    assert "docs/checks/ppo_kl.md, docs/checks/clip_frac.md: what it means, and what to do" in out


def test_the_site_lists_every_page():
    def files(part):
        if isinstance(part, str):
            return [part]
        return [
            file for inner in (part.values() if isinstance(part, dict) else part) for file in files(inner)
        ]

    listed = files(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in pages() if path != README)


def test_every_exit_code_is_told():
    text = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert {*exit_codes_of_errors().values(), Step0Error.exit_code, 0, 3, 7, 130} == told


def test_every_field_of_json_has_a_meaning():
    assert re.findall(r"^\|[^|]+\|[^|]+\|\s*\|$", run_fields(), re.MULTILINE) == []


@pytest.mark.parametrize(
    "words",
    [
        "runs",
        "ranges",
        "weights",
        "explain q06wr0ng",
        "diff q06wr0ng",
        "doctor",
        "settings",
        "profiles",
        "sync",
    ],
)
def test_every_part_of_a_document_is_told(words, place):
    document = command.run(*shlex.split(words), "--json", cwd=place, WANDB_BASE_URL=NOTHING_LISTENS).document
    text = (DOCS / "json.md").read_text(encoding="utf-8")
    [row] = [line for line in text.splitlines() if f"`{document['schema']}`" in line and line.startswith("|")]
    told = ("settings", "profiles") if words in ("settings", "profiles") else re.findall(r"`(\w+)`", row)
    assert set(document) - {"schema"} <= set(told)


def test_pages_name_only_commands_that_there_are():
    known = set(re.findall(r"^## `([a-z]+)`$", commands(), re.MULTILINE))
    for path in pages():
        named = set(re.findall(r"step0-wandb ([a-z]+)\b", Path(path).read_text(encoding="utf-8")))
        assert named <= known, path.name
