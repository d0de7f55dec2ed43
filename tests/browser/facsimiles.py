"""What other programs show of the demo, drawn from the very data that they are sent: W&B, Slack, a terminal."""

from __future__ import annotations

import base64
import json
import os
import shlex
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from step0_wandb.app.sync import Job, run_sync
from step0_wandb.plots.picture import draw_gaps
from step0_wandb.publish.alerts.channels.webhook import WebhookSender, webhook_body
from step0_wandb.publish.wandb.report import TITLE, build_report
from step0_wandb.settings.load import load_settings
from step0_wandb.store import Store, kept
from tests.support import command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from step0_wandb.demo.folder import Demo
    from step0_wandb.store import Message

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --line: #d0d7de; --soft: #f6f8fa; --link: #0969da }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #161b22; --link: #58a6ff }
  img { filter: invert(.9) hue-rotate(180deg) }
}
body { margin: 0; padding: 20px; background: var(--paper); color: var(--ink); font: 15px/1.5 "DejaVu Sans", sans-serif }
h1 { margin: 0 0 12px; font-size: 26px } h2 { margin: 18px 0 6px; font-size: 18px } p { margin: 6px 0 }
a { color: var(--link); text-decoration: none } ul { margin: 6px 0; padding-left: 22px } li { margin: 4px 0 }
table { border-collapse: collapse } td, th { padding: 4px 12px; border: 1px solid var(--line); text-align: left; font-size: 14px }
code { font: 13px "DejaVu Sans Mono", monospace } img { max-width: 100% }
.callout { padding: 8px 12px; border-left: 4px solid var(--link); background: var(--soft) }
.card { padding: 12px 16px; border-left: 4px solid #d1242f; background: var(--soft); white-space: pre-wrap }
.card b { font-size: 17px } .button { display: inline-block; margin-top: 10px; padding: 4px 12px; border: 1px solid var(--line); border-radius: 4px }
pre { margin: 0; padding: 14px; border: 1px solid var(--line); border-radius: 6px; background: var(--soft); font: 13px/1.45 "DejaVu Sans Mono", monospace }
"""


def document(body: str) -> str:
    """Return a page with some HTML in it."""
    return f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style><body>{body}</body>'


def terminal(demo: Demo, *words: str, first: int = 60) -> str:
    """Return a command and the first lines that it prints on the demo."""
    answer = command.run(*words, cwd=demo.directory, COLUMNS="110")
    lines = (answer.out + answer.err).splitlines()[:first]
    return document(f"<pre>$ step0-wandb {escape(shlex.join(words))}\n{escape(chr(10).join(lines))}</pre>")


def alert(demo: Demo, run: str, *, now: datetime) -> str:
    """Return the message about a run as Slack shows its blocks."""
    sent: list[Message] = []
    settings = load_settings(
        demo.settings, cwd=demo.directory, environ={}, flags={"alerts.webhook_env": "STEP0_WEBHOOK"}
    )
    with (
        patch.object(WebhookSender, "send", lambda _sender, message: sent.append(message)),
        patch.dict(os.environ, STEP0_WEBHOOK="http://127.0.0.1:9/"),
    ):
        run_sync(Job(settings, clock=lambda: now))
    message = next(message for message in sent if message.run_id == run)
    address = f"https://wandb.ai/{message.entity}/{message.project}/runs/{run}"  # which runs from disk lack
    blocks = json.loads(webhook_body(replace(message, url=address)))["blocks"]
    head, section, actions = blocks
    return document(
        f'<div class="card"><b>{escape(head["text"]["text"])}</b>\n{escape(section["text"]["text"])}\n'
        f'<a class="button">{escape(actions["elements"][0]["text"]["text"])}</a></div>'
    )


def report(demo: Demo, *, now: datetime) -> str:
    """Return the report's blocks as W&B lays them out."""
    with Store.open(demo.directory / "step0.db", mode="read") as store:
        runs, ranges = store.verdicts.runs(), store.verdicts.ranges()
        built = build_report(
            runs, ranges, as_of=now, weights=kept.load_weight_checks(store), causes=kept.load_findings(store)
        )
    picture = base64.b64encode(draw_gaps(runs, ranges) or b"").decode()
    return document(f"<h1>{TITLE}</h1>" + "\n".join(_block(block, picture) for block in built.blocks()))


def _block(block: Any, picture: str) -> str:
    match block["kind"]:
        case "heading":
            return f"<h2>{escape(block['text'])}</h2>"
        case "callout":
            return f'<p class="callout">{escape(block["text"])}</p>'
        case "paragraph":
            return f"<p>{_line(block['line'])}</p>"
        case "bullets":
            return f"<ul>{''.join(f'<li>{_line(line)}</li>' for line in block['lines'])}</ul>"
        case "markdown":
            return _table(block["text"])
        case _:
            return f'<img src="data:image/png;base64,{picture}">'


def _line(parts: Sequence[Any]) -> str:
    return "".join(
        escape(part) if isinstance(part, str) else f"<a>{escape(part['text'])}</a>" for part in parts
    )


def _table(text: str) -> str:
    head, _, *rows = (line.strip("| ").split(" | ") for line in text.splitlines())
    cells = ["".join(f"<td>{escape(cell.strip('`'))}</td>" for cell in row) for row in rows]
    return f"<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr><tr>{'</tr><tr>'.join(cells)}</tr></table>"
