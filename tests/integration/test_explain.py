"""Every cause of the catalog the whole way: runs on disk, a sync, and what `explain` says of the odd one."""

import html
import re
import tomllib
from datetime import UTC, datetime
from importlib import resources

import pytest

from step0_wandb.app.check import explain_run
from step0_wandb.app.sync import Job, profiles_of, run_sync
from step0_wandb.explanations.explanation import Explainer
from step0_wandb.settings.load import load_settings
from step0_wandb.store import Store
from tests.support.command import run
from tests.support.frameworks import (
    ACTOR,
    AREAL,
    LOGP,
    MILES,
    NEMO_RL,
    OPENRLHF,
    PROBS,
    SKYRL,
    SLIME,
    TRL,
    VERL,
    VIME,
    areal_rows,
    changed,
    megatron_rows,
    nemo_rows,
    openrlhf_rows,
    skyrl_rows,
    trl_rows,
    verl_rows,
)
from tests.support.frameworks import DIFF as SKYRL_DIFF
from tests.support.miles import GAP, miles_run
from tests.support.runs import exit_record, history_record, run_record, wandb_file, write_file

NOW = datetime(2026, 1, 10, tzinfo=UTC)
CATALOG = tomllib.loads(
    resources.files("step0_wandb").joinpath("profiles", "lists", "causes.toml").read_text(encoding="utf-8")
)
HOSTILE = "\x1b[2Jx\x1b]0;owned\x07[bold]\u202e</td>"

WIDE, DRIFT = {GAP: 0.5}, {"train/ppo_kl": 0.3, "train/pg_clipfrac": 0.05}
LONGER = {"rollout/response_len/mean": 9000.0, GAP: 0.05}
ON_POLICY = changed(VERL, data__train_batch_size=256)
ONE_STEP = {"global_batch_size": 256}
DECOUPLED = changed(AREAL, actor__use_decoupled_loss=True, actor__ppo_n_minibatches=1)
AREAL_ROWS = areal_rows(0.0, 0.0)
AREAL_DRIFT = {f"{ACTOR}/approx_kl/avg": 0.3, f"{ACTOR}/clip_ratio/avg": 0.05}
EXPERTS = {"num_experts": 128}

SHOWN = [  # the cause, a framework's healthy config and rows, what the odd run has instead in either
    ("wrong-checkpoint", MILES, megatron_rows(), {"load": "/models/Qwen3-1.7B_torch_dist"}, WIDE),
    ("wrong-reference", SLIME, megatron_rows(), {"ref_load": "/models/Qwen3-1.7B_torch_dist"}, WIDE),
    ("wrong-architecture", MILES, megatron_rows(), {"num_layers": 36, "hidden_size": 2560}, WIDE),
    ("not-updated", MILES, megatron_rows(), {"debug_skip_weight_update": True}, WIDE),
    ("resumed", MILES, megatron_rows(), {"load": "/out/run", "save": "/out/run"}, WIDE),
    ("conversion", {**VIME, "megatron_to_hf_mode": "bridge"}, megatron_rows(), {"megatron_to_hf_mode": "raw"}, WIDE),
    ("rope", {**MILES, "rotary_base": 1000000}, megatron_rows(), {"rotary_base": 10000}, WIDE),
    ("embeddings", {**MILES, "untie_embeddings_and_output_weights": False}, megatron_rows(), {"untie_embeddings_and_output_weights": True}, WIDE),
    ("dropout", MILES, megatron_rows(), {"attention_dropout": 0.1, "hidden_dropout": 0.1}, DRIFT),
    ("dropout-in-the-gap", {**SLIME, **ONE_STEP}, megatron_rows(), {"hidden_dropout": 0.1}, {GAP: 0.86}),
    ("lora-dropout", {**MILES, "lora_rank": 16}, megatron_rows(), {"lora_dropout": 0.05}, DRIFT),
    ("lora-dropout", SKYRL, skyrl_rows(2e-3), changed(SKYRL, trainer__policy__model__lora__dropout=0.1), {"policy/loss_metrics/clip_ratio": 0.2}),
    ("model-dropout", TRL, trl_rows(10), {"attention_dropout": 0.1}, {"train/clip_ratio/region_mean": 0.2}),
    ("micro-batches", ON_POLICY, verl_rows(0.0, 0.0), changed(ON_POLICY, actor_rollout_ref__actor__shuffle=True), {"actor/ppo_kl": 0.3, "actor/pg_clipfrac": 0.2}),
    ("log-prob-batch", NEMO_RL, nemo_rows(1.0), changed(NEMO_RL, policy__logprob_batch_size=8, policy__train_micro_batch_size=4), {"train/probs_ratio": 1.03}),
    ("attention", AREAL, AREAL_ROWS, changed(DECOUPLED, actor__attn_impl="sdpa"), AREAL_DRIFT),
    ("not-deterministic", AREAL, AREAL_ROWS, changed(DECOUPLED, actor__backend="megatron:d4"), AREAL_DRIFT),
    ("not-truly-on-policy", MILES, megatron_rows(), {"true_on_policy_mode": True}, {GAP: 1e-3}),
    ("exact-zero-sampler", MILES, megatron_rows(), {"true_on_policy_mode": True, "rollout_top_p": 0.95}, {GAP: 1e-3}),
    ("exact-zero-precision", MILES, megatron_rows(), {"true_on_policy_mode": True, "sglang_quantization": "fp8"}, {GAP: 1e-3}),
    ("unequal-dtype", VERL, verl_rows(0.0, 0.0), changed(VERL, actor_rollout_ref__rollout__dtype="float16"), {PROBS: 0.5}),
    ("old-policy", MILES, megatron_rows(), {"keep_old_actor": True}, DRIFT),
    ("masked-nan", MILES, megatron_rows(), {}, {GAP: 0.0}),
    ("sampler", MILES, megatron_rows(), {"rollout_top_p": 0.95, "rollout_top_k": 64}, WIDE),
    ("sampler-raw", VIME, megatron_rows(), {"vllm_logprobs_mode": "raw_logprobs", "rollout_temperature": 0.6}, WIDE),
    ("sampler-cut", VERL, verl_rows(0.0, 0.0), changed(VERL, actor_rollout_ref__rollout__top_k=20), {PROBS: 0.5}),
    ("sampler-cut-trl", {**TRL, "use_vllm": True}, trl_rows(10), {"top_p": 0.8}, {LOGP: float("nan")}),
    ("engine-precision", MILES, megatron_rows(), {"sglang_quantization": "fp8"}, WIDE),
    ("kv-cache", MILES, megatron_rows(), {"sglang_kv_cache_dtype": "fp8_e5m2"}, WIDE),
    ("trainer-precision", MILES, megatron_rows(), {"fp8": "e4m3"}, DRIFT),
    ("large-engine", MILES, megatron_rows(), {"rollout_num_gpus_per_engine": 16}, WIDE),
    ("large-engine-verl", VERL, verl_rows(0.0, 0.0), changed(VERL, actor_rollout_ref__rollout__tensor_model_parallel_size=16), {PROBS: 0.5}),
    ("routing", {**MILES, **EXPERTS, "use_rollout_routing_replay": True}, megatron_rows(), {"use_rollout_routing_replay": False}, WIDE),
    ("stale", MILES, megatron_rows(), {"fully_async": True}, WIDE),
    ("stale-elsewhere", VERL, verl_rows(0.0, 0.0), changed(VERL, trainer__v1__trainer_mode="separate_async"), {PROBS: 0.5}),
    ("off-policy", NEMO_RL, nemo_rows(1.0), changed(NEMO_RL, policy__train_global_batch_size=128), {"train/probs_ratio": 1.3}),
    ("multi-turn", MILES, megatron_rows(), {"custom_generate_function_path": "my.agent"}, WIDE),
    ("multi-turn", SKYRL, skyrl_rows(2e-3), changed(SKYRL, generator__max_turns=4), {SKYRL_DIFF: 0.5}),
    ("other-answers", MILES, megatron_rows(), {}, LONGER),
    ("lora-dropout", OPENRLHF, openrlhf_rows(2e-3, 4e-3), changed(OPENRLHF, ds__lora__dropout=0.1), {"train/ppo_kl": 0.3}),
]  # fmt: skip
MOVED = "setup-moved"
"""The one cause that a single run cannot show."""


def write(folder, run_id, config, rows, **given):
    records = [run_record(run_id, config, **given), *map(history_record, numbered(rows)), exit_record(0)]
    write_file(folder / "wandb", wandb_file(*records), run_id=run_id)


def numbered(rows):
    return [{"_step": at, **row} for at, row in enumerate(rows)]


def odd(rows, instead):
    """Return the rows with other values wherever step 0 can read them first."""
    rows, left = [dict(row) for row in rows], dict(instead)
    for row in rows:
        for key in left.keys() & row.keys():
            row[key] = left.pop(key)
    rows[next(at for at, row in enumerate(rows) if not row.keys().isdisjoint(instead))].update(left)
    return rows


def synced(folder):
    loaded = load_settings(
        cwd=folder, environ={}, flags={"store": str(folder / "s.db"), "report.state": False}
    )
    job = Job(loaded, sources=(str(folder),), clock=lambda: NOW)
    run_sync(job)
    return job


def explained(folder, run_id="odd"):
    return explain_run(run_id, synced(folder))


def of_its_own(config, at):
    """Return the config with a model that no other case has, so that its setup has no other runs."""
    if isinstance(config, dict):
        return {key: of_its_own(value, at) for key, value in config.items()}
    return config.replace("Qwen", f"Case{at}-Qwen") if isinstance(config, str) else config


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return what is said of the odd run of every case; one sync reads them all, each a setup of its own."""
    folder = tmp_path_factory.mktemp("shown")
    for at, (_, config, rows, other, instead) in enumerate(SHOWN):
        for peer in range(3):
            write(folder, f"{at}-ok{peer}", of_its_own(config, at), rows)
        write(folder, f"{at}-odd", of_its_own({**config, **other}, at), odd(rows, instead))
    job = synced(folder)
    with Store.open(job.loaded.store, mode="read") as store:
        judged, profiles = store.verdicts.runs(), profiles_of(job.loaded)
        by_id = {run.run.rsplit("/", 1)[-1]: run for run in judged}
        explainer = Explainer(store, profiles, judged)
        found = [explainer.explain(by_id[f"{at}-odd"]) for at in range(len(SHOWN))]
    assert len({each.run.setup for each in found}) == len(SHOWN)
    return found


@pytest.mark.parametrize("at", range(len(SHOWN)), ids=[f"{at}-{case[0]}" for at, case in enumerate(SHOWN)])
def test_a_run_that_shows_a_cause_has_it_first_or_second(shown, at):
    name, found = SHOWN[at][0], shown[at]
    assert found.run.verdict in ("broken", "suspect")
    assert name in [cause.name for cause in found.causes[:2]]
    cause = next(cause for cause in found.causes if cause.name == name)
    assert cause.text in found.findings[:2]
    said = " ".join(str(found).split())
    assert " ".join(cause.text.split()) in said
    assert " ".join(cause.advice.split()) in said


def test_of_a_setup_that_moved_its_runs_are_told(tmp_path):
    for at in range(20):
        miles_run(tmp_path, f"old{at:02}", 0.0120 + at % 5 * 1e-4, started=1767225600 + 3600 * at)
    for at in range(4):
        miles_run(tmp_path, f"new{at}", 0.0185 + at * 1e-4, started=1767225600 + 3600 * (30 + at))
    assert MOVED in [cause.name for cause in explained(tmp_path, "new3").causes[:2]]


def test_every_cause_of_the_catalog_is_shown_the_whole_way():
    assert {entry["name"] for entry in CATALOG["cause"]} == {case[0] for case in SHOWN} | {MOVED}


def test_of_thirteen_keys_that_differ_none_is_called_the_cause(tmp_path):
    for at in range(3):
        miles_run(
            tmp_path, f"ok{at}", 0.0150 + at * 1e-4, config={f"option_{key:02}": 0 for key in range(13)}
        )
    miles_run(tmp_path, "odd", 0.0470, config={f"option_{key:02}": 1 for key in range(13)})
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    said = run("explain", "odd", "--store", "s.db", cwd=tmp_path, COLUMNS="80").out
    assert "13 keys differ: no single one is the cause for sure" in said
    assert "likely" not in said
    assert "no known cause fits: begin with what differs below from healthy runs such as run-ok2" in flat(
        said
    )
    assert all(f"option_{key:02}" in said for key in range(13))
    assert run("explain", "odd", "--json", "--store", "s.db", cwd=tmp_path).document["causes"] == []


def flat(text):
    return " ".join(text.split())


def test_where_no_cause_fits_and_nothing_differs_it_says_where_to_look(tmp_path):
    miles_run(tmp_path, "odd", 0.0470)
    said = flat(str(explained(tmp_path)))
    assert "no known cause fits: look at checkpoint, sampler and precision on both sides" in said
    for at in range(3):
        miles_run(tmp_path, f"ok{at}", 0.0150 + at * 1e-4)
    said = flat(str(explained(tmp_path)))
    assert (
        "no known cause fits, and no key differs: compare code, image and weights with those of run-ok"
        in said
    )
    assert "no known cause" not in str(explained(tmp_path, "ok1"))


def test_the_page_says_what_to_look_at_first_in_a_run_that_nobody_has_labeled(tmp_path):
    for at in range(3):
        miles_run(tmp_path, f"ok{at}", 0.0150 + at * 1e-4)
    for name in ("odd", "seen"):
        miles_run(tmp_path, name, 0.0470, config={"load": "/models/Llama_torch_dist"})
    asked = ("sync", ".", "--store", "s.db", "--html", "page.html")
    run(*asked, cwd=tmp_path)
    finding = f"<bdi>{html.escape(explained(tmp_path).findings[0])}</bdi>"
    assert (tmp_path / "page.html").read_text().count(f"Look first, in 2 runs: {finding}") == 1
    run("label", "seen", "broken", "--why", "known", "--store", "s.db", cwd=tmp_path)
    run(*asked, cwd=tmp_path)
    assert (tmp_path / "page.html").read_text().count(f"Look first: {finding}") == 1


@pytest.mark.parametrize(
    ("run_id", "verdict"), [("late", "no-step0"), ("silent", "suspect"), ("judged", "healthy")]
)
def test_what_contradicts_itself_is_explained_whatever_the_verdict(run_id, verdict, tmp_path):
    other = {"config": dict.fromkeys(("load", "ref_load"), "/models/Llama_torch_dist")}
    given = {"late": {"first_step": 7}, "silent": {"gap": None}, "judged": {}}[run_id]
    miles_run(tmp_path, run_id, **other, **given)
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    if run_id == "judged":
        run("label", run_id, "healthy", "--why", "compared", "--store", "s.db", cwd=tmp_path)
        run("sync", ".", "--store", "s.db", cwd=tmp_path)
    found = explained(tmp_path, run_id)
    assert found.run.label == (verdict if run_id == "judged" else None) or found.run.verdict == verdict
    assert [cause.name for cause in found.causes] == ["wrong-reference"]
    assert "names another model than hf_checkpoint" in " ".join(str(found).split())


def test_the_nearest_healthy_run_is_named_and_every_line_fits_80_columns(tmp_path):
    for at in range(3):
        miles_run(tmp_path, f"ok{at}", 0.0150 + at * 1e-4, config={"other": at, "long": "x" * 300})
    miles_run(tmp_path, "odd", 0.0470, config={"other": 2, "long": "y" * 300, "load": "/m/Llama_torch_dist"})
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    said = run("explain", "odd", "--store", "s.db", cwd=tmp_path, COLUMNS="80").out
    assert "compare with team/project/ok2, the nearest healthy run" in said
    assert max(map(len, said.splitlines())) <= 80


def test_who_accepted_a_setup_and_why_is_told_with_each_of_its_runs(tmp_path):
    miles_run(tmp_path, "one", 0.0151)
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    asked = ("explain", "one", "--store", "s.db")
    assert run(*asked, "--json", cwd=tmp_path).document["accepted"] is None
    why = "checked by hand"
    assert run("accept", "Qwen3", "--why", why, "--store", "s.db", cwd=tmp_path).code == 0
    said = run(*asked, "--json", cwd=tmp_path).document["accepted"]
    assert re.fullmatch(rf"by \S+, \d{{4}}-\d\d-\d\d \d\d:\d\d UTC: {why}", said)
    assert f"accepted {said}" in run(*asked, cwd=tmp_path, COLUMNS="200").out


def test_a_run_on_disk_goes_by_its_key_without_the_entity_that_it_lacks(tmp_path):
    for run_id, gap in (("one", 0.0150), ("two", 0.0151), ("odd", 0.0470)):
        miles_run(tmp_path, run_id, gap, entity="", display_name="")
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    said = run("explain", "project/odd", "--store", "s.db", cwd=tmp_path, COLUMNS="200").out
    assert "compare with project/two, the nearest healthy run" in said
    assert "project/odd | miles" in said
    assert "_/" not in said


def test_names_and_values_that_would_steer_a_terminal_are_harmless(tmp_path):
    for at in range(3):
        miles_run(tmp_path, f"ok{at}", 0.0150 + at * 1e-4)
    hostile = {"load": f"/m/{HOSTILE}", HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}}
    place = miles_run(tmp_path, "odd", 0.0470, config=hostile, display_name=HOSTILE, run_group=HOSTILE)
    (place / "files").mkdir()
    (place / "files" / "requirements.txt").write_text(f"sglang=={HOSTILE}\n")
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    answer = run("explain", "odd", "--store", "s.db", cwd=tmp_path)
    assert answer.code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(answer.out)
    assert "[bold]" in answer.out
    found = explained(tmp_path)
    assert not {"\x1b", "\x07", "\u202e"} & set(str(found))
    assert "</td>" not in found._repr_html_().replace("</td><td", "").replace("</td></tr>", "")


def test_what_is_published_is_shown_with_a_first_run_and_changes_no_verdict(tmp_path):
    miles_run(tmp_path, "one", 0.0151)
    run("sync", ".", "--store", "s.db", cwd=tmp_path)
    known = "published: 0.0148 to 0.0157 (17 runs, Miles guide 2026.10): inside"
    found = run("check", "wandb", "--json", "--store", "s.db", cwd=tmp_path).document["run"]
    assert (found["verdict"], found["reasons"][1:]) == ("no-range", [known])
    assert run("explain", "one", "--store", "s.db", cwd=tmp_path, COLUMNS="200").out.count(known) == 1
    assert known in run("ranges", "-v", "--store", "s.db", cwd=tmp_path, COLUMNS="200").out
    assert "published" not in run("ranges", "--store", "s.db", cwd=tmp_path).out
    run("report", "--html", "page.html", "--store", "s.db", cwd=tmp_path)
    assert known in (tmp_path / "page.html").read_text()
