"""Alerts: what is new to tell, put into words, and out to people exactly once."""

from step0_wandb.alerting.raising import deliver, queue

__all__ = ["deliver", "queue"]
