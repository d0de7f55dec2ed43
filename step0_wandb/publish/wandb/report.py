"""The report "Step-0 health" as plain blocks; `sdk` turns them into those of wandb-workspaces.

Texts of others stand in plain text nodes, which W&B does not parse, or, in the one table there is, in
code spans, in which neither markdown nor HTML nor links are active.

W&B states no limits for a report; a page that loads slowly is read by nobody, and its description is
sent at every save. So lists end after the amounts below with a count of what was left out, and texts
after `TEXT_LENGTH` characters: the largest report takes about 200 KB.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from step0_wandb.plots.layout import STANDINGS
from step0_wandb.publish.causes import further_reasons, shared_causes, together
from step0_wandb.publish.html.chart import gravity, standing
from step0_wandb.publish.html.page import basis, title_of
from step0_wandb.publish.wandb import tables
from step0_wandb.records import ALIVE, FLAGGED
from step0_wandb.text.formatting import MISSING, clean, count, number, shorten, web_url, when
from step0_wandb.verdicts.coverage import blind_spots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from step0_wandb.records import Json, JudgedRun, SetupRange
    from step0_wandb.verdicts.weight_checks import WeightCheck

TITLE = "Step-0 health"
MARK = "step0-wandb/report/1"
"""Stands in the description, so that the report is found again when its id is lost."""
DESCRIPTION = f"Written by step0-wandb, which overwrites it after every change. ({MARK})"
GENERATED = (
    "step0-wandb writes this report and overwrites it after every change, so edits are lost. To keep notes, "
    "copy it."
)
RECENT = timedelta(days=7)
MOST_RUNS = 50
"""In each list of runs."""
MOST_SETUPS = 100
MOST_BLIND = 30
MOST_WEIGHTS = 30
NAME_LENGTH = 120
TEXT_LENGTH = 400
_ALWAYS_COUNTED: Final = ("broken", "suspect", "healthy")

HOW_TO_READ = (
    (
        "At the first optimizer step nothing has been learned yet: every difference between the trainer "
        "and the rollout engine comes from the setup of the run."
    ),
    (
        "ppo_kl and clip_frac must be 0 there. The gap between the log-probabilities of trainer and engine "
        "is never 0, because their kernels differ: it is compared with the healthy runs of the same setup."
    ),
    (
        "broken: stop the run, its numbers are wrong. suspect: look at it. no-range: nothing fails, but "
        "there is no healthy run to compare with yet. unchecked: see what is not checked."
    ),
    "A normal gap does not prove a healthy run, and neither does a ppo_kl of 0: read the reasons.",
    (
        "To answer, add the tag step0-ok, step0-bad or step0-skip to a run, here in W&B; or use "
        "`step0-wandb label` and `step0-wandb accept`. The next sync uses it."
    ),
)


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads somewhere."""

    text: str
    url: str


Line = tuple[str | Link, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Callout:
    """A text in a frame."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A line of text and links."""

    line: Line


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of lines."""

    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Markdown:
    """Markdown in which every text of others is inert."""

    text: str


@dataclass(frozen=True, slots=True)
class Panels:
    """What the sync's own run logs: the chart of all setups, the counts over time, both tables."""


Block = Heading | Callout | Paragraph | Bullets | Markdown | Panels


@dataclass(frozen=True, slots=True)
class Report:
    """What the report says.

    Attributes
    ----------
    head : tuple of Block
        What differs from sync to sync without news: when it was written.
    body : tuple of Block
        The same for the same runs, labels and ranges.
    """

    head: tuple[Block, ...]
    body: tuple[Block, ...]

    def blocks(self) -> list[Json]:
        """Return all blocks as plain JSON."""
        return [as_json(block) for block in (*self.head, *self.body)]


def build_report(
    runs: Sequence[JudgedRun],
    setups: Sequence[SetupRange],
    *,
    as_of: datetime,
    weights: Sequence[WeightCheck] = (),
    causes: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Return the report on some runs.

    Parameters
    ----------
    as_of : datetime
        The end of the "last 7 days".
    weights : sequence of WeightCheck
        The weight-check log; an empty one has no section.
    causes : mapping of str to str
        What to look at first in a flagged run, by its key.
    """
    newest = sorted(sorted(runs, key=lambda run: run.run), key=_age)
    open_runs = [run for run in newest if run.label is None and standing(run) in FLAGGED]
    burning = [run for run in open_runs if standing(run) == "broken" and run.state in ALIVE]
    recent = [run for run in open_runs if run not in burning and _is_recent(run, as_of)]
    older = len(open_runs) - len(burning) - len(recent)
    labeled = [run for run in newest if run.label is not None]
    body = (
        *_runs("Broken and still running", burning, causes, none="No broken run is still running."),
        *_runs("Flagged in the last 7 days", recent, causes, none="No other run was flagged."),
        *([Paragraph((f"{count(older, 'older flagged run')}: see the table of runs.",))] if older else []),
        *(_runs("Labeled by people", labeled, causes) if labeled else ()),
        Heading("Ranges"),
        *_ranges(setups),
        Heading("Charts and tables"),
        *_cut_tables(len(newest), len(setups)),
        Panels(),
        *_weights(weights, newest),
        *_blind(newest),
        Heading("How to read this"),
        _bullets(HOW_TO_READ),
    )
    return Report((Callout(GENERATED), Paragraph((f"{_summary(newest)} As of {when(as_of)}.",))), body)


def report_page(app_url: str, project: str, report: str | None) -> str | None:
    """Return the address of a report's page."""
    title = TITLE.replace(" ", "-")
    return f"{app_url}/{project}/reports/{title}--{report.rstrip('=')}" if report else None


def code(text: str) -> str:
    """Return a text of others as a markdown code span that holds in a table.

    What would end the span or the cell is replaced by what looks like it.

    Examples
    --------
    >>> code("</script>|**x** `y`")
    "`</script>¦**x** 'y'`"
    """
    inert = shorten(clean(text), NAME_LENGTH).replace("`", "'").replace("|", "¦")
    return f"`{inert or MISSING}`"


def as_json(block: Block) -> Json:
    """Return a block as plain JSON, with its kind."""
    kind = type(block).__name__.lower()
    match block:
        case Heading(text) | Callout(text) | Markdown(text):
            return {"kind": kind, "text": text}
        case Paragraph(line):
            return {"kind": kind, "line": _line_json(line)}
        case Bullets(lines):
            return {"kind": kind, "lines": [_line_json(line) for line in lines]}
        case Panels():
            return {"kind": kind}


def _line_json(line: Line) -> Json:
    return [part if isinstance(part, str) else {"text": part.text, "url": part.url} for part in line]


def _age(run: JudgedRun) -> float:
    return -run.created_at.timestamp() if run.created_at else 0.0


def _is_recent(run: JudgedRun, as_of: datetime) -> bool:
    return run.state in ALIVE or (run.created_at is not None and run.created_at > as_of - RECENT)


def _summary(runs: Sequence[JudgedRun]) -> str:
    amounts = Counter(standing(run) for run in runs)
    counted = [f"{amounts[word]:,} {word}" for word in STANDINGS if amounts[word] or word in _ALWAYS_COUNTED]
    return f"{count(len(runs), 'run')}: {', '.join(counted)}."


def _runs(
    heading: str, runs: Sequence[JudgedRun], causes: Mapping[str, str], *, none: str = ""
) -> tuple[Block, ...]:
    if not runs:
        return (Heading(heading), Paragraph((none,)))
    ordered = together(sorted(runs, key=gravity), causes)
    shared = shared_causes(ordered, causes)
    own = {run.run: cause for run in runs if (cause := causes.get(run.run, "")) not in shared}
    common = [
        Paragraph((_text(f"Look first, in {count(n, 'run')}: {cause}"),)) for cause, n in shared.items()
    ]
    shown = Bullets(tuple(_run(run, own.get(run.run, ""), causes) for run in ordered[:MOST_RUNS]))
    return (
        Heading(heading),
        *common,
        shown,
        *_left_out(len(ordered) - MOST_RUNS, "run", "the table of runs"),
    )


def _run(run: JudgedRun, cause: str, causes: Mapping[str, str]) -> Line:
    """Return what there is to say of one run: which, what to look at first, why, whose, since when."""
    reasons = "; ".join(further_reasons(run, causes.get(run.run, "")))
    facts = (run.setup, run.user and f"by {run.user}", f"created {when(run.created_at)}", run.state)
    word = f"{standing(run)} by label" if run.label in ("healthy", "broken") else standing(run)
    look = f" Look first: {cause}." if cause else ""
    return (
        _name(run),
        _text(f": {word}.{look}"),
        _text(f" {reasons}." if reasons else ""),
        _text(f" ({', '.join(shorten(fact, NAME_LENGTH) for fact in facts if fact)})"),
    )


def _name(run: JudgedRun) -> str | Link:
    name, url = shorten(title_of(run), NAME_LENGTH), web_url(run.url)
    return Link(name, url) if url else name


def _ranges(setups: Sequence[SetupRange]) -> Iterable[Block]:
    """Yield the table of ranges, then what must be known of single setups."""
    if not setups:
        yield Paragraph(("No setup has a range yet.",))
        return
    ordered = sorted(setups, key=lambda item: (-item.n, item.setup))
    head = "| setup | runs | center | range | seen | rests on |\n| --- | ---: | ---: | ---: | ---: | --- |\n"
    yield Markdown(head + "\n".join(_range_row(item) for item in ordered[:MOST_SETUPS]))
    yield from _left_out(len(ordered) - MOST_SETUPS, "setup", "the table of setups")
    notes = [item for item in ordered if item.note][:MOST_SETUPS]
    if notes:
        yield Bullets(tuple((_text(f"{item.setup}: {item.note}"),) for item in notes))


def _range_row(item: SetupRange) -> str:
    rests_on = basis(item) or f"its own {count(item.n, 'run')}"
    cells = (
        code(item.setup),
        str(item.n),
        number(item.center),
        _span(item.low, item.high),
        _span(item.seen_low, item.seen_high),
        rests_on + (", accepted" if item.accepted else ""),
    )
    return f"| {' | '.join(cells)} |"


def _span(low: float | None, high: float | None) -> str:
    return MISSING if low is None or high is None else f"{number(low)} to {number(high)}"


def _weights(entries: Sequence[WeightCheck], runs: Sequence[JudgedRun]) -> Iterable[Block]:
    if not entries:
        return
    known = {run.run: run for run in runs}
    yield Heading("Weight checks")
    yield Bullets(tuple(_weight_check(entry, known.get(entry.run or "")) for entry in entries[:MOST_WEIGHTS]))
    yield from _left_out(len(entries) - MOST_WEIGHTS, "line", "`step0-wandb weights`")


def _weight_check(entry: WeightCheck, run: JudgedRun | None) -> Line:
    """Return what there is to say of one model and image, with the flags to add whole."""
    said = [f": {shorten(clean(entry.what), NAME_LENGTH)}, {count(entry.runs, 'run')}"]
    said += [_text(note) for note in entry.notes]
    if entry.status != "passed":
        said.append(f"to compare the weights, add to a short run {' or '.join(entry.add)}")
    by = () if run is None or entry.status == "due" else (" by ", _name(run))
    return (entry.status, *by, "; ".join(said))


def _blind(runs: Sequence[JudgedRun]) -> Iterable[Block]:
    spots = blind_spots(runs)
    if not spots:
        return
    yield Heading("What is not checked")
    yield _bullets(
        f"{spot.what} in {count(spot.runs, f'{spot.profile} run'.strip())}: {spot.why}"
        for spot in spots[:MOST_BLIND]
    )
    yield from _left_out(len(spots) - MOST_BLIND, "reason", "the HTML page")


def _cut_tables(runs: int, setups: int) -> Iterable[Block]:
    """Say which of the tables below do not hold everything."""
    if runs > tables.MOST_RUNS:
        first = "flagged ones, then labeled ones, then the newest"
        yield Paragraph((f"The table of runs holds {tables.MOST_RUNS:,} of {runs:,}: {first}.",))
    if setups > tables.MOST_SETUPS:
        yield Paragraph((f"The table of setups holds {tables.MOST_SETUPS:,} of {setups:,}.",))


def _bullets(texts: Iterable[str]) -> Bullets:
    return Bullets(tuple((_text(text),) for text in texts))


def _left_out(amount: int, noun: str, where: str) -> tuple[Block, ...]:
    return (Paragraph((f"{count(amount, noun)} more: see {where}.",)),) if amount > 0 else ()


def _text(text: str) -> str:
    return shorten(clean(text), TEXT_LENGTH)
