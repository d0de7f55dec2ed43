"""The channels by which alerts reach people: one module and one entry here for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from step0_wandb.publish.alerts.channels.base import Channel
from step0_wandb.publish.alerts.channels.log import LogChannel
from step0_wandb.publish.alerts.channels.wandb import WandbChannel
from step0_wandb.publish.alerts.channels.webhook import WebhookChannel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from step0_wandb.settings.options import AlertsSettings

__all__ = ["CHANNELS", "Channel", "channels_in_use"]

CHANNELS: Final[Mapping[str, Channel]] = {
    channel.name: channel for channel in (LogChannel(), WandbChannel(), WebhookChannel())
}


def channels_in_use(settings: AlertsSettings) -> tuple[Channel, ...]:
    """Return the channels that the settings turn on."""
    return tuple(channel for channel in CHANNELS.values() if channel.is_on(settings))
