"""A result as people read it: a headline and lines, as text in a prompt and as HTML in a notebook."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import Final

from step0_wandb.text.formatting import clean, web_url

WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a summary, with a word for what it is about."""

    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A result in short; all of it may be other people's text.

    Attributes
    ----------
    url : str or None
        Where the headline leads.
    """

    headline: str
    lines: tuple[Line, ...] = ()
    url: str | None = None

    def text(self) -> str:
        """Return plain text, wrapped, without control characters.

        Examples
        --------
        >>> print(Summary("broken  qwen3", (Line("why", "ppo_kl is NaN"),)).text())
        broken  qwen3
          why ppo_kl is NaN
        """
        width = max((len(clean(line.about)) for line in self.lines), default=0)
        return "\n".join([clean(self.headline), *(_wrapped(line, width) for line in self.lines)])

    def html(self) -> str:
        """Return HTML that loads nothing and takes the colors of its page."""
        headline = html.escape(clean(self.headline))
        if url := web_url(self.url):
            headline = f'<a href="{html.escape(url)}">{headline}</a>'
        rows = "".join(
            f"<tr>{_cell(line.about, 'opacity:.65;vertical-align:top')}{_cell(line.text)}</tr>"
            for line in self.lines
        )
        return f"<div><strong>{headline}</strong><table>{rows}</table></div>"


def _cell(text: str, style: str = "") -> str:
    # Notebooks align cells to the right, as numbers want it.
    return f'<td style="text-align:left;{style}">{html.escape(clean(text))}</td>'


def _wrapped(line: Line, width: int) -> str:
    return textwrap.fill(
        clean(line.text),
        WIDTH,
        initial_indent=f"  {clean(line.about):{width}} ",
        subsequent_indent=" " * (width + 3),
        break_on_hyphens=False,
    )
