"""A webhook as Slack, Mattermost, Discord and many others take it: JSON at a URL that is a secret.

Plain ``text`` is what all of them show; Slack shows the ``blocks`` in its place. Nothing tells a webhook
that it had a message before, so that one whose answer was lost is posted again at the next sync.
"""

from __future__ import annotations

import html
import json
import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from step0_wandb import __version__
from step0_wandb.errors import Step0Error, UsageError
from step0_wandb.publish.alerts.channels.base import OutOfReachError, RefusedError
from step0_wandb.text.formatting import shorten, web_url
from step0_wandb.wandb_api.faults import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from step0_wandb.settings.load import Loaded
    from step0_wandb.settings.options import AlertsSettings
    from step0_wandb.sources.server.diagnose import Finding
    from step0_wandb.store import Message
    from step0_wandb.wandb_api.context import Context
    from step0_wandb.wandb_api.http import HttpTransport

_CONNECT_S, _DEADLINE_S, _BODY_BYTES = 5.0, 15.0, 1 << 20
_HEADER, _SECTION = 150, 2900
"""Slack's limits are 150 and 3,000 characters."""
_EMPHASIS: Final = re.compile(r"(?<!\w)([_~])(?=\S)|(?<=\S)([_~])(?!\w)")


class WebhookChannel:
    """Posts to the one URL that an environment variable holds."""

    name = "webhook"
    label = "the webhook"
    turn_off = 'alerts.webhook_env = ""'
    origins = frozenset({"disk", "server"})
    drops_repeats = False

    def is_on(self, settings: AlertsSettings) -> bool:
        """Return whether the settings name a variable."""
        return settings.webhook_env is not None

    def audience(self, _entity: str) -> str:
        """Return the one audience, whatever the entity."""
        return ""

    def trial_targets(self, _projects: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return one target, which is not a project."""
        return (("", ""),)

    def sender(self, loaded: Loaded, context: Context) -> WebhookSender:
        """Return what posts to the URL."""
        return WebhookSender(loaded.settings.alerts.webhook_env or "", context.places.environ)

    def findings(
        self, loaded: Loaded, context: Context, _projects: Sequence[tuple[str, str]]
    ) -> Iterator[Finding]:
        """Yield whether there is a URL, and whether something answers there."""
        from step0_wandb.sources.server.diagnose import Finding, failure_of

        name = loaded.settings.alerts.webhook_env or ""
        try:
            status = self.sender(loaded, context).knock()
        except UsageError as error:
            yield failure_of("webhook", error)
        except Step0Error as error:
            yield Finding("webhook", "warn", f"its URL is in {name}, but {error.message}")
        else:
            what = f"its URL is in {name}; its server answers (HTTP {status}); `doctor --test-alert` posts"
            yield Finding("webhook", "ok", what)


class WebhookSender:
    """Posts to one URL, each message once, and follows no redirect."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self._name = name
        self._url = webhook_url(name, environ)
        self._environ = environ

    def send(self, message: Message) -> None:
        """Post one message."""
        transport = self._transport(self._url)
        try:
            with _unlogged():
                reply = transport.post(webhook_body(message))
        except RequestFailed as failure:
            raise OutOfReachError(f"the webhook (from {self._name}) {failure}") from None
        finally:
            transport.close()
        if refusal := webhook_refusal(reply.status):
            raise RefusedError(f"the webhook (from {self._name}) {refusal}")

    def knock(self) -> int:
        """Return the status with which the webhook's server answers at its root, where nothing is posted."""
        parts = urlsplit(self._url)
        transport = self._transport(f"{parts.scheme}://{parts.netloc}/")
        try:
            with _unlogged():
                return transport.get().status
        except RequestFailed as failure:
            raise OutOfReachError(f"its server {failure}") from None
        finally:
            transport.close()

    def _transport(self, url: str) -> HttpTransport:
        from step0_wandb.wandb_api.http import HttpLimits, HttpTransport

        headers = {"Content-Type": "application/json", "User-Agent": f"step0-wandb/{__version__}"}
        limits = HttpLimits(connect_s=_CONNECT_S, deadline_s=_DEADLINE_S, body_bytes=_BODY_BYTES)
        return HttpTransport(url, headers, environ=self._environ, limits=limits)


def webhook_url(name: str, environ: Mapping[str, str]) -> str:
    """Return the URL that an environment variable holds.

    Raises
    ------
    UsageError
        The variable is not set, or holds no valid URL; what it holds is not in the message.
    """
    url = environ.get(name, "").strip()
    if not url:
        raise UsageError(f"{name} is not set; the settings look there for the webhook's URL")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:  # such as a bracket that is not closed
        usable = False
    if not usable:
        raise UsageError(f"{name} does not hold a valid http or https URL")
    return url


def webhook_body(message: Message) -> bytes:
    """Return what is posted: plain text for all, and Slack's blocks with a button to the run.

    In the text Slack's three signs are escaped, and what would make a name italic or crossed out is
    replaced; the blocks hold plain text, which Slack does not format.
    """
    text = html.escape(f"*{message.title}*\n{_unformatted(message.text)}", quote=False)
    return json.dumps({"text": text, "blocks": _blocks(message)}).encode()


def _blocks(message: Message) -> list[dict[str, Any]]:
    url = web_url(message.url)
    lines = [line for line in message.text.splitlines() if line != url]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(message.title, _HEADER)},
        {"type": "section", "text": _plain("\n".join(lines), _SECTION)},
    ]
    if url:
        # A digest is about several runs: its button leads to their project.
        label = "Open the run" if "/runs/" in url else "Open the project"
        button = {"type": "button", "text": _plain(label, _HEADER), "url": url}
        blocks.append({"type": "actions", "elements": [button]})
    return blocks


def _plain(text: str, limit: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": shorten(text, limit), "emoji": False}


def _unformatted(text: str) -> str:
    """Return a text without the marks of italic and crossed-out words; inside a word they mean nothing."""
    return _EMPHASIS.sub(lambda match: {"_": "ˍ", "~": "∼"}[match[0]], text)  # noqa: RUF001 - they look alike


def webhook_refusal(status: int) -> str:
    """Return what a webhook's answer means; empty where it accepted the message."""
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes
        return ""
    if 300 <= status < 400:  # noqa: PLR2004
        return f"redirects elsewhere (HTTP {status}), where nothing is sent"
    return f"refuses the message (HTTP {status})"


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep urllib3 from logging the path of the URL, which is the secret of most webhooks."""
    logger = logging.getLogger("urllib3.connectionpool")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was
