"""The schedules of the documentation are valid, run commands that exist, and retry only what passes by itself."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from step0_wandb import errors
from step0_wandb.cli.sync import PARTLY, VERDICT
from tests.support.command import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "schedule.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CRON = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))


def blocks(language):
    return [text for name, text in BLOCKS if name == language]


def is_cron(fields):
    """Whether five fields are a schedule as crontab(5) has it, numbers only."""

    def fits(part, low, high):
        match = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        numbers = [int(text) for text in match.groups()[:2] if text] if match else [-1]
        return all(low <= number <= high for number in numbers) and (not match[3] or int(match[3]) > 0)

    return len(fields) == 5 and all(
        fits(part, low, high)
        for field, (_, low, high) in zip(fields, CRON, strict=True)
        for part in field.split(",")
    )


def accepted(words, folder):
    """Whether the program knows the command and every option of `words`."""
    program, *rest = words
    return Path(program).name == "step0-wandb" and run(*rest, "--help", cwd=folder).code == 0


def document(kind):
    found = [yaml.safe_load(text) for text in blocks("yaml")]
    return next(item for item in found if kind in item)


def unit(name):
    text = next(text for text in blocks("ini") if text.startswith(f"# /etc/systemd/system/{name}\n"))
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read_string(text)
    return parser


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        ("*/10 * * * *", True),
        ("0,30 8-18 * * 1-5", True),
        ("*/10 * * *", False),
        ("60 * * * *", False),
        ("*/0 * * * *", False),
        ("a * * * *", False),
    ],
)
def test_the_witness_knows_a_cron_schedule(fields, right):
    assert is_cron(fields.split()) == right


def test_the_cron_line_has_a_schedule_and_a_command(tmp_path):
    (line,) = blocks("cron")[0].splitlines()
    *fields, command = line.split(maxsplit=5)
    assert is_cron(fields)
    assert "%" not in command  # which cron would read as the end of the line
    assert accepted(shlex.split(command.split("&& ")[1]), tmp_path)


def test_the_systemd_units_fit_together(tmp_path):
    service, timer = unit("step0-sync.service"), unit("step0-sync.timer")
    assert service["Service"]["Type"] == "oneshot"
    assert "Restart" not in service["Service"]
    assert accepted(shlex.split(service["Service"]["ExecStart"]), tmp_path)
    assert service["Service"]["SuccessExitStatus"] == str(errors.StoreBusyError.exit_code)
    assert timer["Timer"]["OnCalendar"] == "*:0/10"
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_systemd_itself_finds_no_fault_in_the_units(tmp_path):
    """Where there is no systemd, only what is above is checked."""
    for text in blocks("ini"):
        name = Path(text.split()[1]).name
        # systemd wants the program to exist.
        (tmp_path / name).write_text(text.replace("/opt/step0/bin/step0-wandb", sys.executable))
    units = sorted(tmp_path.iterdir())
    assert [path.suffix for path in units] == [".service", ".timer"]
    if analyze := shutil.which("systemd-analyze"):
        done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if "step0-sync" in line]
        assert said == []


def test_the_cron_job_is_of_kubernetes_and_runs_one_sync_at_a_time(tmp_path):
    job = document("apiVersion")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert is_cron(job["spec"]["schedule"].split())
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"  # a failure policy allows no other
    assert accepted(container["command"], tmp_path)
    assert {item["name"] for item in container["env"]} == {"STEP0_STORE", "WANDB_API_KEY"}


def test_kubernetes_retries_what_passes_by_itself_and_nothing_else():
    spec = document("apiVersion")["spec"]["jobTemplate"]["spec"]
    assert spec["backoffLimit"] >= 1
    failing, disrupted = spec["podFailurePolicy"]["rules"]
    assert failing["action"] == "FailJob"
    codes = failing["onExitCodes"]
    assert (codes["operator"], codes["containerName"]) == (
        "In",
        spec["template"]["spec"]["containers"][0]["name"],
    )
    assert codes["values"] == sorted(set(codes["values"]))
    final = {VERDICT, PARTLY, errors.UsageError.exit_code, errors.CredentialsError.exit_code}
    assert set(codes["values"]) == final
    assert not {errors.SourceError.exit_code, errors.StoreError.exit_code} & final
    assert (disrupted["action"], disrupted["onPodConditions"]) == ("Ignore", [{"type": "DisruptionTarget"}])


def test_the_workflow_is_scheduled_has_few_rights_and_keeps_the_key_secret(tmp_path):
    flow = document("jobs")
    (job,) = flow["jobs"].values()
    # YAML 1.1 reads the key `on` as true; GitHub does not.
    triggers = flow[True]
    assert all(is_cron(item["cron"].split()) for item in triggers["schedule"])
    assert timedelta(minutes=job["timeout-minutes"]) < timedelta(minutes=30)
    assert flow["permissions"] == {"contents": "read"}
    assert flow["concurrency"]
    steps = [step for step in job["steps"] if "step0-wandb" in step.get("run", "")]
    assert [accepted(shlex.split(step["run"]), tmp_path) for step in steps] == [True]
    assert steps[0]["env"] == {"WANDB_API_KEY": "${{ secrets.WANDB_API_KEY }}"}
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
