"""What a sync writes back to W&B, and what it finds there of earlier ones."""

from step0_wandb.publish.wandb.write_back import (
    SharedRanges,
    claim,
    mark_unpublished,
    publish,
    restore,
    shared_ranges,
)

__all__ = ["SharedRanges", "claim", "mark_unpublished", "publish", "restore", "shared_ranges"]
