"""Which model a path names: real-looking paths of hubs, caches, trainers, object stores and Windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from step0_wandb.profiles import architecture
from step0_wandb.profiles.model_names import ModelNames

NAMES = ModelNames()
HASH = "c1899de289a04d12100db370d81485cdf75e47ca"

TABLE = """
# hub names
Qwen/Qwen3-0.6B | Qwen3-0.6B
Qwen/Qwen3-0.6B/ | Qwen3-0.6B
Qwen/Qwen3-1.7B-Base | Qwen3-1.7B-Base
Qwen/Qwen3-30B-A3B-Instruct-2507 | Qwen3-30B-A3B-Instruct-2507
Qwen/Qwen3-30B-A3B-FP8 | Qwen3-30B-A3B-FP8
Qwen/Qwen2.5-Math-7B | Qwen2.5-Math-7B
Qwen/Qwen2.5-7B-Instruct-AWQ | Qwen2.5-7B-Instruct-AWQ
Qwen/Qwen3-0.6B@main | Qwen3-0.6B
meta-llama/Llama-2-7b-hf | Llama-2-7b
meta-llama/Meta-Llama-3-8B-Instruct | Meta-Llama-3-8B-Instruct
meta-llama/Llama-3.2-1B | Llama-3.2-1B
mistralai/Mixtral-8x7B-v0.1 | Mixtral-8x7B-v0.1
deepseek-ai/DeepSeek-R1-Distill-Qwen-7B | DeepSeek-R1-Distill-Qwen-7B
deepseek-ai/DeepSeek-V3.1 | DeepSeek-V3.1
zai-org/GLM-4.5-Air | GLM-4.5-Air
THUDM/GLM-Z1-9B-0414 | GLM-Z1-9B-0414
moonshotai/Kimi-K2-Instruct | Kimi-K2-Instruct
moonshotai/Moonlight-16B-A3B-Instruct | Moonlight-16B-A3B-Instruct
google/gemma-3-4b-it | gemma-3-4b-it
openai/gpt-oss-20b | gpt-oss-20b
openai-community/gpt2 | gpt2
gpt2 | gpt2
facebook/opt-125m | opt-125m
microsoft/Phi-4-mini-instruct | Phi-4-mini-instruct
HuggingFaceTB/SmolLM2-135M | SmolLM2-135M
nvidia/Llama-3.1-Nemotron-Nano-8B-v1 | Llama-3.1-Nemotron-Nano-8B-v1
OpenRLHF/Llama-3-8b-sft-mixture | Llama-3-8b-sft-mixture
PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT | Qwen3-0.6B-Reverse-Text-SFT
trl-internal-testing/tiny-Qwen2ForCausalLM-2.5 | tiny-Qwen2ForCausalLM-2.5
hf://Qwen/Qwen3-4B | Qwen3-4B
https://huggingface.co/Qwen/Qwen3-4B | Qwen3-4B
https://huggingface.co/Qwen/Qwen3-4B/tree/main | Qwen3-4B
https://huggingface.co/Qwen/Qwen3-4B/resolve/main?download=true | Qwen3-4B
# hub caches
/cache/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca | Qwen3-0.6B
/root/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B/snapshots/abc1234/ | Llama-3.1-8B
/cache/models--gpt2/snapshots/607a30d783dfa663caf39e06633721c8d4cfcd7e | gpt2
~/.cache/huggingface/hub/models--Qwen--Qwen3-4B/refs/main | Qwen3-4B
/mnt/hf/models--deepseek-ai--DeepSeek-V3/snapshots/1a2b3c4d/model.safetensors | DeepSeek-V3
/root/.cache/modelscope/hub/models/Qwen/Qwen2___5-7B-Instruct | Qwen2.5-7B-Instruct
/root/.cache/modelscope/hub/Qwen/Qwen3-8B | Qwen3-8B
/data/hub/Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca | Qwen3-0.6B
# local copies and conversions
/data/models/Qwen3-0.6B/ | Qwen3-0.6B
/root/Qwen3-4B | Qwen3-4B
/root/Qwen3-4B_torch_dist | Qwen3-4B
/root/Qwen3-4B-torch-dist | Qwen3-4B
/root/Qwen3-4B_torch_dist/release | Qwen3-4B
/root/Qwen3-4B_torch_dist/iter_0000000 | Qwen3-4B
/root/Qwen3-30B-A3B-FP8_torch_dist | Qwen3-30B-A3B-FP8
/root/GLM-Z1-9B-0414_TORCH_DIST | GLM-Z1-9B-0414
/models/Qwen2.5-7B-mcore | Qwen2.5-7B
/models/Qwen2.5-7B_Megatron | Qwen2.5-7B
/models/Qwen2.5-7B_hf_torch_dist | Qwen2.5-7B
/models/qwen2.5-7b-dcp | qwen2.5-7b
/models/qwen2.5-7b_fsdp_merged | qwen2.5-7b
/models/Qwen3-8B.nemo | Qwen3-8B
/models/qwen3-8b-q4.gguf | qwen3-8b-q4
/models/Qwen3-8B/model.safetensors | Qwen3-8B
/models/Qwen3-8B/pytorch_model.bin | Qwen3-8B
./Qwen3-0.6B | Qwen3-0.6B
../models/Qwen3-0.6B | Qwen3-0.6B
/shared/模型 | 模型
/data/models/7b/hf | 7b
# verl
/data/sft/qwen2.5-3B/global_step_2805 | qwen2.5-3B
checkpoints/verl_grpo_example_gsm8k/qwen2_7b_function_rm/global_step_300/actor/huggingface | qwen2_7b_function_rm
checkpoints/verl_demo/qwen3_8b_dapo/global_step_100/actor | qwen3_8b_dapo
/ckpts/DAPO/DAPO-Qwen2.5-32B/global_step_160/actor/hf | DAPO-Qwen2.5-32B
/ckpts/qwen3-4b-math/global_step_300/actor/hf_merged | qwen3-4b-math
/ckpts/qwen3-4b-math/global_step_300/merged_hf_model | qwen3-4b-math
/ckpts/gsm8k_sft/qwen-0.5b/global_step_87/huggingface | qwen-0.5b
hdfs://haruna/home/byte_data/user/qwen2.5-7b-sft/global_step_500 | qwen2.5-7b-sft
hdfs://namenode:9000/user/models/Qwen2.5-32B | Qwen2.5-32B
/ckpts/qwen3_vl/lora_adapter | qwen3_vl
# slime and Miles
/root/Qwen3-4B_slime | Qwen3-4B_slime
/root/Qwen3-4B_miles/iter_0000100 | Qwen3-4B_miles
/ckpt/qwen3-0.6b-math/iter_0000500/hf | qwen3-0.6b-math
/sft/qwen3-0.6b-math/checkpoint-500 | qwen3-0.6b-math
/sft/qwen3-0.6b-math/checkpoint-500_torch_dist | qwen3-0.6b-math
/sft/qwen3-0.6b-code/checkpoint-500_torch_dist | qwen3-0.6b-code
/data/sft/qwen3-4b-math/hf | qwen3-4b-math
/data/sft/glm-9b-code/hf_torch_dist | glm-9b-code
/save/glm4-9b-tool/rollout_40 | glm4-9b-tool
/save/glm4-9b-tool/iter_0000039/mp_rank_00 | glm4-9b-tool
/save/glm4-9b-tool/actor/iter_39 | glm4-9b-tool
/save/glm4-9b-tool/latest | glm4-9b-tool
# TRL and transformers
./finetune_EMER_SFT/checkpoint-225 | finetune_EMER_SFT
outputs/Qwen2.5-7B-GRPO/checkpoint-100 | Qwen2.5-7B-GRPO
Qwen2-0.5B-SFT/final | Qwen2-0.5B-SFT
/runs/llama3-8b-dpo/checkpoint-1000/adapter_model.safetensors | llama3-8b-dpo
/runs/llama3-8b-dpo/final_checkpoint | llama3-8b-dpo
/runs/llama3-8b-dpo/final_merged_checkpoint | llama3-8b-dpo
/runs/llama3-8b-dpo/best | llama3-8b-dpo
/runs/llama3-8b-dpo/best_model | llama3-8b-dpo
/runs/llama3-8b-dpo/last.ckpt | llama3-8b-dpo
/runs/mymodel/epoch=3-step=100.ckpt | mymodel
/runs/mymodel/epoch_2 | mymodel
/runs/mymodel/epoch3/step_1200 | mymodel
/runs/mymodel/Jan31_12-05-01_host7/checkpoint-5 | mymodel
# ms-swift
output/Qwen2.5-7B-Instruct/v0-20250101-120000/checkpoint-100 | Qwen2.5-7B-Instruct
output/Qwen2.5-7B-Instruct/v12-20250101-120000/checkpoint-100-merged | Qwen2.5-7B-Instruct
output/GRPO_Qwen3/v1-20250301-010203/checkpoint-20 | GRPO_Qwen3
# SkyRL
/home/ray/ckpts/gsm8k_1.5B_ckpt/global_step_10/policy | gsm8k_1.5B_ckpt
/home/ray/exports/qwen-sql/global_step_50/policy/huggingface | qwen-sql
s3://skyrl-bucket/skyrl-agent-8b/global_step_30/policy | skyrl-agent-8b
gs://my-bucket/exports/qwen3-4b-search/global_step_90 | qwen3-4b-search
# OpenRLHF
./checkpoint/llama-3-8b-rlhf | llama-3-8b-rlhf
./checkpoint/llama-3-8b-rlhf/_actor/global_step100 | llama-3-8b-rlhf
/openrlhf/examples/checkpoint/llama3-8b-rlhf/ckpt/_actor/global_step200_hf | llama3-8b-rlhf
./checkpoint/llama3-8b-rm/global_step40/critic | llama3-8b-rm
# NeMo RL and Megatron
results/grpo-qwen2.5-1.5b/step_100/policy/weights/iter_0000000 | grpo-qwen2.5-1.5b
results/grpo-llama3.1-8b/step_40/policy/weights | grpo-llama3.1-8b
results/dpo_llama/step_40/hf | dpo_llama
/nemo/llama3_8b.nemo | llama3_8b
/lustre/fsx/users/mcore/llama-3.1-70b/release | llama-3.1-70b
/lustre/megatron/qwen3-235b-a22b/tp8_pp4/iter_0001000 | qwen3-235b-a22b
# AReaL
/tmp/areal/experiments/checkpoints/root/gsm8k-grpo/trial0/default/epoch0epochstep24globalstep24 | gsm8k-grpo
/storage/areal/checkpoints/alice/boba-7b/trial_1/actor/epoch1epochstep5globalstep100 | boba-7b
# prime-rl, open-instruct, RLinf, others
outputs/reverse-text/weights/step_100 | reverse-text
/weka/open_instruct/tulu3_8b_rl/step_1280 | tulu3_8b_rl
/weka/open_instruct/tulu3_8b_rl/checkpoints/global_step1280 | tulu3_8b_rl
/workspace/results/embodied-pi0/checkpoints/global_step_50/actor/model_state_dict | embodied-pi0
/scratch/alice-7b/seed42/checkpoint-3 | alice-7b
/scratch/alice-7b/2025-01-31/checkpoint-3 | alice-7b
/scratch/alice-7b/20250131_120501/checkpoint-3 | alice-7b
/scratch/alice-7b/2025-01-31T12:05:01Z/checkpoint-3 | alice-7b
/scratch/alice-7b/31jan2025/last | alice-7b
/scratch/alice-7b/wandb/run-20250131_120501-aqg8gbcd/files | alice-7b
/scratch/alice-7b/607a30d783df/hf | alice-7b
/scratch/alice-7b/550e8400-e29b-41d4-a716-446655440000/hf | alice-7b
/scratch/alice-7b/job_812345/checkpoint-3 | alice-7b
/scratch/alice-7b/exp20/dist | alice-7b
/scratch/alice-7b/run_3/output_v2 | alice-7b
/scratch/alice-7b/fsdp2/consolidated | alice-7b
# a number within one training, also behind the name itself or with a stage before it
/ckpts/qwen3-4b-math/stage1_v5_step135 | qwen3-4b-math
/ckpts/qwen3-4b-math/stage_2/phase1-step_20 | qwen3-4b-math
/ckpts/qwen3-4b-math_step_500 | qwen3-4b-math
/ckpts/qwen3-4b-math-step500_hf | qwen3-4b-math
/ckpts/qwen3-4b-math-global_step_20 | qwen3-4b-math
/ckpts/qwen3-4b-math-epoch2-step40 | qwen3-4b-math
/ckpts/qwen3-4b-math_checkpoint-225 | qwen3-4b-math
/ckpts/qwen3-4b-math_iter0000500_torch_dist | qwen3-4b-math
/data/sft/output_step_500 | /data/sft/output
/root/models/qwen3-8b_tool_dapo_20251110_101010 | qwen3-8b_tool_dapo
/root/models/qwen3-8b_tool_dapo-2025-11-10_10-10-10/iter_0000020 | qwen3-8b_tool_dapo
/models/qwen3-8b-20251110 | qwen3-8b-20251110
/path/to/model | /path/to
/path/to/your_model | /path/to/your_model
# object stores, artifacts, Windows
s3://models/Qwen3-4B | Qwen3-4B
s3://models/Qwen3-4B/ | Qwen3-4B
gs://team-ckpts/qwen3-4b-math/checkpoint-700/hf | qwen3-4b-math
oss://bucket/llm/Qwen3-14B | Qwen3-14B
az://container/phi-4/final | phi-4
abfss://data@acct/phi-4/weights | phi-4
file:///data/models/Qwen3-4B | Qwen3-4B
https://storage.example.com/models/Qwen3-4B.tar | Qwen3-4B
team/project/qwen3-math:v3 | qwen3-math
team/project/qwen3-math:latest | qwen3-math
wandb-artifact://team/project/qwen3-math:v3 | qwen3-math
C:\\models\\Qwen3-0.6B | Qwen3-0.6B
C:\\Users\\alice\\models\\qwen3-4b\\checkpoint-20 | qwen3-4b
D:\\ckpt\\qwen3-4b\\hf | qwen3-4b
\\\\server\\share\\Qwen3-8B_torch_dist | Qwen3-8B
# nothing telling: the path without its numbered parts
/models/output/checkpoint-225 | /models/output
/models/output/checkpoint-300 | /models/output
/data/sft/exp20/checkpoint-1200 | /data/sft/exp20
/data/sft/exp20/dist | /data/sft/exp20
/data/sft/exp21/dist | /data/sft/exp21
output/checkpoint-5 | output
/shared/checkpoints/global_step_100/actor/huggingface | /shared/checkpoints
/shared/checkpoints/global_step_200/actor/huggingface | /shared/checkpoints
/mnt/data/sft/run_4/global_step_10/actor | /mnt/data/sft/run_4
/checkpoint-5 | /checkpoint-5
C:\\output\\checkpoint-5 | output
"""
ROWS = [
    tuple(part.strip() for part in line.split(" | "))
    for line in TABLE.replace("\\\\", "\\").strip().splitlines()
    if not line.startswith("#")
]


def test_the_table_is_long_enough_and_names_no_path_twice():
    assert len({path for path, _ in ROWS}) == len(ROWS) >= 150


def test_a_path_names_its_model():
    assert {path: NAMES.name(path) for path, _ in ROWS} == dict(ROWS)


@pytest.mark.parametrize("nothing", ["/", "", "  ", None, ["a"], 7, True, {"a": 1}])
def test_what_is_not_a_path_names_no_model(nothing):
    assert NAMES.name(nothing) is None


TELLING = st.sampled_from(sorted({name for _, name in ROWS if "/" not in name and name != "output"}))
GENERIC = st.sampled_from(
    [
        "hf",
        "huggingface",
        "hf_model",
        "hf_ckpt",
        "merged",
        "model",
        "models",
        "actor",
        "critic",
        "policy",
        "ref",
        "weights",
        "ckpt",
        "ckpts",
        "checkpoint",
        "checkpoints",
        "dist",
        "torch_dist",
        "mcore",
        "megatron",
        "safetensors",
        "final",
        "last",
        "latest",
        "best",
        "release",
        "snapshots",
        "output",
        "outputs",
        "export",
        "exports",
        "converted",
        "rank",
        "data",
        "sft",
        "rl",
        "runs",
        "exp",
        "train",
        "saves",
        "work",
        "root",
        "home",
        "mnt",
        "tmp",
        "lora",
        "adapter",
        "trainer",
        "checkpoint-225",
        "global_step_300",
        "global_step12",
        "iter_0000100",
        "step_7",
        "epoch_2",
        "epoch3",
        "epoch0epochstep24globalstep24",
        "1200",
        "20250131",
        "2025-01-31",
        "c1899de289a0",
    ]
)
FORMAT = st.sampled_from(
    ["_torch_dist", "-torch_dist", "_hf", "-hf", "_mcore", "_megatron", "_dcp", "_fsdp", "_merged"]
)
CASE = st.sampled_from([str, str.upper, str.title])


@given(TELLING, st.lists(st.builds(lambda case, part: case(part), CASE, GENERIC), max_size=4), FORMAT, CASE)
def test_generic_parts_and_format_suffixes_never_change_the_name(name, parts, suffix, case):
    path = "/".join(("/data", name, *parts))
    assert NAMES.name(path) == name
    assert NAMES.name(path + case(suffix)) == name
    assert NAMES.name(path + "/") == name


@given(TELLING, TELLING, st.lists(GENERIC, max_size=3), st.lists(GENERIC, max_size=3))
def test_two_telling_names_never_become_one(one, other, parts, more):
    names = [NAMES.name("/".join(("/data", name, *tail))) for name, tail in ((one, parts), (other, more))]
    assert (names[0] == names[1]) == (one == other)


@given(st.text(max_size=60))
def test_any_text_has_a_name_or_none(text):
    name = NAMES.name(text)
    assert name is None or isinstance(name, str)
    NAMES.differ(text, "/sft/qwen3-4b/checkpoint-5")
    architecture.of_name(text)


def test_settings_may_add_words_that_name_nothing():
    path = "/team-blue/qwen3-4b/nightly-build/hf"
    assert NAMES.name(path) == "nightly-build"
    assert ModelNames(frozenset({"nightly-build"})).name(path) == "qwen3-4b"
    assert ModelNames(frozenset({"nightly", "build"})).name(path) == "qwen3-4b"


@pytest.mark.parametrize(
    "copy",
    [
        "Qwen/Qwen3-30B-A3B",
        "/data/Qwen3-30B-A3B_torch_dist",
        "/data/Qwen3-30B-A3B-FP8",
        "/data/qwen3-30b-a3b-mxfp8_torch_dist",
        "/data/Qwen3-30B-A3B-W4A16",
        "/data/Qwen3-30B-A3B_torch_dist_tp4_pp2",
    ],
)
def test_a_converted_or_quantized_copy_is_the_same_model(copy):
    assert NAMES.family(copy) == "qwen3-30b-a3b"


@pytest.mark.parametrize(
    "other", ["Qwen3-30B", "Qwen3-30B-A3B-Instruct", "Qwen3-30B-A3B-Base", "iter_0000100", None]
)
def test_another_model_is_not(other):
    assert NAMES.family(other) != "qwen3-30b-a3b"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/sft/qwen3-0.6b-math/checkpoint-500", "/sft/qwen3-0.6b-code/checkpoint-500_torch_dist"),
        ("/sft/qwen3-0.6b-math/checkpoint-500", "/sft/qwen3-0.6b-math/checkpoint-700_torch_dist"),
        ("/models/Qwen3-4B", "/models/Qwen3-4B-Base_torch_dist"),
        ("/models/Qwen3-4B", "/models/Qwen3-8B_torch_dist"),
        ("/ckpt/math/epoch_1", "/ckpt/math/epoch_2/hf"),
        ("/ckpt/qwen3-4b-math_step_500", "/ckpt/qwen3-4b-math_step_700_torch_dist"),
    ],
)
def test_two_telling_names_and_two_checkpoints_of_one_training_differ(one, other):
    assert NAMES.differ(one, other)
    assert NAMES.differ(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/data/sft/exp20/checkpoint-1200", "/data/sft/exp20/dist"),
        ("/models/Qwen3-4B", "/ckpt/exp7"),
        ("/ckpt/exp7", "/ckpt/exp8"),
        ("/sft/qwen3-0.6b-math/checkpoint-700", "/dist/qwen3-0.6b-math_torch_dist"),
        ("/sft/qwen3-0.6b-math/checkpoint-700", "/dist/qwen3-0.6b-math_torch_dist/iter_0000001"),
        ("/models/Qwen2.5-7B-Instruct-FP8", "/models/qwen2_5_7b_instruct_mcore"),
        ("/models/Qwen3-4B", None),
        ("/models/Qwen3-4B", "/models/Qwen3-4B_torch_dist/iter_0000000"),
        ("/ckpt/math/epoch_1", "/ckpt/math/checkpoint-500"),
    ],
)
def test_paths_that_may_be_one_model_do_not_differ(one, other):
    assert not NAMES.differ(one, other)
    assert not NAMES.differ(other, one)
