"""``weights``: the book on the command line."""

from tests.support.command import run
from tests.support.miles import miles_run


def test_the_book_is_printed_and_told_as_json(tmp_path):
    miles_run(tmp_path, "plain", config={"hf_checkpoint": "/models/Qwen3-1.7B"})
    miles_run(tmp_path, "checked", config={"check_weight_update_equal": True, "num_rollout": 2})
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    answer = run("weights", "--store", "s.db", cwd=tmp_path)
    assert answer.code == 0
    assert "passed" in answer.out
    assert "--num-rollout 2 --check-weight-update-equal" in " ".join(answer.out.split())
    rows = run("weights", "--store", "s.db", "--json", cwd=tmp_path).document
    assert rows["schema"] == "step0/weights/1"
    assert [(row["model"], row["status"]) for row in rows["weights"]] == [
        ("Qwen3-1.7B", "due"),
        ("Qwen3-0.6B", "passed"),
    ]
