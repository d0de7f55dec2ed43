"""Finds broken RL post-training runs at their first optimizer step, from what they log to W&B."""

__version__ = "0.1.0"
