"""The main job on run directories: the reference table, and what a second sync costs."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from step0_wandb.app.sync import Job, run_sync
from step0_wandb.settings.load import load_settings
from step0_wandb.store import Accept, Label, Store
from step0_wandb.text import json_documents
from tests.support.miles import miles_run
from tests.support.runs import Client, run_record, wandb_file, write_file

NOW = datetime(2026, 1, 2, tzinfo=UTC)
REFERENCE = [round(float(gap), 5) for gap in np.linspace(0.0148, 0.0157, 17)]
TRUNCATED = {"rollout_top_p": 0.95, "rollout_top_k": 64}
LARGER = {
    "hf_checkpoint": "/models/Qwen3-1.7B",
    "load": "/ckpt/Qwen3-1.7B_torch_dist",
    "ref_load": "/ckpt/Qwen3-1.7B_torch_dist",
}


def reference(folder):
    for at, gap in enumerate(REFERENCE):
        miles_run(folder, f"ref{at:02}", gap, started=1767225600 + 60 * at, config={"seed": at})


def sync(folder, *, now=NOW, **changes):
    loaded = load_settings(cwd=folder, environ={}, flags={"store": str(folder / "step0.db")})
    return run_sync(Job(loaded, sources=(str(folder),), clock=lambda: now, **changes))


def judged(folder):
    with Store.open(folder / "step0.db", mode="read") as store:
        return {run.run.rsplit("/", 1)[-1]: run for run in store.verdicts.runs()}


def test_the_seventeen_reference_runs_are_healthy(tmp_path):
    reference(tmp_path)
    result = sync(tmp_path)
    assert result.counts == {"healthy": 17}
    [setup] = result.setups
    assert (setup.setup, setup.n, setup.basis) == ("miles · Qwen3-0.6B", 17, "own")
    assert (setup.seen_low, setup.seen_high) == (0.0148, 0.0157)


def test_another_sampler_or_model_builds_its_own_setup_which_is_no_range_while_alone(tmp_path):
    reference(tmp_path)
    miles_run(tmp_path, "truncated", 0.0136, config=TRUNCATED)
    miles_run(tmp_path, "larger", 0.0109, config=LARGER)
    sync(tmp_path)
    runs = judged(tmp_path)
    assert {runs["truncated"].verdict, runs["larger"].verdict} == {"no-range"}
    assert runs["truncated"].setup == "miles · Qwen3-0.6B · top_p=0.95 top_k=64"
    assert runs["larger"].setup == "miles · Qwen3-1.7B"


@pytest.mark.parametrize(
    ("gap", "verdict", "said"),
    [
        (
            0.0461,
            "broken",
            "gap 0.0461 is 3.0 times the center 0.0152 of 17 healthy runs (range 0.0141 to 0.0165)",
        ),
        (0.0180, "suspect", "gap 0.0180 is 1.18 times the center 0.0152 of 17 healthy runs"),
        (0.0152, "suspect", "its config contradicts itself"),
        (0.0110, "suspect", "below its range"),
        (math.nan, "broken", "gap is NaN"),
        (math.inf, "broken", "gap is inf"),
    ],
)
def test_a_new_run_is_judged_by_the_reference_runs_whatever_its_checkpoint(tmp_path, gap, verdict, said):
    reference(tmp_path)
    miles_run(tmp_path, "new", gap, config={"load": "/ckpt/Qwen3-0.6B-Base_torch_dist"})
    sync(tmp_path)
    run = judged(tmp_path)["new"]
    assert run.setup == "miles · Qwen3-0.6B"
    assert run.verdict == verdict
    assert said in "; ".join(run.reasons)


def test_the_ratio_of_a_broken_run_stands_in_its_record(tmp_path):
    reference(tmp_path)
    miles_run(tmp_path, "new", 0.0461)
    sync(tmp_path)
    run = judged(tmp_path)["new"]
    # The geometric mean of the 17 gaps, by numpy.
    assert run.ratio == pytest.approx(0.0461 / np.exp(np.mean(np.log(REFERENCE))), rel=1e-12)
    assert run.range.n == 17
    assert run.p_value < 1e-9


@pytest.mark.parametrize(("gap", "broken_limit"), [(0.0110, "low"), (0.0461, "high"), (0.0152, "high")])
def test_the_limit_of_a_gap_is_the_end_of_the_range_that_it_is_held_against(tmp_path, gap, broken_limit):
    reference(tmp_path)
    miles_run(tmp_path, "new", gap)
    sync(tmp_path)
    run = judged(tmp_path)["new"]
    (check,) = (check for check in run.checks if check.check == "gap")
    assert check.limit == getattr(run.range, broken_limit)


def test_the_larger_of_two_runs_a_factor_apart_is_broken(tmp_path):
    miles_run(tmp_path, "a", 0.0109, config=LARGER)
    miles_run(tmp_path, "b", 0.0412, config=LARGER)
    sync(tmp_path)
    runs = judged(tmp_path)
    assert (runs["a"].verdict, runs["b"].verdict) == ("no-range", "broken")
    assert runs["b"].range.basis == "split"


@pytest.mark.parametrize(
    "metrics", [{"ppo_kl": 1e-7}, {"ppo_kl": -1e-7}, {"clip_frac": 1e-6}, {"ppo_kl": math.nan}]
)
def test_an_exact_check_that_fails_breaks_a_megatron_run_whatever_its_gap(tmp_path, metrics):
    reference(tmp_path)
    miles_run(tmp_path, "new", 0.0152, **metrics)
    sync(tmp_path)
    assert judged(tmp_path)["new"].verdict == "broken"


def test_a_gap_of_zero_by_use_rollout_logprobs_proves_nothing_and_accuses_nobody(tmp_path):
    miles_run(tmp_path, "new", 0.0, config={"use_rollout_logprobs": True}, ppo_kl=0.002)
    sync(tmp_path)
    run = judged(tmp_path)["new"]
    assert run.verdict == "unchecked"
    (zero,) = (check for check in run.checks if check.check == "gap-zero")
    assert zero.outcome == "vacuous"
    assert "use_rollout_logprobs compares the engine with itself" in zero.message


def test_true_on_policy_demands_a_gap_of_exactly_zero(tmp_path):
    miles_run(tmp_path, "zero", 0.0, config={"true_on_policy_mode": True})
    miles_run(tmp_path, "more", 1e-7, config={"true_on_policy_mode": True})
    sync(tmp_path)
    runs = judged(tmp_path)
    assert (runs["zero"].verdict, runs["more"].verdict) == ("healthy", "broken")


def test_a_setup_that_is_broken_from_its_first_run_is_never_healthy_until_a_person_says_so(tmp_path):
    for name in ("a", "b", "c"):
        miles_run(tmp_path, name, 0.0461)
    sync(tmp_path)
    assert {run.verdict for run in judged(tmp_path).values()} == {"suspect"}
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        store.people.save(Accept("miles · Qwen3-0.6B", "measured by hand", "ada", NOW))
    sync(tmp_path)
    assert {run.verdict for run in judged(tmp_path).values()} == {"healthy"}


def test_a_label_on_one_run_of_a_doubted_setup_accepts_it(tmp_path):
    for name in ("a", "b", "c"):
        miles_run(tmp_path, name, 0.0461)
    sync(tmp_path)
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        store.people.save(Label("team/project/a", "healthy", "measured by hand", "ada", NOW))
    result = sync(tmp_path)
    assert result.counts == {"healthy": 3}
    assert "labeled healthy by ada: measured by hand" in judged(tmp_path)["a"].reasons


def test_an_excluded_run_keeps_its_verdict_and_leaves_the_range(tmp_path):
    reference(tmp_path)
    sync(tmp_path)
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        store.people.save(Label("team/project/ref16", "exclude", "odd data", "ada", NOW))
    result = sync(tmp_path)
    assert result.setups[0].n == 16
    assert judged(tmp_path)["ref16"].verdict == "healthy"


def test_a_hidden_resume_is_said_and_kept_out_of_the_ranges(tmp_path):
    reference(tmp_path)
    miles_run(tmp_path, "resumed", 0.0153, config={"load": "/out/run", "save": "/out/run"})
    result = sync(tmp_path)
    assert result.setups[0].n == 17
    run = judged(tmp_path)["resumed"]
    assert run.verdict == "healthy"
    assert "kept out of the ranges: load is the save directory" in run.reasons[0]


def test_a_run_that_starts_later_has_no_step0(tmp_path):
    miles_run(tmp_path, "late", 0.0153, first_step=40)
    sync(tmp_path)
    run = judged(tmp_path)["late"]
    assert run.verdict == "no-step0"
    assert run.reasons == (
        "its first row is step 40, not 0: the run was resumed, or its first rows are lost",
    )


def test_a_second_sync_reads_nothing_and_says_nothing(tmp_path, monkeypatch):
    reference(tmp_path)
    sync(tmp_path)
    before = (tmp_path / "step0.db").read_bytes()
    monkeypatch.setattr(
        "step0_wandb.sources.offline.runfile.RunFile.identify", lambda *_: pytest.fail("a file was read")
    )
    result = sync(tmp_path)
    assert (result.changed, result.sources[0].runs_seen, result.sources[0].runs_new) == ((), 17, 0)
    assert (tmp_path / "step0.db").read_bytes() == before


def test_a_pending_run_becomes_no_step0_by_time_alone(tmp_path):
    file = write_file(tmp_path, wandb_file(run_record("young")), run_id="young")
    now = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    sync(tmp_path, now=now)
    assert judged(tmp_path)["young"].verdict == "pending"
    sync(tmp_path, now=now + timedelta(hours=25))
    assert judged(tmp_path)["young"].verdict == "no-step0"


def test_a_dry_run_judges_and_stores_nothing(tmp_path):
    reference(tmp_path)
    result = sync(tmp_path, dry_run=True)
    assert result.counts == {"healthy": 17}
    assert not (tmp_path / "step0.db").exists()


def test_a_changed_profile_judges_stored_runs_again(tmp_path):
    reference(tmp_path)
    sync(tmp_path)
    (tmp_path / "step0.toml").write_text("[setup.miles]\nadd = ['seed']\n")
    result = sync(tmp_path)
    assert len(result.setups) == 17
    assert result.counts == {"no-range": 17}
    assert {run.setup for run in judged(tmp_path).values()} >= {"miles · Qwen3-0.6B · seed=3"}


def test_an_accept_goes_along_when_a_setup_gets_another_name_and_that_is_told_once(tmp_path):
    for name in ("a", "b", "c"):
        miles_run(tmp_path, name, 0.0461)
    sync(tmp_path)
    with Store.open(tmp_path / "step0.db", mode="write") as store:
        store.people.save(Accept("miles · Qwen3-0.6B", "measured by hand", "ada", NOW))
    sync(tmp_path)
    (tmp_path / "step0.toml").write_text("[setup.miles]\nadd = ['hf_checkpoint']\n")
    result = sync(tmp_path)
    new = {run.setup for run in judged(tmp_path).values()}
    assert len(new) == 1
    assert new != {"miles · Qwen3-0.6B"}
    assert {run.verdict for run in judged(tmp_path).values()} == {"healthy"}
    (line,) = result.renamed
    assert line.startswith("the runs of miles · Qwen3-0.6B are in ")
    assert not result.alerts
    assert sync(tmp_path).renamed == ()


def test_the_order_of_arrival_does_not_matter(tmp_path):
    forth, back = tmp_path / "forth", tmp_path / "back"
    for folder, order in ((forth, 1), (back, -1)):
        for at in range(17)[::order]:
            miles_run(folder, f"ref{at:02}", REFERENCE[at], started=1767225600 + at)
            if at % 4 == 0:  # also the first and the last to arrive
                sync(folder)
    assert json_documents.plain(list(judged(forth).values())) == json_documents.plain(
        list(judged(back).values())
    )


def test_runs_of_the_real_client_give_the_same_verdicts(tmp_path):
    rows = [
        {"rollout/step": 0, "rollout/response_len/mean": 800.0},
        {"train/step": 0, "train/ppo_kl": 0.0, "train/pg_clipfrac": 0.0},
        {"train/step": 1, "train/ppo_kl": 1e-4, "train/pg_clipfrac": 1e-3},
    ]
    metric = "train/train_rollout_logprob_abs_diff"
    with Client(tmp_path) as client:
        for name, gap in (("a", 0.0150), ("b", 0.0152), ("c", 0.0149), ("d", 0.0461)):
            client.start(name, config={"hf_checkpoint": "/models/Qwen3-0.6B"})
            client.log(*(row | ({metric: gap} if "train/step" in row else {}) for row in rows))
            client.finish()
    assert sync(tmp_path).counts == {"broken": 1, "healthy": 3}
    assert judged(tmp_path)["d"].verdict == "broken"


def test_the_result_of_a_sync_fits_the_contract(tmp_path):
    reference(tmp_path)
    miles_run(tmp_path, "new", 0.0461)
    result = json_documents.plain(sync(tmp_path))
    run = result["changed"][0]
    assert {"source", "runs_seen", "runs_new", "requests", "seconds", "error"} <= result["sources"][0].keys()
    wanted = (
        "run name url user group created_at state profile setup ppo_kl clip_frac gap gap_metric verdict label "
        "reasons checks range ratio p_value"
    )
    assert set(wanted.split()) <= run.keys()
    assert {"check", "outcome", "value", "limit", "message"} == run["checks"][0].keys()
    wanted = "setup profile n center low high seen_low seen_high sigma df alpha basis accepted"
    assert set(wanted.split()) <= result["setups"][0].keys()


def test_the_page_is_the_same_to_the_byte_from_the_same_store(tmp_path):
    reference(tmp_path)
    sync(tmp_path, html=tmp_path / "a.html")
    loaded = load_settings(cwd=tmp_path, environ={}, flags={"store": str(tmp_path / "step0.db")})
    job = dataclasses.replace(Job(loaded), sources=(str(tmp_path),), html=tmp_path / "b.html")
    run_sync(job)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
