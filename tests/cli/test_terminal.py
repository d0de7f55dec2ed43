"""In a terminal: what is shown fits it, in words and not in colors alone, and completes in a shell."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from step0_wandb.records import VERDICTS
from tests.support.command import install, run
from tests.support.miles import miles_run
from tests.support.terminal import on_terminal, plain

ROOT = Path(__file__).parents[2]
COLOR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|38;[0-9;]*|9[0-7])m")
LONG = "qwen3-0.6b-a-very-long-experiment-name-that-goes-on_4ea2122b-RANK_0"
READING = [["runs"], ["ranges"], ["explain", "wrong"], ["check", "."], ["settings"], ["profiles"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a store: healthy runs of two setups, a broken one, and one without a gap."""
    place = tmp_path_factory.mktemp("terminal")
    for number, gap in enumerate((0.0150, 0.0152, 0.0149, 0.0151)):
        miles_run(place / "all", f"healthy{number}", gap)
        sampler = {"rollout_top_p": 0.95, "rollout_top_k": 64}
        miles_run(place / "all", f"top{number}", gap * 0.9, display_name=LONG, config=sampler)
    miles_run(place / "all", "wrong", 0.0461, display_name=LONG, config={"rotary_base": 10000})
    miles_run(place / "all", "blind", None)
    miles_run(place / "one", "wrong", 0.0461)
    assert run("sync", "all", "--store", "step0.db", cwd=place).code == 0
    return place


def shown(words, folder, columns, **environ):
    place = "one" if words[0] == "check" else "all"
    words = [place if word == "." else word for word in words]
    answer = on_terminal(*words, cwd=folder, columns=columns, STEP0_STORE="step0.db", **environ)
    assert "error:" not in answer.out
    return answer.out


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
@pytest.mark.parametrize("columns", [80, 160])
def test_no_line_is_longer_than_the_terminal_is_wide(folder, words, columns):
    lines = plain(shown(words, folder, columns)).splitlines()
    assert len(lines) > 2
    # A path or a link is never broken, so that it can be copied.
    assert max(len(line) for line in lines if str(folder) not in line) <= columns


def test_a_narrow_table_of_runs_keeps_every_figure_and_says_id_and_setup_below_the_name(folder):
    lines = plain(shown(["runs", "--verdict", "broken"], folder, 80)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("broken"))
    assert re.match(r"broken +qwen3-0\.6b-a-very-long.*… +0\.0461 +3\.1 +0$", lines[at].rstrip())
    assert lines[at + 1].split() == ["wrong", "miles", "·", "Qwen3-0.6B"]


def test_a_wide_terminal_shows_more_of_each_run(folder):
    heading = plain(shown(["runs"], folder, 160)).splitlines()[0]
    assert heading.split() == [
        *("verdict", "run", "id", "gap", "x", "center", "ppo_kl", "clip_frac", "setup", "user", "created")
    ]


def test_in_a_pipe_every_run_stays_one_whole_line(folder):
    lines = run("runs", cwd=folder, STEP0_STORE="step0.db").out.splitlines()
    (line,) = [line for line in lines if line.startswith("broken")]
    assert LONG in line
    assert sum(line.split(" ")[0] in VERDICTS for line in lines) == 10


def test_profiles_say_which_statistic_each_gap_is(folder):
    lines = plain(shown(["profiles"], folder, 80)).splitlines()
    at = lines.index("  gap        training/rollout_probs_diff_mean")
    assert lines[at + 1].strip() == "mean absolute probability difference"
    known = run("profiles", "--json", cwd=folder).document["profiles"]
    assert all(set(profile["gap"]) == set(profile["gap_statistic"]) for profile in known)


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_in_a_pipe_lines_are_not_filled_up_with_blanks(folder, words):
    words = ["one" if word == "." else word for word in words]
    lines = run(*words, cwd=folder, STEP0_STORE="step0.db").out.splitlines()
    assert max(len(line) - len(line.rstrip()) for line in lines) < 100


def test_what_is_not_checked_is_told_below_the_runs(folder):
    for text in (shown(["runs"], folder, 80), run("runs", cwd=folder, STEP0_STORE="step0.db").out):
        assert "not checked: gap on 1 of 10 miles runs" in " ".join(plain(text).split())


def test_verdicts_have_a_color_and_the_word(folder):
    text = shown(["runs"], folder, 80)
    assert COLOR.search(text)
    assert {"broken", "healthy"} <= set(plain(text).split())


@pytest.mark.parametrize(
    "words", [["runs"], ["explain", "wrong"], ["check", "."]], ids=lambda words: words[0]
)
def test_no_color_is_honoured(folder, words):
    text = shown(words, folder, 80, NO_COLOR="1")
    assert "\x1b[" not in text  # no bold either
    assert "broken" in text


def test_on_a_terminal_a_sync_ends_in_one_summary_line_without_a_time(folder):
    text = plain(shown(["sync", "."], folder, 120))
    assert "\n10 runs seen, 0 new; stored: 1 broken, 1 no-range, 8 healthy\n" in f"\n{text}"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return a directory with the program as it is installed."""
    return install(tmp_path_factory.mktemp("bin"))


def in_bash(script, program):
    environ = os.environ | {"PATH": f"{program}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    bash = shutil.which("bash")
    done = subprocess.run([bash, "-c", script], env=environ, capture_output=True, text=True, check=True)
    return done.stdout


def test_show_completion_prints_a_script_that_completes(program):
    completion = in_bash("step0-wandb --show-completion; true", program)
    assert "complete -o default -F" in completion
    asked = "COMP_WORDS=(step0-wandb ex); COMP_CWORD=1; _step0_wandb_completion step0-wandb"
    assert in_bash(f'{completion}\n{asked}; echo "${{COMPREPLY[@]}}"', program) == "explain\n"


def test_completion_knows_the_words_of_an_option(program):
    script = "COMP_WORDS='step0-wandb sync --fail-on ' COMP_CWORD=3 _STEP0_WANDB_COMPLETE=complete_bash step0-wandb"
    assert in_bash(script, program).split() == ["broken", "suspect", "no-range", "never"]


def test_completion_knows_the_runs_setups_and_verdicts_of_the_store(folder, program):
    def completed(words, at):
        script = f"cd {folder}; STEP0_STORE=step0.db COMP_WORDS='step0-wandb {words}' COMP_CWORD={at} "
        return in_bash(f"{script} _STEP0_WANDB_COMPLETE=complete_bash step0-wandb", program).splitlines()

    assert completed("explain wr", 2) == ["wrong"]
    assert completed("mute Qwen3", 2) == ["Qwen3-0.6B", r"Qwen3-0.6B\ ·\ top_p=0.95\ top_k=64"]
    assert completed("runs --verdict broken,su", 3) == ["broken,suspect"]
