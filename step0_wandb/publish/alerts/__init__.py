"""Alerts: what is new to tell, put into words, and out to people exactly once."""

from step0_wandb.publish.alerts.select import deliver, queue

__all__ = ["deliver", "queue"]
