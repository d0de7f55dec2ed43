"""What an alert says: a title that never changes, and a text that fits a phone.

W&B drops an alert whose title it had within the wait duration, and does nothing else against doubles. So
a title is made of what stays: the run's id, a hash of the setup, never a count or a measured number.

Names, reasons and config values are other people's text. Whatever shows the alert (a terminal, an
e-mail, Slack) gets them without control characters and without the signs that open a tag, a mention or
a link.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from step0_wandb.records import ALIVE
from step0_wandb.text.formatting import clean, count, shorten, web_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from step0_wandb.records import JudgedRun

TITLE_LENGTH: Final = 63
"""W&B asks for titles under 64 characters."""
_REASONS, _FINDINGS = 2, 2
_LINE, _NAME, _FINDING = 240, 60, 200
_LISTED = 10
_HARMLESS = str.maketrans({"<": "‹", ">": "›", "|": "¦", "`": "'", "*": "∗", "@": "＠"})  # noqa: RUF001 - looks alike, does nothing

_RUN_TITLES = {"broken": "Broken at step 0", "suspect": "Suspect at step 0"}
_SETUP_TITLES = {"moved": "Setup moved", "doubted": "Setup above its ceiling"}
_DIGEST_TITLE = "Several alerts at step 0, first"


@dataclass(frozen=True, slots=True)
class Stake:
    """What a run costs as long as nobody looks.

    Attributes
    ----------
    gpus : int or None
        GPUs that it runs on.
    since : timedelta or None
        How long it has gone on; None where that is not known, or where it has ended.
    beginning : str
        Since what.
    as_of : datetime or None
        When it was last heard of.
    """

    gpus: int | None = None
    since: timedelta | None = None
    beginning: str = "step 0"
    as_of: datetime | None = None


def run_title(run_id: str, level: str) -> str:
    """Return the title of an alert on one run.

    Examples
    --------
    >>> run_title("aqg8gbcd", "broken")
    'Broken at step 0: aqg8gbcd'
    """
    return _title(_RUN_TITLES[level], run_id)


def setup_title(setup: str, level: str, accepted_at: datetime | None = None) -> str:
    """Return the title of an alert on a setup; after a person has accepted it, another one.

    Examples
    --------
    >>> setup_title("miles · Qwen3-0.6B", "moved")
    'Setup moved: miles · Qwen3-0.6B 8c3bf119'
    """
    answered = accepted_at.isoformat() if accepted_at else ""
    return _title(_SETUP_TITLES[level], setup, short_hash(setup + answered))


def digest_title(first: str) -> str:
    """Return the title of an alert on several runs or setups, by the id of the first run."""
    return _title(_DIGEST_TITLE, first)


def short_hash(text: str) -> str:
    """Return eight hex digits that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def run_text(run: JudgedRun, stake: Stake, findings: Sequence[str]) -> str:
    """Return the text of an alert on one run: what is wrong, what it costs, where to look, how to answer."""
    run_id = run.run.rsplit("/", 1)[-1]
    return _lines(
        *(_safe(reason) for reason in run.reasons[:_REASONS]),
        f"{_who(run)}, {_safe(run.setup or 'no setup')}",
        stake_text(run.state, stake),
        *(f"- {shorten(_safe(finding), _FINDING)}" for finding in findings[:_FINDINGS]),
        web_url(run.url) or _safe(run.run),
        "Answer: tag the run step0-ok, step0-bad or step0-skip, "
        f'or: step0-wandb label {_word(run_id)} healthy --why "..."',
    )


def setup_text(setup: str, note: str, runs: Sequence[JudgedRun]) -> str:
    """Return the text of an alert on a setup, with the runs that show it."""
    names = ", ".join(_who(run) for run in runs[:3]) + (", ..." if len(runs) > 3 else "")  # noqa: PLR2004
    return _lines(
        _safe(setup),
        _safe(note),
        f"seen in {count(len(runs), 'run')}{_still_running(runs)}: {names}",
        next((url for run in runs if (url := web_url(run.url))), ""),
        f'Answer: step0-wandb accept {_word(setup)} --why "...", or mute it: '
        f"step0-wandb mute {_word(setup)} --until 7d",
    )


def digest_text(lines: Sequence[str], runs: Sequence[JudgedRun], url: str | None) -> str:
    """Return the text of an alert on several runs or setups, one line each.

    Parameters
    ----------
    runs : sequence of JudgedRun
        Those among what is listed.
    """
    more = len(lines) - _LISTED
    return _lines(
        f"{count(len(lines), 'new alert')}{_still_running(runs)}:",
        *(f"- {line}" for line in lines[:_LISTED]),
        f"and {more} more: step0-wandb runs --verdict broken --verdict suspect" if more > 0 else "",
        project_url(url) or "",
        "Answer: tag runs step0-ok, step0-bad or step0-skip, or mute a setup: step0-wandb mute SETUP --until 7d",
    )


def run_line(run: JudgedRun) -> str:
    """Return one run as a line of a digest."""
    running = ", running" if run.state in ALIVE else ""
    return shorten(f"{run.verdict}{running}: {_who(run)}: {_safe(next(iter(run.reasons), ''))}", _LINE)


def setup_line(setup: str, note: str) -> str:
    """Return one setup as a line of a digest."""
    return shorten(f"setup {_safe(setup)}: {_safe(note)}", _LINE)


def stake_text(state: str, stake: Stake) -> str:
    """Return whether a run still runs, and what it has cost.

    Examples
    --------
    >>> from datetime import timedelta
    >>> stake_text("running", Stake(gpus=64, since=timedelta(hours=6)))
    'running: 64 GPUs, 6 h since step 0 = 384 GPU-h'
    >>> stake_text("crashed", Stake(gpus=8))
    'crashed: 8 GPUs'
    """
    parts = [count(stake.gpus, "GPU")] if stake.gpus else []
    if stake.since is not None and state in ALIVE:
        hours = _rounded(stake.since.total_seconds() / 3600)
        spent = f" = {hours * stake.gpus:,.0f} GPU-h" if stake.gpus and hours >= 1 else ""
        parts.append(f"{_span(hours)} since {stake.beginning}{spent}")
    if parts and stake.as_of:
        parts[-1] += f" (at {stake.as_of:%H:%M} UTC)"
    return f"{_safe(state)}: {', '.join(parts)}" if parts else _safe(state)


def project_url(url: str | None) -> str | None:
    """Return the page of the project that a run's page belongs to."""
    safe = web_url(url)
    return safe.rsplit("/runs/", 1)[0] if safe else None


def _title(what: str, subject: str, mark: str = "") -> str:
    """Return a title that holds the subject, and its hash where it does not fit."""
    safe = _safe(subject)
    room = TITLE_LENGTH - len(what) - 2
    if not mark and (safe != subject or len(safe) > room):
        mark = short_hash(subject)
    if mark:
        safe = f"{shorten(safe, room - len(mark) - 1)} {mark}"
    return f"{what}: {safe}"


def _still_running(runs: Sequence[JudgedRun]) -> str:
    running = sum(run.state in ALIVE for run in runs)
    return f", {count(running, 'run')} still running" if running else ""


def _who(run: JudgedRun) -> str:
    name = shorten(_safe(run.name or run.run), _NAME)
    return f"{name} by {shorten(_safe(run.user), _NAME)}" if run.user else name


def _safe(text: str) -> str:
    """Return other people's text as one line that opens no tag, mention or link."""
    harmless = clean(text).replace("->", "→").translate(_HARMLESS).replace("](", "] (")
    return shorten(harmless, _LINE).strip()


def _word(text: str) -> str:
    """Return a text as one word of a shell command."""
    return shlex.quote(_safe(text))


def _rounded(hours: float) -> float:
    """Return hours as they are shown, so that the product that is shown is theirs."""
    return round(hours) if hours >= 10 else round(hours, 1)  # noqa: PLR2004 - two digits are enough


def _span(hours: float) -> str:
    return f"{hours:g} h" if hours >= 1 else f"{round(hours * 60)} min"


def _lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)
