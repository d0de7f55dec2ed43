"""Which model, which setup: what a sync and a check make of whole directories."""

from step0_wandb.app.sync import sync
from step0_wandb.store import Store
from tests.support.command import run
from tests.support.miles import miles_run

BUILT = {"num_layers": 28, "hidden_size": 1024, "num_attention_heads": 16}
OWN = {"hf_checkpoint": "/sft/own-math/checkpoint-500/hf"}
SETUP = "miles · own-math (28 x 1024, heads 16)"


def setups_of(folder, **given):
    sync([folder], store=folder / "s.db", **given)
    with Store.open(folder / "s.db", mode="read") as store:
        return {run.run.rpartition("/")[2]: run.setup for run in store.verdicts.runs()}


def test_a_run_that_does_not_say_its_architecture_shares_the_setup_of_its_only_model(tmp_path):
    for at, gap in enumerate((0.0150, 0.0152, 0.0149)):
        miles_run(tmp_path, f"r{at}", gap, config=OWN | BUILT)
    miles_run(tmp_path, "silent", 0.0151, config=OWN)
    assert set(setups_of(tmp_path).values()) == {SETUP}
    late = tmp_path / "late"
    miles_run(late, "late", 0.0462, config=OWN)
    answer = run("check", late, "--store", tmp_path / "s.db", "--json", cwd=tmp_path)
    found = answer.document["run"]
    assert (answer.code, found["setup"], found["range"]["n"]) == (3, SETUP, 4)


def test_one_name_with_two_architectures_is_two_setups_and_a_silent_run_is_of_neither(tmp_path):
    miles_run(tmp_path, "small", 0.0150, config=OWN | BUILT)
    miles_run(tmp_path, "large", 0.0090, config=OWN | BUILT | {"num_layers": 36})
    miles_run(tmp_path, "silent", 0.0151, config=OWN)
    assert setups_of(tmp_path) == {
        "small": SETUP,
        "large": SETUP.replace("28 x", "36 x"),
        "silent": "miles · own-math",
    }
