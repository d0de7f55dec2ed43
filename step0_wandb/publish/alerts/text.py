"""What an alert says: every title and every text, for all channels.

A title never changes, and a text fits a phone.

W&B drops an alert whose title it had within the wait duration, and does nothing else against repeats.
So a title is made of what stays: the run's name and id, a hash of the setup, never a count or a
measured number.

Names, reasons and config values are other people's text. Whatever shows the alert (a terminal, an
e-mail, Slack) gets them without control characters and without the signs that open a tag, a mention or
a link.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from step0_wandb.publish.causes import further_reasons
from step0_wandb.records import ALIVE
from step0_wandb.text.formatting import clean, count, shorten, web_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime, timedelta

    from step0_wandb.profiles.causes import Cause
    from step0_wandb.records import JudgedRun

TITLE_LENGTH: Final = 63
"""W&B asks for titles under 64 characters."""
_REASONS, _FINDINGS = 2, 2
_LINE, _NAME, _FINDING = 240, 60, 200
_LISTED, _SHOWN = 10, 3
_HARMLESS = str.maketrans({"<": "‹", ">": "›", "|": "¦", "`": "'", "*": "∗", "@": "＠"})  # noqa: RUF001 - looks alike, does nothing

_RUN_TITLES = {"broken": "Broken at step 0", "suspect": "Suspect at step 0", "clear": "All clear at step 0"}
_SETUP_TITLES = {
    "moved": "Setup moved",
    "doubted": "Setup above its ceiling",
    "question": "Two levels in a setup",
}
_DIGEST_TITLE = "Several alerts at step 0, first"
_DIGEST_TITLES = {"clear": "All clear for several runs, first"}
_DIGEST_OF_CLEARS = "no longer broken or suspect"
_SHORTEST_NAME = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run costs until somebody acts.

    Attributes
    ----------
    gpus : int or None
        GPUs that it runs on.
    since : timedelta or None
        How long it has run; None where that is not known, or where it has ended.
    beginning : str
        Since what.
    as_of : datetime or None
        The last sign of life.
    """

    gpus: int | None = None
    since: timedelta | None = None
    beginning: str = "step 0"
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class DigestLine:
    """One run or setup in a digest.

    Attributes
    ----------
    cause : str
        The likeliest known cause; empty where none fits.
    is_running : bool
        Whether it is a run that still runs.
    """

    text: str
    url: str = ""
    cause: str = ""
    is_running: bool = False


def run_title(run_id: str, level: str, name: str = "") -> str:
    """Return the title of an alert on one run: its display name, as far as there is room, and its id.

    Examples
    --------
    >>> run_title("aqg8gbcd", "broken"), run_title("aqg8gbcd", "clear", "qwen3-math")
    ('Broken at step 0: aqg8gbcd', 'All clear at step 0: qwen3-math aqg8gbcd')
    """
    title, what = _title(_RUN_TITLES[level], run_id), _RUN_TITLES[level]
    room = TITLE_LENGTH - len(title) - 1
    if name in ("", run_id) or room < _SHORTEST_NAME:
        return title
    return f"{what}: {shorten(_safe(name), room)}{title.removeprefix(f'{what}:')}"


def setup_title(setup: str, level: str, accepted_at: datetime | None = None) -> str:
    """Return the title of an alert on a setup; after a person has accepted it, another one.

    Examples
    --------
    >>> setup_title("miles · Qwen3-0.6B", "moved")
    'Setup moved: miles · Qwen3-0.6B 8c3bf119'
    """
    answered = accepted_at.isoformat() if accepted_at else ""
    return _title(_SETUP_TITLES[level], setup, short_hash(setup + answered))


def digest_title(first: str, level: str = "") -> str:
    """Return the title of an alert on several runs or setups, by the id of the first run."""
    return _title(_DIGEST_TITLES.get(level, _DIGEST_TITLE), first)


def short_hash(text: str) -> str:
    """Return eight hex digits that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def run_text(run: JudgedRun, cost: Cost, causes: Sequence[Cause], findings: Sequence[str]) -> str:
    """Return the text of an alert on one run: why, what to do, what it costs, where to look, how to answer.

    Parameters
    ----------
    causes : sequence of Cause
        Known causes, the likeliest first: the first stands before everything else.
    findings : sequence of str
        What else differs from healthy runs; what is a cause already is not repeated.
    """
    texts = [cause.text for cause in causes]
    rest = [finding for finding in findings if finding not in texts]
    reasons = further_reasons(run, next(iter(texts), ""))
    return _lines(
        *(f"Likely: {_finding(text)}" for text in texts[:1]),
        *(_safe(reason) for reason in reasons[:_REASONS]),
        f"{_who(run)}, {_safe(run.setup or 'no setup')}",
        cost_text(run.state, cost),
        *(f"- {_finding(finding)}" for finding in rest[: _FINDINGS - len(causes[:1])]),
        *(f"Do: {_finding(cause.advice)}" for cause in causes[:1]),
        _link(run),
        "Answer: tag the run step0-ok, step0-bad or step0-skip, "
        f'or run: step0-wandb label {_word(_id(run))} healthy --why "..."',
    )


def clear_text(run: JudgedRun) -> str:
    """Return the text of an all clear: what holds now in place of the alert."""
    now = "it is healthy now" if run.verdict == "healthy" else "it no longer counts as broken"
    now = f"a person labeled it {run.label}" if run.label else now
    return _lines(
        f"{_who(run)}, {_safe(run.setup or 'no setup')}: {now}",
        *(_safe(reason) for reason in run.reasons[:1]),
        _link(run),
    )


def setup_text(setup: str, note: str, runs: Sequence[JudgedRun], cause: str = "") -> str:
    """Return the text of an alert on a setup, with the runs that show it and the cause they share."""
    more = len(runs) - _SHOWN
    return _lines(
        f"Likely: {_finding(cause)}" if cause else "",
        _safe(setup),
        _safe(note),
        f"seen in {count(len(runs), 'run')}{_still_running(sum(run.state in ALIVE for run in runs))}:",
        *(f"- {_who(run)} {_link(run)}" for run in runs[:_SHOWN]),
        f"and {more} more" if more > 0 else "",
        f'Answer: run step0-wandb accept {_word(setup)} --why "...", or mute it: '
        f"step0-wandb mute {_word(setup)} --for 7d",
    )


def digest_text(lines: Sequence[DigestLine], url: str | None, level: str = "") -> str:
    """Return the text of an alert on several runs or setups, one line each; a common cause stands once."""
    shared = common([line.cause for line in lines[:_LISTED] if line.url])
    more = len(lines) - _LISTED
    running = _still_running(sum(line.is_running for line in lines))
    head = f"{count(len(lines), 'new alert')}{running}" if level != "clear" else _DIGEST_OF_CLEARS
    answer = (
        "Answer: tag runs step0-ok, step0-bad or step0-skip, or mute a setup: step0-wandb mute SETUP --for 7d"
    )
    return _lines(
        f"{head}:",
        f"Likely, all of them: {_finding(shared)}" if shared else "",
        *(part for line in lines[:_LISTED] for part in _digest_lines(line, shared)),
        f"and {more} more: step0-wandb runs" if more > 0 else "",
        project_url(url) or "",
        answer if level != "clear" else "",
    )


def common(causes: Sequence[str]) -> str:
    """Return the cause that several runs share; empty where they do not, or where there is one run.

    Examples
    --------
    >>> common(["dropout is on", "dropout is on"]), common(["dropout is on", ""])
    ('dropout is on', '')
    """
    return causes[0] if len(causes) > 1 and len(set(causes)) == 1 else ""


def run_line(run: JudgedRun, cause: str = "") -> DigestLine:
    """Return one run as a line of a digest."""
    is_running = run.state in ALIVE
    running = ", running" if is_running else ""
    reason = next(iter(further_reasons(run, cause)), "")
    text = _cut(": ".join(filter(None, (f"{run.verdict}{running}", _who(run), _safe(reason)))))
    return DigestLine(text, _link(run), cause, is_running)


def clear_line(run: JudgedRun) -> DigestLine:
    """Return one run as a line of a digest of all clears."""
    now = f"labeled {run.label}" if run.label else run.verdict
    return DigestLine(shorten(f"{now}: {_who(run)}", _LINE), _link(run))


def setup_line(setup: str, note: str) -> DigestLine:
    """Return one setup as a line of a digest."""
    return DigestLine(shorten(f"setup {_safe(setup)}: {_safe(note)}", _LINE))


def _digest_lines(line: DigestLine, shared: str) -> Iterator[str]:
    yield f"- {line.text}"
    if line.cause and line.cause != shared:
        yield f"  likely: {_finding(line.cause)}"
    if line.url:
        yield f"  {line.url}"


def cost_text(state: str, cost: Cost) -> str:
    """Return whether a run still runs, and what it has cost.

    Examples
    --------
    >>> from datetime import timedelta
    >>> cost_text("running", Cost(gpus=64, since=timedelta(hours=6)))
    'running: 64 GPUs, 6 h since step 0 = 384 GPU-h'
    >>> cost_text("crashed", Cost(gpus=8))
    'crashed: 8 GPUs'
    """
    parts = [count(cost.gpus, "GPU")] if cost.gpus else []
    if cost.since is not None and state in ALIVE:
        hours = _rounded(cost.since.total_seconds() / 3600)
        spent = f" = {hours * cost.gpus:,.0f} GPU-h" if cost.gpus and hours >= 1 else ""
        parts.append(f"{_span(hours)} since {cost.beginning}{spent}")
    if parts and cost.as_of:
        parts[-1] += f" (at {cost.as_of:%H:%M} UTC)"
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


def _still_running(running: int) -> str:
    return f", {count(running, 'run')} still running" if running else ""


def _link(run: JudgedRun) -> str:
    return web_url(run.url) or _safe(run.run)


def _id(run: JudgedRun) -> str:
    return run.run.rsplit("/", 1)[-1]


def _finding(text: str) -> str:
    return shorten(_safe(text), _FINDING)


def _who(run: JudgedRun) -> str:
    name = shorten(_safe(run.name or run.run), _NAME)
    return f"{name} by {shorten(_safe(run.user), _NAME)}" if run.user else name


def _safe(text: str) -> str:
    """Return other people's text as one line that opens no tag, mention or link."""
    harmless = clean(text).replace("->", "→").translate(_HARMLESS).replace("](", "] (")
    return shorten(harmless, _LINE).strip()


def _cut(text: str) -> str:
    """Return as much of a sentence as there is room for."""
    return text if len(text) <= _LINE else f"{text[:_LINE].rsplit(' ', 1)[0]} …"


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
