"""The outcome as Markdown, for the summary of a CI job: what is broken, why, what to do; then a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from step0_wandb.records import FLAGGED
from step0_wandb.text.formatting import MISSING, clean, count, key_text, number, ratio, shorten, web_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from step0_wandb.explanations.explanation import Explanation
    from step0_wandb.records import JudgedRun
    from step0_wandb.text.summary import Summary

DETAILS_AT_MOST = 10
ROWS_AT_MOST = 50
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@])")


def markdown(text: str) -> str:
    r"""Return other people's text as Markdown that shows it and does nothing else.

    Examples
    --------
    >>> markdown("a|b <img> [x](y)")
    'a\\|b \\<img\\> \\[x\\]\\(y\\)'
    """
    return _SPECIAL.sub(r"\\\1", clean(text))


def job_summary(
    headline: str, runs: Sequence[JudgedRun], explained: Mapping[str, Explanation] | None = None
) -> str:
    """Return the outcome as Markdown.

    Parameters
    ----------
    runs : sequence of JudgedRun
        Those to list, the gravest first; of flagged ones the reasons are given too.
    explained : mapping of str to Explanation, optional
        Why, by run key.
    """
    flagged = [run for run in runs if run.verdict in FLAGGED and run.label != "exclude"]
    blocks = [f"### step0-wandb: {markdown(headline)}"]
    blocks += [_details(run, (explained or {}).get(run.run)) for run in flagged[:DETAILS_AT_MOST]]
    if len(flagged) > DETAILS_AT_MOST:
        blocks.append(f"{count(len(flagged) - DETAILS_AT_MOST, 'more flagged run')} in the table.")
    if runs:
        blocks.append("\n".join(_table(runs)))
    if len(runs) > ROWS_AT_MOST:
        blocks.append(f"{count(len(runs) - ROWS_AT_MOST, 'more run')}: `step0-wandb runs`")
    return "\n\n".join(blocks) + "\n\n"


def launch_summary(summary: Summary) -> str:
    """Return what a launch says of its own step 0 as Markdown."""
    lines = (f"- {markdown(line.about)}: {markdown(line.text)}" for line in summary.lines)
    return f"### step0-wandb: {markdown(summary.headline)}\n\n" + "\n".join(lines) + "\n\n"


def _details(run: JudgedRun, found: Explanation | None) -> str:
    lines = [f"**{run.verdict}**: {_link(run)}", ""]
    if found is not None:
        causes = [(cause.text, cause.advice) for cause in found.causes[:1]]
        for text, advice in causes:
            lines += [f"- likely: {markdown(text)}", f"- do: {markdown(advice)}"]
        if not causes:
            lines += [f"- look first: {markdown(text)}" for text in found.findings[:1]]
    lines += [f"- {markdown(reason)}" for reason in run.reasons]
    if found is None or not found.causes:
        lines.append(f"- do: stop the run if it is broken, then `step0-wandb explain {_id(run)}`")
    return "\n".join(lines)


def _table(runs: Sequence[JudgedRun]) -> Iterator[str]:
    yield "| verdict | run | gap | x center | ppo\\_kl | clip\\_frac | setup |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for run in runs[:ROWS_AT_MOST]:
        figures = (number(run.gap), ratio(run.ratio or None), number(run.ppo_kl), number(run.clip_frac))
        yield f"| {run.verdict} | {_link(run)} | {' | '.join(figures)} | {markdown(run.setup or MISSING)} |"


def _link(run: JudgedRun) -> str:
    name = markdown(shorten(clean(run.name).strip() or key_text(run.run)))
    url = web_url(run.url)
    return f"[{name}]({url.replace('(', '%28').replace(')', '%29')})" if url else name


def _id(run: JudgedRun) -> str:
    return re.sub(r"[^\w.#@-]", "", run.run.rpartition("/")[2])
