"""`ranges`, and the words of people that change them: `accept` and `label`."""

import pytest

from step0_wandb.store import Store
from tests.support.command import run
from tests.support.miles import miles_run
from tests.support.moves import sync, verdicts, write
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file

STORE = ("--store", "step0.db")


def test_a_word_on_a_setup_or_on_one_of_its_runs_takes_its_level_as_right(tmp_path):
    write(tmp_path, "old", 0.012, 20, first_hour=0, backend="fa3")
    write(tmp_path, "new", 0.018, 3, first_hour=30, backend="flashinfer")
    other = dict.fromkeys(("hf_checkpoint", "load", "ref_load"), "/models/Qwen3-8B")
    for at in range(3):
        miles_run(tmp_path, f"high{at}", 0.046 + at / 1e5, config=other)
    sync(tmp_path)
    assert [verdicts(tmp_path, name) for name in ("old", "new", "high")] == [
        {"healthy"},
        {"suspect"},
        {"suspect"},
    ]
    shown = run("ranges", *STORE, cwd=tmp_path, COLUMNS="200").out
    assert "own, moved" in shown
    assert "has moved x1.50 since 2026-01-02" in shown
    assert "sglang_attention_backend went from fa3 to flashinfer" in shown
    assert "pooled, not believed" in shown
    assert run("accept", "Qwen3-0.6B", "--why", "new kernel", *STORE, cwd=tmp_path).code == 0
    assert run("label", "high0", "healthy", "--why", "by hand", *STORE, cwd=tmp_path).code == 0
    sync(tmp_path)
    assert verdicts(tmp_path, "") == {"healthy"}


def test_only_setups_that_hold_the_text_are_shown(tmp_path):
    for size in (4, 8):
        miles_run(tmp_path, f"r{size}", 0.015, config={"hf_checkpoint": f"/models/Qwen3-{size}B"})
    sync(tmp_path)
    document = run("ranges", "--setup", "qwen3-8b", "--json", *STORE, cwd=tmp_path).document
    assert [setup["setup"] for setup in document["setups"]] == ["miles · Qwen3-8B"]


def test_an_empty_table_says_how_to_fill_it(tmp_path):
    with Store.open(tmp_path / "step0.db", mode="write"):
        pass
    for words, said in [
        (["ranges"], "No setups yet. Read a project or a directory with `step0-wandb sync SOURCE`"),
        (["ranges", "--setup", "x"], "No setups match. Drop a filter"),
        (["runs"], "No runs yet. Read a project or a directory with `step0-wandb sync SOURCE`"),
        (["runs", "--user", "mia"], "No runs match. Drop a filter"),
    ]:
        answer = run(*words, *STORE, cwd=tmp_path)
        assert (answer.code, answer.out.startswith(said)) == (0, True)


def test_after_a_sync_with_nothing_to_learn_from_it_says_so(tmp_path):
    records = [run_record("sft", {"lr": 1}), history_record({"loss": 1.0}), exit_record()]
    write_file(tmp_path / "wandb", wandb_file(*records), run_id="sft")
    assert run("sync", "wandb", "--store", "s.db", cwd=tmp_path).code == 0
    answer = run("ranges", "--store", "s.db", cwd=tmp_path)
    assert answer.out == "No ranges yet: no step 0 to learn from in 1 stored run.\n"


def test_ranges_of_other_numbers_are_shown_by_name_and_all_together(tmp_path):
    for at in range(5):
        numbers = {"rollout/entropy": 0.4 + at / 100, "train/grad_norm": 0.1 + at / 500}
        miles_run(tmp_path, f"r{at}", 0.015 + at / 1e5, logged=numbers)
    sync(tmp_path)
    document = run("ranges", "--observable", "entropy", "--json", *STORE, cwd=tmp_path).document
    (entropy,) = document["observables"]
    assert (entropy["observable"], entropy["n"]) == ("entropy", 5)
    assert (entropy["seen_low"], entropy["seen_high"]) == pytest.approx((0.40, 0.44))
    # An entropy is worth a word from 1.5 times the center on, and these scatter by less.
    assert entropy["high"] / entropy["center"] == pytest.approx(1.5)
    every = run("ranges", "--all-observables", *STORE, cwd=tmp_path, COLUMNS="120").out
    assert "grad_norm" in every
    assert "entropy" in every
    wrong = run("ranges", "--observable", "entropi", *STORE, cwd=tmp_path)
    assert wrong.code == 2
    assert "Known here: grad_norm, entropy" in wrong.err
    assert (
        "No setups match"
        in run("ranges", "--observable", "entropy", "--setup", "nothing", *STORE, cwd=tmp_path).out
    )
