"""Waiting without a clock: until something is there, or by letting time pass at once."""

import time

from step0_wandb.wandb_api.rate_limit import Clock


def until(condition) -> None:
    """Wait for another process or thread; pytest's own timeout ends what never comes."""
    while not condition():
        time.sleep(0.02)


def skipping_clock() -> Clock:
    """Return a clock that goes as any does, and whose sleeps are over at once."""
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    return Clock(now=lambda: time.monotonic() + slept[0], sleep=sleep)
