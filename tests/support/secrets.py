"""Keys of many services, made up at random in their true shapes, the places where they turn up, and what only looks alike."""

import base64
import hashlib
import json
import random
import string
import uuid

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + "234567"
WORD = ALNUM + "_-"


def tokens(seed=7):
    """Return a key of each kind by its name; none is in the repository, each is drawn."""
    rng = random.Random(seed)  # noqa: S311 - no key opens anything

    def draw(signs, length):
        return "".join(rng.choices(signs, k=length))

    def b64(text):
        return base64.b64encode(text.encode()).decode()

    def part(claims):
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    jwt = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': draw(ALNUM, 12)})}.{draw(WORD, 43)}"
    pem = "\n".join(draw(ALNUM + "+/", 64) for _ in range(4))
    return {
        "wandb 40 hex": draw(HEX, 40),
        "wandb 40 hex upper": draw(HEX, 40).upper(),
        "wandb local": f"local-{draw(HEX, 40)}",
        "wandb v1": f"wandb_v1_{draw(ALNUM + '_', 77)}",
        "hugging face": f"hf_{draw(string.ascii_letters, 34)}",
        "hugging face org": f"api_org_{draw(string.ascii_letters, 34)}",
        "openai": f"sk-{draw(ALNUM, 20)}T3BlbkFJ{draw(ALNUM, 20)}",
        "openai project": f"sk-proj-{draw(WORD, 74)}T3BlbkFJ{draw(WORD, 74)}",
        "openai service": f"sk-svcacct-{draw(ALNUM, 60)}",
        "anthropic": f"sk-ant-api03-{draw(WORD, 93)}AA",
        "openrouter": f"sk-or-v1-{draw(HEX, 64)}",
        "deepseek": f"sk-{draw(HEX, 32)}",
        "replicate": f"r8_{draw(ALNUM, 37)}",
        "nvidia": f"nvapi-{draw(WORD, 64)}",
        "xai": f"xai-{draw(ALNUM, 80)}",
        "groq": f"gsk_{draw(ALNUM, 52)}",
        "perplexity": f"pplx-{draw(ALNUM, 48)}",
        "github": f"ghp_{draw(ALNUM, 36)}",
        "github oauth": f"gho_{draw(ALNUM, 36)}",
        "github server": f"ghs_{draw(ALNUM, 36)}",
        "github fine": f"github_pat_{draw(ALNUM + '_', 82)}",
        "gitlab": f"glpat-{draw(WORD, 20)}",
        "gitlab runner": f"glrt-{draw(WORD, 20)}",
        "aws": f"AKIA{draw(UPPER, 16)}",
        "aws session": f"ASIA{draw(UPPER, 16)}",
        "google": f"AIza{draw(WORD, 35)}",
        "google oauth": f"ya29.{draw(WORD, 60)}",
        "google secret": f"GOCSPX-{draw(WORD, 28)}",
        "slack bot": f"xoxb-{draw('123456789', 12)}-{draw('123456789', 12)}-{draw(ALNUM, 24)}",
        "slack user": f"xoxp-{draw('123456789', 12)}-{draw('123456789', 12)}-{draw('123456789', 12)}-{draw(HEX, 32)}",
        "slack app": f"xapp-1-A{draw(UPPER, 10)}-{draw('123456789', 13)}-{draw(HEX, 64)}",
        "slack hook": f"https://hooks.slack.com/services/T{draw(UPPER, 8)}/B{draw(UPPER, 8)}/{draw(ALNUM, 24)}",
        "discord hook": f"https://discord.com/api/webhooks/{draw('123456789', 18)}/{draw(WORD, 68)}",
        "teams hook": f"https://acme.webhook.office.com/webhookb2/{draw(HEX, 32)}/IncomingWebhook/{draw(HEX, 32)}",
        "telegram": f"{draw('123456789', 10)}:AA{draw(WORD, 33)}",
        "jwt": jwt,
        "stripe": f"sk_live_{draw(ALNUM, 24)}",
        "stripe restricted": f"rk_live_{draw(ALNUM, 24)}",
        "sendgrid": f"SG.{draw(WORD, 22)}.{draw(WORD, 43)}",
        "npm": f"npm_{draw(ALNUM, 36)}",
        "pypi": f"pypi-AgEIcHlwaS5vcmc{draw(WORD, 60)}",
        "digitalocean": f"dop_v1_{draw(HEX, 64)}",
        "databricks": f"dapi{draw(HEX, 32)}",
        "docker": f"dckr_pat_{draw(WORD, 27)}",
        "vault": f"hvs.{draw(WORD, 95)}",
        "notion": f"ntn_{draw('123456789', 11)}{draw(ALNUM, 35)}",
        "linear": f"lin_api_{draw(ALNUM, 40)}",
        "figma": f"figd_{draw(WORD, 40)}",
        "postman": f"PMAK-{draw(HEX, 24)}-{draw(HEX, 34)}",
        "new relic": f"NRAK-{draw(UPPER, 27)}",
        "sentry": f"sntryu_{draw(HEX, 64)}",
        "shopify": f"shpat_{draw(HEX, 32)}",
        "langsmith": f"lsv2_pt_{draw(HEX, 32)}_{draw(HEX, 10)}",
        "tavily": f"tvly-{draw(ALNUM, 32)}",
        "age": f"AGE-SECRET-KEY-1{draw('QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L', 58)}",
        "pem": f"-----BEGIN RSA PRIVATE KEY-----\n{pem}\n-----END RSA PRIVATE KEY-----",
        "openssh": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{pem}\n-----END OPENSSH PRIVATE KEY-----",
        "azure storage": f"DefaultEndpointsProtocol=https;AccountName=rl;AccountKey={draw(ALNUM + '+/', 86)}==;",
        "azure signature": f"https://rl.blob.core.windows.net/c?sv=2024&sig={draw(ALNUM, 43)}%3D",
        "url password": f"postgresql://rl:{draw(ALNUM, 14)}@db.example.org/rl",
        "bearer": f"Bearer {draw(ALNUM, 40)}",
        "basic": f"Basic {b64('rl:' + draw(ALNUM, 16))}",
        "hugging face in base64": b64(f"hf_{draw(string.ascii_letters, 34)}"),
        "openai in base64": b64(f"sk-proj-{draw(ALNUM, 40)}"),
    }


PUBLIC = {
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=rl;AccountKey=",
    "azure signature": "https://rl.blob.core.windows.net/c?sv=2024&sig=",
    "url password": "postgresql://rl:",
    "slack hook": "https://hooks.slack.com/services/",
    "discord hook": "https://discord.com/api/webhooks/",
    "teams hook": "https://acme.webhook.office.com/webhookb2/",
    "bearer": "Bearer ",
    "basic": "Basic ",
}
"""What may stay of a key: the part before its secret."""


def core(kind, token):
    """Return what must not show of a key: twelve signs behind what everybody knows of its kind."""
    if "BEGIN" in token:
        return token.splitlines()[2][:40]
    return token.removeprefix(PUBLIC.get(kind, ""))[-30:][:14]


CONTEXTS = {
    "alone": lambda key: {"note": key},
    "under its name": lambda key: {"wandb_key": key},
    "as a name": lambda key: {key: "x"},
    "in a list": lambda key: {"notes": ["a", key]},
    "nested": lambda key: {"a": {"b": [{"c": key}]}},
    "in prose": lambda key: {"note": f"logged in with {key} today"},
    "at the end of prose": lambda key: {"note": f"the key was {key}"},
    "in brackets": lambda key: {"note": f"used ({key}) here"},
    "before a full stop": lambda key: {"note": f"used {key}. Then more"},
    "in quotes": lambda key: {"note": f"used '{key}', then more"},
    "Namespace": lambda key: {"args": f"Namespace(lr=1e-06, use_wandb='{key}', seed=7)"},
    "Namespace, secret name": lambda key: {"args": f"namespace(wandb_key='{key}', lr=1e-06)"},
    "pydantic": lambda key: {"args": f"Settings(url='x', extra='{key}', n=3)"},
    "dataclass": lambda key: {"args": f'Job(name="a", login="{key}")'},
    "dict": lambda key: {"args": str({"lr": 1e-6, "login": key})},
    "JSON": lambda key: {"args": json.dumps({"lr": 1e-6, "login": key})},
    "JSON in JSON": lambda key: {"args": json.dumps({"inner": json.dumps({"login": key})})},
    "JSON list": lambda key: {"args": json.dumps(["--login", key, "--lr", "1"])},
    "YAML": lambda key: {"args": f"lr: 1\nlogin: {key}\nseed: 7\n"},
    "YAML quoted": lambda key: {"args": f'lr: 1\nlogin: "{key}"\nseed: 7\n'},
    "TOML": lambda key: {"args": f'lr = 1\nlogin = "{key}"\n'},
    "option and value": lambda key: {"cmd": f"python train.py --login '{key}' --seed 7"},
    "option=value": lambda key: {"cmd": f"python train.py --login='{key}' --seed 7"},
    "secret option": lambda key: {"cmd": f"python train.py --wandb-key '{key}' --hf-token='{key}' --seed 7"},
    "options in a list": lambda key: {"argv": ["train.py", "--wandb-key", key, "--seed", "7"]},
    "printed list of options": lambda key: {"argv": str(["train.py", "--wandb-key", key, "--seed", "7"])},
    "hydra": lambda key: {"cmd": f"python main.py ++trainer.login='{key}' trainer.seed=7"},
    "variable": lambda key: {"cmd": f"LOGIN='{key}' python train.py"},
    "export": lambda key: {"cmd": f"export WANDB_API_KEY='{key}'; python train.py"},
    "env file": lambda key: {"env": f"A=1\nHF_TOKEN={key}\nB=2\n"},
    "docker": lambda key: {"cmd": f"docker run -e LOGIN='{key}' image:1"},
    "header": lambda key: {"cmd": f"curl -H 'Authorization: {key}' https://example.org"},
    "query": lambda key: {"url": f"https://example.org/?a=1&api_key={key}"},
    "user of a URL": lambda key: {"url": f"https://x:{key}@example.org/rl.git"},
    "clone": lambda key: {"cmd": f"git clone https://{key}@example.org/rl.git"},
    "netrc": lambda key: {"netrc": f"machine api.wandb.ai login user password {key}"},
    "tab": lambda key: {"note": f"a\t{key}\tb"},
    "line": lambda key: {"note": f"a\n{key}\nb"},
    "equals": lambda key: {"note": f"x={key}"},
    "colon": lambda key: {"note": f"x:{key}"},
    "comma": lambda key: {"note": f"a,{key},b"},
    "semicolon": lambda key: {"note": f"a;{key};b"},
    "pipe": lambda key: {"note": f"a|{key}|b"},
    "markdown": lambda key: {"note": f"`{key}` and [x]({key})"},
}


def harmless(seed=11):
    """Return texts that look like keys and are none, each with the name that holds it."""
    rng = random.Random(seed)  # noqa: S311

    def digest(kind):
        return hashlib.new(kind, rng.randbytes(16)).hexdigest()

    found = []
    for number in range(14):
        sha1, sha256, md5 = digest("sha1"), digest("sha256"), digest("md5")
        a_uuid = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        found += [
            ("git_commit", sha1),
            ("revision", sha1),
            ("weights_sha", sha1),
            ("version", f"miles @ git+https://github.com/radixark/miles@{sha1}"),
            ("launch", f"python train.py --seed 7 --commit {sha1}"),
            ("snapshot", f"/root/.cache/huggingface/hub/models--Qwen--Qwen3-0.6B/snapshots/{sha1}"),
            ("image", f"nvcr.io/nvidia/pytorch@sha256:{sha256}"),
            ("digest", sha256),
            ("fingerprint", md5),
            ("id", a_uuid),
            ("run_path", f"my-team/rl/{''.join(rng.choices(string.ascii_lowercase + string.digits, k=8))}"),
            ("group", f"qwen3-0.6b-dapo_{digest('md5')[:8]}-RANK_{number}"),
            ("host", f"ip-10-0-{number}-17.ec2.internal"),
            ("dataset", f"s3://bucket/data/2026-10-{number + 10}/part-{number:05d}-{a_uuid}.parquet"),
            ("checkpoint", f"/mnt/ckpt/qwen3-1.7b/iter_{number:07d}/mp_rank_00/model_optim_rng.pt"),
            ("slurm", f"job-{rng.randrange(10**7)}.cluster"),
            ("time", f"2026-10-{number + 10}T11:22:33.123456+00:00"),
        ]
    names = [
        "eos_token",
        "pad_token",
        "bos_token",
        "unk_token",
        "cls_token",
        "sep_token",
        "mask_token",
        "image_token",
        "stop_token",
        "additional_special_tokens",
        "end_of_text_token",
    ]
    found += [(name, "<|endoftext|>") for name in names]
    keys = "label_key input_key reward_key metadata_key sort_key prompt_key answer_key image_key tool_key apply_chat_template_key"
    found += [(name, "messages") for name in keys.split() if name != "apply_chat_template_key"]
    found += [
        (name, name.upper())
        for name in [
            "tokenizer",
            "tokenizer_path",
            "tokenizer_name",
            "max_tokens",
            "max_new_tokens",
            "eos_token_id",
            "token_level_loss",
            "key_path",
            "keyword",
            "author",
            "compass",
            "passes",
            "monkey",
            "chat_template",
            "pass_at_k",
            "bypass_mode",
            "token_type",
            "secretary",
            "authenticator_class",
        ]
    ]
    models = [
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen2.5-Math-7B",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
        "meta-llama/Llama-3.1-8B-Instruct",
        "mistralai/Mixtral-8x22B-Instruct-v0.1",
        "google/gemma-2-27b-it",
        "microsoft/Phi-3.5-MoE-instruct",
        "openai/gpt-oss-120b",
        "zai-org/GLM-4.5-Air",
        "moonshotai/Kimi-K2-Instruct-0905",
        "nvidia/Llama-3_1-Nemotron-Ultra-253B-v1",
        "allenai/OLMo-2-1124-13B",
        "sk-learn-random-forest-v2-2024",
        "task-sk-scheduler",
        "hf_to_megatron_converter_v2",
        "npm_config_registry",
        "pypi-mirror-internal-2",
        "AKIAmodel",
        "SG.small",
        "ey.ey",
        "basic-configuration-of-everything",
        "Bearer-tokens-explained",
        "xai-explainability",
        "key-value-cache-v2",
        "ghp_short",
        "glpat-x",
        "r8_small",
        "gsk_kernel",
        "nvapi-v1",
    ]
    found += [("model", name) for name in models]
    prose = [
        "Basic configuration of the bearer authentication, see the token budget",
        "--max-tokens 8192 --eos-token '</s>' --tokenizer Qwen/Qwen3-0.6B --label-key answer",
        "Namespace(eos_token='</s>', pad_token='<pad>', input_key='prompt', reward_key='score', max_tokens=4096)",
        '{"eos_token": "</s>", "sort_key": "reward", "tokenizer": "Qwen/Qwen3-0.6B"}',
        "eos_token: </s>\npad_token: <pad>\nlabel_key: answer\n",
        "actor_rollout_ref.model.path=/models/Qwen3-0.6B ++data.prompt_key=question trainer.n_gpus_per_node=8",
        "python -m sglang.launch_server --model-path /models/Qwen3-0.6B --tp 8 --port 30000",
        "export CUDA_VISIBLE_DEVICES=0,1,2,3; export NCCL_IB_HCA=mlx5_0:1,mlx5_1:1; python train.py",
        "ssh://git@example.org:2222/rl/miles.git", "http://10.0.0.1:8265/api/jobs/raysubmit_1a2b3c4d5e6f",
        "https://wandb.ai/my-team/rl/runs/aqg8gbcd?nw=nwuserada", "mailto:ada@example.org",
        "wandb_key=None hf_token='' password=null",
    ]  # fmt: skip
    found += [("text", text) for text in prose]
    return found
