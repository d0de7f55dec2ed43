"""Miles runs on disk, as few lines as a test needs."""

from pathlib import Path

from tests.support.runs import exit_record, history_record, run_record, wandb_file

GAP = "train/train_rollout_logprob_abs_diff"
CONFIG = {
    "hf_checkpoint": "/models/Qwen3-0.6B",
    "load": "/ckpt/Qwen3-0.6B_torch_dist",
    "ref_load": "/ckpt/Qwen3-0.6B_torch_dist",
    "save": "/out/run",
    "train_backend": "megatron",
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "lora_rank": 0,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "bf16": True,
    "num_steps_per_rollout": 2,
    "seed": 1234,
}


def miles_run(folder: Path, run_id: str, gap: float | None = 0.0150, **given) -> Path:
    """Write one run directory; other metrics and the config may be `given` by name.

    ``ppo_kl`` and ``clip_frac`` default to 0, ``config`` adds to `CONFIG`, ``logged`` to the row, ``ended`` writes the exit
    record, ``started`` is in seconds since 1970.
    """
    config = CONFIG | given.pop("config", {})
    metrics = {"train/ppo_kl": given.pop("ppo_kl", 0.0), "train/pg_clipfrac": given.pop("clip_frac", 0.0)}
    if gap is not None:
        metrics[GAP] = gap
    metrics |= given.pop("logged", {})
    first = given.pop("first_step", 0)
    rows = [
        {"rollout/step": 0, "rollout/response_len/mean": 812.5, "_step": 0},
        {"train/step": first, **metrics, "train/loss": 0.01, "_step": 1},
        {"train/step": first + 1, "train/ppo_kl": 2e-4, "train/pg_clipfrac": 1e-3, GAP: 0.0151, "_step": 2},
    ]
    ended = given.pop("ended", True)
    given.setdefault("display_name", f"run-{run_id}")
    records = [run_record(run_id, config, **given), *(history_record(row) for row in rows)]
    records += [exit_record(0)] if ended else []
    place = folder / "wandb" / f"offline-run-20260101_000000-{run_id}"
    place.mkdir(parents=True)
    (place / f"run-{run_id}.wandb").write_bytes(wandb_file(*records))
    return place
