"""Launch scripts, command lines and config files: what is known without running them, and what stays open."""

import json

import pytest

from step0_wandb.errors import UsageError
from step0_wandb.sources.launch.reader import read_launch, read_words
from step0_wandb.sources.launch.shell_script import ShellScript
from step0_wandb.sources.launch.shell_values import shown


def words_of(text, folder=None):
    """Return the words of the last command of a script as a person would write them."""
    script = ShellScript(folder)
    script.read(text, "run.sh")
    return [shown(word.text) + ("?" if word.maybe else "") for word in script.commands[-1].words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train --lr 1e-6", "train --lr 1e-6"),
        ("train \\\n  --a 1 \\\n  --b 2  # why", "train --a 1 --b 2"),
        ("A=(--x 1)\nA+=(--y '2 3')\ntrain \"${A[@]}\"", "train --x 1 --y 2 3"),
        ("A=(\n  --x 1  # no\n  #--z 3\n)\ntrain ${A[@]} --w", "train --x 1 --w"),
        ('N=8\ntrain --n $N --m "${N}b"', "train --n 8 --m 8b"),
        ("train --n ${N:-8} --m ${M:=$((4 * 1024))}", "train --n 8 --m 4096"),
        ("train --n ${N} --m $(nproc) --k `date`", "train --n ${N} --m ${...} --k ${...}"),
        ("if [ $X = 1 ]; then A=1; else A=2; fi\ntrain --a $A", "train --a ${A}"),
        ("if [ $X = 1 ]; then A=1; else A=1; fi\ntrain --a $A", "train --a 1"),
        ("A=(--x)\nif [ $X ]; then\n A+=(--y)\nfi\ntrain ${A[@]}", "train --x --y?"),
        ("case $X in\n a) M=1 ;;\n *) M=2 ;;\nesac\ntrain $M", "train ${M}"),
        ("case $X in a) M=1;; *) M=1;; esac\ntrain $M", "train 1"),
        ("A=1\n[ $X ] && A=2\ntrain $A", "train ${A}"),
        ("OPTS='--a 1 --b 2'\ntrain $OPTS", "train --a 1 --b 2"),
        ('OPTS="--a 1"\nOPTS="$OPTS --b 2"\neval "train $OPTS"', "train --a 1 --b 2"),
        ("read -r -d '' CMD <<EOF\ntrain --a 1 \\\n --b 2\nEOF\nrun -- $CMD", "run -- train --a 1 --b 2"),
        ("bash -c 'train --a 1'", "train --a 1"),
        ('srun -N 1 bash -lc "cd /x && train --a 1"', "train --a 1"),
        ("P=/m/Qwen3-4B/\ntrain ${P%/} ${P##*/}", "train /m/Qwen3-4B"),
        ("for i in 1 2; do train --seed $i; done", "train --seed ${i}"),
        ("train --a '${NOT}' > log.txt 2>&1", "train --a ${NOT}"),
        ('train "$@"', "train ${@}"),
        (': "${M:=a/b}"\ntrain $M', "train a/b"),
        ('read -ra A <<< "$X"\ntrain ${A[@]} --b', "train ${@} --b"),
        ("f() {\n  train --a 1\n}\nf", "f"),
        ("cat <<'E'\nnot a command $X\nE\ntrain", "train"),
    ],
)
def test_what_is_known_of_a_command_is_followed_and_the_rest_stays_open(text, words):
    assert " ".join(words_of(text)) == words


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("bash examples/run.sh --b 2", "train --a 1 --b 2"),
        ("sbatch ./examples/run.sh", "train --a 1"),
        ("export A=3\nnohup bash examples/run.sh", "train --a 3"),
        ("A=4 bash examples/run.sh --model $M", "train --a 4 --model ${M}"),
        ("A=4\nbash examples/run.sh", "train --a 1"),
        ("bash gone.sh --b 2", "bash gone.sh --b 2"),
    ],
)
def test_a_script_that_calls_another_one_is_followed_with_its_arguments(call, words, tmp_path):
    (tmp_path / "examples" / "deep").mkdir(parents=True)
    (tmp_path / "examples" / "run.sh").write_text('train --a ${A:-1} "$@"\n')
    assert " ".join(words_of(call, tmp_path / "examples" / "deep")) == words


def test_scripts_that_call_each_other_come_to_an_end(tmp_path):
    (tmp_path / "a.sh").write_text("bash a.sh $@\ntrain --a 1\n")
    assert words_of("bash a.sh", tmp_path) == ["train", "--a", "1"]


def test_a_sourced_script_is_read_where_it_lies_and_named_where_it_does_not(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.sh").write_text("MODEL_ARGS=(--num-layers 28)\n")
    text = (
        'D="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nsource "$D/models/%s.sh"\ntrain ${MODEL_ARGS[@]}'
    )
    assert words_of(text % "a", tmp_path) == ["train", "--num-layers", "28"]
    assert words_of(text % "b", tmp_path) == ["train", "${@}"]


def test_nothing_is_executed(tmp_path):
    mark = tmp_path / "mark"
    for text in (
        f"touch {mark}",
        f"x=$(touch {mark})",
        f"`touch {mark}`",
        f"eval 'touch {mark}'",
        f"trap 'touch {mark}' EXIT",
    ):
        ShellScript(tmp_path).read(f"{text}\ntrain --a 1\n", "run.sh")
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "A=x\n" + "A=$A$A\n" * 64 + "train $A",
        "A=(a b)\n" + "A+=(${A[@]})\n" * 64 + "train ${A[@]}",
        "train " + "${A:-" * 2000,
        "if x; then\n" * 3000 + "train",
        "(" * 5000 + "'\"`$((${",
        "train $((" + "9" * 4000 + " * 9))",
        'A="${B:-${A}}"\ntrain "' + "$(" * 3000,
    ],
)
def test_a_script_that_is_made_to_grow_without_end_is_read_in_bounds(text):
    script = ShellScript()
    script.read(text, "run.sh")
    assert all(len(word.text) <= 20_000 for command in script.commands for word in command.words)


def config_of(text, name, tmp_path):
    (tmp_path / name).write_text(text)
    return read_launch(tmp_path / name)[-1]


def test_flags_and_overrides_become_the_keys_that_the_run_would_log(tmp_path):
    launch = read_words(
        [
            *("ray", "job", "submit", "--address", "x", "--", "python3", "-m", "verl.trainer.main_ppo"),
            *(
                "a.b=1",
                "+c.d=True",
                "++e='x y'",
                "~f=1",
                "g=null",
                "--hf-checkpoint=/m/Qwen3-4B",
                "--no-colocate",
            ),
            *("--top-k", "-1", "--fp16", "--config-name", "ppo"),
        ],
        tmp_path,
    )
    assert launch.program == "python3 -m verl.trainer.main_ppo"
    assert launch.config == {
        "a.b": "1",
        "c.d": True,
        "e": "x y",
        "f": None,
        "g": None,
        "hf_checkpoint": "/m/Qwen3-4B",
        "colocate": False,
        "top_k": "-1",
        "fp16": True,
        "config_name": "ppo",
    }


def test_a_config_file_that_the_command_names_is_read_and_overridden(tmp_path):
    (tmp_path / "grpo.yaml").write_text(
        "policy:\n  model_name: Qwen/Qwen3-4B\n  tp: 1\nlr: ${policy.tp}\nx: ${oc.env:X}\n"
    )
    launch = config_of("uv run run_grpo.py --config grpo.yaml policy.tp=2\n", "run.sh", tmp_path)
    assert launch.config == {"policy": {"model_name": "Qwen/Qwen3-4B", "tp": 1}, "lr": 1, "policy.tp": "2"}
    assert launch.unknown == {"x": "${oc.env:X}"}
    assert not config_of("run_grpo.py --config gone.yaml a=1 b=2\n", "other.sh", tmp_path).is_whole


def test_a_config_goes_on_from_the_one_that_it_names_as_its_base(tmp_path):
    (tmp_path / "base.yaml").write_text("a: {b: 1, c: 2}\n")
    assert config_of("defaults: base.yaml\na: {c: 3}\n", "x.yaml", tmp_path).config == {"a": {"b": 1, "c": 3}}
    assert config_of("defaults: x.yaml\n", "x.yaml", tmp_path).config == {}


def test_the_end_of_a_path_names_its_model_whatever_its_beginning_is(tmp_path):
    text = "python train.py --hf-checkpoint $BASE/Qwen3-4B --load $CKPT/hf --save $OUT\n"
    launch = config_of(text, "run.sh", tmp_path)
    assert launch.config == {"hf_checkpoint": "${BASE}/Qwen3-4B"}
    assert launch.unknown == {"load": "${CKPT}/hf", "save": "${OUT}"}


def test_no_secret_of_a_launch_is_kept(tmp_path):
    text = "export K=${HF_TOKEN:-hf_%s}\npython train.py --wandb-key hunter2 --a $K --b 1 --my-secret $S --pw-x https://u:pw9@h.org\n"
    launch = config_of(text % ("aB3" * 12), "run.sh", tmp_path)
    said = json.dumps([launch.config, launch.unknown, launch.notes, launch.program])
    assert all(secret not in said for secret in ("hunter2", "aB3aB3", "pw9", "my_secret"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "a: [1, 2"),
        ("a.yaml", "- 1\n- 2\n"),
        ("a.yaml", "a: !!python/object/apply:os.system ['echo']\n"),
        (
            "a.yaml",
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
        ),
        ("a.yaml", "a: &a\n  b: *a\n"),
        ("a.json", "[" * 5000),
        ("a.toml", "a = "),
        ("a.sh", "echo hello\n"),
        ("a.py", "print(1)\n"),
    ],
)
def test_a_file_that_is_no_launch_is_refused_in_words(name, text, tmp_path):
    with pytest.raises(UsageError) as refused:
        config_of(text, name, tmp_path)
    assert name in refused.value.message
    assert len(refused.value.message) < 300
