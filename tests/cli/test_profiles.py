"""``step0-wandb profiles --explain`` and ``--new`` on runs of known and unknown frameworks."""

import tomllib

import pytest

from tests.support.command import run
from tests.support.frameworks import CASES, record_of
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file
from tests.support.wandb_server import WandbServer

MILES, VERL = (next(case for case in CASES if case.name == name) for name in ("miles", "verl"))


def write_case(folder, case):
    record = record_of(case, 1)
    rows = [history_record({**row.values, "extra/made_up": 1.0}) for row in record.rows]
    data = wandb_file(run_record(record.run_id, case.config), *rows, exit_record())
    return write_file(folder / "wandb", data, run_id=record.run_id).parent


def explain(folder, text, **environ):
    answer = run("profiles", "--explain", text, "--json", cwd=folder, **environ)
    assert answer.code == 0, answer.err
    assert answer.document["schema"] == "step0/profile-choice/1"
    return answer.document["choice"]


def test_a_choice_tells_why_this_profile_and_not_the_ones_with_the_same_names(tmp_path):
    choice = explain(tmp_path, write_case(tmp_path, MILES))
    assert choice["chosen"]["name"] == "miles"
    why = {claim["name"]: claim["why"] for claim in choice["others"]}
    assert why["slime"].startswith("its config does not say so: has('slime_*')")
    assert "fewer" in why["openrlhf"]
    assert choice["reads"]["gap"] == "train/train_rollout_logprob_abs_diff"
    assert choice["unread"]["extra/made_up"] == []


def test_names_that_only_another_profile_reads_are_told_with_it(tmp_path):
    choice = explain(tmp_path, write_case(tmp_path, VERL))
    assert choice["chosen"]["name"] == "verl"
    assert not {"_step", "_runtime"} & choice["unread"].keys()
    assert "bound:pearson" in choice["reads"] or "bound:pearson" in choice["missing"]


def test_a_run_on_a_server_is_explained_and_drafted_from(tmp_path):
    rows = [{"opt/kl_approx_kl": 0.0, "opt/engine_gap": 0.02, "opt/step": step} for step in (0, 1)]
    with WandbServer() as server:
        server.add_run("lab", "rl", "r1", config={"policy_model": "/models/Tiny-1B"}, rows=rows)
        where = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": server.api_key}
        choice = explain(tmp_path, "lab/rl/r1", **where)
        answer = run("profiles", "--new", "lab", "lab/rl/r1", "--dry-run", "--json", cwd=tmp_path, **where)
        missing = run("profiles", "--new", "lab", "lab/rl/r2", cwd=tmp_path, **where)
        project = run("profiles", "--explain", "lab/rl", cwd=tmp_path, **where)
    assert choice["chosen"] is None
    assert sorted(choice["unread"]) == ["opt/engine_gap", "opt/kl_approx_kl", "opt/step"]
    profile = tomllib.loads(answer.document["profile"])
    assert profile["metrics"]["gap"][0]["metric"] == "opt/engine_gap"
    assert profile["setup"][0]["value"] == "model(policy_model)"
    assert not (tmp_path / "lab.toml").exists()
    assert (missing.code, project.code) == (2, 2)
    assert "r2 does not exist" in missing.err
    assert "is a project" in project.err


def test_a_stored_run_is_read_again_where_it_is(tmp_path):
    write_case(tmp_path, MILES)
    assert run("sync", "./wandb", cwd=tmp_path, STEP0_STORE="step0.db").code == 0
    assert explain(tmp_path, "miles-1", STEP0_STORE="step0.db")["chosen"]["name"] == "miles"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--new", "mine"), "--new takes a name and a run"),
        (("--new", "Mine!", "RUN"), "cannot be the name of a profile"),
        (("--new", "mine", "nowhere"), "nowhere"),
        (("RUN",), "--new takes a name and a run"),
    ],
)
def test_wrong_usage_is_an_error_of_two_lines_and_writes_nothing(tmp_path, words, said):
    directory = write_case(tmp_path, MILES)
    answer = run("profiles", *(directory if word == "RUN" else word for word in words), cwd=tmp_path)
    assert answer.code == 2
    assert said in answer.err
    assert len(answer.err.splitlines()) <= 3
    assert not list(tmp_path.glob("*.toml"))


def test_a_profile_is_never_written_over_another_file(tmp_path):
    (tmp_path / "mine.toml").write_text("kept")
    answer = run("profiles", "--new", "mine", write_case(tmp_path, MILES), cwd=tmp_path)
    assert answer.code == 2
    assert (tmp_path / "mine.toml").read_text() == "kept"


def test_a_run_without_numbers_and_one_without_such_metrics_are_told_apart(tmp_path):
    for run_id, rows in {"empty": [], "other": [{"eval/accuracy": 0.4}]}.items():
        data = wandb_file(run_record(run_id, {}), *map(history_record, rows), exit_record())
        write_file(tmp_path / "wandb", data, run_id=run_id)
    empty, other = (
        run("profiles", "--new", "mine", next((tmp_path / "wandb").glob(f"*{name}")), cwd=tmp_path)
        for name in ("empty", "other")
    )
    assert (empty.code, other.code) == (8, 2)
    assert "has logged no numbers yet" in empty.err
    assert "No metric of other looks like a KL" in other.err
