"""The HTML page: one file that shows what is wrong now, lately and earlier, and loads nothing."""

from __future__ import annotations

import os
from base64 import b64encode
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2s, sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from step0_wandb.errors import UsageError
from step0_wandb.publish.causes import further_reasons
from step0_wandb.publish.html.chart import standing
from step0_wandb.publish.html.view import OUTCOMES, Checked, LeftOut, build_page
from step0_wandb.text.formatting import clean, count, number, ratio, shorten, web_url, when
from step0_wandb.verdicts.coverage import count_unchecked
from step0_wandb.verdicts.reference_gaps import published_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from jinja2 import Environment

    from step0_wandb.records import JudgedRun, SetupRange
    from step0_wandb.verdicts.weight_checks import WeightCheck

CARDS_OPEN = 12
CARDS_AT_MOST = 60
"""Cards of one section; the rest of its runs stand in the table of runs alone."""
CHARTS_OPEN = 12
ROWS_OPEN = 30
ROWS_TOGETHER = 100
LISTED_OPEN = 10

SEARCH = Path(__file__).with_name("search.js")
"""All of the page's script: it hides what does not match. Without it the page lacks the search box alone."""
BASIS = {
    "own": "",
    "pooled": "few runs: its width comes from other setups too",
    "split": "runs differ by a factor; the lower level counts as healthy",
    "ceiling": "the framework's own limit",
    "exact": "true on-policy",
    "none": "no range yet",
}


@dataclass(frozen=True, slots=True)
class Extras:
    """What else the store knows.

    Attributes
    ----------
    weights : sequence of WeightCheck
        The weight-check log in its order; an empty one has no section.
    fits : sequence of str
        How well the healthy runs follow what ranges assume, one sentence a gap metric.
    findings : mapping of str to str
        What to look at first in a flagged run, by its key; the page begins with these.
    left_out : LeftOut or None
        What there is beyond the runs that the page is given; None: those are all.
    """

    weights: Sequence[WeightCheck] = ()
    fits: Sequence[str] = ()
    findings: Mapping[str, str] = field(default_factory=dict)
    left_out: LeftOut | None = None


NO_EXTRAS: Final = Extras()


def render_page(
    runs: Sequence[JudgedRun],
    setups: Sequence[SetupRange],
    *,
    title: str,
    as_of: datetime | None,
    extras: Extras = NO_EXTRAS,
) -> str:
    """Return the whole page as HTML.

    Parameters
    ----------
    runs : sequence of JudgedRun
        In any order.
    setups : sequence of SetupRange
        The range of each setup; a setup without one gets a chart all the same.
    title : str
        Heading and title of the page.
    as_of : datetime or None
        When the sources were last read; left out where unknown.
    extras : Extras
        What else there is to show.

    Returns
    -------
    str
        The same bytes for the same input, whatever its order.
    """
    left_out = extras.left_out or LeftOut({}, count_unchecked(runs))
    page = build_page(runs, setups, left_out, causes=extras.findings, as_of=as_of)
    known = {run.run: run for run in runs}
    weight_log = [Checked(check, known.get(check.run or "")) for check in extras.weights]
    template = _environment().get_template("page.html.j2")
    return template.render(
        title=title,
        page=page,
        weight_log=weight_log,
        fits=extras.fits,
        findings=extras.findings,
        outcomes=OUTCOMES,
    )


def write_page(path: Path, html: str) -> None:
    """Write the page in one step, so that nobody ever reads half of it.

    A new file is for its owner alone, since configs may say much; an old one keeps the mode it had. Anything but a regular file (``/dev/stdout``) is written to directly.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(html, encoding="utf-8")
        else:
            _replace(path.resolve(), html)
    except (OSError, RuntimeError) as error:  # the latter is what links in a circle raise
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot write the page {path}: {why}") from error


def _replace(path: Path, html: str) -> None:
    draft = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with open(draft, "x", encoding="utf-8", opener=_private) as file:
            file.write(html)
        if path.exists():
            draft.chmod(path.stat().st_mode)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@cache
def _environment() -> Environment:
    """Return the template environment: every string is cleaned, then escaped, in one place."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    script = SEARCH.read_text(encoding="utf-8")
    environment = Environment(
        loader=PackageLoader("step0_wandb", "publish/html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    filters: tuple[Callable[..., object], ...] = (
        *(anchor, basis, further_reasons, href, published_for, standing, title_of),
        *(clean, count, number, ratio, shorten, when),
    )
    environment.filters.update({use.__name__: use for use in filters})
    environment.globals.update(
        search=Markup(script),  # noqa: S704 - our own file
        search_hash=b64encode(sha256(script.encode()).digest()).decode(),
        CARDS_AT_MOST=CARDS_AT_MOST,
        CARDS_OPEN=CARDS_OPEN,
        CHARTS_OPEN=CHARTS_OPEN,
        LISTED_OPEN=LISTED_OPEN,
        ROWS_OPEN=ROWS_OPEN,
        ROWS_TOGETHER=ROWS_TOGETHER,
    )
    return environment


def _finalize(value: object) -> object:
    # Markup, what a macro returns, is a subclass of str and clean already.
    return clean(value) if type(value) is str else value


def anchor(key: str) -> str:
    """Return the fragment of a run or a setup: the same on every page it stands on."""
    return "x" + blake2s(key.encode(errors="replace"), digest_size=6).hexdigest()


def href(run: JudgedRun) -> str:
    """Return where a run's name leads: to W&B, or to its row where it has no web address."""
    return web_url(run.url) or f"#{anchor(run.run)}"


def title_of(run: JudgedRun) -> str:
    """Return a run's display name, or its key where it has none."""
    return clean(run.name).strip() or clean(run.run)


def basis(setup_range: SetupRange) -> str:
    """Return in words what a range rests on."""
    return BASIS.get(setup_range.basis, setup_range.basis)
