"""Which model, which setup: what a sync and a check make of whole directories."""

from datetime import UTC, datetime, timedelta

from step0_wandb.app.notebook import load_runs
from step0_wandb.app.sync import sync
from step0_wandb.store import Accept, Label, Mute, Store
from tests.support.command import run
from tests.support.miles import miles_run

BUILT = {"num_layers": 28, "hidden_size": 1024, "num_attention_heads": 16}
OWN = {
    "hf_checkpoint": "/sft/own-math/checkpoint-500/hf",
    "load": "/sft/own-math_torch_dist",
    "ref_load": "/sft/own-math_torch_dist",
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
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
    assert set(load_runs(tmp_path)["setup"]) == {SETUP}
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


def test_setups_that_have_other_names_now_keep_what_people_said_and_are_told_once(tmp_path):
    miles_run(tmp_path, "r1", 0.0150, config=OWN | BUILT)
    setups_of(tmp_path)
    with Store.open(tmp_path / "s.db", mode="write") as store:  # as an older version left it
        store.runs.rename_setups({SETUP: "miles · hf"})
        store.people.save(Accept("miles · hf", "checked", "mia", NOW))
        store.people.save(Mute("miles · hf", NOW + timedelta(days=9999), "mia", NOW))
        store.people.save(Label("team/project/r1", "healthy", "checked", "mia", NOW))
        store.notes.put("profiles", "older")
    first, second = (sync([tmp_path], store=tmp_path / "s.db") for _ in range(2))
    assert first.renamed == (
        f"the runs of miles · hf are in {SETUP} now; its accept and mute hold there too",
    )
    assert (second.renamed, first.alerts, second.alerts) == ((), (), ())
    with Store.open(tmp_path / "s.db", mode="read") as store:
        assert SETUP in store.people.accepts()
        assert SETUP in store.people.mutes()
        assert [run.label for run in store.verdicts.runs()] == ["healthy"]


def test_a_label_stays_with_the_start_that_the_store_showed_and_that_is_told_once(tmp_path):
    place = miles_run(tmp_path, "job7", 0.0151, started=1767225600)
    setups_of(tmp_path)
    with Store.open(tmp_path / "s.db", mode="write") as store:
        store.people.save(Label("team/project/job7", "exclude", "odd data", "mia", NOW))
    again = miles_run(tmp_path / "again", "job7", 0.063, ppo_kl=0.02, started=1767232800)
    again.rename(place.with_name("offline-run-20260101_020000-job7"))
    first, second = (sync([tmp_path], store=tmp_path / "s.db") for _ in range(2))
    assert "its label exclude stays with the start before" in first.renamed[0]
    assert second.renamed == ()
    with Store.open(tmp_path / "s.db", mode="read") as store:
        (run,) = store.verdicts.runs()
    assert (run.verdict, run.label, run.start) == ("broken", None, 2)
    assert [start.verdict for start in run.earlier] == ["no-range"]
