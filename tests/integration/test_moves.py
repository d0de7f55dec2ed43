"""A whole setup that moves to another level: proposed upwards, adopted downwards, told once."""

from datetime import UTC, datetime

from step0_wandb.cli.ranges import splitting_key
from step0_wandb.store import Accept, Store
from tests.support.miles import miles_run
from tests.support.moves import NOW, sync, verdicts, write


def test_two_runs_at_a_new_level_are_suspect_and_no_move_yet(tmp_path):
    write(tmp_path, "old", 0.012, 20, first_hour=0, backend="fa3")
    write(tmp_path, "new", 0.018, 2, first_hour=30, backend="flashinfer")
    [setup] = sync(tmp_path).setups
    assert setup.moved is None
    assert verdicts(tmp_path, "new") == {"suspect"}


def test_from_the_third_run_on_one_proposal_names_the_move_and_the_key_that_changed(tmp_path):
    write(tmp_path, "old", 0.012, 20, first_hour=0, backend="fa3")
    write(tmp_path, "new", 0.018, 3, first_hour=30, backend="flashinfer")
    [setup] = sync(tmp_path).setups
    assert round(setup.moved, 1) == 1.5
    assert setup.moved_since == datetime(2026, 1, 2, 6, tzinfo=UTC)
    assert "has moved x1.50 since 2026-01-02" in setup.note
    assert setup.note.endswith("sglang_attention_backend went from fa3 to flashinfer")
    assert verdicts(tmp_path, "new") == {"suspect"}
    assert verdicts(tmp_path, "old") == {"healthy"}


def test_an_accepted_move_makes_both_levels_healthy_each_by_its_own_range(tmp_path):
    write(tmp_path, "old", 0.012, 20, first_hour=0, backend="fa3")
    write(tmp_path, "new", 0.018, 4, first_hour=30, backend="flashinfer")
    [setup] = sync(tmp_path).setups
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        store.people.save(Accept(setup.setup, "new kernel", "ada", NOW))
    [setup] = sync(tmp_path).setups
    assert (setup.n, setup.accepted, setup.note) == (4, True, "")
    assert 0.0170 < setup.center < 0.0190
    assert verdicts(tmp_path, "") == {"healthy"}


def test_a_fall_is_told_as_an_improvement_and_adopted_by_itself(tmp_path):
    write(tmp_path, "old", 0.018, 20, first_hour=0, backend="fa3")
    write(tmp_path, "new", 0.012, 3, first_hour=30, backend="flashinfer")
    [setup] = sync(tmp_path).setups
    assert setup.n == 3
    assert "has fallen to x0.67" in setup.note
    assert "sglang_attention_backend went from fa3 to flashinfer" in setup.note
    assert verdicts(tmp_path, "") == {"healthy"}


def test_the_key_that_splits_most_setups_down_to_one_run_is_named(tmp_path):
    for at in range(6):
        config = {"hf_checkpoint": f"/m/Qwen3-{at % 2}B", "context_parallel_size": at}
        miles_run(tmp_path, f"r{at}", 0.015, config=config)
    (tmp_path / "step0.toml").write_text("[setup.miles]\nadd = ['context_parallel_size']\n")
    assert splitting_key(sync(tmp_path).setups) == "context_parallel_size"


def test_nothing_is_said_of_splitting_where_setups_share_nothing(tmp_path):
    for at in range(6):
        miles_run(tmp_path, f"r{at}", 0.015, config={"hf_checkpoint": f"/m/Qwen3-{at}B"})
    assert splitting_key(sync(tmp_path).setups) is None
