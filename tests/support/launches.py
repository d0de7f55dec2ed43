"""Launches as people write them, one or more a framework, each with what is right to understand of it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Written:
    """A launch: the name of its file and its text, what it is of, and the files next to it."""

    name: str
    text: str
    framework: str
    setup: str
    siblings: dict[str, str] = field(default_factory=dict)


MEGATRON = """#!/bin/bash
# {framework}: restart everything first
pkill -9 sglang; sleep 3; ray stop --force
set -ex
export PYTHONBUFFERED=16
NVLINKS=$(nvidia-smi | grep -o "NVLink" | wc -l)
if [ "$NVLINKS" -gt 0 ]; then HAS_NVLINK=1; else HAS_NVLINK=0; fi
HERE="$(cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")" &>/dev/null && pwd)"
source "${{HERE}}/models/{model}.sh"

CKPT_ARGS=(
   --hf-checkpoint /root/{model}
   #--hf-checkpoint /root/{model}-FP8
   --ref-load /root/{model}_torch_dist
   --load /root/{model}_out/
   --save /root/{model}_out/
   --save-interval 20
)
ROLLOUT_ARGS=(
   --prompt-data /root/dapo-math-17k/dapo-math-17k.jsonl
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-temperature 1
   --global-batch-size 256
   {rollout}
)
GRPO_ARGS=(--advantage-estimator grpo --kl-loss-coef 0.00 --kl-coef 0.00 --eps-clip 0.2)
WANDB_ARGS=(
   # --use-wandb
)
SGLANG_ARGS=(--rollout-num-gpus-per-engine 2 --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 256) {sglang})
MISC_ARGS=(--attention-dropout 0.0 --hidden-dropout 0.0 --attention-backend flash)

export MASTER_ADDR=${{MASTER_ADDR:-"127.0.0.1"}}
ray start --head --node-ip-address ${{MASTER_ADDR}} --num-gpus 8 --disable-usage-stats
RUNTIME_ENV_JSON="{{ \\"env_vars\\": {{ \\"NCCL_NVLS_ENABLE\\": \\"${{HAS_NVLINK}}\\" }} }}"
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json="${{RUNTIME_ENV_JSON}}" \\
   -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \\
   ${{MODEL_ARGS[@]}} ${{CKPT_ARGS[@]}} ${{ROLLOUT_ARGS[@]}} "${{GRPO_ARGS[@]}}" ${{WANDB_ARGS[@]}} \\
   ${{SGLANG_ARGS[@]}} ${{MISC_ARGS[@]}}
"""
DENSE = "MODEL_ARGS=(--swiglu --num-layers 36 --hidden-size 2560 --ffn-hidden-size 9728 --num-attention-heads 32\n --bf16)\n"
MIXTURE = "N=48\nMODEL_ARGS=(--num-layers $N --hidden-size 2048 --num-experts 128 --moe-router-topk 8)\n"


def megatron(framework, model, setup, *, args=DENSE, **more):
    """Return a launch script of Miles, slime or their kin, with its model's arguments in a file next to it."""
    text = MEGATRON.format(framework=framework, model=model, **{"rollout": "", "sglang": "", **more})
    return Written(f"run-{model}.sh", text, framework, setup, {f"models/{model}.sh": args})


VERL = """set -x
MODEL=${MODEL:-Qwen/Qwen3-8B}
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/data/gsm8k/train.parquet data.train_batch_size=1024 \\
    data.max_prompt_length=$((1024 * 2)) \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.rollout.name=vllm \\
    trainer.logger='["console","wandb"]' trainer.n_gpus_per_node=8 trainer.nnodes=1 $@
"""
DAPO = """#!/usr/bin/env bash
set -euo pipefail
temperature=1.0
top_p=0.7
top_k=-1 # 0 for HF rollout, -1 for vLLM rollout
RAY_DATA_HOME=${RAY_DATA_HOME:-"${HOME}/verl"}
MODEL_PATH=${MODEL_PATH:-"${RAY_DATA_HOME}/models/Qwen2.5-32B"}
ray job submit --no-wait --runtime-env="${RUNTIME_ENV}" --working-dir "${WORKING_DIR}" \\
    -- python3 -m recipe.dapo.main_dapo \\
    data.train_batch_size=512 \\
    actor_rollout_ref.model.path="${MODEL_PATH}" \\
    +actor_rollout_ref.model.override_config.attention_dropout=0. \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
    actor_rollout_ref.rollout.temperature=${temperature} \\
    actor_rollout_ref.rollout.top_p=${top_p} actor_rollout_ref.rollout.top_k="${top_k}"
"""
SKYRL = """DATA_DIR="$HOME/data/gsm8k"
: "${NUM_GPUS:=4}"
: "${BACKEND:=vllm}"
uv run --isolated --extra $BACKEND -m skyrl_train.entrypoints.main_base \\
  data.train_data="['$DATA_DIR/train.parquet']" \\
  trainer.policy.model.path="Qwen/Qwen2.5-1.5B-Instruct" \\
  trainer.placement.colocate_all=true trainer.strategy=fsdp2 \\
  trainer.placement.policy_num_gpus_per_node=$NUM_GPUS \\
  trainer.train_batch_size=1024 trainer.policy_mini_batch_size=256 \\
  generator.backend=$BACKEND generator.sampling_params.temperature=1.0 \\
  trainer.logger=wandb $@
"""
SKYRL_LORA = """uv run --extra fsdp -m skyrl.train.entrypoints.main_base \\
  trainer.policy.model.path=Qwen/Qwen3-4B trainer.policy.model.lora.rank=32 trainer.strategy=megatron \\
  generator.inference_engine.backend=vllm generator.sampling_params.top_p=0.95
"""
TRL_SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
NODES=(${SLURM_NODELIST})
MODEL=Qwen/Qwen2.5-7B-Instruct
CUDA_VISIBLE_DEVICES=4,5 trl vllm-serve --model $MODEL --tensor_parallel_size 2 &
accelerate launch --config_file zero3.yaml --num_processes 4 examples/scripts/grpo.py \\
  --model_name_or_path $MODEL --use_vllm --vllm_mode server --num_generations 8 --num_iterations 1 \\
  --logging_steps 1 --bf16 true --gradient_accumulation_steps 4 --temperature 0.9
"""
TRL_YAML = """model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
bf16: true
use_vllm: true
num_generations: 16
num_iterations: 1
temperature: 1.0
logging_steps: 1
report_to: [wandb]
"""
OPENRLHF = """set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_ppo_ray \\
   --pretrain meta-llama/Llama-3.1-8B-Instruct \\
   --reward_pretrain OpenRLHF/Llama-3-8b-rm-mixture \\
   --train_batch_size 128 --rollout_batch_size 1024 --n_samples_per_prompt 1 \\
   --micro_train_batch_size 8 --micro_rollout_batch_size 16 \\
   --bf16 --packing_samples --use_wandb 0123456789abcdef0123456789abcdef01234567
EOF
ray job submit --address="http://127.0.0.1:8265" -- python3 -m $training_commands
"""
OPENRLHF_DOTTED = """python3 -m openrlhf.cli.train_ppo_ray \\
  --actor.model_name_or_path Qwen/Qwen3-4B-Thinking-2507 --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 \\
  --train.batch_size 1024 --rollout.temperature 1.0 --ds.param_dtype bf16 --ds.lora.rank 16
"""
NEMO_BASE = """grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16, async_grpo: {enabled: false}}
policy:
  model_name: Qwen/Qwen2.5-1.5B
  tokenizer: {name: "${policy.model_name}"}
  train_global_batch_size: 512
  precision: bfloat16
  dtensor_cfg: {enabled: true}
  megatron_cfg: {enabled: false}
  generation: {backend: vllm, temperature: 1.0, top_p: 1.0, top_k: null, vllm_cfg: {precision: "${policy.precision}"}}
"""
NEMO_RECIPE = """defaults: grpo_math_1B.yaml
policy:
  model_name: meta-llama/Llama-3.1-8B-Instruct
  megatron_cfg: {enabled: true}
  dtensor_cfg: {enabled: false}
logger: {wandb: {project: nemo-rl, name: "${oc.env:NAME,run}"}}
"""
NEMO_SCRIPT = """cd "$PROJECT_ROOT" || exit
uv run examples/run_grpo.py --config examples/configs/grpo_math_1B.yaml \\
  policy.model_name=Qwen/Qwen3-4B ++policy.generation.top_p=0.95 logger.wandb_enabled=True
"""
PRIME = """max_steps = 100
seq_len = 2048

[model]
name = "PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT"

[orchestrator]
batch_size = 128
rollouts_per_example = 16

[orchestrator.sampling]
max_tokens = 128
temperature = 1.0

[trainer.optim]
lr = 3e-6

[inference]
"""
PRIME_PARTS = {
    "train.toml": '[model]\nname = "Qwen/Qwen3-4B"\noptimization_dtype = "bfloat16"\n',
    "orch.toml": 'batch_size = 512\nrollouts_per_example = 8\n[model]\nname = "Qwen/Qwen3-4B"\n',
    "infer.toml": '[model]\nname = "Qwen/Qwen3-4B"\n',
}
PRIME_SCRIPT = "uv run rl --trainer @ train.toml --orchestrator @ orch.toml --inference @ infer.toml --ckpt\n"
AREAL = """experiment_name: gsm8k-grpo
allocation_mode: sglang:d4p1t1+d4p1t1
gconfig: {n_samples: 4, temperature: 1.0, max_new_tokens: 1024}
actor:
  path: Qwen/Qwen2.5-1.5B-Instruct
  dtype: bfloat16
  attn_impl: flash_attention_2
  ppo_n_minibatches: 1
  recompute_logprob: true
  use_decoupled_loss: true
ref: {path: "${actor.path}", dtype: "${actor.dtype}"}
sglang: {model_path: "${actor.path}", dtype: "${actor.dtype}"}
"""
AREAL_SCRIPT = """python3 -m areal.launcher.ray examples/math/gsm8k_rl.py --config gsm8k.yaml \\
  actor.path=Qwen/Qwen3-1.7B allocation_mode=vllm:d4+d4 +vllm.dtype=bfloat16
"""

ALL = [
    megatron("slime", "Qwen3-4B", "slime · Qwen3-4B"),
    megatron("slime", "Qwen3-30B-A3B", "slime · Qwen3-30B-A3B · routing_replay=rollout", args=MIXTURE, rollout="--use-rollout-routing-replay"),
    megatron("slime", "GLM-Z1-9B-0414", "slime · GLM-Z1-9B-0414 · temperature=0.8", args="MODEL_ARGS=()\n", rollout="--rollout-temperature 0.8"),
    megatron("miles", "Qwen3-4B", "miles · Qwen3-4B"),
    megatron("miles", "Qwen2.5-7B", "miles · Qwen2.5-7B · top_p=0.95 top_k=64", args="MODEL_ARGS=(--bf16)\n", rollout="--rollout-top-p 0.95 --rollout-top-k 64"),
    megatron("miles", "Moonlight-16B-A3B", "miles · Moonlight-16B-A3B · engine=fp8", args="MODEL_ARGS=(--multi-latent-attention)\n", sglang="--sglang-quantization fp8"),
    Written("run_qwen3-8b.sh", VERL, "verl", "verl · Qwen3-8B"),
    Written("run_dapo_32b.sh", DAPO, "verl", "verl · Qwen2.5-32B · top_p=0.7"),
    Written("run_gsm8k.sh", SKYRL, "skyrl", "skyrl · Qwen2.5-1.5B-Instruct"),
    Written("run_lora.sh", SKYRL_LORA, "skyrl", "skyrl · Qwen3-4B · top_p=0.95 backend=megatron lora=yes"),
    Written("train_grpo.slurm", TRL_SCRIPT, "trl", "trl · Qwen2.5-7B-Instruct · temperature=0.9 logging_steps=1"),
    Written("grpo.yaml", TRL_YAML, "trl", "trl · Qwen2.5-1.5B-Instruct · logging_steps=1"),
    Written("trl.sh", "trl grpo --config grpo.yaml --top_p 0.9\n", "trl", "trl · Qwen2.5-1.5B-Instruct · top_p=0.9 logging_steps=1", {"grpo.yaml": TRL_YAML}),
    Written("train_ppo_llama_ray.sh", OPENRLHF, "openrlhf", "openrlhf · Llama-3.1-8B-Instruct"),
    Written("train_grpo_ray.sh", OPENRLHF_DOTTED, "openrlhf", "openrlhf · Qwen3-4B-Thinking-2507 · lora=yes"),
    Written("grpo_math_1B.yaml", NEMO_BASE, "nemo_rl", "nemo_rl · Qwen2.5-1.5B"),
    Written("grpo_math_8B_megatron.yaml", NEMO_RECIPE, "nemo_rl", "nemo_rl · Llama-3.1-8B-Instruct · backend=megatron", {"grpo_math_1B.yaml": NEMO_BASE}),
    Written("grpo-qwen3-4b.sh", NEMO_SCRIPT, "nemo_rl", "nemo_rl · Qwen3-4B · top_p=0.95", {"examples/configs/grpo_math_1B.yaml": NEMO_BASE}),
    Written("rl.toml", PRIME, "prime_rl", "prime_rl · Qwen3-0.6B-Reverse-Text-SFT"),
    Written("rl.sh", PRIME_SCRIPT, "prime_rl", "prime_rl · Qwen3-4B · trainer=bfloat16", PRIME_PARTS),
    Written("gsm8k.yaml", AREAL, "areal", "areal · Qwen2.5-1.5B-Instruct"),
    Written("areal.sh", AREAL_SCRIPT, "areal", "areal · Qwen3-1.7B · engine=vllm", {"gsm8k.yaml": AREAL}),
]  # fmt: skip
