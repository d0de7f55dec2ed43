"""Durations and dates that options take."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from step0_wandb.errors import UsageError
from step0_wandb.text.durations import duration

if TYPE_CHECKING:
    from datetime import timedelta


def span_of(option: str, text: str) -> timedelta:
    """Return the duration that an option names."""
    try:
        return duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def moment_of(option: str, text: str, *, now: datetime, ahead: bool = False) -> datetime:
    """Return the moment that an option names: a date (UTC unless it says otherwise), or so long ago.

    Parameters
    ----------
    ahead : bool
        A duration counts from now on, not back.

    Examples
    --------
    >>> now = datetime(2026, 11, 30, 6, tzinfo=UTC)
    >>> moment_of("--since", "36h", now=now).isoformat(), moment_of("--since", "2026-11-01", now=now).isoformat()
    ('2026-11-28T18:00:00+00:00', '2026-11-01T00:00:00+00:00')
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            span = duration(text)
        except ValueError as error:
            is_long = "longer than" in str(error)
            why = (
                str(error) if is_long else f"{text!r} is not a duration or a date; use 24h, 7d or 2026-11-30"
            )
            raise UsageError(f"{option}: {why}") from error
        return now + span if ahead else now - span
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
