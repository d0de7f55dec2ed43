"""What is not checked is told, one line a profile: silence must not look like health."""

from step0_wandb.profiles import load_profiles
from step0_wandb.records import CheckResult
from step0_wandb.verdicts.coverage import coverage, silent_setups
from tests.support.judged import judged

SWITCH = "no gap was logged: verl logs the gap with actor_rollout_ref.rollout.calculate_log_probs=True"
LONELY = "no other healthy run of this setup to judge it by yet"
AVERAGED = "verl averages several optimizer steps into one row, so it need not be 0"


def check(name, outcome="pass", message="", value=None):
    return CheckResult(name, outcome, value, None, message)


def verl(number, *, gap=True, averaged=True):
    exact = ("skipped", AVERAGED) if averaged else ("pass", "")
    return judged(
        number,
        profile="verl",
        setup="verl · Qwen2.5-7B",
        verdict="healthy" if gap else "unchecked",
        gap=0.004 if gap else None,
        reasons=() if gap else (SWITCH,),
        checks=(
            check("ppo_kl", *exact),
            check("clip_frac", *exact),
            check("gap") if gap else check("gap", "skipped", "no gap was logged"),
            check("gap-zero", "skipped"),
        ),
    )


def test_runs_in_which_all_is_checked_have_no_line():
    assert coverage([judged(1, checks=(check("gap"),)), judged(2)]) == ()


def test_the_missing_gap_comes_first_with_the_switch_that_logs_it():
    runs = [verl(number, gap=number < 9, averaged=False) for number in range(40)]
    assert coverage(runs) == (f"gap on 31 of 40 verl runs{SWITCH.removeprefix('no gap was logged')}",)


def test_a_profile_has_one_line_with_its_reasons():
    (line,) = coverage([verl(1), verl(2), verl(3, gap=False)])
    assert line.startswith("gap on 1 of 3 verl runs: ")
    assert line.endswith(f"; ppo_kl, clip_frac on 3: {AVERAGED}")


def test_each_profile_has_its_own_line():
    slime = judged(5, profile="slime", checks=(check("ppo_kl", "vacuous", "it is 0 whatever happens"),))
    lines = coverage([verl(1), slime])
    assert [line.split(":")[0] for line in lines] == [
        "ppo_kl on 1 of 1 slime run",
        "ppo_kl, clip_frac on 1 of 1 verl run",
    ]


def test_what_time_will_mend_is_no_hole():
    waiting = judged(
        1, verdict="pending", profile=None, setup=None, gap=None, reasons=("step 0 is not logged yet",)
    )
    alone = judged(
        2,
        verdict="no-range",
        checks=(check("gap", "skipped", f"gap 0.0152: {LONELY}", 0.0152),),
    )
    assert coverage([waiting, alone]) == ()


def test_runs_that_no_profile_reads_are_told_and_runs_without_step_0_have_their_verdict_for_it():
    why = "no metric of a known framework: not an RL run, or its profile is missing"
    strange = judged(1, verdict="no-step0", profile=None, setup=None, reasons=(why,))
    died = judged(2, verdict="no-step0", profile=None, setup=None, reasons=("it ended before",))
    resumed = judged(3, verdict="no-step0", reasons=("its first row is step 400, not 0",))
    assert coverage([strange, died, resumed]) == (f"anything on 1 run: {why}",)


def test_with_many_reasons_the_line_gives_two_and_counts_the_rest():
    runs = [
        judged(number, profile="trl", checks=(check("ppo_kl", "skipped", f"reason {number}"),))
        for number in range(4)
    ]
    (line,) = coverage(runs)
    assert line.count("reason") == 3
    assert line.endswith("; 2 more reasons")


def test_runs_that_do_not_say_their_precision_are_told_once_a_project_where_others_do():
    flat = {"hf_checkpoint": "q/M", "fp8": None, "fp16": False}
    silent = {"hf_checkpoint": "q/M"}
    nested = {"hf_checkpoint": "q/M", "raw_megatron": "trainers=[] base_args={'fp8': None}"}
    runs = [("t/a", flat), ("t/a", nested), ("t/a", silent), ("t/a", silent), ("t/b", silent), ("t/c", flat)]
    lines = silent_setups([(project, "miles", config) for project, config in runs], load_profiles())
    (line,) = lines
    assert line.startswith("2 of 4 miles runs of t/a do not say their trainer precision (fp16, fp4, fp8): ")
