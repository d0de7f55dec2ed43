"""Alerts: drafted and queued with the verdicts they are about, then delivered once.

`select` says what is new, `compose` makes messages of it, `text` holds every word of them, and each way
to people is a module of `channels`.
"""

from step0_wandb.publish.alerts.deliver import Delivered, deliver
from step0_wandb.publish.alerts.queueing import Draft, Judged, draft, queue

__all__ = ["Delivered", "Draft", "Judged", "deliver", "draft", "queue"]
