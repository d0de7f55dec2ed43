"""What `lint` says of a launch: what it is, what contradicts itself, what its step 0 will not have."""

import json

import pytest

import step0_wandb as s0
from step0_wandb.errors import UsageError
from tests.support import launches
from tests.support.command import run, surroundings
from tests.support.miles import miles_run

SLIME, MILES = launches.ALL[0], launches.ALL[3]
NAMES = [f"{one.framework}-{one.name}" for one in launches.ALL]


def write(written, folder, *changes):
    """Write a launch and what lies next to it, with some texts replaced, and return its path."""
    text = written.text
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    for name, content in {**written.siblings, written.name: text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder / written.name


def lint(path, **options):
    with surroundings(path.parent, {}):
        return s0.lint(path, store=path.parent / "step0.db", **options)


@pytest.mark.parametrize("written", launches.ALL, ids=NAMES)
def test_a_launch_is_understood_and_nothing_is_held_against_it(written, tmp_path):
    found = lint(write(written, tmp_path))
    assert (found.framework, found.setup) == (written.framework, written.setup)
    assert found.contradictions == ()
    assert found.understood
    assert "0123456789abcdef" not in str(found)


CONTRADICTIONS = [
    ("wrong-reference", SLIME, ("ref-load /root/Qwen3-4B_", "ref-load /root/Qwen3-8B_")),
    ("wrong-reference", MILES, ("ref-load /root/Qwen3-4B_", "ref-load /root/Qwen3-4B-Base_")),
    ("wrong-reference", MILES, ("ref-load /root/Qwen3-4B_", "ref-load ${BASE}/Qwen3-8B_")),
    ("wrong-checkpoint", MILES, ("--load /root/Qwen3-4B_out/", "--load /data/Llama-3.1-8B_torch_dist")),
    ("wrong-architecture", SLIME, ("--hf-checkpoint /root/Qwen3-4B\n", "--hf-checkpoint /root/Qwen3-1.7B\n")),
    ("dropout", SLIME, ("--attention-dropout 0.0 --hidden-dropout 0.0", "")),
    ("dropout", MILES, ("--attention-dropout 0.0", "--attention-dropout 0.1")),
    ("lora-dropout", MILES, ("--save-interval 20", "--lora-rank 16 --lora-dropout 0.05")),
    ("not-truly-on-policy", MILES, ("--save-interval 20", "--true-on-policy-mode")),
    ("exact-zero-sampler", MILES, ("--save-interval 20", "--true-on-policy-mode --rollout-top-p 0.9 --sglang-enable-deterministic-inference")),
    ("exact-zero-precision", MILES, ("--save-interval 20", "--true-on-policy-mode --sglang-quantization fp8 --sglang-enable-deterministic-inference")),
    ("unequal-dtype", MILES, ("--save-interval 20", "--sglang-dtype float16")),
    ("unequal-dtype", launches.ALL[6], ("rollout.name=vllm", "rollout.name=vllm actor_rollout_ref.rollout.dtype=float16")),
    ("unequal-dtype", launches.ALL[8], ("trainer.logger", "trainer.bf16=true generator.model_dtype=float16 trainer.logger")),
    ("unequal-dtype", launches.ALL[15], ('precision: "${policy.precision}"', "precision: float16")),
    ("unequal-dtype", launches.ALL[20], ('sglang: {model_path: "${actor.path}", dtype: "${actor.dtype}"}', "sglang: {dtype: float16}")),
    ("lora-dropout", launches.ALL[9], ("lora.rank=32", "lora.rank=32 trainer.policy.model.lora.dropout=0.1")),
    ("model-dropout", launches.ALL[11], ("bf16: true", "bf16: true\nattention_dropout: 0.1")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "written", "change"), CONTRADICTIONS)
def test_a_contradiction_is_found_and_says_what_to_do(name, written, change, tmp_path):
    found = lint(write(written, tmp_path, change))
    assert name in [cause.name for cause in found.contradictions]
    assert all(cause.advice for cause in found.contradictions)


def test_every_contradiction_of_the_catalog_has_a_launch_that_shows_it():
    from step0_wandb.profiles.causes import _catalog

    names = {entry.name for entry in _catalog().cause if entry.contradicts}
    assert names == {name for name, *_ in CONTRADICTIONS}


@pytest.mark.parametrize(
    "change",
    [
        ("--ref-load /root/Qwen3-4B_torch_dist", "--ref-load ${REF}"),
        ("--hf-checkpoint /root/Qwen3-4B\n", "--hf-checkpoint ${MODEL}\n"),
        ("--ref-load /root/Qwen3-4B_torch_dist", "--ref-load /ckpt/global_step_3/hf"),
        ("--attention-dropout 0.0 --hidden-dropout 0.0", "${EXTRA_ARGS[@]}"),
        ("--attention-dropout 0.0", "--attention-dropout ${DROPOUT}"),
        ("--attention-dropout 0.0 --hidden-dropout 0.0", "--megatron-to-hf-mode bridge"),
        ("--attention-dropout 0.0 --hidden-dropout 0.0", "--train-backend fsdp"),
        ("--load /root/Qwen3-4B_out/", "--load ${OUT}"),
        ("--load /root/Qwen3-4B_out/", "--load /root/my-qwen3-4b-run1"),
    ],
)
def test_what_nobody_knows_yet_is_never_a_contradiction(change, tmp_path):
    assert lint(write(SLIME, tmp_path, change)).contradictions == ()


def test_what_only_running_it_would_tell_is_said(tmp_path):
    found = lint(write(MILES, tmp_path, ("--rollout-temperature 1", "--rollout-temperature ${TEMP}")))
    assert found.unknown == {"rollout_temperature": "${TEMP}"}
    assert "rollout_temperature=${TEMP}: known only when it runs" in str(found)


def test_checks_that_prove_nothing_come_with_the_switch_that_changes_it(tmp_path):
    missing = {item.check: item for item in lint(write(launches.ALL[6], tmp_path)).missing}
    assert missing["gap"].set == "actor_rollout_ref.rollout.calculate_log_probs=True"
    assert "averages several optimizer steps" in missing["ppo_kl"].why
    set_already = (
        "rollout.name=vllm",
        "rollout.name=vllm actor_rollout_ref.rollout.calculate_log_probs=True",
    )
    assert "gap" not in [item.check for item in lint(write(launches.ALL[6], tmp_path, set_already)).missing]


def test_a_config_of_a_notebook_is_linted_as_it_stands(tmp_path):
    with surroundings(tmp_path, {}):
        config = {
            "hf_checkpoint": "/m/Qwen3-4B",
            "rollout_batch_size": 8,
            "wandb_key": "hunter2",
            "lora_dropout": 0.1,
        }
        found = s0.lint(config, "miles", "s.db")
        assert [cause.name for cause in found.contradictions] == ["lora-dropout"]
        assert "hunter2" not in repr(found)
        with pytest.raises(UsageError, match="unknown framework"):
            s0.lint(config, "mile", "s.db")


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Return a folder with a store of three healthy runs, and one whose reference is another model."""
    place = tmp_path_factory.mktemp("lint")
    for number, gap in enumerate((0.0150, 0.0152, 0.0149)):
        miles_run(place / "all", f"ok{number}", gap)
    other = "/models/Qwen3-8B_torch_dist"
    miles_run(place / "all", "odd", 0.0151, config={"load": other, "ref_load": other})
    assert run("sync", "all", "--store", "step0.db", cwd=place).code == 0
    return place


def test_the_range_and_what_no_healthy_run_has_are_said_before_the_launch(known):
    words = "python3 train.py --hf-checkpoint /models/Qwen3-0.6B --attention-dropout 0 --hidden-dropout 0 --rotary-base 10000"
    answer = run("lint", "--store", "step0.db", "--json", "--", *words.split(), cwd=known)
    launch = answer.document["launch"]
    assert (answer.code, launch["framework"], launch["range"]["n"]) == (0, "miles", 3)
    assert "rotary_base" in [item["key"] for item in launch["differs"]]


def test_a_run_is_linted_by_its_id_and_a_contradiction_is_exit_3(known):
    answer = run("lint", "odd", "--store", "step0.db", cwd=known)
    assert answer.code == 3
    assert "names another model than hf_checkpoint" in answer.out
    assert run("lint", "odd", "--store", "step0.db", "--fail-on", "never", cwd=known).code == 0
    assert run("lint", "ok1", "--store", "step0.db", cwd=known).code == 0


def test_lint_writes_nothing_but_the_summary_that_was_asked_for(tmp_path):
    path = write(SLIME, tmp_path, ("ref-load /root/Qwen3-4B_", "ref-load /root/Qwen3-8B_"))
    before = {file.name for file in tmp_path.iterdir()}
    assert run("lint", path, "--summary", "out.md", cwd=tmp_path).code == 3
    assert {file.name for file in tmp_path.iterdir()} == {*before, "out.md"}
    assert "names another model" in (tmp_path / "out.md").read_text()


@pytest.mark.parametrize("words", [["gone.sh"], ["a/b/c.sh"], ["empty.sh"], ["--framework", "x", "rl.toml"]])
def test_what_cannot_be_linted_is_an_error_in_words(words, tmp_path):
    (tmp_path / "empty.sh").write_text("echo\n")
    (tmp_path / "rl.toml").write_text("a = 1\n")
    answer = run("lint", *words, "--json", cwd=tmp_path)
    assert answer.code in (2, 4, 5)
    assert json.loads(answer.out)["error"]["message"]


def test_a_file_of_no_known_framework_is_said_to_be_one(tmp_path):
    (tmp_path / "compose.yaml").write_text("services: {web: {image: nginx}}\n")
    answer = run("lint", "compose.yaml", cwd=tmp_path)
    assert answer.code == 0
    assert "no known framework" in answer.out
