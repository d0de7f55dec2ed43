"""What a sync writes back to W&B, and what it finds there of earlier ones."""

from step0_wandb.publish.wandb.write_back import Travelling, outdate, publish, restore, travelling_ranges

__all__ = ["Travelling", "outdate", "publish", "restore", "travelling_ranges"]
