"""``check``: one run, from a directory of several processes or from a console log, and nothing written."""

import subprocess
import sys

import pytest

from tests.support.command import run
from tests.support.miles import CONFIG, GAP, miles_run
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file

LINE = (
    "(MegatronTrainRayActor pid=7) [2026-08-15 05:04:17.003 actor_cell0_rank8] log_utils.py:460 - step {}: "
    "{{'train/loss': 1.2e-08, 'train/ppo_kl': {}, 'train/pg_clipfrac': 0.0, "
    "'train/train_rollout_logprob_abs_diff': {}, 'train/grad_norm': tensor(2.0)}}\n"
)


def test_one_directory_of_a_shared_run_brings_the_others_along(tmp_path):
    driver = wandb_file(run_record("abc", CONFIG, started=1767225600), exit_record(1))
    rows = [{"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0, GAP: 0.015}]
    trainer = wandb_file(run_record("abc", CONFIG, started=1767225630), *map(history_record, rows))
    first = write_file(tmp_path, driver, run_id="abc", stamp="20260101_000000").parent
    second = write_file(tmp_path, trainer, run_id="abc", stamp="20260101_000030")
    other = wandb_file(run_record("other", CONFIG), exit_record(0))
    write_file(tmp_path, other, run_id="other", stamp="20260101_000000")
    for source in (first, second.parent, second):
        answer = run("check", source, "--json", "--store", "none.db", cwd=tmp_path)
        found = answer.document["run"]
        assert (found["run"], found["gap"], found["state"]) == ("team/project/abc", 0.015, "failed")


@pytest.mark.parametrize(
    ("damaged", "code", "said"),
    [
        (lambda _data: b"", 8, "just begun"),
        (lambda data: data[:100], 8, "just begun"),
        (lambda data: data[:7] + bytes(byte ^ 255 for byte in data[7:]), 5, "damaged record at byte 7"),
        (lambda _data: b"some other file", 5, "not a .wandb file"),
    ],
    ids=["empty", "cut", "damaged", "other"],
)
@pytest.mark.parametrize("as_file", [False, True], ids=["directory", "file"])
def test_a_file_that_gives_no_run_is_told_with_the_true_cause(tmp_path, damaged, code, said, as_file):
    place = miles_run(tmp_path, "r1", 0.015)
    (file,) = place.glob("*.wandb")
    file.write_bytes(damaged(file.read_bytes()))
    answer = run("check", file if as_file else place, "--store", "none.db", cwd=tmp_path)
    assert (answer.code, said in answer.err, answer.out) == (code, True, "")


def test_a_console_log_is_judged_by_the_ranges_of_the_store(tmp_path):
    for at, gap in enumerate((0.0150, 0.0152, 0.0149)):
        miles_run(tmp_path, f"r{at}", gap)
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    (tmp_path / "run.log").write_text(
        "starting\n" + LINE.format(0, 0.3009, 0.0151) + LINE.format(1, 1e-4, 0.0152)
    )
    answer = run("check", "run.log", "--store", "s.db", "--json", cwd=tmp_path)
    found = answer.document["run"]
    assert (answer.code, found["verdict"], found["ppo_kl"], found["gap"]) == (3, "broken", 0.3009, 0.0151)


def test_a_growing_log_on_stdin_ends_the_check_at_step_0(tmp_path):
    words = [sys.executable, "-m", "step0_wandb", "check", "-", "--store", str(tmp_path / "none.db")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write("starting\n" + LINE.format(0, 0.0, 0.0151))
        process.stdin.flush()
        said = process.stdout.read()  # returns though the log goes on: stdin stays open
        assert process.wait() == 0
        process.stdin.close()
    assert said.startswith("no-range")


RELAUNCHED = LINE.format(0, 0.0, 0.0151) + LINE.format(1, 1e-4, 0.02) + LINE.format(0, 0.021, 0.0631)


def test_of_launches_in_one_log_the_newest_is_judged_and_the_first_told(tmp_path):
    (tmp_path / "job.log").write_text(RELAUNCHED)
    answer = run("check", "job.log", "--store", "none.db", "--json", cwd=tmp_path)
    found = answer.document["run"]
    assert (answer.code, found["verdict"], found["gap"]) == (3, "broken", 0.0631)
    assert (found["start"], found["starts"]) == (2, 2)
    earlier = {"start": 1, "created_at": None, "verdict": "no-range", "gap": 0.0151}
    assert found["earlier"] == [earlier]
    said = run("check", "job.log", "--store", "none.db", cwd=tmp_path).out
    assert "started again: start 1 was no-range, gap 0.0151" in said


def test_a_whole_log_in_a_pipe_is_judged_as_the_file_is(tmp_path):
    words = [sys.executable, "-m", "step0_wandb", "check", "-", "--store", str(tmp_path / "none.db")]
    done = subprocess.run(words, input=RELAUNCHED, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (3, "broken")


def test_a_directory_is_judged_by_its_own_start(tmp_path):
    rows = [{"train/step": 0, "train/ppo_kl": kl, "train/pg_clipfrac": 0.0, GAP: 0.015} for kl in (0.0, 0.02)]
    places = []
    for at, row in enumerate(rows):
        record = run_record("job7", CONFIG, started=1767225600 + 60 * at)
        file = wandb_file(record, history_record(row), exit_record(0))
        places.append(write_file(tmp_path, file, run_id="job7", stamp=f"20260101_000{at}00").parent)
    (tmp_path / "latest-run").symlink_to(places[1])
    answers = [
        run("check", place, "--json", "--store", "none.db", cwd=tmp_path)
        for place in (*places, tmp_path / "latest-run", tmp_path)
    ]
    found = [answer.document["run"] for answer in answers]
    assert [run["ppo_kl"] for run in found] == [0.0, 0.02, 0.02, 0.02]
    assert [run["start"] for run in found] == [1, 2, 2, 2]
    assert [[one["start"] for one in run["earlier"]] for run in found] == [[], [1], [1], [1]]


def test_a_directory_without_a_file_says_that_nothing_was_written(tmp_path):
    (tmp_path / "run-20260101_000000-abc" / "files").mkdir(parents=True)
    answer = run("check", "run-20260101_000000-abc", "--store", "none.db", cwd=tmp_path)
    assert (answer.code, "no .wandb file: nothing was written to it" in answer.err) == (8, True)


@pytest.mark.parametrize(
    "text", ["", "nothing of interest\n" * 100, "step 0: {'train/loss': 1.0}\n", "\x00\xff"]
)
def test_a_log_that_no_profile_reads_exits_with_8_and_says_why(tmp_path, text):
    (tmp_path / "some.log").write_text(text)
    answer = run("check", "some.log", "--store", "none.db", cwd=tmp_path)
    assert answer.code == 8
    assert "some.log" in answer.err


def test_a_log_that_begins_later_has_no_step_0(tmp_path):
    (tmp_path / "late.log").write_text(LINE.format(7, 0.0, 0.0151) + LINE.format(8, 1e-4, 0.0152))
    answer = run("check", "late.log", "--store", "none.db", "--json", cwd=tmp_path)
    assert (answer.code, answer.document["run"]["verdict"]) == (8, "no-step0")


def test_a_rounded_log_cannot_prove_an_exact_zero(tmp_path):
    line = "(TaskRunner pid=1) step:1 - actor/ppo_kl:-0.000 - actor/pg_clipfrac:0.000 - training/rollout_probs_diff_mean:0.004 - training/global_step:1.000\n"
    (tmp_path / "verl.log").write_text(
        line + line.replace("step:1", "step:2").replace("step:1.000", "step:2.000")
    )
    answer = run("check", "verl.log", "--store", "none.db", "--json", cwd=tmp_path)
    checks = {check["check"]: check for check in answer.document["run"]["checks"]}
    assert checks["ppo_kl"]["outcome"] == "skipped"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Return a folder with a store of healthy runs, and a log of a run whose gap is three times theirs."""
    place = tmp_path_factory.mktemp("fleet")
    for at, gap in enumerate((0.0150, 0.0152, 0.0149)):
        miles_run(place / "all", f"r{at}", gap)
    assert run("sync", "all", "--store", "s.db", cwd=place).code == 0
    (place / "run.log").write_text("starting\n" + LINE.format(0, 0.0, 0.0461))
    return place


def test_a_log_is_judged_by_the_range_of_the_setup_that_is_named(fleet):
    assert run("check", "run.log", "--store", "s.db", cwd=fleet).code == 0
    answer = run("check", "run.log", "--store", "s.db", "--setup", "0.6b", "--json", cwd=fleet)
    assert (answer.code, answer.document["run"]["verdict"]) == (3, "broken")
    assert run("check", "run.log", "--store", "s.db", "--setup", "Llama", cwd=fleet).code == 2
    assert run("check", "all/wandb", "--store", "s.db", "--setup", "0.6b", cwd=fleet).code == 2


def test_the_launch_line_in_a_log_says_the_setup(fleet):
    setup = run("ranges", "--json", "--store", "s.db", cwd=fleet).document["setups"][0]["setup"]
    launch = (
        "+ python3 train.py --hf-checkpoint /models/Qwen3-0.6B \\\n  --rollout-top-p 1.0 --wandb-key sk-x\n"
    )
    (fleet / "launched.log").write_text(launch + LINE.format(0, 0.0, 0.0461))
    answer = run("check", "launched.log", "--store", "s.db", "--json", cwd=fleet)
    found = answer.document["run"]
    assert (found["setup"], found["verdict"], answer.code) == (setup, "broken", 3)


def test_a_run_of_the_store_goes_by_its_bare_id(fleet):
    answer = run("check", "r1", "--store", "s.db", "--json", cwd=fleet)
    assert (answer.code, answer.document["run"]["verdict"]) == (0, "healthy")
    assert run("check", "r9", "--store", "s.db", cwd=fleet).code == 2


def test_a_log_on_stdin_is_called_so(fleet):
    words = [sys.executable, "-m", "step0_wandb", "check", "-", "--store", "none.db"]
    done = subprocess.run(
        words, cwd=fleet, input="nothing here\n", capture_output=True, text=True, check=False
    )
    assert (done.returncode, "stdin shows no training step" in done.stderr) == (8, True)
