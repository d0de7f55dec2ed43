"""The upper bounds of every command, from the constants of the code, each with the test that reaches it."""

from __future__ import annotations

from dataclasses import dataclass

from step0_wandb.app import check, doctor, gate, pull
from step0_wandb.explanations.installed import LARGEST, Installed
from step0_wandb.publish.alerts.channels import webhook
from step0_wandb.publish.wandb.claims import CLAIM_WAITS_S
from step0_wandb.publish.wandb.project import READ_BACK_S, STARTUP_S
from step0_wandb.publish.wandb.remote import LIMITS
from step0_wandb.settings.options import ServerSettings
from step0_wandb.sources.console import scan, steps
from step0_wandb.sources.launch.shell_script import MOST_BYTES
from step0_wandb.sources.offline import directories, frames
from step0_wandb.sources.server.rollouts import MOST_STEPS
from step0_wandb.step0.every_row import MOST_ROWS
from step0_wandb.store import file
from step0_wandb.wandb_api.batches import FAILING_S
from step0_wandb.wandb_api.http import HttpLimits

READERS = ("sync", "check", "gate", "explain", "diff", "doctor", "report", "lint", "profiles")
"""Commands that may ask a server."""
HTTP = HttpLimits()
GIVE_UP_S = ServerSettings().give_up.total_seconds()


@dataclass(frozen=True)
class Limit:
    """One bound: of which commands, on what, how much, what happens there, and which test reaches it."""

    commands: tuple[str, ...]
    what: str
    bound: str
    then: str
    reached_by: str


def seconds(value: float) -> str:
    """Return a time as people write it."""
    return (
        f"{value / 3600:g} h" if value >= 3600 else f"{value / 60:g} min" if value >= 120 else f"{value:g} s"
    )


def size(value: int) -> str:
    """Return a number of bytes as people write it."""
    return f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"


ENDLESS = "tests/faults/test_endless_and_odd_answers.py"
LIMIT_TESTS = "tests/faults/test_limits.py"
LIMITS_OF_COMMANDS = (
    Limit(READERS, "one request, from connecting to its last byte", seconds(HTTP.deadline_s), "it counts as failed and is tried again", "tests/integration/test_http_transport.py::test_a_request_ends_at_its_deadline_whatever_drips_in"),
    Limit(READERS, "one answer, unpacked", size(HTTP.body_bytes), "it is not read further", "tests/integration/test_http_transport.py::test_a_small_answer_that_unpacks_to_too_much_is_refused"),
    Limit(READERS, "retries without a good page (`server.give_up`)", seconds(GIVE_UP_S), "exit 5, or 7 where other sources were read", "tests/unit/test_graphql.py::test_a_dead_server_is_given_up_when_patience_ends"),
    Limit(READERS, "a list that the server never ends", "a cursor that came before, or two pages without anything new", "exit 5; what was read is stored", f"{ENDLESS}::test_a_first_sync_of_a_list_without_an_end_keeps_its_runs_and_is_exit_5"),
    Limit(("sync", "check", "report", "explain", "profiles", "lint"), "reading one source, even if every page is good", seconds(HTTP.at_most_s), "exit 5 or 7; the next sync goes on there", f"{ENDLESS}::test_reading_ends_after_its_hour_even_if_every_page_is_good"),
    Limit(("sync",), "runs that fail, in all sources", seconds(FAILING_S), "they are left to the next sync, and named", f"{ENDLESS}::test_a_quarter_of_poisoned_runs_costs_a_bounded_time_and_no_good_run"),
    Limit(("sync",), "sources on servers that are read at once", f"{pull.AT_ONCE}", "the others wait for them", f"{LIMIT_TESTS}::test_no_more_sources_are_read_at_once_than_the_page_says"),
    Limit(("sync",), "the rows after step 0 of one run (`checks.every_rollout`)", f"{MOST_STEPS:,} steps", "the run is named, and not followed", f"{LIMIT_TESTS}::test_a_history_that_is_too_long_is_not_followed"),
    Limit(("sync", "report"), "writing to one W&B project", f"`server.give_up` + {seconds(STARTUP_S)}", "exit 7; the next sync writes again", "tests/integration/test_writing.py::test_a_client_that_takes_too_long_is_ended_at_the_deadline"),
    Limit(("sync", "report"), "waiting for what was written to be readable", seconds(sum(READ_BACK_S)), "exit 7; the next sync writes again", "tests/integration/test_read_back.py::test_tables_whose_row_the_server_refused_are_a_problem_and_written_by_the_next_sync"),
    Limit(("sync",), "waiting for another machine that sends the same alerts", seconds(sum(CLAIM_WAITS_S)), "what the other has claimed is left to it", "tests/faults/test_several_machines.py::test_two_machines_at_the_same_moment_keep_every_label_and_send_everything_once"),
    Limit(("sync",), "one post to a webhook", seconds(webhook._DEADLINE_S), "exit 7; tried again by the next sync", f"{LIMIT_TESTS}::test_a_webhook_that_drips_is_left_at_its_deadline"),
    Limit(("sync", "check", "explain"), "the shared state of a project", size(LIMITS.body_bytes), "it counts as damaged, and is written again", "tests/integration/test_remote_project.py::test_a_state_of_many_megabytes_is_a_damaged_one"),
    Limit(("explain", "sync", "diff"), "a list of packages on a server", f"{seconds(Installed.__dataclass_fields__['give_up_s'].default)}, {size(LARGEST)}", "packages are not compared, and it says so", "tests/integration/test_packages.py::test_a_list_that_is_too_large_is_not_read_to_its_end"),
    Limit(("gate",), "the whole wait", "`--timeout`", "exit 8", "tests/integration/test_gate.py::test_the_last_look_is_at_the_end_of_the_time"),
    Limit(("gate",), "reading the ranges at the end of it", seconds(gate._JUDGE_S), "the run is judged without them", f"{LIMIT_TESTS}::test_a_gate_at_the_end_of_its_time_gives_the_ranges_a_minute"),
    Limit(("gate",), "waiting for a run that was asked to stop", seconds(gate.Patience.__dataclass_fields__["stop_wait_s"].default), "it says that the run goes on", "tests/integration/test_gate.py::test_a_server_that_goes_away_after_the_stop_is_told"),
    Limit(("check",), "a pipe that goes on after step 0", f"{seconds(check.QUIET_S)} of silence, {seconds(check.MOST_S)} in all", "the log is judged as it is", f"{LIMIT_TESTS}::test_a_pipe_is_read_no_longer_than_the_page_says"),
    Limit(("check",), "one printed step of a log", size(steps.LONGEST_STEP), "it is passed over", "tests/unit/test_console.py::test_a_dict_that_never_ends_is_given_up"),
    Limit(("check",), "what is kept of a log in memory", f"{size(scan.CHUNK)} and {size(scan.HEAD)} of its beginning", "the rest goes by", "tests/unit/test_console.py::test_a_step_behind_a_gigantic_line_is_found"),
    Limit(("sync", "check", "gate", "profiles"), "one record of a run file", size(frames.LONGEST_RECORD), "it is passed over, and named", "tests/unit/test_frames.py::test_a_record_that_never_ends_does_not_fill_the_memory"),
    Limit(("sync", "check", "gate"), "a run directory without step 0", size(directories.GIVE_UP), "`no-step0`", "tests/integration/test_offline_reading.py::test_a_run_without_metrics_is_given_up"),
    Limit(("profiles",), "the rows read of a run", f"{MOST_ROWS}", "the names in them count", f"{LIMIT_TESTS}::test_profiles_read_no_more_rows_than_the_page_says"),
    Limit(("lint",), "a launch script or config file", size(MOST_BYTES), "exit 2", f"{LIMIT_TESTS}::test_a_launch_file_that_is_too_large_is_refused"),
    Limit(("doctor",), "trying one server", seconds(doctor._PATIENCE_S), "exit 5", "tests/cli/test_doctor.py::test_with_a_server_that_does_not_answer_it_exits_with_5"),
    Limit(("sync", "runs", "ranges", "weights", "explain", "diff", "label", "accept", "mute", "report"), "waiting for another program that has the store open", seconds(file._WAIT_S), "exit 6", f"{LIMIT_TESTS}::test_a_store_that_another_program_holds_is_waited_for_so_long"),
    Limit(("settings",), "anything outside of this machine", "none", "it asks no server", f"{LIMIT_TESTS}::test_settings_ask_no_server"),
    Limit(("demo",), "anything outside of its folder", "none", "it asks no server", "tests/integration/test_demo_runs.py::test_the_users_wandb_variables_and_settings_and_network_are_left_alone"),
)  # fmt: skip


def table() -> str:
    """Return the bounds as a table."""
    lines = ["| commands | of what | at most | then |", "| --- | --- | --- | --- |"]
    for limit in LIMITS_OF_COMMANDS:
        commands = (
            ", ".join(f"`{name}`" for name in limit.commands)
            if limit.commands != READERS
            else "all that ask a server"
        )
        lines.append(f"| {commands} | {limit.what} | {limit.bound} | {limit.then} |")
    return "\n".join(lines)
