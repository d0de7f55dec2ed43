"""``weights``: the book on the command line, from the store alone."""

from tests.support.command import run
from tests.support.miles import CONFIG, miles_run
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file

FLAG = {"check_weight_update_equal": True, "num_rollout": 2}


def synced(folder):
    answer = run("sync", ".", "--store", "s.db", cwd=folder)
    assert answer.code == 0
    return answer


def weights(folder, *words):
    return run("weights", "--store", "s.db", *words, cwd=folder)


def died(folder, run_id, *rows):
    """Write a run with the flag that ended after these rows, without an optimizer step."""
    records = (run_record(run_id, CONFIG | FLAG), *map(history_record, rows), exit_record(1))
    return write_file(folder / "wandb", wandb_file(*records), run_id=run_id)


def test_the_book_is_printed_with_flags_that_can_be_copied(tmp_path):
    miles_run(tmp_path, "plain", config={"hf_checkpoint": "/models/Qwen3-1.7B"})
    miles_run(tmp_path, "checked", config=FLAG)
    synced(tmp_path)
    answer = weights(tmp_path)
    lines = [line.strip() for line in answer.out.splitlines()]
    assert answer.code == 0
    assert lines[2].split()[:2] == ["due", "Qwen3-1.7B"]
    assert lines[3].split()[:2] == ["passed", "Qwen3-0.6B"]
    assert "--num-rollout 2 --check-weight-update-equal" in lines
    assert '-e MILES_NUM_ROLLOUT=2 -e MILES_EXTRA_ARGS="--check-weight-update-equal"' in lines


def test_a_run_that_ended_without_a_row_has_failed(tmp_path):
    miles_run(tmp_path, "plain")
    died(tmp_path, "mismatch")
    said = "weights: team/project/mismatch compared Qwen3-0.6B: the weights differ, or it died"
    assert said in synced(tmp_path).err
    [row] = weights(tmp_path, "--json").document["weights"]
    assert (row["status"], row["run"], row["runs"]) == ("failed", "team/project/mismatch", 2)
    assert "failed  Qwen3-0.6B: the weights differ, or it died before step 0" in weights(tmp_path).out


def test_a_run_that_reached_its_first_rollout_has_passed(tmp_path):
    died(tmp_path, "out-of-memory", {"rollout/step": 0, "rollout/response_len/mean": 812.5, "_step": 0})
    synced(tmp_path)
    [row] = weights(tmp_path, "--json").document["weights"]
    assert (row["status"], row["run"]) == ("passed", "team/project/out-of-memory")


def test_the_packages_beside_a_run_tell_when_it_is_due_again(tmp_path):
    for run_id, started, config, version in (("a", 1, FLAG, "0.5.9"), ("b", 2, {}, "0.5.16")):
        place = miles_run(tmp_path, run_id, started=1767225600 + started, config=config)
        (place / "files").mkdir()
        (place / "files" / "requirements.txt").write_text(f"sglang=={version}\ntorch==2.9.1\n")
    synced(tmp_path)
    [row] = weights(tmp_path, "--json").document["weights"]
    assert (row["status"], row["image"]) == ("due", "sglang 0.5.16, torch 2.9.1")
    assert row["notes"] == ["checked with other packages: sglang 0.5.9 -> 0.5.16"]


def test_json_is_a_document_of_the_contract(tmp_path):
    miles_run(tmp_path, "checked", config=FLAG)
    synced(tmp_path)
    document = weights(tmp_path, "--json").document
    assert document["schema"] == "step0/weights/1"
    assert document["weights"][0].keys() == {
        *("profile", "model", "image", "status", "run", "checked_at", "runs", "last_run", "projects"),
        *("notes", "add"),
    }
    assert document["weights"][0]["checked_at"] == "2026-01-01T00:00:00Z"


def test_names_of_others_are_harmless_and_an_empty_book_says_so(tmp_path):
    miles_run(tmp_path, "evil", config={"hf_checkpoint": "/m/\x1b[2J[bold]evil\u202e"})
    synced(tmp_path)
    answer = weights(tmp_path)
    assert "[bold]evil" in answer.out
    assert "\x1b" not in answer.out
    assert "\u202e" not in answer.out
    (tmp_path / "none").mkdir()
    rows = [{"training/global_step": 1, "actor/ppo_kl": 0.0, "_step": 1}]
    write_file(tmp_path / "none", wandb_file(run_record("v", {}), *map(history_record, rows)), run_id="v")
    assert run("sync", "none", "--store", "n.db", cwd=tmp_path).code == 0
    told = run("weights", "--store", "n.db", cwd=tmp_path)
    assert (told.code, told.out) == (0, "No run of a framework that can compare weights.\n")


def test_without_a_store_it_names_the_command_that_makes_one(tmp_path):
    answer = weights(tmp_path)
    assert answer.code == 6
    assert "sync" in answer.err
